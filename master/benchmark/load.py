"""A scenario at a load: its streams share what is asked for as they share their own rates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.plan import plan as plans
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.scenario.receive import Receive
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.source import Source
from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

A_RATE = "rate_pps, rate_bps or rate_l1_bps, or a rate in packets/s"


class About(TypedDict):
    """The scenario of a benchmark, in its document."""

    name: str
    scenario_file: str
    streams: list[str]


@dataclass(frozen=True)
class Load:
    """`unit_pps`: each searched stream's rate as the scenario has it (of one node, where it is per node);
    `own_pps`: what all their nodes send together at that; `least_pps`: what the slowest part of it from one node is, of
    `parts` in all."""

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
        """What a trial runs: the searched streams send `load_pps` together, all ends after `duration_s`. Nothing is
        captured, and nothing expected: the search judges."""
        streams = [self._stream(stream, load_pps / self.own_pps, duration_s) for stream in self.scenario.streams]
        changed = {
            "streams": streams,
            "traces": [trace.model_copy(update={"verify": False}) for trace in self.scenario.traces],
            "stop_after_s": duration_s,
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

    def check_lasting(self, duration_s: float) -> None:
        """What is sent beside the searched streams has to be there until a trial's end."""
        for key, one in _items(self.scenario).items():
            if one.name in self.unit_pps:
                continue
            name, lasts_s = _lasting(one)
            if lasts_s is not None and lasts_s < duration_s:
                problem = f"unsearched traffic ends before a trial of {duration_s:g} s"
                value = getattr(one, name)
                raise BadInput(
                    self.path, problem, key=f"{key}.{name}", value=value, allowed=f"{duration_s:g} s or more"
                )


def load_of(path: Path, scenario: Scenario, inventory: Inventory, names: list[str]) -> Load:
    """`names`: the streams that are searched; empty: all but the background. BadInput for what cannot be scaled."""
    searched = _searched(path, scenario, names)
    _refuse_interactive(path, scenario)
    streams_alone = scenario.model_copy(update={"traces": [], "sources": [], "connections": []})
    legs = plans.plan(streams_alone, path, inventory).legs
    unit_pps, parts = {}, []
    for index, stream in searched.items():
        of_it = [_rate_pps(path, f"streams.{index}", leg) for leg in legs if leg.stream == stream.name]
        if not of_it:
            raise BadInput(path, "the stream sends nothing", key=f"streams.{index}", value=stream.name, allowed=A_RATE)
        unit_pps[stream.name] = sum(of_it) / (len(of_it) if stream.per == "node" else 1)
        parts += of_it
    return Load(path, scenario, unit_pps, sum(parts), min(parts), len(parts))


def _searched(path: Path, scenario: Scenario, names: list[str]) -> dict[int, Stream]:
    """By their place in the file."""
    if not scenario.streams:
        raise BadInput(path, "the scenario has no streams to scale", key="streams", allowed=A_RATE)
    known = [stream.name for stream in scenario.streams]
    if unknown := [name for name in names if name not in known]:
        raise BadInput(path, "there is no such stream", key="--stream", value=unknown[0], allowed=", ".join(known))
    wanted = names or [stream.name for stream in scenario.streams if not stream.background]
    if not wanted:
        problem = "all streams are background; name the streams to search"
        raise BadInput(path, problem, key="--stream", allowed=", ".join(known))
    found = {index: stream for index, stream in enumerate(scenario.streams) if stream.name in wanted}
    for index, stream in found.items():
        _refuse_echo(path, index, stream)
    return found


def _refuse_echo(path: Path, index: int, stream: Stream) -> None:
    """Its rate hangs on what arrives, so that two loads would be searched at once."""
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
    """What has a time to end at, as the file has it; see docs/search.md about traces and connections."""
    found: dict[str, Stream | Source] = {f"streams.{index}": one for index, one in enumerate(scenario.streams)}
    return found | {f"sources.{index}": one for index, one in enumerate(scenario.sources)}


def _lasting(one: Stream | Source) -> tuple[str, float | None]:
    """The key that ends it, and when that is; None where it depends on the nodes."""
    if isinstance(one, Source) or one.count_packets is None:
        return "duration_s", one.duration_s
    pps = one.rate if isinstance(one.rate, (int, float)) else one.pps()
    return "count_packets", None if pps is None else one.count_packets / pps


def _counting(receive: Receive) -> Receive:
    """Captures of every trial would fill the disk."""
    return receive.model_copy(update={"mode": "count", "capture_filter": "", "capture_every": 1})
