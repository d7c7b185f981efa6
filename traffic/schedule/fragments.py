"""IPv4 fragments (RFC 791, section 3.2) of packets longer than the MTU, cut at the tunnel's header or at the user's.

Each frame is a copy of the whole packet's first headers, with its own lengths, fragment offset and checksums, and a
slice of the rest, as write_part() of kernel/send_packets.h makes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.placement import length_fields
from pktswarm.traffic.frames.template import get_bits, put_bits
from pktswarm.traffic.leg import Leg, Oversize
from pktswarm.traffic.protocol.task import FCS_BYTES, ReceiveTask
from pktswarm.traffic.schedule.records import EDIT_PLAIN, EDIT_SUM, EDIT_SUMMED, MAX_EDITS, MAX_PARTS

UNIT_BYTES = 8
"""Unit of fragment offsets."""
IDS = 1 << 16
"""Number of values of the identification field."""
SHORTEST_BYTES = 60
"""Shortest frame without FCS: shorter ones are padded."""
MOST_UNFINISHED = 16384
"""Unfinished packets that a receiver keeps."""
LONGEST_TOGETHER_MS = 30_000
"""Linux's timeout of reassembly (net.ipv4.ipfrag_time)."""
FASTEST_PPS = 1e6
"""Assumed rate of a leg without a rate."""
IPV4, MORE = "ipv4", 0x2000
ETHERNET_BYTES = HEADERS["ethernet"].size_bytes
ID_OFFSET, FRAGMENT_OFFSET, SUM_OFFSET = (HEADERS[IPV4].fields[name].bit // 8 for name in ("id", "df", "checksum"))


@dataclass(frozen=True)
class Edit:
    """16 bits at `at` become `value`. EDIT_SUMMED: the change enters the next EDIT_SUM, an IPv4 checksum."""

    at: int
    value: int
    kind: int


@dataclass(frozen=True)
class Part:
    """One frame: the packet's first `head_bytes` bytes and those from `start` to `stop`, without FCS."""

    head_bytes: int
    start: int
    stop: int
    edits: tuple[Edit, ...]

    @property
    def frame_bytes(self) -> int:
        return max(SHORTEST_BYTES, self.head_bytes + self.stop - self.start)


def head_of(headers: Headers, cut: str) -> tuple[int, int]:
    """(number of the IPv4 header whose packet is cut, its offset): the first for cut "outer", the last for "inner".
    ValueError without an IPv4 header."""
    names = [next(iter(entry)) for entry in headers]
    places = [number for number, name in enumerate(names) if name == IPV4]
    if not places:
        raise ValueError("no IPv4 header")
    number = places[0] if cut == "outer" else places[-1]
    return number, sum(HEADERS[name].size_bytes for name in names[:number])


def with_ids(headers: Headers, oversize: Oversize | None) -> Headers:
    """The headers, with an increasing identification, within the leg's range, in the header that is cut."""
    if oversize is None or oversize.cut is None:
        return headers
    number, _ = head_of(headers, oversize.cut)
    counted = {**headers[number][IPV4], "id": {"increment": [*oversize.ids]}}
    return [*headers[:number], {IPV4: counted}, *headers[number + 1 :]]


def parts_of(leg: Leg, size_bytes: int) -> list[Part]:
    """The fragments of a frame of `size_bytes` with FCS; empty if it is sent whole."""
    whole = size_bytes - FCS_BYTES
    oversize = leg.oversize
    if oversize is None or oversize.cut is None or oversize.mtu_bytes is None:
        return []
    if whole <= oversize.mtu_bytes + ETHERNET_BYTES:
        return []
    return parts(leg.frame["headers"], whole, oversize.cut, oversize.mtu_bytes)


def parts(headers: Headers, whole: int, cut: str, mtu_bytes: int) -> list[Part]:
    """The fragments of a frame of `whole` bytes without FCS, each as large as the MTU allows."""
    _, at = head_of(headers, cut)
    head = at + HEADERS[IPV4].size_bytes
    room = (mtu_bytes + ETHERNET_BYTES - head) // UNIT_BYTES * UNIT_BYTES
    if room <= 0 or -(-(whole - head) // room) > MAX_PARTS:
        problem = f"a packet needs more than {MAX_PARTS} fragments"
        least = -(-(whole - head) // (MAX_PARTS * UNIT_BYTES)) * UNIT_BYTES + head - ETHERNET_BYTES
        raise BadInput("oversize", problem, key="mtu_bytes", value=mtu_bytes, allowed=f"{least} or more")
    ends = [(start, min(start + room, whole)) for start in range(head, whole, room)]
    return [Part(head, *each, _edits(headers, at, *each, head, whole)) for each in ends]


def _edits(headers: Headers, cut_at: int, start: int, stop: int, head: int, whole: int) -> tuple[Edit, ...]:
    """Edits of the lengths up to the header that is cut, of its offset, and of the IPv4 checksums."""
    made: list[Edit] = []
    lengths, place = dict(length_fields(headers)), 0
    for entry in headers:
        name = next(iter(entry))
        if place > cut_at:
            break
        at = place + HEADERS[name].fields["length"].bit // 8 if "length" in HEADERS[name].fields else -1
        if at in lengths:
            made.append(Edit(at, head + stop - start + lengths[at], EDIT_SUMMED if name == IPV4 else EDIT_PLAIN))
        if place == cut_at:
            word = (start - head) // UNIT_BYTES | (MORE if stop < whole else 0)
            made.append(Edit(place + FRAGMENT_OFFSET, word, EDIT_SUMMED))
        if name == IPV4:
            made.append(Edit(place + SUM_OFFSET, 0, EDIT_SUM))
        place += HEADERS[name].size_bytes
    if len(made) > MAX_EDITS:
        raise ValueError(f"{len(made)} places change in each fragment")
    return tuple(made)


def frames_of(packet: bytes, made: list[Part]) -> list[bytes]:
    """The frames of a packet, all without FCS."""
    return [_frame_of(packet, part) for part in made]


def _frame_of(packet: bytes, part: Part) -> bytes:
    data = bytearray(packet[: part.head_bytes] + packet[part.start : part.stop])
    growth = 0
    for edit in part.edits:
        before = get_bits(data, edit.at * 8, 16)
        value = edit.value
        if edit.kind == EDIT_SUM:
            value, growth = 0xFFFF - (growth + 0xFFFF - before) % 0xFFFF, 0
            value %= 0xFFFF  # as the sender writes it
        elif edit.kind == EDIT_SUMMED:
            growth += value - before
        put_bits(data, edit.at * 8, 16, value)
    return bytes(data).ljust(SHORTEST_BYTES, b"\0")


def longest_frame_bytes(leg: Leg, size_bytes: int) -> int:
    """The size of the longest frame of a packet of `size_bytes`; both with FCS."""
    return max((part.frame_bytes for part in parts_of(leg, size_bytes)), default=size_bytes - FCS_BYTES) + FCS_BYTES


def most_frames(leg: Leg) -> int:
    """The number of frames of the leg's largest packet."""
    return max(1, len(parts_of(leg, leg.size_bytes)))


def together_ms(task: ReceiveTask) -> int:
    """Timeout of reassembly in ms; 0: this receiver reassembles nothing.

    It is half the time in which the fastest leg uses all its identifications: a later fragment could belong to another
    packet with the same identification.
    """
    legs = [leg for leg in task.legs if leg.arrives]
    if task.mode != "count" or task.echoes or not legs:
        return 0
    own = [leg.oversize.ids for leg in legs if leg.oversize is not None and leg.oversize.cut is not None]
    shares = [last - first + 1 for first, last in own]
    ids: int = min([IDS // len(legs), *shares])
    fastest = max(max((rate for _, rate in leg.rates), default=leg.rate_pps or FASTEST_PPS) for leg in legs)
    return max(1, min(LONGEST_TOGETHER_MS, round(1000 * ids / fastest / 2)))
