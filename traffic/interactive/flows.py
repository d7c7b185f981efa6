"""A trace split by flow: each flow whole, in order and at its original times in one share.

A flow is all packets of one 5-tuple in both directions. Fragments go with the fragment that has the ports. Protocols
without ports are one flow per pair of addresses, frames without IP one per pair of MACs and EtherType.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from traffic.capture_file import Packet
from traffic.dissect import Dissected, dissect

WIRE_OVERHEAD_BYTES = 24
"""FCS, preamble and the gap between frames: what a packet costs on the wire whatever its size."""


def split_by_flow(packets: list[Packet], shares: int) -> list[list[Packet]]:
    """`shares` lists of packets, of nearly the same load; the same input always gives the same lists.

    Times become nanoseconds since the earliest packet of the whole trace, in every share: a share whose first packet
    is at 1.3 s starts 1.3 s after the others (see lead_ns). Each share is in order of time. With fewer flows than
    shares some shares are empty.
    """
    start_ns = min(packet.time_ns for packet in packets)
    flows: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(flow_keys([packet.data for packet in packets])):
        flows[key].append(index)
    chosen = _balanced([_load(packets, flow) for flow in flows.values()], shares)
    lists: list[list[Packet]] = [[] for _ in range(shares)]
    share_of = {index: share for share, flow in zip(chosen, flows.values(), strict=True) for index in flow}
    for index, packet in enumerate(packets):
        lists[share_of[index]].append(Packet(packet.time_ns - start_ns, packet.data))
    for share in lists:
        share.sort(key=lambda packet: packet.time_ns)
    return lists


def lead_ns(share: list[Packet]) -> int:
    """How long after the common start this share's first packet is due."""
    return share[0].time_ns if share else 0


def flow_keys(frames: list[bytes]) -> list[Hashable]:
    """The flow of each frame."""
    headers = [dissect(frame) for frame in frames]
    first_of: dict[Hashable, Hashable] = {}
    for frame, header in zip(frames, headers, strict=True):
        if header.fragment is not None and header.first:
            # A fragment may come before the one that has the ports: the earliest one serves until then.
            first_of.setdefault(datagram_key(frame, header), _flow_key(frame, header))
    keys: list[Hashable] = []
    for frame, header in zip(frames, headers, strict=True):
        key = _flow_key(frame, header)
        if header.fragment is not None:
            datagram = datagram_key(frame, header)
            if header.first:
                first_of[datagram] = key
            key = first_of.get(datagram, key)
        keys.append(key)
    return keys


def datagram_key(frame: bytes, header: Dissected) -> Hashable:
    """What the fragments of one datagram have in common: RFC 791 section 3.2, RFC 8200 section 4.5."""
    source, target = header.addresses
    return frame[source], frame[target], header.protocol, header.fragment


def _flow_key(frame: bytes, header: Dissected) -> Hashable:
    if not header.version:
        return frozenset((frame[0:6], frame[6:12])), header.ethertype
    source, target = header.addresses
    ports = (frame[header.l4 : header.l4 + 2], frame[header.l4 + 2 : header.l4 + 4]) if header.has_ports else (b"", b"")
    ends = frozenset(((frame[source], ports[0]), (frame[target], ports[1])))
    return ends, header.protocol


def _load(packets: list[Packet], flow: list[int]) -> int:
    return sum(len(packets[index].data) + WIRE_OVERHEAD_BYTES for index in flow)


def _balanced(loads: list[int], shares: int) -> list[int]:
    """The share of each load: the largest first, each to the share that has least (the first of equals)."""
    totals = [0] * shares
    chosen = [0] * len(loads)
    for item in sorted(range(len(loads)), key=lambda item: (-loads[item], item)):
        chosen[item] = totals.index(min(totals))
        totals[chosen[item]] += loads[item]
    return chosen
