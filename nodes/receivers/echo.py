"""The echo of a data network, in the kernel: kernel/echo.bpf.c behind the receiver xdp.

The receiver counts a frame and jumps there. A frame sent back is counted when the device accepts it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pktswarm.nodes import libbpf, live_frames
from pktswarm.nodes.interface import Interface
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.echo import COPIES, NAME, EchoSettings, RawFlow, Unexplained, due
from pktswarm.traffic.counting.kernel_structs import RawUserRule
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import SendCount
from pktswarm.traffic.schedule.leg_frames import templates_as_sent

OBJECT = libbpf.OBJECTS / "echo.o"
ONCE_PERCENT = 100
"""Up to this percentage no frame is sent back more than once."""


class Echo:
    """Echoes streams. `legs`: the echoes; `echo_of` is the leg that each one echoes.

    `alone`: frames arrive one after another. `counted`: behind a counter; else unknown test traffic and other frames go
    on to the host. Raises BadInput where the interface accepts no frames from a program.
    """

    def __init__(
        self, interface: Interface, legs: list[Leg], alone: bool, counted: bool = True, path: Path = OBJECT
    ) -> None:
        if trouble := live_frames.trouble(interface):
            raise BadInput(interface.name, f"frames cannot be sent back: {trouble}", key="echo")
        self._legs = legs
        self._object = libbpf.BpfObject(path)
        try:
            single = all(leg.echo_percent <= ONCE_PERCENT for leg in legs)
            self._load(EchoSettings(alone, counted, single))
            self._fill()
            self._plug(interface.index)
            for program, event in (("sum_sent", "xdp_devmap_xmit"), ("sum_refused", "xdp_redirect_err")):
                self._object.attach_raw_tracepoint(program, event)
        except BaseException:
            self._object.close()
            raise

    @property
    def program_fd(self) -> int:
        return self._object.program_fd("echo")

    def close(self) -> None:
        self._object.close()

    def _load(self, settings: EchoSettings) -> None:
        self._object.set_entries("flows", len(self._legs))
        self._object.set_entries("users", sum(_places(leg) for leg in self._legs))
        self._object.set_constants(".rodata.settings", bytes(settings))
        self._object.load()

    def _fill(self) -> None:
        base = 0
        for place, leg in enumerate(self._legs):
            whole, part = divmod(leg.echo_percent, 100)
            flow = RawFlow(whole=whole, part=part, stream=leg.id, users=_user_rule(leg, base))
            self._object.map("flows").update(_key(place), bytes(flow))
            self._object.map("slots").update(_key(leg.echo_of or 0), _key(place + 1))
            base += _places(leg)

    def _plug(self, interface_index: int) -> None:
        """Enters the interface into the maps of 1, 2, … copies, with the program that numbers every copy."""
        self._object.map("straight").update(_key(0), _key(interface_index))
        end = struct.pack("=Ii", interface_index, self._object.program_fd("number"))
        for copies in range(1, COPIES + 1):
            for place in range(copies):
                self._object.map(f"copies_{copies}").update(_key(place), end)

    def sample(self) -> dict[int, dict[str, int | None]]:
        """Returns the counts so far, by leg id."""
        flows = zip(self._legs, self.flows(), strict=True)
        return {leg.id: {"sent_packets": int(flow.sent), "sent_bytes": int(flow.sent_bytes)} for leg, flow in flows}

    def flows(self) -> list[RawFlow]:
        """Returns the counts of the program, in the order of the legs."""
        with self._object.map("flows").memory() as memory:
            places = range(0, len(self._legs) * ctypes.sizeof(RawFlow), ctypes.sizeof(RawFlow))
            return [RawFlow.from_buffer_copy(memory, at) for at in places]

    def counts(self, received: Mapping[int, int]) -> list[SendCount]:
        """Returns one count a leg; `received`: leg id → count of the counter in front.

        Raises EngineError where the figures contradict each other.
        """
        self._check_answers()
        return [
            _count(leg, flow, self._users(leg, flow), received.get(leg.echo_of or 0))
            for leg, flow in zip(self._legs, self.flows(), strict=True)
        ]

    def _check_answers(self) -> None:
        unexplained = Unexplained.from_buffer_copy(self._object.map(".bss").lookup(_key(0)) or b"")
        if unexplained.answers:
            last = f"{unexplained.sent} sent and {unexplained.dropped} dropped of {unexplained.pending} pending frames"
            problem = f"{unexplained.answers} answers of the device are inconsistent; the last: {last}"
            raise EngineError(NAME, problem)

    def _users(self, leg: Leg, flow: RawFlow) -> list[int] | None:
        """Returns the frames per user; None for a leg without users."""
        first = flow.users.base * 8
        with self._object.map("users").memory() as memory:
            each = memoryview(memory[first : first + _places(leg) * 8]).cast("Q").tolist()
        if sum(each) != flow.sent:
            raise EngineError(NAME, f"{leg.stream}: {sum(each)} frames by user, {flow.sent} in all")
        return each[:-1] if leg.users else None


def _count(leg: Leg, flow: RawFlow, users: list[int] | None, counted: int | None) -> SendCount:
    figures = f"{flow.received} frames received, {flow.left} left, {flow.due} due, {flow.made} made, {flow.sent} sent"
    wrong = flow.sent + flow.dropped != flow.made or flow.made > flow.due
    wrong = wrong or flow.due != due(flow.received, leg.echo_percent)
    if wrong or counted not in (None, flow.received + flow.left):
        raise EngineError(NAME, f"the counts of {leg.stream} disagree: {figures}, {counted} counted in front")
    return SendCount(
        leg=leg.id,
        engine=NAME,
        sent_packets=flow.sent,
        sent_bytes=flow.sent_bytes,
        failed_packets=flow.due - flow.sent,
        users=users,
        note=figures,
    )


def _places(leg: Leg) -> int:
    """Returns the number of entries in the map of users; the last one is for frames of no user."""
    return (leg.users.count if leg.users else 0) + 1


def _user_rule(leg: Leg, base: int) -> RawUserRule:
    if not leg.users:
        return RawUserRule(base=base)
    templates = templates_as_sent(leg)
    return users.rule(templates[max(templates)], replace(leg.users, received=None), base)


def _key(number: int) -> bytes:
    return struct.pack("=I", number)
