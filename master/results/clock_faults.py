"""Clocks that were set or drifted too fast during a run: the figures that depend on them, and the notes about them.

Stamps of the field engines use CLOCK_MONOTONIC, which cannot be set; between two nodes they need consistent readings.
With `clock: ptp` they use CLOCK_TAI, which moves with UTC. UTC is used for pktgen's times, those of captures and of the
kernel's UDP sockets, and the seconds that trafgen and tcpreplay report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.ptp_clocks import PtpClocks
from pktswarm.master.results.row import ReceivedCounts, Row
from pktswarm.master.results.users import Users
from pktswarm.traffic.connections.counts import ConnectionRow
from pktswarm.traffic.leg import Leg

SECONDS_BY_UTC = ("trafgen", "tcpreplay")


class ClockFaults:
    """The clock faults of a run so far. Each method returns why a figure is left out; empty: the figure is usable."""

    def __init__(self, nodes: Iterable[NodeState], start_ns: int | None) -> None:
        self._start_ns = start_ns or 0
        self._nodes: dict[str, list[NodeState]] = {}
        known = list(nodes)
        self._ptp = PtpClocks(known)
        for node in known:
            self._nodes.setdefault(node.rank.host.name, []).append(node)

    def utc_set(self, host: str) -> str:
        """Any step counts, however small: a clock that was set and set back shows a step of microseconds."""
        return f"{host}'s UTC was set" if any(node.utc.found for node in self._nodes.get(host, [])) else ""

    def ran_away(self, *hosts: str) -> str:
        drifted = [host for host in hosts if any(node.parted for node in self._nodes.get(host, []))]
        return f"{drifted[0]}'s clock drifted" if drifted else ""

    def of_stamps(self, leg: Leg, receiver: str, tai: bool) -> str:
        """Latency and jitter. `tai`: the stamps of the engine xdp use CLOCK_TAI."""
        faults = (self.utc_set(host) for host in _stamped_by_utc(leg, receiver, tai))
        if why := next(filter(None, faults), ""):
            return why
        if leg.echo_of is not None:
            return ""  # there is one clock
        if tai and leg.engine != "pktgen":
            return self._ptp.unequal(leg.source, receiver)  # PTP steers both
        return self.ran_away(leg.source, receiver)

    def of_capture(self, leg: Leg) -> str:
        """Latency from due times to captures."""
        return self.utc_set(leg.receiver) or self.ran_away(leg.transmitter, leg.receiver)

    def of_seconds(self, leg: Leg, engine: str) -> str:
        """Duration of sending."""
        return self.utc_set(leg.transmitter) if engine in SECONDS_BY_UTC else ""

    def of_datagrams(self, row: ConnectionRow) -> str:
        return self.utc_set(row.target) if row.udp else ""

    def notes(self, rows: Iterable[Row]) -> list[str]:
        """A note for each clock fault, and one for each omitted figure with its reason and streams."""
        notes = [text for host in self._nodes for text in self._faults(host)]
        streams: dict[str, dict[str, None]] = {}
        for row in rows:
            for why in row.omitted_timing:
                streams.setdefault(why, {})[row.leg.stream] = None
        return notes + [f"left out of {', '.join(names)}: {why}" for why, names in streams.items()]

    def _faults(self, host: str) -> list[str]:
        # Two ranks of one host read one clock.
        steps = max((node.utc.found for node in self._nodes[host]), key=len)
        faults = [f"{host}: {step.describe(self._start_ns)}" for step in steps]
        parted = next(filter(None, (node.parted for node in self._nodes[host])), None)
        if parted is not None:
            moved_ns, took_ns = parted
            moved = f"its clock moved by {moved_ns / 1e3:+,.0f} µs against the master's within {took_ns / 1e9:,.1f} s"
            faults.append(f"{host}: {moved}, more than clocks drift")
        return faults


def _stamped_by_utc(leg: Leg, receiver: str, tai: bool) -> list[str]:
    """The hosts whose UTC the stamps of a leg depend on."""
    source = [leg.source] if leg.engine == "pktgen" or (tai and leg.echo_of is None) else []
    return source + ([receiver] if tai else [])


def impossible(received: ReceivedCounts, source: str, target: str) -> str:
    """Why a latency cannot be true: a frame that arrived before it was sent, by more than the bound of the clocks.
    Empty: it can be."""
    latency, bound_ns = received.latency, received.latency_bound_ns
    if latency is None or bound_ns is None or latency.min_ns >= -bound_ns:
        return ""
    clocks = f"the clocks of {source} and {target} are further apart than their readings allow"
    return f"its minimum of {latency.min_ns / 1e3:,.1f} µs is below the bound of -{bound_ns / 1e3:,.1f} µs: {clocks}"


def leave_out_stamps(received: ReceivedCounts, users: Users | None, why: str) -> None:
    """Removes latency and jitter from the counts of a receiver; `why` empty: they are kept."""
    if not why:
        return
    if users is not None:
        users.timed = False
    if received.tally is None:
        return
    if received.tally.latency is not None:
        received.latency_bound_ns = received.delays = None
        received.omitted_timing.append(f"latency, because {why}")
    if received.tally.jitter is not None:
        received.omitted_timing.append(f"jitter, because {why}")
    received.tally = replace(received.tally, latency=None, jitter=None)
