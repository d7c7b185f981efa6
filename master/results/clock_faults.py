"""Clocks that were set, or ran away, during a run: which figures stand on them, are left out, and what is said of it.

Stamps of the engine xdp are of CLOCK_MONOTONIC, which nobody can set; between two nodes they need readings that agree.
With `clock: ptp` they are of CLOCK_TAI, which moves with UTC. Of UTC are pktgen's times, those of captures and of the
kernel's UDP sockets, and the seconds that trafgen and tcpreplay tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.row import Row
from pktswarm.traffic.connections.counts import ConnectionRow
from pktswarm.traffic.leg import Leg

SECONDS_BY_UTC = ("trafgen", "tcpreplay")


class ClockFaults:
    """Of a run as far as it is known. Each answer is why something is left out; empty: it stands."""

    def __init__(self, nodes: Iterable[NodeState], start_ns: int | None) -> None:
        self._start_ns = start_ns or 0
        self._nodes: dict[str, list[NodeState]] = {}
        for node in nodes:
            self._nodes.setdefault(node.rank.host.name, []).append(node)

    def utc_set(self, host: str) -> str:
        """However small the step that is read: who sets a clock and sets it back leaves microseconds of the way."""
        return f"{host}'s UTC was set" if any(node.utc.found for node in self._nodes.get(host, [])) else ""

    def ran_away(self, *hosts: str) -> str:
        found = [host for host in hosts if any(node.parted for node in self._nodes.get(host, []))]
        return f"{found[0]}'s clock did not run evenly" if found else ""

    def of_stamps(self, leg: Leg, receiver: str, tai: bool) -> str:
        """Latency and jitter. `tai`: the stamps of the engine xdp are of CLOCK_TAI."""
        told = (self.utc_set(host) for host in _stamped_by_utc(leg, receiver, tai))
        if why := next(filter(None, told), ""):
            return why
        if leg.echo_of is not None or (tai and leg.engine != "pktgen"):
            return ""  # one clock; or PTP's own to tell
        return self.ran_away(leg.source, receiver)

    def of_capture(self, leg: Leg) -> str:
        """Latency from due times to captures."""
        return self.utc_set(leg.receiver) or self.ran_away(leg.transmitter, leg.receiver)

    def of_seconds(self, leg: Leg, engine: str) -> str:
        """How long a sender took."""
        return self.utc_set(leg.transmitter) if engine in SECONDS_BY_UTC else ""

    def of_datagrams(self, row: ConnectionRow) -> str:
        return self.utc_set(row.target) if row.udp else ""

    # --- what is said of it -------------------------------------------------------------------------------------

    def notes(self, rows: Iterable[Row]) -> list[str]:
        """Each clock with what it did, and each reason with the streams of which it leaves something out."""
        told = [words for host in self._nodes for words in self._words(host)]
        streams: dict[str, dict[str, None]] = {}
        for row in rows:
            for why in row.omitted_timing:
                streams.setdefault(why, {})[row.leg.stream] = None
        return told + [f"left out of {', '.join(names)}: {why}" for why, names in streams.items()]

    def _words(self, host: str) -> list[str]:
        # Two ranks of one host tell of one clock.
        steps = max((node.utc.found for node in self._nodes[host]), key=len)
        told = [f"{host}: {step.describe(self._start_ns)}" for step in steps]
        parted = next(filter(None, (node.parted for node in self._nodes[host])), None)
        if parted is not None:
            moved_ns, took_ns = parted
            moved = f"its clock moved by {moved_ns / 1e3:+,.0f} µs against the master's within {took_ns / 1e9:,.1f} s"
            told.append(f"{host}: {moved}, more than free clocks part")
        return told


def _stamped_by_utc(leg: Leg, receiver: str, tai: bool) -> list[str]:
    """The hosts on whose UTC the times of a leg's stamps stand."""
    source = [leg.source] if leg.engine == "pktgen" or (tai and leg.echo_of is None) else []
    return source + ([receiver] if tai else [])


def leave_out_stamps(row: Row, why: str) -> None:
    """Latency and jitter, where there is a reason."""
    if not why:
        return
    if row.users is not None:
        row.users.timed = False
    if row.tally is None:
        return
    if row.tally.latency is not None:
        row.delays, row.clock_bound_ns = None, None
        row.omitted_timing.append(f"latency, because {why}")
    if row.tally.jitter is not None:
        row.omitted_timing.append(f"jitter, because {why}")
    row.tally = replace(row.tally, latency=None, jitter=None)
