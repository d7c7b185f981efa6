"""The document of a search, search.json. Rates in packets/s, losses as shares of 1; None: not measured."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

from pktswarm.master.benchmark.document import Document, TrialFields, trial_fields
from pktswarm.master.benchmark.load import About, Load
from pktswarm.master.search.engine import Search

FORMAT_VERSION = 1


class SearchAbout(About):
    """The part that is known before the first trial. Documents of earlier versions have only About."""

    hosts_file: NotRequired[str]
    expect: NotRequired[list[str]]
    """`--expect` of the command."""


class OptionFields(TypedDict):
    losses: tuple[float, ...]
    min_pps: float
    max_pps: float
    precision: float
    duration_s: float
    trials: int
    confirm_s: float | None


class GoalFields(TypedDict):
    """The rate of one loss goal, with its bounds."""

    loss_ratio: float
    state: str
    rate_pps: float | None
    conditional_throughput_pps: float | None
    lower_pps: float | None
    upper_pps: float | None
    l2_bps: float | None
    l1_bps: float | None
    confirmed_s: float | None
    latency_rise_ns_per_s: float | None
    undecided: str
    """The next higher rate, and why its confirming trials are invalid; empty: they are valid."""


class SearchTrial(TrialFields):
    trial: int
    confirms: bool


class SearchDocument(Document):
    streams: list[str]
    asked: OptionFields
    goals: list[GoalFields]
    trials: list[SearchTrial]
    hosts_file: NotRequired[str]
    expect: NotRequired[list[str]]


def about(load: Load, hosts: Path, expect: list[str]) -> SearchAbout:
    """The part that is known before the first trial."""
    return {**load.about(), "hosts_file": str(hosts), "expect": expect}


def document(search: Search, about: SearchAbout) -> SearchDocument:
    """The state of a search."""
    return {
        "format_version": FORMAT_VERSION,
        **about,
        "status": search.status,
        "problem": search.problem,
        "asked": _options(search),
        "goals": _goals(search),
        "trials": [
            {"trial": number, "confirms": search.confirms(number - 1), **trial_fields(trial)}
            for number, trial in enumerate(search.trials, 1)
        ],
        "interruptions": [],
    }


def _options(search: Search) -> OptionFields:
    options = search.options
    return {
        "losses": options.losses,
        "min_pps": search.lowest_pps,
        "max_pps": search.highest_pps,
        "precision": options.precision,
        "duration_s": options.duration_s,
        "trials": options.trials,
        "confirm_s": options.confirm_s,
    }


def _goals(search: Search) -> list[GoalFields]:
    goals: list[GoalFields] = []
    for goal in search.goals():
        trial = next((trial for trial in reversed(search.trials) if trial.intended_pps == goal.rate_pps), None)
        goals.append(
            {
                "loss_ratio": goal.loss_ratio,
                "state": goal.state,
                "rate_pps": goal.rate_pps,
                "conditional_throughput_pps": goal.conditional_throughput_pps,
                "lower_pps": goal.lower_pps,
                "upper_pps": goal.upper_pps,
                "l2_bps": None if trial is None else trial.l2_bps,
                "l1_bps": None if trial is None else trial.l1_bps,
                "confirmed_s": goal.confirmed_s,
                "latency_rise_ns_per_s": None if trial is None else trial.latency_rise_ns_per_s,
                "undecided": goal.undecided,
            }
        )
    return goals
