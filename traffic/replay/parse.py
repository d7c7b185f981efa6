"""The headers of every packet of a capture at once: columns, one row a packet.

IPv6 extension headers and fragments are rare, and take the slow way of traffic.dissect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traffic import dissect
from traffic.capture_file import link_type_name
from traffic.capture_format import LINKTYPE_ETHERNET
from traffic.capture_index import CaptureIndex, index_capture
from traffic.dissect import HEADER_BYTES, TCP, UDP, VLAN_TYPES
from traffic.errors import BadInput
from traffic.replay.numbering import Numbering

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
ETHERNET_BYTES = 14
CHUNK = 1 << 15
GTPU_PORT = 2152
NO_CHECKSUM = 0
SYN, ACK = 0x02, 0x10
EXTENSIONS = (0, 43, 44, 60)
TUNNELS = {4: "IP in IP", 41: "IPv6 in IP", 47: "GRE"}


@dataclass(frozen=True)
class Columns:
    """The packets that can be replayed, in the file's order. Places count from the start of a frame."""

    data: NDArray[np.uint8]
    """The file; `start` points into it."""
    number: Integers
    """In the file, from 1."""
    time_ns: Integers
    start: Integers
    captured: Integers
    """Bytes of the frame that the file has."""
    length: Integers
    """Bytes of the frame on the wire, without FCS."""
    l3: Integers
    l4: Integers
    end: Integers
    """Where the IP packet ends; what follows pads the frame."""
    head_end: Integers
    """Where the last header ends: TCP's with its options, UDP's, ICMP's; l4 where there is none."""
    version: Integers
    protocol: Integers
    flags: Integers
    """TCP's; 0 elsewhere."""
    fragment: Integers
    """The identification of a fragmented datagram, -1 for a whole packet."""
    has_l4: Flags
    """Whether a whole TCP, UDP, ICMP or ICMPv6 header is here."""
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
    """A capture taken apart. `pairs` and `channels` are looked up by the numbers in the columns."""

    path: Path
    columns: Columns
    total: int
    """Packets in the file: the rows and those that `left_out` counts."""
    pairs: list[tuple[bytes, bytes]]
    channels: list[tuple[int, int, int, int]]
    """(pair, protocol, source port, target port); ports are -1 where there are none."""
    left_out: Counter[str]
    notes: list[str]


def parse(path: Path, sizes_only: bool = False) -> Parsed:
    """`sizes_only`: payloads are not needed, so a packet that a snap length cut behind its headers will do.

    Raises BadInput for a file that is no capture, is empty, not Ethernet or, unless `sizes_only`, cut by a snap length.
    """
    index = index_capture(path)
    check_index(path, index, sizes_only)
    data = np.frombuffer(index.data, np.uint8)
    parts = []
    left_out: Counter[str] = Counter()
    for at in range(0, len(index.time_ns), CHUNK):
        parts.append(_parse_chunk(data, index, at, min(at + CHUNK, len(index.time_ns)), left_out))
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    pairs, whole["pair"] = _pairs(whole)
    channels, whole["channel"] = _channels(whole)
    for name in ("source", "target", "source6", "target6", "sport", "dport"):
        del whole[name]
    columns = Columns(data=data, **whole)
    if not len(columns):
        raise BadInput(path, "has no packet that can be replayed", value=told(left_out), allowed="IPv4 and IPv6")
    return Parsed(path, columns, len(index.time_ns), pairs, channels, left_out, _notes(path, columns, channels))


def told(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} {why}" for why, count in left_out.items())


def check_index(path: Path, index: CaptureIndex, sizes_only: bool) -> None:
    if not len(index.time_ns):
        raise BadInput(path, "is empty: there is no packet in it")
    odd = index.link_type != LINKTYPE_ETHERNET
    if odd.any():
        row = int(odd.argmax())
        problem = f"packet {row + 1} has a link type that is not Ethernet"
        value = link_type_name(int(index.link_type[row]))
        raise BadInput(path, problem, value=value, allowed=link_type_name(LINKTYPE_ETHERNET))
    cut = index.captured_bytes < index.wire_bytes
    if cut.any() and not sizes_only:
        row = int(cut.argmax())
        problem = (
            f"packet {row + 1} was cut when it was recorded, and cannot be replayed truly: record with a larger snap "
            "length, or replay sizes only (payload: sizes)"
        )
        raise BadInput(path, problem, value=f"{index.captured_bytes[row]} of {index.wire_bytes[row]} bytes")


# --- headers ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Big-endian numbers at any place of the file; beyond its end the last are read: lengths are checked after."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._views: dict[int, NDArray[Any]] = {}

    def of(self, size: int, at: Integers) -> Integers:
        return self.raw(f">u{size}", size, at).astype(np.int64)

    def raw(self, kind: str, size: int, at: Integers) -> NDArray[Any]:
        view = self._views.get(size)
        if view is None:
            room = max(0, len(self._data) - size + 1)
            view = self._views[size] = np.ndarray((room,), kind, self._data, strides=(1,))
        return np.asarray(view[np.minimum(at, len(view) - 1)])


def _parse_chunk(
    data: NDArray[np.uint8], index: CaptureIndex, first: int, stop: int, left_out: Counter[str]
) -> dict[str, NDArray[Any]]:
    rows = slice(first, stop)
    read, start, captured = _Reader(data), index.start[rows], index.captured_bytes[rows]
    number = np.arange(first + 1, stop + 1)
    whole_head = captured >= ETHERNET_BYTES
    left_out.update(_counted("shorter than an Ethernet header", ~whole_head))
    kind, l3 = _network(read, start)
    good = {4: _ipv4(read, start, l3, captured, index.wire_bytes[rows], whole_head & (kind == dissect.ETH_IPV4))}
    good[6] = _ipv6(data, read, start, l3, captured, index.wire_bytes[rows], whole_head & (kind == dissect.ETH_IPV6))
    left_out.update(_reasons(kind, whole_head, good))
    parts = []
    for version, (kept, found) in good.items():
        at = np.flatnonzero(kept)
        found |= {"number": number[at], "time_ns": index.time_ns[rows][at], "start": start[at], "l3": l3[at]}
        found |= {"captured": captured[at], "length": index.wire_bytes[rows][at]}
        found["version"] = np.full(len(at), version)
        parts.append(_transport(read, found))
    order = np.argsort(np.concatenate([part["number"] for part in parts]), kind="stable")
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _network(read: _Reader, start: Integers) -> tuple[Integers, Integers]:
    """(EtherType, where the network header starts) behind any VLAN tags."""
    at = np.full(len(start), 12)
    kind = read.of(2, start + at)
    while (tagged := np.isin(kind, VLAN_TYPES)).any():
        # A frame of nothing but tags ends where the file does: the reader returns the same bytes for ever.
        if at.max() > 12 + 4 * 16:
            break
        at[tagged] += 4
        kind[tagged] = read.of(2, start[tagged] + at[tagged])
    return kind, at + 2


def _ipv4(
    read: _Reader, start: Integers, l3: Integers, captured: Integers, length: Integers, asked: Flags
) -> tuple[Flags, dict[str, NDArray[Any]]]:
    at = start + l3
    first, total = read.of(1, at), read.of(2, at + 2)
    head = (first & 15) * 4
    good = asked & (captured >= l3 + 20) & (first >> 4 == 4) & (head >= 20) & (total >= head)
    good &= (l3 + total <= length) & (l3 + head <= captured)
    at, l3, head, total = at[good], l3[good], head[good], total[good]
    place = read.of(2, at + 6)
    fragmented = place & 0x3FFF != 0
    none = np.zeros(len(at), "S16")
    return good, {
        "l4": l3 + head,
        "end": l3 + total,
        "protocol": read.of(1, at + 9),
        "fragment": np.where(fragmented, read.of(2, at + 4), -1),
        "first": place & 0x1FFF == 0,
        "source_routed": np.zeros(len(at), np.bool_),
        "source": read.of(4, at + 12),
        "target": read.of(4, at + 16),
        "source6": none,
        "target6": none,
    }


def _ipv6(
    data: NDArray[np.uint8],
    read: _Reader,
    start: Integers,
    l3: Integers,
    captured: Integers,
    length: Integers,
    asked: Flags,
) -> tuple[Flags, dict[str, NDArray[Any]]]:
    at = start + l3
    end = l3 + 40 + read.of(2, at + 4)
    good = asked & (captured >= l3 + 40) & (read.of(1, at) >> 4 == 6) & (end <= length)
    at, l3, end = at[good], l3[good], end[good]
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
        "source6": read.raw("S16", 16, at + 8) if len(at) else np.zeros(0, "S16"),
        "target6": read.raw("S16", 16, at + 24) if len(at) else np.zeros(0, "S16"),
    }
    for row in np.flatnonzero(np.isin(found["protocol"], EXTENSIONS)).tolist():
        begin = int(at[row] - l3[row])
        slow = dissect.dissect(bytes(data[begin : begin + int(end[row])]).ljust(int(end[row]), b"\0"))
        found["l4"][row], found["protocol"][row], found["first"][row] = slow.l4, slow.protocol, slow.first
        found["source_routed"][row] = slow.source_routed
        found["fragment"][row] = -1 if slow.fragment is None else slow.fragment
    return good, found


def _transport(read: _Reader, found: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    protocol, l4 = found["protocol"], found["l4"]
    at = found["start"] + l4
    room = np.minimum(found["end"], found["captured"]) - l4
    has_l4, head = np.zeros(len(l4), np.bool_), np.zeros(len(l4), np.int64)
    for number, size in HEADER_BYTES.items():
        mine = found["first"] & (protocol == number) & (room >= size)
        has_l4 |= mine
        head[mine] = size
    tcp, ports = has_l4 & (protocol == TCP), has_l4 & ((protocol == TCP) | (protocol == UDP))
    head = np.where(tcp, np.clip(read.of(1, at + 12) >> 4, 5, 15) * 4, head)
    found["head_end"] = np.minimum(l4 + head, found["end"])
    found["flags"] = np.where(tcp, read.of(1, at + 13), 0)
    found["sport"] = np.where(ports, read.of(2, at), -1)
    found["dport"] = np.where(ports, read.of(2, at + 2), -1)
    found["has_l4"] = has_l4
    del found["first"]
    return found


# --- what cannot be replayed -----------------------------------------------------------------------------------------


def _counted(why: str, rows: Flags) -> dict[str, int]:
    count = int(np.count_nonzero(rows))
    return {why: count} if count else {}


def _reasons(kind: Integers, whole_head: Flags, good: dict[int, tuple[Flags, dict[str, Any]]]) -> dict[str, int]:
    ip = np.isin(kind, (dissect.ETH_IPV4, dissect.ETH_IPV6))
    reasons = _counted("ARP", whole_head & (kind == dissect.ETH_ARP))
    reasons |= _counted("with a broken IPv4 header", whole_head & (kind == dissect.ETH_IPV4) & ~good[4][0])
    reasons |= _counted("with a broken IPv6 header", whole_head & (kind == dissect.ETH_IPV6) & ~good[6][0])
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
    counts = np.bincount(columns.channel, minlength=len(channels))
    tunnels: Counter[str] = Counter()
    for count, (_, protocol, sport, dport) in zip(counts.tolist(), channels, strict=True):
        name = "GTP-U" if protocol == UDP and GTPU_PORT in (sport, dport) else TUNNELS.get(protocol)
        if name:
            tunnels[name] += count
    notes += [f"{path}: {count} packets are inside {name} already: their outer header is what is rewritten"
              for name, count in tunnels.items()]  # fmt: skip
    return notes


# --- pairs of addresses, and flows -----------------------------------------------------------------------------------


def _pairs(found: dict[str, NDArray[Any]]) -> tuple[list[tuple[bytes, bytes]], Integers]:
    """Distinct (source, target) in the order of appearance, and the number of each packet's."""
    four, six = np.flatnonzero(found["version"] == 4), np.flatnonzero(found["version"] == 6)
    pairs4, hosts6, pairs6, both = Numbering(), Numbering(), Numbering(), Numbering()
    if not len(six):
        number = pairs4.of(found["source"].astype(np.uint64) << np.uint64(32) | found["target"].astype(np.uint64))
        keys = [divmod(key, 1 << 32) for key in pairs4.values().tolist()]
        return [(high.to_bytes(4, "big"), low.to_bytes(4, "big")) for high, low in keys], number
    # Even numbers are pairs of IPv4 addresses, odd ones of IPv6 addresses, until one numbering orders them all.
    number = np.zeros(len(found["version"]), np.int64)
    key = found["source"][four].astype(np.uint64) << np.uint64(32) | found["target"][four].astype(np.uint64)
    number[four] = 2 * pairs4.of(key)
    ends = hosts6.of(np.stack([found["source6"][six], found["target6"][six]], axis=1).ravel()).reshape(-1, 2)
    number[six] = 2 * pairs6.of(ends[:, 0] << 32 | ends[:, 1]) + 1
    number = both.of(number)
    keys4, keys6 = pairs4.values().tolist(), pairs6.values().tolist()
    names = [bytes(name).ljust(16, b"\0") for name in hosts6.values().tolist()]
    pairs = []
    for value in both.values().tolist():
        key = (keys6 if value % 2 else keys4)[value // 2]
        high, low = key >> 32, key & 0xFFFF_FFFF
        pairs.append((names[high], names[low]) if value % 2 else (high.to_bytes(4, "big"), low.to_bytes(4, "big")))
    return pairs, number


def _channels(found: dict[str, NDArray[Any]]) -> tuple[list[tuple[int, int, int, int]], Integers]:
    """Distinct (pair, protocol, ports), and the number of each packet's; a later fragment has that of its first."""
    ported = found["sport"] >= 0
    ports = np.where(ported, 1 << 32 | found["sport"] << 16 | found["dport"], 0)
    numbering = Numbering()
    number = numbering.of(found["pair"] << 41 | found["protocol"] << 33 | ports)
    channels = []
    for key in numbering.values().tolist():
        pair, protocol, ports = key >> 41, key >> 33 & 0xFF, key & 0x1_FFFF_FFFF
        channels.append((pair, protocol, *((ports >> 16 & 0xFFFF, ports & 0xFFFF) if ports else (-1, -1))))
    _join_fragments(found, number)
    return channels, number


def _join_fragments(found: dict[str, NDArray[Any]], channel: Integers) -> None:
    rows = np.flatnonzero(found["fragment"] >= 0).tolist()
    of_datagram: dict[tuple[int, int, int], int] = {}
    columns = [found[name][rows].tolist() for name in ("pair", "protocol", "fragment")]
    keys: dict[int, tuple[int, int, int]] = dict(zip(rows, zip(*columns, strict=True), strict=True))
    for row in rows:
        if found["has_l4"][row]:
            # A fragment may come before the one that has the ports: the earliest one serves until then.
            of_datagram.setdefault(keys[row], int(channel[row]))
    for row in rows:
        if found["has_l4"][row]:
            of_datagram[keys[row]] = int(channel[row])
        channel[row] = of_datagram.get(keys[row], int(channel[row]))
