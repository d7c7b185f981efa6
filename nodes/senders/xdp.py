"""XDP as a sender: any field of any frame, paced and stamped in the kernel, on drivers with native XDP.

The engine tc (nodes/senders/tc.py) is the same with another way out of the kernel.

The guard loads the program (xdp_program), shares its maps as memory, and reads the counts there. A process of its own
(xdp_run) makes the calls in which the kernel sends, and sleeps while nothing is due.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pktswarm.nodes import libbpf, live_frames
from pktswarm.nodes.carrier import Carrier
from pktswarm.nodes.engine import Sender
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders import xdp_run
from pktswarm.nodes.senders.ways_out import LIVE_FRAMES, WayOut
from pktswarm.nodes.senders.xdp_core import XdpCore
from pktswarm.nodes.senders.xdp_shares import cores, share
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, Clock, SendCount, SendTask
from pktswarm.traffic.schedule import leg_frames
from pktswarm.traffic.schedule.fragments import longest_frame_bytes

TAI_KERNEL = (6, 1)
HEADER_BYTES = 14 + 4
"""What an interface takes beyond its MTU: Ethernet's header and one tag."""


class XdpSender(Sender):
    """Sends all legs of an interface from one processor, or (option `cores`) from several, each with whole legs."""

    name: ClassVar[str] = LIVE_FRAMES.name
    way: ClassVar[WayOut] = LIVE_FRAMES

    def __init__(self, task: SendTask, spool: Path, most_repeats: int = xdp_run.MOST_REPEATS) -> None:
        super().__init__(task, spool)
        self._most_repeats = most_repeats
        self._cores: list[XdpCore] = []
        self._interface = Interface(task.interface)
        self._carrier = Carrier(self._interface, expected=True)
        self._attached: libbpf.BpfLink | None = None
        """The program that a driver needs to take live frames, from ready() to restore()."""
        self._ready = False

    def prepare(self) -> None:
        check_interface(self._interface, self.task.legs, self.way)
        if trouble := without_clock(self.task.clock, libbpf.kernel()):
            raise EngineError(self.name, trouble)
        shares = share(self.task.legs, cores(self.task.legs))
        # The last processors: the first one usually serves the interrupts.
        cpus = sorted(os.sched_getaffinity(0))[-len(shares) :] if len(shares) > 1 else [None]
        if len(cpus) < len(shares):
            problem, allowed = "more processors than this node has", f"up to {len(cpus)}"
            raise BadInput(self.task.interface, problem, key="cores", value=len(shares), allowed=allowed)
        for number, (legs, cpu) in enumerate(zip(shares, cpus, strict=True)):
            task = replace(self.task, legs=legs)
            self._cores.append(XdpCore(self.way, task, self.spool, self._most_repeats, number, cpu))
            self._cores[-1].prepare()

    def ready(self) -> bool:
        """False while the link restarts: for the program that is attached here, when all engines have been prepared, or
        at the far end of the cable. Then live frames must leave."""
        if not self._ready and self._carrier.is_back():
            if self.way.live and self._attached is None and live_frames.needs_program(self._interface):
                self._attached = live_frames.attach_pass(self._interface)
                return False
            if self._attached is not None and (trouble := live_frames.trouble(self._interface)):
                raise EngineError(self.name, f"with an XDP program attached: {trouble}")
            self._ready = True
        return self._ready

    def start(self, at_ns: int) -> None:
        if not self._cores:
            raise EngineError(self.name, "start before prepare")
        for core in self._cores:
            core.start(at_ns)

    def set_rate(self, leg: int, rate_pps: float | None) -> None:
        for core in self._cores:
            core.set_rate(leg, rate_pps)

    def done(self) -> bool:
        return bool(self._cores) and all(core.done() for core in self._cores)

    def sample(self) -> dict[int, dict[str, int | None]]:
        return {leg: sample for core in self._cores for leg, sample in core.sample().items()}

    def stop(self) -> None:
        for core in self._cores:
            core.stop()

    def restore(self) -> None:
        try:
            for core in self._cores:
                core.restore()
        finally:
            if self._attached is not None:
                self._carrier.look_again()
                self._attached.close()
                self._attached = None
                self._carrier.await_back()

    def counts(self) -> list[SendCount]:
        if not self._cores:
            raise EngineError(self.name, "counts before prepare")
        places = {leg.id: place for place, leg in enumerate(self.task.legs)}
        counts = [count for core in self._cores for count in core.counts()]
        return sorted(counts, key=lambda count: places[count.leg])


def without_clock(clock: Clock, release: tuple[int, int]) -> str:
    """Returns why the kernel cannot stamp frames with this clock; empty when it can."""
    if clock == "monotonic" or release >= TAI_KERNEL:
        return ""
    return f"clock: ptp needs Linux 6.1, where BPF programs read TAI; this is {release[0]}.{release[1]}"


def check_interface(interface: Interface, legs: list[Leg], way: WayOut) -> None:
    """Raises for a missing interface, one that is down, or a frame that is too long: the kernel checks each only as it
    sends. A carrier may be on its way back."""
    if not interface.exists():
        raise BadInput(interface.name, "there is no such interface")
    if not interface.is_up():
        raise EngineError(way.name, f"{interface.name} is down")
    if way.live and not live_frames.needs_program(interface) and (trouble := live_frames.takes_none(interface)):
        raise EngineError(way.name, trouble)
    largest = interface.mtu + HEADER_BYTES + FCS_BYTES
    for leg in legs:
        sizes = leg_frames.sizes_bytes(leg) if leg.kind == "stream" else []
        size_bytes = max((longest_frame_bytes(leg, size) for size, _ in sizes), default=0)
        if size_bytes > largest:
            problem, allowed = "longer than the interface takes", f"up to {largest}: its MTU is {interface.mtu}"
            key = f"{leg.stream}.size_bytes"
            raise BadInput(interface.name, problem, key=key, value=size_bytes, allowed=allowed)
