"""A scenario at a load: its streams share the load in proportion to their rates in the scenario."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from pktswarm.master.benchmark.latency_trend import SAMPLES_A_TRIAL
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan import plan as plans
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.scenario.receive import Receive
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.source import Source
from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

MOST_SAMPLES_PER_S = 50.0
A_RATE = "rate_pps, rate_bps or rate_l1_bps, or a rate in packets/s"


class About(TypedDict):
    """The scenario of a benchmark, in its document."""

    name: str
    scenario_file: str
    streams: list[str]
    dut: NotRequired[DutEntry]


@dataclass(frozen=True)
class Load:
    """The searched streams of a scenario.

    `unit_pps`: the rate of each in the scenario; of a stream per node, the rate of one node. `own_pps`: the sum of all
    streams and nodes. `least_pps`: the smallest rate of one stream from one node. `parts`: the number of such flows.
    """

    path: Path
    scenario: Scenario
    unit_pps: dict[str, float]
    own_pps: float
    least_pps: float
    parts: int

    def about(self) -> About:
        """The part of a document that is known before the first trial."""
        return {"name": self.scenario.name, "scenario_file": str(self.path), "streams": list(self.unit_pps)}

    def at(self, load_pps: float, duration_s: float) -> Scenario:
        """The scenario of a trial: the searched streams send `load_pps` in all, and traffic ends after `duration_s`.

        Nothing is captured, and the scenario's expectations are dropped: the benchmark evaluates the counts.
        """
        streams = [self._stream(stream, load_pps / self.own_pps, duration_s) for stream in self.scenario.streams]
        changed = {
            "streams": streams,
            "traces": [trace.model_copy(update={"verify": False}) for trace in self.scenario.traces],
            "stop_after_s": duration_s,
            "samples_per_s": max(self.scenario.samples_per_s, _samples_per_s(duration_s)),
            "receive": _counting(self.scenario.receive),
            "expect": Expect.model_validate({}),
        }
        return self.scenario.model_copy(update=changed)

    def _stream(self, stream: Stream, times: float, duration_s: float) -> Stream:
        if stream.name not in self.unit_pps:
            return stream
        others = dict.fromkeys(("rate", "rate_bps", "rate_l1_bps", "count_packets"))
        own = {"rate_pps": self.unit_pps[stream.name] * times, "duration_s": duration_s}
        return stream.model_copy(update={**others, **own})

    def lasts_s(self) -> float:
        """The duration of the unsearched traffic that ends first; infinite without any."""
        lasting = [_lasting(item)[1] for item in _items(self.scenario).values() if item.name not in self.unit_pps]
        return min((lasts_s for lasts_s in lasting if lasts_s is not None), default=math.inf)

    def check_lasting(self, duration_s: float) -> None:
        """Raise BadInput if unsearched traffic ends before a trial does."""
        for key, item in _items(self.scenario).items():
            if item.name in self.unit_pps:
                continue
            name, lasts_s = _lasting(item)
            if lasts_s is not None and lasts_s < duration_s:
                problem = f"unsearched traffic ends before a trial of {duration_s:g} s"
                value = getattr(item, name)
                raise BadInput(
                    self.path, problem, key=f"{key}.{name}", value=value, allowed=f"{duration_s:g} s or more"
                )


def load_of(path: Path, scenario: Scenario, inventory: Inventory, names: list[str]) -> Load:
    """Scale the streams of these names; empty: all but the background. Raises BadInput if one cannot be scaled."""
    searched = _searched(path, scenario, names)
    _refuse_interactive(path, scenario)
    streams_alone = scenario.model_copy(update={"traces": [], "sources": [], "connections": []})
    legs = plans.plan(streams_alone, path, inventory).legs
    unit_pps, parts = {}, []
    for index, stream in searched.items():
        rates = [_rate_pps(path, f"streams.{index}", leg) for leg in legs if leg.stream == stream.name]
        if not rates:
            raise BadInput(path, "the stream sends nothing", key=f"streams.{index}", value=stream.name, allowed=A_RATE)
        unit_pps[stream.name] = sum(rates) / (len(rates) if stream.per == "node" else 1)
        parts += rates
    return Load(path, scenario, unit_pps, sum(parts), min(parts), len(parts))


def _samples_per_s(duration_s: float) -> float:
    """The samples that show a trend of the latency; none more in a trial that is too short for them, as a burst is."""
    wanted = SAMPLES_A_TRIAL / duration_s
    return wanted if wanted <= MOST_SAMPLES_PER_S else 0.0


def _searched(path: Path, scenario: Scenario, names: list[str]) -> dict[int, Stream]:
    """The searched streams by their index in the file. Raises BadInput."""
    if not scenario.streams:
        raise BadInput(path, "the scenario has no streams to scale", key="streams", allowed=A_RATE)
    known = [stream.name for stream in scenario.streams]
    if unknown := [name for name in names if name not in known]:
        raise BadInput(path, "there is no such stream", key="--stream", value=unknown[0], allowed=", ".join(known))
    chosen = names or [stream.name for stream in scenario.streams if not stream.background]
    if not chosen:
        problem = "all streams are background; name the streams to search"
        raise BadInput(path, problem, key="--stream", allowed=", ".join(known))
    searched = {index: stream for index, stream in enumerate(scenario.streams) if stream.name in chosen}
    for index, stream in searched.items():
        _refuse_echo(path, index, stream)
    return searched


def _refuse_echo(path: Path, index: int, stream: Stream) -> None:
    """Raise BadInput for an echo stream: its rate depends on the received packets, so that there would be two loads."""
    if stream.echo:
        problem = "the rate of an echo stream depends on the received packets"
        allowed = "0; use two streams, one in each direction"
        raise BadInput(path, problem, key=f"streams.{index}.echo", value=stream.echo, allowed=allowed)


def _refuse_interactive(path: Path, scenario: Scenario) -> None:
    for index, trace in enumerate(scenario.traces):
        if trace.interactive:
            problem = "an interactive trace cannot stop at the end of a trial"
            raise BadInput(path, problem, key=f"traces.{index}.interactive", value=True, allowed="false")


def _rate_pps(path: Path, key: str, leg: Leg) -> float:
    if leg.rates:
        raise BadInput(path, "a rate that changes over time cannot be scaled", key=f"{key}.rate", allowed=A_RATE)
    if leg.rate_pps is None:
        problem = "the stream has no rate to scale"
        raise BadInput(path, problem, key=f"{key}.rate_pps", allowed=A_RATE)
    return leg.rate_pps


def _items(scenario: Scenario) -> dict[str, Stream | Source]:
    """The streams and sources by their keys in the file. docs/search.md describes traces and connections."""
    items: dict[str, Stream | Source] = {f"streams.{index}": item for index, item in enumerate(scenario.streams)}
    return items | {f"sources.{index}": item for index, item in enumerate(scenario.sources)}


def _lasting(item: Stream | Source) -> tuple[str, float | None]:
    """The key that ends an item, and its time in s; None: it depends on the nodes."""
    if isinstance(item, Source) or item.count_packets is None:
        return "duration_s", item.duration_s
    pps = item.rate if isinstance(item.rate, (int, float)) else item.pps()
    return "count_packets", None if pps is None else item.count_packets / pps


def _counting(receive: Receive) -> Receive:
    """Count without captures: those of all trials would fill the disk."""
    return receive.model_copy(update={"mode": "count", "capture_filter": "", "capture_every": 1})
