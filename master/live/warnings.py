"""Warnings of a run that do not have to wait for the final counts."""

from __future__ import annotations

import math
from collections import deque

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.live.document import PartFigures, Warning
from pktswarm.traffic.protocol.rank0_events import Drift

BEHIND_OVER_S = 5
"""Seconds over which a node's rate is checked."""
MAY_BE_BEHIND, BATCHES = 0.01, 256
"""Allowed shortfall: a share of the due frames, plus frames that an engine makes and sends at once."""
DEVIATIONS = 4.0
"""Allowed deviation of a sum of random gaps from its mean, in standard deviations."""
MAY_DRIFT_NS = 100_000
"""Allowed drift in excess of the readings' bounds."""


class Warnings:
    """One warning for each subject and node, with the time of its first occurrence and its newest text."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Warning] = {}
        self._rates: dict[int, deque[tuple[int, int]]] = {}

    def document(self) -> list[Warning]:
        """Returns copies, in the order of first occurrence."""
        return [warning.copy() for warning in self._found.values()]

    def look_at_node(self, node: NodeState, at_s: float) -> None:
        if node.problem:
            self._add("node", node, at_s, node.problem)

    def look_at_link(self, node: NodeState, counters: dict[str, int], at_ns: int) -> None:
        downs = counters.get("link_downs", 0)
        if downs:
            times = "once" if downs == 1 else f"{downs} times"
            self._add("link", node, at_ns / 1e9, f"link of {node.rank.host.traffic_interface} went down {times}")

    def look_at_utc(self, node: NodeState, start_ns: int) -> None:
        for step in node.utc.found[-1:]:
            self._add("UTC", node, (step.before_ns - start_ns) / 1e9, step.describe(start_ns))

    def look_at_clock(self, node: NodeState, event: Drift, at_s: float) -> None:
        """Compares an event "drift" with the reading at the start."""
        first = node.clock.get("start") or node.clock.get("before")
        if first is None:
            return
        moved_ns, took_ns = event.offset_ns - first.offset_ns, event.at_ns - first.at_ns
        if abs(moved_ns) - event.bound_ns - first.bound_ns > MAY_DRIFT_NS:
            text = f"clock drift {moved_ns / 1e3:+,.0f} µs in {took_ns / 1e9:,.0f} s against the master"
            self._add("clock", node, at_s, text)

    def look_at_rate(
        self, number: int, node: NodeState, figures: PartFigures, gap_variation: float, at_s: float
    ) -> None:
        """To be called once a second while the node sends. `gap_variation`: coefficient of variation of its gaps."""
        due, sent = figures["intended_packets"], figures["sent_packets"]
        if due is None or sent is None:
            return
        past = self._rates.setdefault(number, deque(maxlen=BEHIND_OVER_S + 1))
        past.append((due, sent))
        was_due, had_sent = past[0]
        wanted, done = due - was_due, sent - had_sent
        if wanted - done > MAY_BE_BEHIND * wanted + BATCHES + DEVIATIONS * gap_variation * math.sqrt(wanted):
            text = f"below its intended rate: {sent:,} packets sent, {due:,} due"
            self._add("rate", node, at_s, text)

    def _add(self, about: str, node: NodeState, at_s: float, text: str) -> None:
        warning = self._found.setdefault((about, node.name), {"at_s": round(at_s, 3), "text": ""})
        warning["text"] = f"{node.name}: {text}"
