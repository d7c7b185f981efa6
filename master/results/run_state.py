"""The state of a run: the events of rank 0 and its nodes, and the conversion of their times."""

from __future__ import annotations

from dataclasses import astuple

from pktswarm.master.cluster.clock_offsets import Clocks
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.cluster.utc_steps import UtcSteps
from pktswarm.master.dut_host.watch import HostDrops
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.clock_faults import ClockFaults
from pktswarm.master.results.ptp_clocks import PtpClocks
from pktswarm.master.upf.moves import Moves
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_events import (
    BarrierLeft,
    Capture,
    Clock,
    Drift,
    Lost,
    Note,
    Phase,
    Piece,
    Rank0Event,
    Start,
    Stopped,
)
from pktswarm.traffic.protocol.rank_events import (
    Counts,
    Failed,
    GuardGone,
    Hello,
    InterfaceGone,
    Left,
    NodeEvent,
    RateSet,
    Restored,
    Sample,
    UtcSet,
)

STOPPED = "stopped by the user"
PKTGEN_RESOLUTION_NS = 1_000
"""Its stamps are microseconds of UTC."""
MASTER_WITHIN_NS = 50_000_000
"""Tolerance for the master's UTC: a busy master can be interrupted between its two clocks. No figure uses it."""


class RunState:
    """Takes every event of rank 0."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.nodes = {rank.number: NodeState(rank) for rank in ranks}
        self.resolved = Resolved([])
        self.phases: list[tuple[str, int]] = []
        self.start_ns: int | None = None
        self.start_utc_ns: int | None = None
        self.stopped = ""
        self.over = False
        self.bad_input = ""
        self.barriers: dict[str, dict[int, int]] = {}
        self.notes: list[str] = []
        self.rates_set: dict[int, list[tuple[int, float | None]]] = {}
        """Leg → the rates that were set while it was sent: ns since the start, and packets/s as in RateSet. Its
        intended packets are not known then."""
        self.more_doubts: list[str] = []
        """Doubts that do not come from a node, such as a failed write of the results."""
        self.master_utc = UtcSteps()
        self.moves: Moves | None = None
        """The handovers of users, known when the sessions have ended."""
        self.dut_host: HostDrops | None = None
        """The drops of the device's host, where they are read."""

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else "launch"

    def take(self, event: Rank0Event) -> None:
        match event:
            case Phase(name, at_ns):
                self.phases.append((name, at_ns))
                self.over = name == "over"
            case Note(text):
                self.notes.append(text)
            case Start(at_ns, utc_ns):
                self.start_ns, self.start_utc_ns = at_ns, utc_ns
                self.look_at_master_utc(at_ns, utc_ns - at_ns)
            case Stopped(problem):
                self.stopped = problem or STOPPED
            case Clock(rank):
                self.nodes[rank].take_clock(event)
            case Drift(rank):
                self.nodes[rank].take_check(event)
            case Lost(rank):
                node = self.nodes[rank]
                node.lost = True
                node.problem = f"{event.problem} ({node.last_message(event.heard_ns, self.start_ns)})"
            case BarrierLeft() | Capture() | Piece():
                pass
            case _:
                self._take_of_node(event, self.nodes[event.rank])

    def _take_of_node(self, event: NodeEvent, node: NodeState) -> None:  # noqa: C901 - one case for each kind of message
        match event:
            case Hello(report=report):
                node.report = report
            case Left():
                self._take_left(event, node)
            case Sample():
                self._take_sample(event, node)
            case InterfaceGone():
                node.link.gone_ns = self.sampled_ns(event)
            case UtcSet(reading=reading):
                node.utc.take(self._ours_ns(event), *astuple(reading))
            case RateSet(leg, rate_pps):
                self.rates_set.setdefault(leg, []).append((self._ours_ns(event) - (self.start_ns or 0), rate_pps))
            case Failed(problem, bad_input):
                node.problem = node.problem or problem
                if bad_input and self.start_ns is None:
                    self.bad_input = self.bad_input or f"{node.rank.host.name}: {problem}"
            case GuardGone():
                node.problem = node.problem or "its guard is gone"
            case Counts():
                node.take_counts(event)
            case Restored(troubles) if troubles:
                node.problem = node.problem or f"could not restore everything: {troubles[0]}"

    def look_at_master_utc(self, at_ns: int, realtime_minus_monotonic_ns: int) -> None:
        self.master_utc.take(at_ns, realtime_minus_monotonic_ns, MASTER_WITHIN_NS)

    def _take_left(self, event: Left, node: NodeState) -> None:
        left_ns = event.at_ns - (event.offset_ns or 0)
        self.barriers.setdefault(event.name, {})[event.rank] = left_ns
        if event.name == "start":
            node.released_ns = left_ns

    def _take_sample(self, event: Sample, node: NodeState) -> None:
        node.sampled = event.interface
        if event.utc is not None:
            node.utc.take(self._ours_ns(event), *astuple(event.utc))
        node.outages.take(self.sampled_ns(event), event.interface)
        node.link.take(self.sampled_ns(event), event.interface)

    def sampled_ns(self, event: Sample | InterfaceGone) -> int:
        """The time of a sample since the start instant."""
        return self._ours_ns(event) - (self.start_ns or 0)

    def _ours_ns(self, event: Sample | InterfaceGone | RateSet | UtcSet) -> int:
        """The time of a node's event on the master's clock."""
        clock = self.nodes[event.rank].clock.get("start")
        return event.at_ns - (0 if clock is None else clock.offset_ns)

    # --- times ----------------------------------------------------------------------------------------------------

    def latency_error_ns(self, leg: Leg, receiver: NodeState, at_ns: int) -> tuple[int, int] | None:
        """The correction at `at_ns` of latencies counted by the clock readings before the run, and its error bound.
        None: unknown. Clocks that PTP steers are not corrected."""
        if leg.echo_of is not None:
            return 0, 0  # sent and received by one clock
        source, target = leg.source, receiver.rank.host.name
        task, clocks = self.resolved.receives.get(target), self.clocks()
        if task is not None and task.tai:
            bound_ns = None if leg.engine == "pktgen" else self.ptp_clocks().bound_ns(source, target)
            return None if bound_ns is None else (0, bound_ns)
        if not {source, target} <= set(clocks.offsets_ns):
            return None
        sender = next(n for n in self.nodes.values() if n.rank.host.name == source and n.rank.role == "transmit")
        here, there = receiver.offset_at(at_ns), sender.offset_at(at_ns)
        if here is None or there is None:
            return None
        bound_ns = here.bound_ns + there.bound_ns
        if leg.engine == "pktgen":
            bound_ns += PKTGEN_RESOLUTION_NS + sender.clock["before"].round_trip_ns
        return there.offset_ns - here.offset_ns - clocks.between(source, target), bound_ns

    def clocks(self) -> Clocks:
        """The clock readings before the run, by which receivers count latencies."""
        read = {node.rank.host.name: node.clock["before"] for node in self.nodes.values() if "before" in node.clock}

        return Clocks(
            {host: clock.offset_ns for host, clock in read.items()},
            {host: clock.bound_ns for host, clock in read.items()},
            {host: clock.realtime_minus_monotonic_ns for host, clock in read.items()},
        )

    def middle_ns(self) -> int:
        return self.sending_ns()[1]

    def sending_ns(self) -> tuple[int, int, int]:
        """Begin, middle and end of sending on the master's clock."""
        times = dict(self.phases)
        start_ns = self.start_ns or times.get("send", 0)
        end_ns = max(start_ns, times.get("drain", times.get("gather", 0)))
        return start_ns, (start_ns + end_ns) // 2, end_ns

    def faults(self) -> ClockFaults:
        return ClockFaults(self.nodes.values(), self.start_ns)

    def ptp_clocks(self) -> PtpClocks:
        return PtpClocks(self.nodes.values())

    def since_start(self, realtime_ns: int | None, node: NodeState, by_ns: int | None = None) -> int | None:
        """A node's UTC reading as nanoseconds since the start instant. `by_ns`: the offset from CLOCK_MONOTONIC that
        the node used; None: it is the kernel's UTC, which is unusable if it was set during the run."""
        clock = node.clock.get("start") or node.clock.get("before")
        if realtime_ns is None or clock is None or self.start_ns is None:
            return None
        if by_ns is None and self.faults().utc_set(node.rank.host.name):
            return None
        by_ns = clock.realtime_minus_monotonic_ns if by_ns is None else by_ns
        return self.monotonic_since_start(realtime_ns - by_ns, node)

    def monotonic_since_start(self, node_ns: int, node: NodeState) -> int | None:
        offset = None if self.start_ns is None else node.offset_at(self.start_ns)
        return None if offset is None or self.start_ns is None else int(node_ns - offset.offset_ns - self.start_ns)

    def release_skew_ns(self) -> dict[str, int]:
        """Barrier → time between the first and the last node that left it, on the master's clock."""
        return {name: max(left.values()) - min(left.values()) for name, left in self.barriers.items() if len(left) > 1}
