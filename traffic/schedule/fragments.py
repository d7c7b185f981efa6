"""Packets longer than the MTU in fragments of IPv4 (RFC 791, section 3.2): of a tunnel's header, or of the user's own.

A packet is made whole, and each of its frames is then a copy of its first headers, with lengths, fragment offset and
checksums of its own, and a slice of what follows. kernel/send.bpf.c does the same (write_part()).
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
"""In which fragment offsets are counted."""
IDS = 1 << 16
"""A header's identifications."""
SHORTEST_BYTES = 60
"""A frame without FCS: shorter ones are padded."""
MOST_UNFINISHED = 16384
"""Packets of which a receiver remembers what has come."""
LONGEST_TOGETHER_MS = 30_000
"""As long as Linux waits for the rest of a packet (net.ipv4.ipfrag_time)."""
FASTEST_PPS = 1e6
"""Assumed of a leg without a rate."""
IPV4, MORE = "ipv4", 0x2000
ETHERNET_BYTES = HEADERS["ethernet"].size_bytes
ID_OFFSET, FRAGMENT_OFFSET, SUM_OFFSET = (HEADERS[IPV4].fields[name].bit // 8 for name in ("id", "df", "checksum"))


@dataclass(frozen=True)
class Edit:
    """16 bits at `at` become `value`. EDIT_SUMMED: the next EDIT_SUM, an IPv4 checksum, is amended by the change."""

    at: int
    value: int
    kind: int


@dataclass(frozen=True)
class Part:
    """One frame: the packet's first `head_bytes`, and what stands from `start` to `stop`; all without FCS."""

    head_bytes: int
    start: int
    stop: int
    edits: tuple[Edit, ...]

    @property
    def frame_bytes(self) -> int:
        return max(SHORTEST_BYTES, self.head_bytes + self.stop - self.start)


def head_of(headers: Headers, cut: str) -> tuple[int, int]:
    """(number of the IPv4 header whose packet is cut, where it begins): the first one of an "outer" cut, the last one
    of an "inner" one. ValueError where there is none."""
    names = [next(iter(entry)) for entry in headers]
    places = [number for number, name in enumerate(names) if name == IPV4]
    if not places:
        raise ValueError("no IPv4 header")
    number = places[0] if cut == "outer" else places[-1]
    return number, sum(HEADERS[name].size_bytes for name in names[:number])


def with_ids(headers: Headers, oversize: Oversize | None) -> Headers:
    """With an identification of its own for each packet in the header that is cut, of those that the leg may use."""
    if oversize is None or oversize.cut is None:
        return headers
    number, _ = head_of(headers, oversize.cut)
    counted = {**headers[number][IPV4], "id": {"increment": [*oversize.ids]}}
    return [*headers[:number], {IPV4: counted}, *headers[number + 1 :]]


def parts_of(leg: Leg, size_bytes: int) -> list[Part]:
    """The frames of a packet whose frame would have `size_bytes` with FCS; empty where it is sent in one."""
    whole = size_bytes - FCS_BYTES
    oversize = leg.oversize
    if oversize is None or oversize.cut is None or oversize.mtu_bytes is None:
        return []
    if whole <= oversize.mtu_bytes + ETHERNET_BYTES:
        return []
    return parts(leg.frame["headers"], whole, oversize.cut, oversize.mtu_bytes)


def parts(headers: Headers, whole: int, cut: str, mtu_bytes: int) -> list[Part]:
    """Of a frame of `whole` bytes without FCS, each as large as the MTU lets through."""
    _, at = head_of(headers, cut)
    head = at + HEADERS[IPV4].size_bytes
    room = (mtu_bytes + ETHERNET_BYTES - head) // UNIT_BYTES * UNIT_BYTES
    if room <= 0 or -(-(whole - head) // room) > MAX_PARTS:
        problem = f"a packet is sent in at most {MAX_PARTS} fragments"
        least = -(-(whole - head) // (MAX_PARTS * UNIT_BYTES)) * UNIT_BYTES + head - ETHERNET_BYTES
        raise BadInput("oversize", problem, key="mtu_bytes", value=mtu_bytes, allowed=f"{least} or more")
    ends = [(start, min(start + room, whole)) for start in range(head, whole, room)]
    return [Part(head, *each, _edits(headers, at, *each, head, whole)) for each in ends]


def _edits(headers: Headers, cut_at: int, start: int, stop: int, head: int, whole: int) -> tuple[Edit, ...]:
    """Every length up to the header that is cut, its offset, and the checksums of IPv4 headers."""
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
    """Of the frames that a packet of `size_bytes` goes out in; both with FCS."""
    return max((part.frame_bytes for part in parts_of(leg, size_bytes)), default=size_bytes - FCS_BYTES) + FCS_BYTES


def most_frames(leg: Leg) -> int:
    """The frames of its largest packet."""
    return max(1, len(parts_of(leg, leg.size_bytes)))


def together_ms(task: ReceiveTask) -> int:
    """How long after a packet's first fragment its others may come; 0: this receiver puts none together.

    Half the time in which the identifications of the fastest leg come round, of which its sender may have but a share:
    a fragment that comes later could be another packet's.
    """
    legs = [leg for leg in task.legs if leg.arrives]
    if task.mode != "count" or task.echoes or not legs:
        return 0
    own = [leg.oversize.ids for leg in legs if leg.oversize is not None and leg.oversize.cut is not None]
    shares = [last - first + 1 for first, last in own]
    ids: int = min([IDS // len(legs), *shares])
    fastest = max(max((rate for _, rate in leg.rates), default=leg.rate_pps or FASTEST_PPS) for leg in legs)
    return max(1, min(LONGEST_TOGETHER_MS, round(1000 * ids / fastest / 2)))
