"""Counts in the kernel, before the host's stack: kernel/count.bpf.c on the interface, its maps read from here.

The program is attached through a link that dies with this process: native where the driver can, generic elsewhere.
What belongs to no leg goes on to the host; counted frames end here, or go on as well where a capture takes them.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from pktswarm.nodes import availability, libbpf
from pktswarm.nodes.engine import Receiver
from pktswarm.nodes.interface import MERGING_OFFLOADS, SYS_NET, Interface
from pktswarm.nodes.offloads import OffloadsOff
from pktswarm.nodes.receivers.echo import Echo
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.counting import expect, sequence_bitmap, tally, users
from pktswarm.traffic.counting.kernel_structs import (
    FRAGMENTS,
    HISTOGRAM_BUCKETS,
    NUMBERED_BY_PKTGEN,
    NUMBERED_BY_US,
    SUMS_IP,
    UNMATCHED_KINDS,
    Expectation,
    RawFiltered,
    RawFragments,
    RawHistogram,
    RawPutTogether,
    RawRow,
    RawTally,
    RawUnmatched,
    RawUser,
    RawUserRule,
    Settings,
)
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount
from pktswarm.traffic.schedule import fragments, leg_frames, pktgen
from pktswarm.traffic.schedule.leg_frames import templates_as_received

LEAST_KERNEL_TAI = (6, 1)
READ_ATTEMPTS = 1000
_Struct = TypeVar("_Struct", bound=ctypes.Structure)


class XdpReceiver(Receiver):
    """Legs whose frames carry stamps are counted by these, the others by their bytes."""

    name: ClassVar[str] = "xdp"
    object_file: ClassVar[Path] = availability.COUNTER

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._interface = Interface(task.interface)
        self._object: libbpf.BpfObject | None = None
        self._maps: dict[str, libbpf.BpfMap] = {}
        """Of the loaded object, as far as they were asked for: a sample reads one for each leg."""
        self._echo: Echo | None = None
        self._link: libbpf.BpfLink | None = None
        self._filter_fd: int | None = None
        self._offloads = OffloadsOff(self._interface, spool)
        self._expectations: dict[int, Expectation] = {}
        """Of the legs counted by sequence numbers, by slot: a leg's place in the task and in the maps."""
        self._rows: list[RawRow] = []
        """Of the legs known by their bytes."""
        self._apart: dict[int, int] = {}
        """Of stamped traces, by slot: the slot of their frames without a stamp."""
        self._user_rules: dict[int, RawUserRule] = {}
        """Of the legs whose users are counted, by slot."""
        self._marks: dict[int, tuple[int, int]] = {}
        """Of the legs that other nodes count too, by leg: traffic.counting.sequence_bitmap.places."""
        self.attached = ""
        """"native", or "generic" with the reason."""

    @property
    def _clock(self) -> int:
        """Of the arrivals."""
        return time.CLOCK_TAI if self.task.tai else time.CLOCK_MONOTONIC

    def _armed_ns(self) -> int:
        """When counting begins: senders start after that."""
        return time.clock_gettime_ns(self._clock)

    def prepare(self) -> None:
        if why := availability.xdp_receiver(self.object_file):
            raise EngineError(self.name, why)
        self._check()
        numbered = [slot for slot, leg in enumerate(self.task.legs) if expect.numbered(leg)]
        self._marks = sequence_bitmap.places(self.task.interface, self.task.legs)
        self._expectations = {slot: self._expectation(self.task.legs[slot]) for slot in numbered}
        self._apart = expect.slots_apart(self.task.legs)
        self._rows = expect.rows(self.task.interface, expect.known_by_bytes(self.task.legs), self._apart)
        self._user_rules = self._number_users()
        self._load(alone=_receive_queues(self.task.interface) == 1)
        # A card that takes the VLAN tag out of a frame would hide it from the program.
        self._offloads.switch_off("rxvlan")

    def _check(self) -> None:
        if not self._interface.exists():
            raise BadInput(self.task.interface, "there is no such interface")
        if self.task.tai and libbpf.kernel() < LEAST_KERNEL_TAI:
            raise EngineError(self.name, "clock: ptp needs kernel 6.1 (bpf_ktime_get_tai_ns)")
        if self.task.filter and not self.task.filter_program:
            raise EngineError(self.name, f"the filter {self.task.filter!r} came without its program")

    def _expectation(self, leg: Leg) -> Expectation:
        made = self._expected_fields(leg)
        made.limit = leg_frames.sequence_limit(leg)
        made.first_mark, made.marks = self._marks.get(leg.id, (0, 0))
        if made.marks and not made.limit:
            made.limit = made.marks * sequence_bitmap.WORD_BITS
        made.numbered = expect.numbered(leg)
        if made.numbered == NUMBERED_BY_PKTGEN:  # leaves its UDP checksum to the card, which a veth does not have
            made.sums &= SUMS_IP
        made.clocked = made.numbered == NUMBERED_BY_US or pktgen.times(leg)
        offset_ns = self._clock_offset_ns(leg, made.numbered)
        made.timed = offset_ns is not None and made.clocked
        made.offset_ns = offset_ns or 0
        made.bias_ns = self.task.bounds_ns.get(leg.source, 0) if leg.echo_of is None else 0
        return made

    @staticmethod
    def _expected_fields(leg: Leg) -> Expectation:
        if leg.kind == "trace":
            return expect.expectation_of_trace(leg)
        templates = templates_as_received(leg)
        # Of several sizes any is right: what is cut short shows in the headers' own lengths.
        told = {"length": None, **leg.expect} if len(templates) > 1 else leg.expect
        return expect.expectation(leg.stream, templates[max(templates)], told)

    def _clock_offset_ns(self, leg: Leg, numbered: int) -> int | None:
        """What makes this node's clock the one in the leg's stamps; None: not known."""
        if leg.echo_of is not None:
            return 0  # it comes back to where it was stamped
        if numbered == NUMBERED_BY_US and self.task.tai:
            return 0
        offset_ns = self.task.offsets_ns.get(leg.source)
        if numbered == NUMBERED_BY_US or offset_ns is None:
            return offset_ns
        realtime_ns = self.task.realtime_ns.get(leg.source)
        return None if realtime_ns is None or self.task.tai else offset_ns + realtime_ns

    def _number_users(self) -> dict[int, RawUserRule]:
        """The users of all legs one after another, each leg's followed by a place for what is no user's.

        A stamped trace has them twice: what another slot counts is under another lock.
        """
        base, rules = 0, {}
        own = list(enumerate(self.task.legs))
        for slot, leg in [*own, *((place, self.task.legs[slot]) for slot, place in self._apart.items())]:
            if leg.users:
                rules[slot] = self._user_rule(leg, base)
                base += leg.users["count"] + 1
        if base > users.MOST_USERS + len(rules):
            raise BadInput(
                self.task.interface, "too many users in all", key="users", value=base, allowed=str(users.MOST_USERS)
            )
        return rules

    @staticmethod
    def _user_rule(leg: Leg, base: int) -> RawUserRule:
        if leg.kind == "trace":
            return users.address_rule(leg.users, base)
        templates = templates_as_received(leg)
        return users.rule(templates[max(templates)], leg.users, base)

    def _load(self, alone: bool) -> None:
        """`alone`: frames come one after another, because there is one queue and XDP is native."""
        if self._object:
            self._object.close()
        self._object, self._maps = libbpf.BpfObject(self.object_file), {}
        for name in ("expectations", "windows", "histograms"):
            self._object.set_entries(name, max(1, len(self.task.legs)))
        self._object.set_entries("tallies", max(1, len(self.task.legs) + len(self._apart)))
        self._object.set_entries("rows", max(1, len(self._rows)))
        places = sum(rule.count + 1 for rule in self._user_rules.values())
        self._object.set_entries("user_rules", max(1, len(self.task.legs) + len(self._apart)))
        self._object.set_entries("users", max(1, places))
        self._object.set_entries("misdelivered", max(1, self.task.streams))
        self._object.set_entries("marks", max(1, sum(count for _, count in self._marks.values())))
        together_ms = fragments.together_ms(self.task)
        self._object.set_entries("assemblies", fragments.MOST_UNFINISHED if together_ms else 1)
        self._object.set_entries("put_together", max(1, len(self.task.legs)))
        settings = Settings(
            armed_ns=self._armed_ns(),
            legs=len(self.task.legs),
            rows=len(self._rows),
            pass_on=self.task.capture_every if self.task.mode == "capture" else 0,
            alone=alone,
            tai=self.task.tai,
            pktgen=any(one.numbered == NUMBERED_BY_PKTGEN for one in self._expectations.values()),
            users=bool(self._user_rules),
            echo=bool(self.task.echoes),
            together_ms=together_ms,
        )
        self._object.set_constants(".rodata.settings", bytes(settings))
        if not together_ms:
            self._object.leave_out("count_fragment")
        self._object.load()
        if together_ms:
            self._map("fragmented").update(_key(0), _key(self._object.program_fd("count_fragment")))
        for slot, expectation in self._expectations.items():
            if expectation.numbered == NUMBERED_BY_US:
                self._map("slots").update(_key(self.task.legs[slot].id), _key(slot + 1))
            self._map("expectations").update(_key(slot), bytes(expectation))
        for index, row in enumerate(self._rows):
            self._map("rows").update(_key(index), bytes(row))
        for slot, rule in self._user_rules.items():
            self._map("user_rules").update(_key(slot), bytes(rule))
        self._load_filter()
        self._load_echo(alone)

    def _load_filter(self) -> None:
        """The master's translation of the filter, in front of the counting program."""
        self._close_filter()
        if self.task.filter_program:
            assert self._object is not None
            maps = {ebpf.COUNTING: self._map("counting").fd, ebpf.FILTERED: self._map("filtered").fd}
            self._filter_fd = libbpf.load_xdp("filter", ebpf.native(self.task.filter_program, maps))
            self._map("counting").update(_key(0), _key(self._object.program_fd("count")))

    def _load_echo(self, alone: bool) -> None:
        self._close_echo()
        if self.task.echoes:
            self._echo = Echo(self._interface, self.task.echoes, alone)
            self._map("echo").update(_key(0), _key(self._echo.program_fd))

    def _close_echo(self) -> None:
        if self._echo is not None:
            self._echo.close()
            self._echo = None

    def _close_filter(self) -> None:
        if self._filter_fd is not None:
            os.close(self._filter_fd)
            self._filter_fd = None

    def _map(self, name: str) -> libbpf.BpfMap:
        assert self._object is not None
        if name not in self._maps:
            self._maps[name] = self._object.map(name)
        return self._maps[name]

    def start(self, at_ns: int) -> None:
        try:
            self._attach("native")
            self.attached = "native"
        except EngineError as error:
            if self.task.echoes:
                raise EngineError("echo", f"{self.task.interface}: only native XDP sends back ({error})") from None
            self._load(alone=False)
            self._attach("generic")
            self.attached = f"generic: {self._interface.driver or 'the driver'} has no native XDP ({error})"
            # They would be one large frame; GRO works before generic XDP, and after native XDP.
            self._offloads.switch_off(*MERGING_OFFLOADS)

    def _attach(self, mode: libbpf.XdpMode) -> None:
        assert self._object is not None
        self._link = self._object.attach_xdp("count", self._interface.index, mode, self._filter_fd)

    def ready(self) -> bool:
        return self._link is not None

    def done(self) -> bool:
        return False

    def set_clock_offset(self, leg_id: int, offset_ns: int) -> None:
        """What is added to this node's clock to make it the sender's, from now on; latencies count from here."""
        slot = next(slot for slot in self._expectations if self.task.legs[slot].id == leg_id)
        self.task.offsets_ns[self.task.legs[slot].source] = offset_ns
        self._expectations[slot] = self._expectation(self.task.legs[slot])
        self._map("expectations").update(_key(slot), bytes(self._expectations[slot]))

    def sample(self) -> dict[int, dict[str, int | None]]:
        """Takes no notice of the traffic."""
        if self._object is None:
            return {}
        told = {leg.id: self._so_far(slot) for slot, leg in enumerate(self.task.legs)}
        for slot, place in self._apart.items():
            one, apart = told[self.task.legs[slot].id], self._so_far(place)
            one |= {name: (one[name] or 0) + (apart[name] or 0) for name in ("packets", "bytes")}
        return told if self._echo is None else told | self._echo.sample()

    def _so_far(self, slot: int) -> dict[str, int | None]:
        made = self._expectations.get(slot)
        return tally.so_far(self._raw(slot), made is not None, made is not None and bool(made.timed))

    def stop(self) -> None:
        if self._link:
            self._link.close()
            self._link = None

    def restore(self) -> None:
        self.stop()
        self._close_filter()
        self._close_echo()
        if self._object:
            self._object.close()
            self._object = None
        self._offloads.restore()

    def other_way(self) -> list[SendCount | ReceiveCount]:
        """What was sent back."""
        if self._echo is None:
            return []
        told = {leg: one.packets - (one.damaged or 0) for leg, one in self.tallies().items()}
        return [*self._echo.counts(told)]

    def tallies(self) -> dict[int, tally.Tally]:
        """By leg id; may be asked for at any time until restore(). Of a stamped trace: its frames with a stamp."""
        return {leg.id: self._tally(slot) for slot, leg in enumerate(self.task.legs)}

    def _tally(self, slot: int) -> tally.Tally:
        raw = self._raw(slot)
        if slot not in self._expectations:
            return tally.unstamped(raw)
        timed = self._expectations[slot].timed
        return tally.stamped(raw, self._buckets(slot) if timed else None, self._expectations[slot].bias_ns)

    def _raw(self, slot: int) -> RawTally:
        """Figures that belong together. Where nothing is locked a frame may come in between: then once more."""
        for _ in range(READ_ATTEMPTS):
            raw = self._read(RawTally, "tallies", slot, locked=True)
            if not tally.torn(raw, slot in self._expectations):
                return raw
        if not tally.torn(raw, stamped=False):
            return raw  # its figures contradict one another for good, which is told where they are used
        raise EngineError(self.name, "its counts cannot be read in one piece")

    def _buckets(self, slot: int) -> Sequence[int]:
        found = self._read(RawHistogram, "histograms", slot)
        return struct.unpack(f"{HISTOGRAM_BUCKETS}Q", bytes(found))

    def _read(self, kind: type[_Struct], name: str, slot: int, locked: bool = False) -> _Struct:
        value = self._map(name).lookup(_key(slot), locked=locked)
        if value is None:
            raise EngineError(self.name, f"map {name} has no entry {slot}")
        return kind.from_buffer_copy(value)

    def users(self, leg_id: int) -> dict[str, list[int]] | None:
        """users.COLUMNS; None where a leg has none. Of one moment only after stop()."""
        slot = next(slot for slot, leg in enumerate(self.task.legs) if leg.id == leg_id)
        if (rule := self._user_rules.get(slot)) is None:
            return None
        columns = self._users_of(rule)
        if slot in self._apart:
            # Frames without a stamp: who came twice among them nobody can tell.
            apart = self._users_of(self._user_rules[self._apart[slot]])
            for name, more in (("packets", "packets"), ("bytes", "bytes"), ("distinct", "packets")):
                columns[name] = [one + other for one, other in zip(columns[name], apart[more], strict=True)]
        return columns

    def _users_of(self, rule: RawUserRule) -> dict[str, list[int]]:
        size = ctypes.sizeof(RawUser)
        with self._map("users").memory() as memory:
            part = memory[rule.base * size : (rule.base + rule.count + 1) * size]
        each = memoryview(part).cast("q").tolist()
        fields = [name for name, _ in RawUser._fields_]
        return {name: each[fields.index(name) :: len(fields)] for name in users.COLUMNS}

    def _packed_users(self, leg_id: int) -> dict[str, str] | None:
        columns = self.users(leg_id)
        return None if columns is None else {name: users.pack(column) for name, column in columns.items()}

    def _packed_marks(self, leg: Leg, one: tally.Tally) -> str | None:
        if leg.id not in self._marks:
            return None
        first, count = (8 * words for words in self._marks[leg.id])
        with self._map("marks").memory() as memory:
            data = memory[first : first + count]
        if (marked := int.from_bytes(data, sys.byteorder).bit_count()) != one.distinct:
            raise EngineError(self.name, f"{leg.stream}: {marked} numbers are marked, {one.distinct} came")
        return sequence_bitmap.pack(data)

    def _delays(self, slot: int) -> list[list[int]] | None:
        made = self._expectations[slot]
        return tally.delays(self._raw(slot), self._buckets(slot), made.bias_ns) if made.timed else None

    def unmatched(self) -> dict[str, int]:
        """Frames that no leg has, by kind; they went on to the host. "filtered": the filter left them out."""
        each = self._per_cpu(RawUnmatched, "unmatched")
        found = {name: sum(one.packets[index] for one in each) for index, name in enumerate(UNMATCHED_KINDS)}
        if self.task.filter_program:
            found["filtered"] = sum(one.packets for one in self._per_cpu(RawFiltered, "filtered"))
        return found

    def _per_cpu(self, kind: type[_Struct], name: str) -> list[_Struct]:
        size, cpus = ctypes.sizeof(kind), libbpf.possible_cpus()
        value = self._map(name).lookup(_key(0), size * cpus)
        if value is None:
            raise EngineError(self.name, f"map {name} has no entry")
        return [kind.from_buffer_copy(value, cpu * size) for cpu in range(cpus)]

    def misdelivered(self) -> dict[str, int]:
        """Leg → stamped frames that are another receiver's, of those that came at all."""
        with self._map("misdelivered").memory() as memory:
            packets = memoryview(memory[: 8 * self.task.streams]).cast("Q").tolist()
        return {str(leg): number for leg, number in enumerate(packets) if number}

    def counts(self) -> list[ReceiveCount]:
        to_utc_ns = time.time_ns() - time.clock_gettime_ns(self._clock)
        unmatched = self.unmatched()
        counts = [
            ReceiveCount(
                leg.id,
                self.name,
                one.packets,
                one.bytes,
                None if one.first_ns is None else one.first_ns + to_utc_ns,
                None if one.last_ns is None else one.last_ns + to_utc_ns,
                note=self._note(leg, one),
                output=json.dumps({"unmatched": unmatched}),
                tally=one.to_json(),
                users=self._packed_users(leg.id),
                marks=self._packed_marks(leg, one),
                delays=self._delays(slot) if leg.handover_targets else None,
                utc_less_monotonic_ns=None if self.task.tai else to_utc_ns,
            )
            for slot, (leg, one) in enumerate(zip(self.task.legs, self.tallies().values(), strict=True))
        ]
        for slot, place in self._apart.items():
            _add_apart(counts[slot], self._tally(place), to_utc_ns)
        self._tell_fragments(counts)  # frames of all that was received
        for first in counts[:1]:
            first.misdelivered = self.misdelivered()
        return counts

    def fragments(self) -> dict[str, int]:
        """pktswarm.traffic.counting.kernel_structs.FRAGMENTS, of the receiver as a whole."""
        each = self._per_cpu(RawFragments, "fragments_told")
        return {name: sum(one.events[index] for one in each) for index, name in enumerate(FRAGMENTS)}

    def _tell_fragments(self, counts: list[ReceiveCount]) -> None:
        """In how many frames packets came, and of how many packets not all came."""
        told = self.fragments()
        if not told["begun"]:
            return
        counts[0].unfinished_packets = told["begun"] - told["foreign"] - told["whole"]
        for slot, count in enumerate(counts):
            found = self._read(RawPutTogether, "put_together", slot)
            if found.packets:
                count.received_frames = count.received_packets - found.packets + found.frames
                count.note += f"; {found.packets} packets came in {found.frames} fragments"

    def _note(self, leg: Leg, one: tally.Tally) -> str:
        notes = [self.attached]
        if one.distinct is None and expect.sender_stamps(leg):
            notes.append("counted by its bytes, because its stamps are not where they are looked for")
        if leg.engine == "pktgen" and one.distinct is not None and not pktgen.times(leg):
            notes.append("no latency: pktgen writes a frame's time before it waits for its turn")
        if one.too_late:
            notes.append(f"{one.too_late} frames came over {tally.REMEMBERED} behind and count as lost")
        if one.invalid_sequence:
            notes.append(f"{one.invalid_sequence} frames have a sequence number that cannot be")
        if one.damaged:
            notes.append(f"{one.damaged} altered frames have a stamp that does not verify; they are received, not lost")
        if one.impossible:
            notes.append(f"{one.impossible} frames have a time that the clocks do not allow, and no latency")
        return "; ".join(notes)


def _add_apart(count: ReceiveCount, apart: tally.Tally, to_utc_ns: int) -> None:
    """The frames of a stamped trace that have no stamp."""
    count.unstamped_packets = apart.packets
    count.received_packets += apart.packets
    count.received_bytes = (count.received_bytes or 0) + apart.bytes
    if apart.first_ns is not None and apart.last_ns is not None:
        first_ns, last_ns = apart.first_ns + to_utc_ns, apart.last_ns + to_utc_ns
        count.first_ns = first_ns if count.first_ns is None else min(count.first_ns, first_ns)
        count.last_ns = last_ns if count.last_ns is None else max(count.last_ns, last_ns)


def _receive_queues(interface: str) -> int:
    return len(list((SYS_NET / interface / "queues").glob("rx-*")))


def _key(number: int) -> bytes:
    return struct.pack("=I", number)
