"""Captures of a trace against what was intended: its receivers' once a run is over, or one made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from master import interactive
from master.recount import captured_packets, captures_of, run_json, together
from traffic.capture_file import Packet
from traffic.errors import BadInput
from traffic.replay.verify import Verified, intended, verify
from traffic.task import Leg, leg_from_json


def verified(folder: Path, legs: list[Leg], streams: set[str]) -> list[tuple[Leg, Verified]]:
    """Of the traces in `streams`: one result for each row of the run."""
    groups = together(legs)
    results = []
    for host in dict.fromkeys(leg.target for leg in legs if leg.stream in streams):
        mine = [leg for leg in legs if leg.target == host and leg.counted_with is None]
        packets, _ = captured_packets(captures_of(folder, host), mine)
        wanted = [leg for leg in mine if leg.stream in streams]
        results += [(leg, _verified(folder, groups[leg.id], packets[leg.id])) for leg in wanted]
    return results


def verified_elsewhere(folder: Path, capture: Path) -> list[tuple[Leg, Verified]]:
    """Of a run's traces, what `capture` has: one made by other means, as at a switch's mirror port.

    One result for each row of the run whose packets are in it. Raises BadInput where there are none.
    """
    legs = [leg_from_json(data) for data in run_json(folder)["legs"] if data["kind"] != "connections"]
    groups = together(legs)
    packets, strangers = captured_packets([capture], [leg for leg in legs if leg.counted_with is None])
    # An interactive trace has no times of its own to hold it to.
    traces = [leg for leg in legs if leg.kind == "trace" and leg.engine != interactive.ENGINE]
    results = [(leg, _verified(folder, groups[leg.id], packets[leg.id])) for leg in traces if packets.get(leg.id)]
    if not results:
        raise BadInput(capture, f"has no packet of a trace of {folder}", value=f"{strangers} other packets")
    return results


def _verified(folder: Path, legs: list[Leg], captured: list[Packet]) -> Verified:
    return verify(intended(legs, folder / "sent"), captured, legs[0].timing.get("mode") != "top")


def verdicts(results: list[tuple[Leg, Verified]]) -> list[dict[str, Any]]:
    return [
        {"text": f"{leg.stream} from {leg.source}: {result.words()}", "holds": result.holds} for leg, result in results
    ]


def document(results: list[tuple[Leg, Verified]]) -> list[dict[str, Any]]:
    return [
        {"leg": leg.id, "stream": leg.stream, "from": leg.source, "to": leg.target, **result.to_json()}
        for leg, result in results
    ]
