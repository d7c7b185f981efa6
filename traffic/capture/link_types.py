"""Packets that were not recorded on Ethernet get an Ethernet header in place of their link layer's.

Its addresses are zero: a replay writes those of the nodes. A packet whose link layer names no Ethernet type (a frame of
another kind, or an encrypted one) gets the type 0. Formats: the LINKTYPE registry of draft-ietf-opsawg-pcaplinktype,
IEEE 802.11, RFC 1662 (PPP in HDLC-like framing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import ragged
from pktswarm.traffic.capture.constants import LINKTYPE_ETHERNET, LINKTYPE_RAW
from pktswarm.traffic.capture.index import CaptureIndex
from pktswarm.traffic.frames.dissect import ETH_IPV4, ETH_IPV6

ETHERNET_BYTES = 14
FAMILY_IPV4, FAMILIES_IPV6 = 2, (10, 24, 28, 30)
"""Values of AF_INET and of AF_INET6, which differs between systems."""
PPP_ADDRESS_AND_CONTROL, PPP_IPV4, PPP_IPV6 = 0xFF03, 0x0021, 0x0057
SNAP = 0xAAAA0300
"""The first four bytes of LLC with SNAP and no organisation; two zeros and the Ethernet type follow (RFC 1042)."""
LLC_SNAP_BYTES = 8
CHUNK = 1 << 14
"""Packets whose bytes are copied at once, and stay in a processor's cache."""
SLACK_BYTES = 64
"""Behind the last packet: what reads a header may read beyond a short packet."""
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Packets:
    """Packets of one link type. Bytes behind the end of the file are read as its last ones."""

    data: NDArray[np.uint8]
    start: Integers

    def number(self, size: int, at: int | Integers, order: str = ">") -> Integers:
        """Unsigned numbers of `size` bytes, `at` bytes behind the start of each packet."""
        view = ragged.anywhere(self.data, f"{order}u{size}")
        found: Integers = view[np.minimum(self.start + at, len(view) - 1)].astype(np.int64)
        return found


@dataclass(frozen=True)
class Link:
    """What precedes the network layer: bytes, the Ethernet type of what follows, and bytes behind it."""

    head_bytes: Integers
    kind: Integers
    tail_bytes: Integers | int = 0


def _fixed(packets: Packets, head_bytes: int, kind: Integers) -> Link:
    return Link(np.full(len(packets.start), head_bytes), kind)


def _raw(packets: Packets) -> Link:
    version = packets.number(1, 0) >> 4
    return _fixed(packets, 0, np.where(version == 4, ETH_IPV4, np.where(version == 6, ETH_IPV6, 0)))


def _family(packets: Packets) -> Link:
    """The address family in the byte order of the recording machine; it fits into one byte."""
    family = np.maximum(packets.number(1, 0), packets.number(1, 3))
    is_6 = np.isin(family, FAMILIES_IPV6)
    return _fixed(packets, 4, np.where(family == FAMILY_IPV4, ETH_IPV4, np.where(is_6, ETH_IPV6, 0)))


def _ppp(packets: Packets) -> Link:
    framed = packets.number(2, 0) == PPP_ADDRESS_AND_CONTROL
    protocol = packets.number(2, 2 * framed)
    kind = np.where(protocol == PPP_IPV4, ETH_IPV4, np.where(protocol == PPP_IPV6, ETH_IPV6, 0))
    return Link(2 + 2 * framed.astype(np.int64), kind)


def _wlan(packets: Packets, radio_bytes: Integers | int = 0, fcs_bytes: Integers | int = 0) -> Link:
    """Data frames in plain text; not several in one (A-MSDU)."""
    control, flags = packets.number(1, radio_bytes), packets.number(1, radio_bytes + 1)
    subtype = control >> 4
    has_qos, four_addresses = (subtype & 8) > 0, (flags & 3) == 3
    mac_bytes = 24 + 6 * four_addresses + 2 * has_qos + 4 * (has_qos & ((flags & 0x80) > 0))
    is_several = has_qos & ((packets.number(1, radio_bytes + 24 + 6 * four_addresses) & 0x80) > 0)
    is_plain_data = ((control & 0x0C) == 0x08) & ((subtype & 4) == 0) & ((flags & 0x40) == 0) & ~is_several
    llc = radio_bytes + mac_bytes
    is_snap = (packets.number(4, llc) == SNAP) & (packets.number(2, llc + 4) == 0)
    kind = np.where(is_plain_data & is_snap, packets.number(2, llc + 6), 0)
    return Link(llc + LLC_SNAP_BYTES, kind, fcs_bytes)


def _radiotap(packets: Packets) -> Link:
    """Its flags, which say whether the frame check sequence is there, come first, or behind a time of 8 bytes."""
    present = packets.number(4, 4, "<")
    flags = packets.number(1, 8 + 8 * (present & 1))
    has_fcs = ((present & 2) > 0) & (present >> 31 == 0) & ((flags & 0x10) > 0)
    return _wlan(packets, packets.number(2, 2, "<"), 4 * has_fcs.astype(np.int64))


LINKS: dict[int, tuple[str, Callable[[Packets], Link]]] = {
    0: ("NULL", _family),
    9: ("PPP", _ppp),
    12: ("RAW", _raw),
    14: ("RAW", _raw),
    50: ("PPP", _ppp),
    LINKTYPE_RAW: ("RAW", _raw),
    105: ("802.11", _wlan),
    108: ("LOOP", _family),
    113: ("LINUX_SLL", lambda packets: _fixed(packets, 16, packets.number(2, 14))),
    127: ("802.11 with radiotap", _radiotap),
    228: ("IPv4", lambda packets: _fixed(packets, 0, np.full(len(packets.start), ETH_IPV4))),
    229: ("IPv6", lambda packets: _fixed(packets, 0, np.full(len(packets.start), ETH_IPV6))),
    276: ("LINUX_SLL2", lambda packets: _fixed(packets, 20, packets.number(2, 0))),
}
"""Link type → its name and what reads it."""
NAMES = tuple(dict.fromkeys(name for name, _ in LINKS.values()))


def as_ethernet(index: CaptureIndex) -> tuple[CaptureIndex, list[str]]:
    """Returns the packets on Ethernet, and a note for each other link type among them. Unknown link types stay."""
    changed = [kind for kind in np.unique(index.link_type).tolist() if kind in LINKS]
    if not changed:
        return index, []
    data, count = np.frombuffer(index.data, np.uint8), len(index.start)
    head, tail, added = (np.zeros(count, np.int64) for _ in range(3))
    kinds, notes = np.zeros(count, np.int64), []
    for number in changed:
        name, read = LINKS[number]
        rows = np.flatnonzero(index.link_type == number)
        link = read(Packets(data, index.start[rows]))
        head[rows], kinds[rows], tail[rows], added[rows] = link.head_bytes, link.kind, link.tail_bytes, ETHERNET_BYTES
        notes.append(f"{len(rows)} packets of link type {name} get an Ethernet header")
    # A packet that ends within its link layer is as short on Ethernet.
    kept = np.maximum(index.captured_bytes - head - tail, 0)
    captured, wire = added + kept, added + np.maximum(index.wire_bytes - head - tail, 0)
    start = np.cumsum(captured) - captured
    store = np.zeros(int(captured.sum()) + SLACK_BYTES, np.uint8)
    for first in range(0, count, CHUNK):
        some = slice(first, first + CHUNK)
        ragged.copy(store, (start + added)[some], data, (index.start + head)[some], kept[some])
    with_header = np.flatnonzero(added)
    ragged.anywhere(store, ">u2")[start[with_header] + 12] = kinds[with_header]
    link_type = np.where(added > 0, LINKTYPE_ETHERNET, index.link_type)
    made = replace(
        index, data=store.tobytes(), start=start, captured_bytes=captured, wire_bytes=wire, link_type=link_type
    )
    return made, notes
