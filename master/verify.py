"""What receivers captured of a trace against what was intended, once a run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from master.recount import captured_packets, captures_of, together
from traffic.replay.verify import Verified, intended, verify
from traffic.task import Leg


def verified(folder: Path, legs: list[Leg], streams: set[str]) -> list[tuple[Leg, Verified]]:
    """Of the traces in `streams`: one result for each row of the run."""
    groups = together(legs)
    results = []
    for host in dict.fromkeys(leg.target for leg in legs if leg.stream in streams):
        mine = [leg for leg in legs if leg.target == host and leg.counted_with is None]
        packets, _ = captured_packets(captures_of(folder, host), mine)
        for leg in mine:
            if leg.stream in streams:
                timed = leg.timing.get("mode") != "top"
                results.append((leg, verify(intended(groups[leg.id], folder / "sent"), packets[leg.id], timed)))
    return results


def verdicts(results: list[tuple[Leg, Verified]]) -> list[dict[str, Any]]:
    return [
        {"text": f"{leg.stream} from {leg.source}: {result.words()}", "holds": result.holds} for leg, result in results
    ]


def document(results: list[tuple[Leg, Verified]]) -> list[dict[str, Any]]:
    return [
        {"leg": leg.id, "stream": leg.stream, "from": leg.source, "to": leg.target, **result.to_json()}
        for leg, result in results
    ]
