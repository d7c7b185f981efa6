"""The flow of a frame, determined from the frames alone.

A flow is all packets of one 5-tuple in both directions. Fragments belong to the flow of the fragment with the ports.
Protocols without ports have one flow per pair of addresses, frames without IP one per pair of MACs and EtherType.
"""

from __future__ import annotations

from collections.abc import Hashable

from pktswarm.traffic.frames.dissect import Dissected, dissect


def flow_keys(frames: list[bytes]) -> list[Hashable]:
    """The flow of each frame."""
    headers = [dissect(frame) for frame in frames]
    first_of: dict[Hashable, Hashable] = {}
    for frame, header in zip(frames, headers, strict=True):
        if header.fragment is not None and header.first:
            # A fragment can precede the one with the ports: until then the first one is used.
            first_of.setdefault(_datagram_key(frame, header), _flow_key(frame, header))
    keys: list[Hashable] = []
    for frame, header in zip(frames, headers, strict=True):
        key = _flow_key(frame, header)
        if header.fragment is not None:
            datagram = _datagram_key(frame, header)
            if header.first:
                first_of[datagram] = key
            key = first_of.get(datagram, key)
        keys.append(key)
    return keys


def _datagram_key(frame: bytes, header: Dissected) -> Hashable:
    """The key of the fragments of one datagram (RFC 791, section 3.2; RFC 8200, section 4.5)."""
    source, target = header.addresses
    return frame[source], frame[target], header.protocol, header.fragment


def _flow_key(frame: bytes, header: Dissected) -> Hashable:
    if not header.version:
        return frozenset((frame[0:6], frame[6:12])), header.ethertype
    source, target = header.addresses
    ports = (frame[header.l4 : header.l4 + 2], frame[header.l4 + 2 : header.l4 + 4]) if header.has_ports else (b"", b"")
    ends = frozenset(((frame[source], ports[0]), (frame[target], ports[1])))
    return ends, header.protocol
