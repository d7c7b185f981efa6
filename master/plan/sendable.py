"""Refuses what no engine can send, whatever the node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pktswarm.master.scenario.addresses import with_placeholders
from pktswarm.master.scenario.fields import Yaml
from pktswarm.master.scenario.problems import located, together
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.capabilities import choose, order


def refuse_unsendable(scenario: Scenario, path: Path, legs: Iterable[Leg]) -> None:
    """Raise BadInput for every stream that none of the engines to try can send, at its line of the file; a run refuses
    it too, once the nodes have reported."""
    problems: dict[str, BadInput] = {}
    for leg in legs:
        if leg.echo_of is not None or leg.stream in problems:  # the receiver sends an echo
            continue
        name, reasons = choose(with_placeholders(leg), dict.fromkeys(order(leg), ""))
        if not name:
            problem = f"no engine can send {leg.stream!r}: {'; '.join(reasons)}"
            problems[leg.stream] = BadInput(path, problem, key=_key(scenario, leg.stream), value=leg.engine)
    if problems:
        raise located(path, together([*problems.values()]), Yaml)


def _key(scenario: Scenario, name: str) -> str:
    """Key of the engine of a stream, trace, source or of connections."""
    for section in ("streams", "traces", "sources", "connections"):
        for index, entry in enumerate(getattr(scenario, section)):
            if entry.name == name:
                return f"{section}.{index}.engine"
    return "engine"
