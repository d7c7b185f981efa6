"""Pacing of the legs of a stream: variable rates, random arrivals, seeds."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.random.parse import gap_table, parse_arrivals
from pktswarm.traffic.random.rates import Rates, parse_rates
from pktswarm.traffic.schedule import due_times, pace


def own_seed(seed: int, name: str, number: int = 0) -> int:
    """Seed of the flow `number` of a stream or source; independent of all other streams."""
    return seed << 32 | zlib.crc32(f"{name} {number}".encode())


@dataclass(frozen=True)
class StreamPacing:
    """Pacing of a whole stream. `rates` in packets/s, None: unlimited; `gaps`: Leg.gap_table."""

    name: str
    path: Path
    key: str
    seed: int
    rates: Rates | None
    gaps: list[int]
    stop_s: float | None
    """The scenario's cut-off time."""

    @classmethod
    def of(cls, stream: Stream, path: Path, key: str, seed: int, stop_s: float | None = None) -> StreamPacing:
        """Raise BadInput for an invalid rate or arrival process. `seed`, `stop_s`: the scenario's."""
        own = seed if stream.seed is None else stream.seed
        return cls(stream.name, path, key, own, _rates(stream, path, key, own), _gaps(stream, path, key), stop_s)

    def seed_of(self, number: int) -> int:
        return own_seed(self.seed, self.name, number)

    def give(self, leg: Leg, weight: int, whole: int) -> Leg:
        """The leg with its part of the rates, `weight` of `whole`, and the resulting number of intended packets."""
        leg = replace(self._with_rate(leg, weight, whole), gap_table=self.gaps)
        if trouble := pace.unable(leg):
            raise BadInput(self.path, trouble, key=f"{self.key}.rate")
        if pace.is_paced(leg):
            due = next(due_times.due_blocks(leg), None)
            leg = replace(leg, timing=Timing(lead_ns=0 if due is None else int(due[0])))
        if leg.count_packets is not None:
            return replace(leg, intended_packets=leg.count_packets)
        if pace.is_paced(leg):
            return replace(leg, intended_packets=due_times.intended_packets(leg))
        return leg

    def packets(self, count: int | None, duration_s: float | None) -> int | None:
        """Packets of the whole stream: `count`, or rate times duration, up to the scenario's cut-off; None if the
        rate is unlimited or varies."""
        if self.rates is None or len(self.rates.rate) > 1 or self.gaps:
            return count
        rate_pps = float(self.rates.rate[0])
        by_time = [round(rate_pps * one) for one in (duration_s, self.stop_s) if one is not None]
        return min(by_time if count is None else [count, *by_time], default=None)

    def _with_rate(self, leg: Leg, weight: int, whole: int) -> Leg:
        if self.rates is None:
            return leg
        if len(self.rates.rate) == 1:
            return replace(leg, rate_pps=float(self.rates.rate[0]) * weight / whole)
        return replace(leg, rates=self.rates.times(weight / whole).pairs())


def _rates(stream: Stream, path: Path, key: str, seed: int) -> Rates | None:
    """A profile is drawn once for all the stream's nodes."""
    given = stream.pps() if stream.rate is None else stream.rate
    if given is None:
        return None
    if stream.duration_s is None and isinstance(given, dict) and "steady" not in given:
        problem, allowed = "a rate that changes needs duration_s, not count_packets", "duration_s"
        raise BadInput(path, problem, key=f"{key}.count_packets", value=stream.count_packets, allowed=allowed)
    drawn, length_s = own_seed(seed, stream.name), stream.duration_s or 1.0
    rates = parse_rates(path, f"{key}.rate", given, length_s, seed=drawn, folder=path.parent)
    return rates.in_pps(stream.sizes().mean_bytes)


def _gaps(stream: Stream, path: Path, key: str) -> list[int]:
    """Empty where frames follow one another evenly."""
    arrivals = parse_arrivals(path, f"{key}.arrivals", stream.arrivals, folder=path.parent)
    if arrivals is None:
        return []
    return due_times.exponential_gaps() if stream.arrivals == "poisson" else gap_table(arrivals)
