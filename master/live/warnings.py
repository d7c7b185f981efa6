"""What goes wrong while a run goes, as far as it can be seen before the counts are gathered."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.ledger import Event

BEHIND_OVER_S = 5
"""A node's rate is judged over so many seconds."""
MAY_BE_BEHIND, BATCHES = 0.01, 256
"""Of what is due: a share of it, and frames that are made together and sent together."""
DEVIATIONS = 4.0
"""Of random gaps: how far the sum of many may be from its mean."""
MAY_DRIFT_NS = 100_000
"""Beyond what the readings' bounds explain."""


class Warnings:
    """Each by what it is about: told once, with the time when it was first seen and what is known by now."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], dict[str, Any]] = {}
        self._rates: dict[int, deque[tuple[int, int]]] = {}

    def document(self) -> list[dict[str, Any]]:
        """[{"at_s": seconds since the start, "text"}], in the order of their times."""
        return [dict(one) for one in self._told.values()]

    def look_at_node(self, node: NodeState, at_s: float) -> None:
        if node.problem:
            self._tell("node", node, at_s, node.problem)

    def look_at_link(self, node: NodeState, counters: dict[str, int], at_ns: int) -> None:
        downs = counters.get("link_downs", 0)
        if downs:
            times = "once" if downs == 1 else f"{downs} times"
            self._tell("link", node, at_ns / 1e9, f"the link of {node.rank.host.traffic_interface} went down {times}")

    def look_at_utc(self, node: NodeState, start_ns: int) -> None:
        for step in node.utc.found[-1:]:
            self._tell("UTC", node, (step.before_ns - start_ns) / 1e9, step.describe(start_ns))

    def look_at_clock(self, node: NodeState, event: Event, at_s: float) -> None:
        """An event "drift" beside the reading at the start."""
        first = node.clock.get("start") or node.clock.get("before")
        if first is None:
            return
        moved_ns, took_ns = event["offset_ns"] - first["offset_ns"], event["at_ns"] - first["at_ns"]
        if abs(moved_ns) - event["bound_ns"] - first["bound_ns"] > MAY_DRIFT_NS:
            text = f"its clock has moved by {moved_ns / 1e3:+,.0f} µs in {took_ns / 1e9:,.0f} s against the master's"
            self._tell("clock", node, at_s, text)

    def look_at_rate(self, number: int, node: NodeState, figures: dict[str, Any], spread: float, at_s: float) -> None:
        """Once a second while it sends. `spread`: of random gaps."""
        due, sent = figures["intended_packets"], figures["sent_packets"]
        if due is None or sent is None:
            return
        past = self._rates.setdefault(number, deque(maxlen=BEHIND_OVER_S + 1))
        past.append((due, sent))
        was_due, had_sent = past[0]
        wanted, done = due - was_due, sent - had_sent
        if wanted - done > MAY_BE_BEHIND * wanted + BATCHES + DEVIATIONS * spread * math.sqrt(wanted):
            text = f"below its intended rate: {sent:,} packets sent, {due:,} were due"
            self._tell("rate", node, at_s, text)

    def _tell(self, about: str, node: NodeState, at_s: float, text: str) -> None:
        told = self._told.setdefault((about, node.name), {"at_s": round(at_s, 3), "text": ""})
        told["text"] = f"{node.name}: {text}"
