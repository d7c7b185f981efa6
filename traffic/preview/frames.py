"""Frames as the leg's engine would send them, byte for byte, with their due times.

The time in a stamp, at run time that of departure by the sender's clock, is the due time from the start here.
"""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import cycle
from pathlib import Path

import numpy as np

from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.counting.users import notation
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template, put_bits
from pktswarm.traffic.leg import MADE_IN_KERNEL, Leg
from pktswarm.traffic.preview.due_frames import Block, Integers, Rows, blocks
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.random.xorshift import KernelDraw
from pktswarm.traffic.replay.files import frames_to_send
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import leg_frames, pace, trace
from pktswarm.traffic.schedule.capabilities import trafgen_list_length
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from pktswarm.traffic.schedule.sequence import Records

PKTGEN_HEADER = struct.Struct(">IIII")
"""Magic, number from 1, seconds, microseconds (net/core/pktgen.c); zeros follow."""
PKTGEN_MAGIC = 0xBE9BE955
LONGEST_ADDRESS_BYTES = 16


@dataclass(frozen=True)
class Recording:
    """The frames and the users' names of a leg of a trace or a source. A trace's frames are in `frames`, in the order
    `order`; those of a source are made."""

    rows: Rows
    users: list[str]
    frames: Frames | None = None
    order: Integers | None = None


def recording(leg: Leg, folder: Path) -> Recording:
    """`folder`: the folder with the files of the leg's transmitter."""
    frames, order = frames_to_send(leg, folder)
    length = frames.length[order]
    due_ns, period_ns = trace.due_times(frames.time_ns[order], length, leg)
    names, user = users_of(frames)
    lead_ns = leg.timing.lead_ns
    return Recording(Rows(due_ns, length + FCS_BYTES, user[order], lead_ns, period_ns), names, frames, order)


def of_sequence(leg: Leg, records: Records) -> Recording:
    """A user's name is the value of the users' field; without that field there are no users."""
    field = next((one for one in build_frame(leg.frame, leg.size_bytes).fields if one.name == leg.user_field), None)
    number = int(records["user"].max()) + 1 if field is None else field.values
    names = [] if field is None else [notation(field.name, field.whole(position)) for position in range(number)]
    columns = (records["due_ns"], records["frame_bytes"], records["user"])
    due_ns, frame_bytes, user = (column.astype(np.int64) for column in columns)
    return Recording(Rows(due_ns, frame_bytes + FCS_BYTES, user), names)


def users_of(frames: Frames) -> tuple[list[str], Integers]:
    """(names, user of each frame): the address as sent, source uplink and destination downlink; without IP the source
    MAC."""
    at = frames.place + frames.ip_at
    version = frames.store[at] >> 4
    version[(version != 4) & (version != 6)] = 0
    is_ip = [version == 4, version == 6]
    place = np.select(is_ip, [at + 12 + 4 * frames.down, at + 8 + 16 * frames.down], frames.place + 6)
    keys = np.zeros((len(frames), 1 + LONGEST_ADDRESS_BYTES), np.uint8)
    keys[:, 0] = version
    held = np.select(is_ip, [4, 16], 6)
    for byte in range(LONGEST_ADDRESS_BYTES):
        some = held > byte
        keys[some, 1 + byte] = frames.store[place[some] + byte]
    different, user = np.unique(keys, axis=0, return_inverse=True)
    return [_name(key.tobytes()) for key in different], user.reshape(-1).astype(np.int64)


def _name(key: bytes) -> str:
    version, address = key[0], key[1:]
    if not version:
        return address[:6].hex(":")
    return str(ip_address(address[:4] if version == 4 else address))


def packets(legs: Iterable[tuple[Leg, Recording | None]]) -> Iterator[Packet]:
    """The frames of all legs in the order of their due times; at equal times the leg with the lower number first."""
    streams = (_numbered(leg, recorded) for leg, recorded in legs)
    for time_ns, _, data in heapq.merge(*streams, key=lambda one: one[:2]):
        yield Packet(time_ns, data)


def _numbered(leg: Leg, recorded: Recording | None) -> Iterator[tuple[int, int, bytes]]:
    found = blocks(leg, recorded.rows if recorded else None)
    if recorded and recorded.frames is not None and recorded.order is not None:
        frames = _recorded(recorded.frames, recorded.order.tolist(), found)
    else:
        frames = _made(_maker(leg), found)
    return ((time_ns, leg.id, data) for time_ns, data in frames)


def _recorded(frames: Frames, order: list[int], found: Iterator[Block]) -> Iterator[tuple[int, bytes]]:
    rows = cycle(order)
    for block in found:
        for time_ns in block.time_ns.tolist():
            yield time_ns, frames.frame(next(rows))


def _made(maker: Maker, found: Iterator[Block]) -> Iterator[tuple[int, bytes]]:
    for block in found:
        columns = (block.time_ns.tolist(), block.size_bytes.tolist(), block.user.tolist())
        for time_ns, size_bytes, user in zip(*columns, strict=True):
            yield time_ns, maker.frame(time_ns, size_bytes, user)


class Maker:
    """A stream's frames one after another, as trafgen sends them from its list."""

    def __init__(self, leg: Leg) -> None:
        self.leg, self.index = leg, 0
        self.templates = templates_as_sent(leg)
        self.draw = random.Random(leg.id)  # noqa: S311 - traffic, not secrets; trafgen's own seed
        self._list: list[bytes] = []

    def frame(self, time_ns: int, size_bytes: int, user: int) -> bytes:
        """The next frame."""
        template = self.templates[size_bytes]
        if not self._list:
            number = trafgen_list_length(template)
            self._list = [template.frame(index, self.draw) for index in range(number)]
        self.index += 1
        return self._list[(self.index - 1) % len(self._list)]

    def template(self, size_bytes: int) -> Template:
        """The template for a size; a source has frames of any size."""
        if size_bytes not in self.templates:
            self.templates[size_bytes] = build_frame(self.leg.frame, size_bytes)
        return self.templates[size_bytes]


class PktgenMaker(Maker):
    """The frames of pktgen, without its random values, IPv4 identifications and times."""

    def frame(self, time_ns: int, size_bytes: int, user: int) -> bytes:
        template = self.templates[size_bytes]
        data = bytearray(template.frame(self.index, self.draw))
        start, stop = template.random_payload
        self.index += 1
        own = PKTGEN_HEADER.pack(PKTGEN_MAGIC, self.index, time_ns // 10**9, time_ns % 10**9 // 1000)
        data[start:stop] = own[: stop - start].ljust(stop - start, b"\0")
        template.mend(data)
        return bytes(data)


class ReadyMaker(Maker):
    """A source's frames for tcpreplay: see traffic.schedule.sequence.frames."""

    def frame(self, time_ns: int, size_bytes: int, user: int) -> bytes:
        return self.template(size_bytes).at(self.leg.user_field, user)


class KernelMaker(Maker):
    """The frames as kernel/send_packets.h and send_fields.h make them (write_stream, make)."""

    def __init__(self, leg: Leg) -> None:
        super().__init__(leg)
        of_source = leg.sequence_file is not None
        templates = [build_frame(leg.frame, size) for size, _ in leg_frames.sizes_bytes(leg)]
        one_slot = templates[-1:] if of_source else templates  # a source's frames share the largest slot
        record = schedule.compile_stream(leg, one_slot, pace.seed_of(leg)).record
        self.templates = {len(template.data) + FCS_BYTES: template for template in templates}
        self._stamp_at = int(record.stamp)
        self._checked = bool(record.checked)
        self._size_drawn = len(leg.sizes) > 1 and not leg.sizes_in_turn and not of_source
        self._noise_from = self._stamp_at + leg_frames.stamp_bytes(leg) if self._stamp_at else 0
        self._kernel = KernelDraw(record.random)

    def frame(self, time_ns: int, size_bytes: int, user: int) -> bytes:
        template, index = self.template(size_bytes), self.index
        self.index += 1
        if self._size_drawn:
            self._kernel.next()
        if template.constant and not self._stamp_at:
            return template.data
        data = bytearray(template.data)
        self._put_fields(template, index, user, data)
        self._noise(template, data)
        self._stamp(index, time_ns, data)
        template.mend(data)
        return bytes(data)

    def _put_fields(self, template: Template, index: int, user: int, data: bytearray) -> None:
        positions: list[int] = []
        for field in template.fields:
            if field.link is not None:
                positions.append(field.following(positions[field.link]))
            elif field.name == self.leg.user_field:
                positions.append(user)
            else:
                positions.append(field.position(index, self._kernel))
            put_bits(data, field.bit, field.width_bits, field.at(positions[-1]))

    def _noise(self, template: Template, data: bytearray) -> None:
        start, stop = max(template.random_payload[0], self._noise_from), template.random_payload[1]
        if start < stop:
            data[start:stop] = self._kernel.randbytes(stop - start)

    def _stamp(self, index: int, time_ns: int, data: bytearray) -> None:
        if self._stamp_at:
            behind = bytes(data[self._stamp_at + stamp.CHECKED_BYTES :])
            checksum = stamp.payload_sum(behind) if self._checked else None
            own = stamp.Stamp(self.leg.id, index, time_ns, checksum).pack()
            data[self._stamp_at : self._stamp_at + len(own)] = own


def _maker(leg: Leg) -> Maker:
    if leg.engine in MADE_IN_KERNEL:
        return KernelMaker(leg)
    return {"pktgen": PktgenMaker, "tcpreplay": ReadyMaker}.get(leg.engine, Maker)(leg)
