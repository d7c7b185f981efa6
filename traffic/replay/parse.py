"""The headers of all packets of a capture as columns, a row for each packet.

IPv6 extension headers and fragments are rare, and use the slow path of traffic.frames.dissect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import ragged
from pktswarm.traffic.capture.constants import LINKTYPE_ETHERNET
from pktswarm.traffic.capture.files import link_type_name
from pktswarm.traffic.capture.index import CaptureIndex, index_capture, joined
from pktswarm.traffic.capture.link_types import NAMES, as_ethernet
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames import dissect
from pktswarm.traffic.frames.dissect import HEADER_BYTES, TCP, UDP, VLAN_TYPES
from pktswarm.traffic.replay.filled import filled
from pktswarm.traffic.replay.pairs import Pairs, join_fragments

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
ETHERNET_BYTES = 14
CHUNK = 1 << 13
"""Packets parsed at a time: their headers fit into a processor's cache."""
GTPU_PORT = 2152
SYN, ACK = 0x02, 0x10
EXTENSIONS = (0, 43, 44, 60)
TUNNELS = {4: "IP in IP", 41: "IPv6 in IP", 47: "GRE"}


@dataclass(frozen=True)
class Columns:
    """The packets that can be replayed, in the file's order. Offsets count from the start of a frame."""

    data: NDArray[np.uint8]
    """The file's bytes, to which `start` refers."""
    number: Integers
    """Number in the file, from 1."""
    time_ns: Integers
    start: Integers
    captured: Integers
    """Bytes of the frame in the file; fewer than `length` where a snap length cut it."""
    length: Integers
    """Bytes of the frame on the wire, without FCS."""
    l3: Integers
    l4: Integers
    end: Integers
    """End of the IP packet; padding follows."""
    head_end: Integers
    """End of the TCP (with options), UDP or ICMP header; l4 without one."""
    version: Integers
    protocol: Integers
    flags: Integers
    """TCP flags; 0 for other protocols."""
    fragment: Integers
    """The identification of a fragmented datagram, -1 for a whole packet."""
    has_l4: Flags
    """Whether the frame contains a whole TCP, UDP, ICMP or ICMPv6 header."""
    source_routed: Flags
    pair: Integers
    """Number of (source address, target address), in the order of appearance."""
    channel: Integers
    """Number of (pair, protocol, ports): one direction of a flow."""

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: NDArray[Any] | slice) -> Columns:
        """Some of the rows (an index, flags or a slice), in that order. Pairs and channels keep their numbers."""
        columns = {one.name: getattr(self, one.name)[rows] for one in fields(self) if one.name != "data"}
        return replace(self, **columns)


@dataclass(frozen=True)
class Parsed:
    """A parsed capture. The columns refer to `pairs` and `channels` by number."""

    path: Path
    columns: Columns
    total: int
    """Packets in the file: the rows and the packets that `left_out` counts."""
    pairs: list[tuple[bytes, bytes]]
    channels: list[tuple[int, int, int, int]]
    """(pair, protocol, source port, target port); -1: no port."""
    left_out: Counter[str]
    notes: list[str]


def parse(files: Path | Sequence[Path], sizes_only: bool = False, fill: bool = False) -> Parsed:
    """Parses a capture, or several that follow each other as one. `sizes_only`: payloads are not needed, so packets can
    be cut by a snap length behind their headers. `fill`: zeros stand for what a snap length cut.

    BadInput for a file that is not a capture, is empty, of a link type that cannot be put on Ethernet or, unless
    `sizes_only` or `fill`, cut by a snap length.
    """
    paths = (files,) if isinstance(files, Path) else tuple(files)
    path = paths[0] if len(paths) == 1 else Path(f"{paths[0]} and {len(paths) - 1} more")
    index, notes = _index(paths, sizes_only or fill)
    if fill:
        index, said = filled(path, index)
        notes += said
    data = np.frombuffer(index.data, np.uint8)
    left_out: Counter[str] = Counter()
    pairs = Pairs()
    whole: dict[str, NDArray[Any]] = {}
    kept, total = 0, len(index.time_ns)
    for at in range(0, total, CHUNK):
        found = _parse_chunk(data, index, at, min(at + CHUNK, total), left_out)
        found["pair"], found["channel"] = pairs.number(found)
        for name in ("source", "target", "source6", "target6", "sport", "dport"):
            del found[name]
        whole = whole or {name: np.empty(total, part.dtype) for name, part in found.items()}
        size = len(found["number"])
        for name, part in found.items():
            whole[name][kept : kept + size] = part
        kept += size
    if not kept:
        raise BadInput(
            path, "contains no packet that can be replayed", value=reasons_of(left_out), allowed="IPv4 and IPv6"
        )
    whole = {name: column[:kept] for name, column in whole.items()}
    join_fragments(whole)
    columns, channels = Columns(data=data, **whole), pairs.channels
    notes = [*notes, *_notes(path, columns, channels)]
    return Parsed(path, columns, total, pairs.pairs, channels, left_out, notes)


def _index(paths: Sequence[Path], can_be_cut: bool) -> tuple[CaptureIndex, list[str]]:
    """The packets of all files, one file after another, and notes."""
    indexes, notes = [], list[str]()
    for path in paths:
        index, said = as_ethernet(index_capture(path))
        check_index(path, index, can_be_cut)
        indexes.append(index)
        notes += [f"{path}: {note}" for note in said]
    return (indexes[0] if len(indexes) == 1 else joined(indexes)), notes


def reasons_of(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} {why}" for why, count in left_out.items())


def check_index(path: Path, index: CaptureIndex, can_be_cut: bool) -> None:
    if not len(index.time_ns):
        raise BadInput(path, "contains no packet")
    odd = index.link_type != LINKTYPE_ETHERNET
    if odd.any():
        row = int(odd.argmax())
        problem = f"packet {row + 1} has a link type that is not Ethernet, and cannot be put on it"
        value = link_type_name(int(index.link_type[row]))
        raise BadInput(path, problem, value=value, allowed=f"Ethernet, {', '.join(NAMES)}")
    cut = index.captured_bytes < index.wire_bytes
    if cut.any() and not can_be_cut:
        row = int(cut.argmax())
        problem = (
            f"packet {row + 1} was cut when it was recorded, and cannot be replayed truly: record with a larger snap "
            "length, or replay zeros in place of what is missing (payload: fill) or of all payload (payload: sizes)"
        )
        raise BadInput(path, problem, value=f"{index.captured_bytes[row]} of {index.wire_bytes[row]} bytes")


# --- headers ---------------------------------------------------------------------------------------------------------


class Reader:
    """Big-endian numbers at any offset of the file; beyond its end the last bytes are read: lengths are checked
    later."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._views: dict[str, NDArray[Any]] = {}

    def of(self, size: int, at: Integers) -> Integers:
        return self.raw(f">u{size}", at).astype(np.int64)

    def raw(self, kind: str, at: Integers) -> NDArray[Any]:
        view = self._views.get(kind)
        if view is None:
            view = self._views[kind] = ragged.anywhere(self._data, kind)
        return np.asarray(view[np.minimum(at, len(view) - 1)])


def _parse_chunk(
    data: NDArray[np.uint8], index: CaptureIndex, first: int, stop: int, left_out: Counter[str]
) -> dict[str, NDArray[Any]]:
    rows = slice(first, stop)
    read, start, captured = Reader(data), index.start[rows], index.captured_bytes[rows]
    number = np.arange(first + 1, stop + 1)
    whole_head = captured >= ETHERNET_BYTES
    left_out.update(_counted("shorter than an Ethernet header", ~whole_head))
    kind, l3 = _network(read, start)
    good = {4: _ipv4(read, start, l3, captured, index.wire_bytes[rows], whole_head & (kind == dissect.ETH_IPV4))}
    good[6] = _ipv6(data, read, start, l3, captured, index.wire_bytes[rows], whole_head & (kind == dissect.ETH_IPV6))
    left_out.update(_reasons(kind, whole_head, good[4][0], good[6][0]))
    parts = []
    for version, (kept, found) in good.items():
        at = np.flatnonzero(kept)
        found |= {"number": number[at], "time_ns": index.time_ns[rows][at], "start": start[at], "l3": l3[at]}
        found |= {"captured": captured[at], "length": index.wire_bytes[rows][at]}
        found["version"] = np.full(len(at), version)
        parts.append(_transport(read, found))
    filled = [part for part in parts if len(part["number"])]
    if len(filled) < len(parts):
        return (filled or parts)[0]
    order = np.argsort(np.concatenate([part["number"] for part in parts]), kind="stable")
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _network(read: Reader, start: Integers) -> tuple[Integers, Integers]:
    """(EtherType, offset of the network header) behind any VLAN tags."""
    at = np.full(len(start), 12)
    kind = read.of(2, start + at)
    if (kind == dissect.ETH_IPV4).all():
        return kind, at + 2
    while (tagged := _is_one_of(kind, VLAN_TYPES)).any():
        # A frame of VLAN tags alone ends with the file, where the reader returns the same bytes for ever.
        if at.max() > 12 + 4 * 16:
            break
        at[tagged] += 4
        kind[tagged] = read.of(2, start[tagged] + at[tagged])
    return kind, at + 2


def _is_one_of(values: Integers, wanted: Iterable[int]) -> Flags:
    """np.isin for a few values."""
    found = np.zeros(len(values), np.bool_)
    for one in wanted:
        found |= values == one
    return found


def _ipv4(
    read: Reader, start: Integers, l3: Integers, captured: Integers, length: Integers, asked: Flags
) -> tuple[Flags, dict[str, NDArray[Any]]]:
    at = start + l3
    # The whole header at once, because memory is read in cache lines.
    header = read.raw("V20", at)
    words = header.view(">u2").reshape(-1, 10)
    first, total = words[:, 0].astype(np.int64) >> 8, words[:, 1].astype(np.int64)
    head = (first & 15) * 4
    good = asked & (captured >= l3 + 20) & (first >> 4 == 4) & (head >= 20) & (total >= head)
    good &= (l3 + total <= length) & (l3 + head <= captured)
    if not good.all():
        at, l3, head, total, words, header = at[good], l3[good], head[good], total[good], words[good], header[good]
    place = words[:, 3].astype(np.int64)
    fragmented = place & 0x3FFF != 0
    ends = header.view(">u4").reshape(-1, 5)
    none = np.zeros(len(at), "S16")
    return good, {
        "l4": l3 + head,
        "end": l3 + total,
        "protocol": words[:, 4].astype(np.int64) & 0xFF,
        "fragment": np.where(fragmented, words[:, 2].astype(np.int64), -1),
        "first": place & 0x1FFF == 0,
        "source_routed": np.zeros(len(at), np.bool_),
        "source": ends[:, 3].astype(np.int64),
        "target": ends[:, 4].astype(np.int64),
        "source6": none,
        "target6": none,
    }


def _ipv6(
    data: NDArray[np.uint8],
    read: Reader,
    start: Integers,
    l3: Integers,
    captured: Integers,
    length: Integers,
    asked: Flags,
) -> tuple[Flags, dict[str, NDArray[Any]]]:
    good, rows = asked.copy(), np.flatnonzero(asked)
    at, l3 = start[rows] + l3[rows], l3[rows]
    end = l3 + 40 + read.of(2, at + 4)
    good[rows] = (captured[rows] >= l3 + 40) & (read.of(1, at) >> 4 == 6) & (end <= length[rows])
    at, l3, end = at[good[rows]], l3[good[rows]], end[good[rows]]
    none = np.zeros(len(at), np.int64)
    found: dict[str, NDArray[Any]] = {
        "l4": l3 + 40,
        "end": end,
        "protocol": read.of(1, at + 6),
        "fragment": none - 1,
        "first": np.ones(len(at), np.bool_),
        "source_routed": np.zeros(len(at), np.bool_),
        "source": none,
        "target": none,
        "source6": read.raw("S16", at + 8) if len(at) else np.zeros(0, "S16"),
        "target6": read.raw("S16", at + 24) if len(at) else np.zeros(0, "S16"),
    }
    for row in np.flatnonzero(np.isin(found["protocol"], EXTENSIONS)).tolist():
        begin = int(at[row] - l3[row])
        slow = dissect.dissect(bytes(data[begin : begin + int(end[row])]).ljust(int(end[row]), b"\0"))
        found["l4"][row], found["protocol"][row], found["first"][row] = slow.l4, slow.protocol, slow.first
        found["source_routed"][row] = slow.source_routed
        found["fragment"][row] = -1 if slow.fragment is None else slow.fragment
    return good, found


def _transport(read: Reader, found: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    protocol, l4 = found["protocol"], found["l4"]
    at = found["start"] + l4
    room = np.minimum(found["end"], found["captured"]) - l4
    has_l4, head = np.zeros(len(l4), np.bool_), np.zeros(len(l4), np.int64)
    for number, size in HEADER_BYTES.items():
        mine = found["first"] & (protocol == number) & (room >= size)
        has_l4 |= mine
        head[mine] = size
    tcp, ports = has_l4 & (protocol == TCP), has_l4 & ((protocol == TCP) | (protocol == UDP))
    offset_and_flags, both = read.of(2, at + 12), read.of(4, at)
    head = np.where(tcp, np.maximum(offset_and_flags >> 12, 5) * 4, head)
    found["head_end"] = np.minimum(l4 + head, found["end"])
    found["flags"] = np.where(tcp, offset_and_flags & 0xFF, 0)
    found["sport"] = np.where(ports, both >> 16, -1)
    found["dport"] = np.where(ports, both & 0xFFFF, -1)
    found["has_l4"] = has_l4
    del found["first"]
    return found


# --- packets that cannot be replayed ---------------------------------------------------------------------------------


def _counted(why: str, rows: Flags) -> dict[str, int]:
    count = int(np.count_nonzero(rows))
    return {why: count} if count else {}


def _reasons(kind: Integers, whole_head: Flags, good4: Flags, good6: Flags) -> dict[str, int]:
    if (good4 | good6).all():
        return {}
    ip = _is_one_of(kind, (dissect.ETH_IPV4, dissect.ETH_IPV6))
    reasons = _counted("ARP", whole_head & (kind == dissect.ETH_ARP))
    reasons |= _counted("with a broken IPv4 header", whole_head & (kind == dissect.ETH_IPV4) & ~good4)
    reasons |= _counted("with a broken IPv6 header", whole_head & (kind == dissect.ETH_IPV6) & ~good6)
    other = whole_head & ~ip & (kind != dissect.ETH_ARP)
    for value in np.unique(kind[other]).tolist():
        name = f"not IP (EtherType {value:#06x})" if value >= 0x600 else "not IP (IEEE 802.3)"
        reasons[name] = reasons.get(name, 0) + int(np.count_nonzero(other & (kind == value)))
    return reasons


def _notes(path: Path, columns: Columns, channels: list[tuple[int, int, int, int]]) -> list[str]:
    notes = []
    back = np.flatnonzero(np.diff(columns.time_ns) < 0)
    if len(back):
        first = int(columns.number[back[0] + 1])
        notes.append(
            f"{path}: time goes backwards at {len(back)} packets, first at {first}: they are sent in order of time"
        )
    counts = np.bincount(columns.channel.astype(np.intp), minlength=len(channels))
    tunnels: Counter[str] = Counter()
    for count, (_, protocol, sport, dport) in zip(counts.tolist(), channels, strict=True):
        name = "GTP-U" if protocol == UDP and GTPU_PORT in (sport, dport) else TUNNELS.get(protocol)
        if name:
            tunnels[name] += count
    notes += [f"{path}: {count} packets are in {name}: only their outer header is rewritten"
              for name, count in tunnels.items()]  # fmt: skip
    return notes
