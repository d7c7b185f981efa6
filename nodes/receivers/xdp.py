"""Counts in the kernel, before the host's stack: kernel/count.bpf.c on the interface, its maps read from here.

The program is attached through a link that ends with this process: native where the driver supports it, generic
elsewhere. Frames that belong to no leg go on to the host; counted frames end here, or go on as well where a capture
takes them.
"""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import ClassVar

from pktswarm.nodes import availability, libbpf
from pktswarm.nodes.carrier import Carrier
from pktswarm.nodes.engine import Receiver
from pktswarm.nodes.interface import SYS_NET, Interface
from pktswarm.nodes.offloads import OffloadsOff
from pktswarm.nodes.receivers.xdp_counts import receive_counts
from pktswarm.nodes.receivers.xdp_figures import Figures
from pktswarm.nodes.receivers.xdp_matching import Matching, matching
from pktswarm.nodes.receivers.xdp_program import NAME, CounterProgram, together_ms_of
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount

LEAST_KERNEL_TAI = (6, 1)
ORDERED_STORES = platform.machine() == "x86_64"
"""Whether another processor sees the stores of one in their order; not on ARM, so there the counting takes a lock."""


class XdpReceiver(Receiver):
    """Counts stamped legs by their stamps, the others by their bytes."""

    name: ClassVar[str] = NAME
    object_file: ClassVar[Path] = availability.counter()

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._interface = Interface(task.interface)
        self.matching = Matching(len(task.legs))
        """The matching table, from prepare() on."""
        self._program: CounterProgram | None = None
        self._link: libbpf.BpfLink | None = None
        self._offloads = OffloadsOff(self._interface, spool)
        self._carrier = Carrier(self._interface)
        self.attached = ""
        """"native", or "generic" with the reason."""

    @property
    def _clock(self) -> int:
        """The clock of the arrival times."""
        return time.CLOCK_TAI if self.task.tai else time.CLOCK_MONOTONIC

    def _armed_ns(self) -> int:
        """Returns the time at which counting begins, before which no sender starts."""
        return time.clock_gettime_ns(self._clock)

    @property
    def program(self) -> CounterProgram:
        """The loaded program, from prepare() to restore()."""
        if self._program is None:
            raise EngineError(self.name, "no program is loaded")
        return self._program

    @property
    def figures(self) -> Figures:
        return Figures(self.task, self.matching, self.program)

    def prepare(self) -> None:
        if why := availability.xdp_receiver(self.object_file):
            raise EngineError(self.name, why)
        self._check()
        self.matching = matching(self.task)
        self._show_tags()
        self._load(alone=ORDERED_STORES and _receive_queues(self.task.interface) == 1)

    def _check(self) -> None:
        if not self._interface.exists():
            raise BadInput(self.task.interface, "there is no such interface")
        if self.task.tai and libbpf.kernel() < LEAST_KERNEL_TAI:
            raise EngineError(self.name, "clock: ptp needs kernel 6.1 (bpf_ktime_get_tai_ns)")
        if self.task.filter and not self.task.filter_program:
            raise EngineError(self.name, f"the filter {self.task.filter!r} came without its program")

    def _show_tags(self) -> None:
        """A card that takes the VLAN tag out of a frame hides it from the program: it is kept from that. Some drivers
        let nobody change it (stmmac): with them, streams that have a tag are refused."""
        if not self._interface.offload("rxvlan"):
            return
        if not self._interface.is_fixed("rxvlan"):
            self._offloads.switch_off("rxvlan")
            return
        tagged = [leg.stream for leg in self.task.legs if any(Match.from_data(leg.match).captured_tags)]
        if tagged:
            why = f"{self.task.interface}: {self._interface.driver} may hide VLAN tags, which {tagged[0]} has"
            raise EngineError(self.name, f"{why} (allowed: receive: {{engine: netsniff-ng}})")

    def _load(self, alone: bool) -> None:
        self._close_program()
        armed_ns = self._armed_ns()
        self._program = CounterProgram(self.task, self.matching, self._interface, self.object_file, armed_ns, alone)

    def _close_program(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None

    def start(self, at_ns: int) -> None:
        program = self.program
        try:
            self._link = program.attach("native")
            self.attached = "native"
        except EngineError as error:
            if self.task.echoes:
                raise EngineError("echo", f"{self.task.interface}: only native XDP sends back ({error})") from None
            self._load(alone=False)
            self._link = self.program.attach("generic")
            self.attached = f"generic: {self._interface.driver or 'the driver'} has no native XDP ({error})"
            # GRO merges frames before generic XDP, and after native XDP.
            self._offloads.switch_merging_off()

    def ready(self) -> bool:
        """Once it is attached, and the link is back where the driver restarted it for that."""
        return self._link is not None and self._carrier.is_back()

    def done(self) -> bool:
        return False

    def sample(self) -> dict[int, dict[str, int | None]]:
        """Returns the counts so far, without an effect on the traffic."""
        if self._program is None:
            return {}
        samples = self.figures.sample()
        return samples if self._program.echo is None else samples | self._program.echo.sample()

    def seen_ns(self) -> int | None:
        """None where packets are put together: a fragment of one that is not whole passes on unseen."""
        if not self.attached or self._program is None or together_ms_of(self.task):
            return None
        last_ns = self.figures.last_arrival_ns()
        return last_ns and last_ns + time.monotonic_ns() - time.clock_gettime_ns(self._clock)

    def stop(self) -> None:
        if self._link:
            self._carrier.look_again()
            self._link.close()
            self._link = None

    def restore(self) -> None:
        self.stop()
        self._close_program()
        self._offloads.restore()
        self._carrier.await_back()

    def other_way(self) -> list[SendCount | ReceiveCount]:
        """Returns the counts of the frames sent back."""
        if self._program is None or self._program.echo is None:
            return []
        tallies = self.figures.tallies()
        received = {leg: counted.packets - (counted.damaged or 0) for leg, counted in tallies.items()}
        return [*self._program.echo.counts(received)]

    def counts(self) -> list[ReceiveCount]:
        to_utc_ns = time.time_ns() - time.clock_gettime_ns(self._clock)
        return receive_counts(self.task, self.matching, self.figures, self.attached, to_utc_ns)


def _receive_queues(interface: str) -> int:
    return len(list((SYS_NET / interface / "queues").glob("rx-*")))
