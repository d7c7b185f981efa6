"""Compares a measured value with its limit. The result is no more certain than the measurement."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.master.results.document import Judgement, Verdict


@dataclass(frozen=True)
class Measurement:
    """`value` ± `bound`, in the unit of its limit."""

    value: float
    bound: float = 0.0

    def against(self, limit: float, at_least: bool) -> Judgement:
        short = limit - self.value if at_least else self.value - limit
        if short + self.bound <= 0:
            return "held"
        return "failed" if short - self.bound > 0 else "not decided"

    def __str__(self) -> str:
        return number(self.value) + (f" ± {number(self.bound)}" if self.bound else "")


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1e5 else f"{value:,.1f}"


def verdict(label: str, measured: object, expected: object, outcome: Judgement, name: str = "") -> Verdict:
    """The verdict on a figure. `label`: its name at the begin of the text; `name`: identifies the expectation in every
    run; empty: `label` does."""
    more = f": {outcome}" if outcome == "not decided" else ""
    return {
        "text": f"{label} {measured}, expected {expected}{more}",
        "holds": outcome == "held",
        "what": name or label.rstrip(":"),
        "found": str(measured),
        "expected": str(expected),
        "outcome": outcome,
    }


def judgement(measured: object, holds: bool) -> Judgement:
    """`measured` None: nothing was measured."""
    if measured is None:
        return "not measured"
    return "held" if holds else "failed"
