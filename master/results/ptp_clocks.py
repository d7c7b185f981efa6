"""How far apart the TAI clocks of two nodes are at most, with `clock: ptp`: as far as UTC, where TAI offsets are equal.

Two sources: both clocks as rank 0 reads them, which does not rely on PTP; and the offsets that ptp4l reports, which are
closer, and leave out the asymmetry of the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pktswarm.master.cluster.node import NodeState
from pktswarm.traffic.protocol.ptp_reading import PtpReading


class Apart(NamedTuple):
    """The difference of two clocks, and the error bound of it."""

    difference_ns: int
    bound_ns: int

    @property
    def least_ns(self) -> int:
        return max(0, abs(self.difference_ns) - self.bound_ns)

    @property
    def most_ns(self) -> int:
        return abs(self.difference_ns) + self.bound_ns


class PtpClocks:
    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._nodes: dict[str, NodeState] = {}
        for node in nodes:  # two ranks of one host read one clock; one of them can be without a task
            if node.ptp or node.rank.host.name not in self._nodes:
                self._nodes[node.rank.host.name] = node

    def bound_ns(self, source: str, target: str) -> int | None:
        """Returns the largest difference of the clocks of two hosts; None: unknown."""
        return self._judge(source, target)[0]

    def _judge(self, source: str, target: str) -> tuple[int | None, str]:
        """Returns the bound, and why the offsets that ptp4l reports are not used, where the reports do not have it."""
        there, here = self._nodes[source], self._nodes[target]
        if _on_the_masters_clock(there) and _on_the_masters_clock(here):
            return 0, ""
        read = _differences(there, here) if here.ptp and there.ptp else []
        if not read:
            return None, ""
        reports = [*there.ptp, *here.ptp]
        least_ns, most_ns = max(apart.least_ns for apart in read), max(apart.most_ns for apart in read)
        if any(each.problem for each in reports):
            return most_ns, ""
        if len({each.grandmaster for each in reports}) > 1:
            return most_ns, "they follow different grandmasters"
        reported_ns = _largest_ns(there.ptp) + _largest_ns(here.ptp)
        if reported_ns < least_ns:
            return most_ns, f"by the readings the clocks are at least {least_ns:,} ns apart"
        return min(reported_ns, most_ns), ""

    def unequal(self, source: str, target: str) -> str:
        """Why TAI is not the same time on two hosts; empty: it can be."""
        offsets = [{each.tai_offset_s for each in self._nodes[host].ptp} for host in (source, target)]
        if not all(offsets) or offsets[0] == offsets[1]:
            return ""
        shown = [f"{_seconds(found)} on {host}" for host, found in zip((source, target), offsets, strict=True)]
        return f"TAI is {shown[0]} and {shown[1]}"

    def notes(self, pairs: Iterable[tuple[str, str]]) -> list[str]:
        """A line for each host with reports, and for each of `pairs` of hosts whose reports are not used."""
        lines = [f"{host}: clock: ptp: {_shown(node.ptp)}" for host, node in self._nodes.items() if node.ptp]
        for source, target in dict.fromkeys(pairs):
            if why := self._judge(source, target)[1]:
                lines.append(f"{source} and {target}: clock: ptp: no bound by ptp4l: {why}")
        return lines


def _on_the_masters_clock(node: NodeState) -> bool:
    """A bound of 0 is that of one clock (master.run.clock_readings)."""
    return bool(node.clock) and not any(read.offset_ns or read.bound_ns for read in node.clock.values())


def _differences(source: NodeState, target: NodeState) -> list[Apart]:
    """The difference of UTC by each reading that both have. Both clocks of a node are read within the round trip."""
    found = []
    for when in source.clock.keys() & target.clock.keys():
        ends = source.clock[when], target.clock[when]
        there_ns, here_ns = (read.offset_ns + read.realtime_minus_monotonic_ns for read in ends)
        found.append(Apart(there_ns - here_ns, sum(read.bound_ns + read.round_trip_ns for read in ends)))
    return found


def _largest_ns(readings: list[PtpReading]) -> int:
    return max(abs(each.offset_ns) for each in readings)


def _seconds(offsets: set[int]) -> str:
    return " and ".join(f"UTC + {offset_s} s" for offset_s in sorted(offsets))


def _shown(readings: list[PtpReading]) -> str:
    problem = next((each.problem for each in readings if each.problem), "")
    if problem:
        return f"no bound by ptp4l: {problem}"
    last = readings[-1]
    if last.state != "SLAVE":
        return f"it is the grandmaster, {last.grandmaster}"
    figures = f"offset at most {_largest_ns(readings):,} ns, path delay {last.path_delay_ns:,} ns"
    return f"follows {last.grandmaster}, {figures}"
