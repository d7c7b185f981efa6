"""The options of a search: loss goals, bounds of the rate, precision, trials. Checked before anything is planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pktswarm.master.benchmark.options import LONGEST_TRIAL_S, check_duration, percentage
from pktswarm.master.benchmark.options import precision as parse_precision
from pktswarm.master.search.confirm import LONGEST_S
from pktswarm.traffic.errors import BadInput

LOSS = "0, or a percentage such as 0.5%, below 100%"
LOWEST_SHARE = 0.01
"""The default of the lowest rate, as a share of the highest."""
MOST_TRIALS = 100
EXCEED_RATIO = 0.5
"""Share of the trials at a rate that may exceed the loss of a goal (MLRsearch's Goal Exceed Ratio)."""
FIRST_TRIAL_S = 1.0
"""Longest duration of the trials that precede the deciding ones."""


@dataclass(frozen=True)
class SearchOptions:
    """Rates in packets/s, shares of 1. `trials` of `duration_s` decide on a rate."""

    losses: tuple[float, ...] = (0.0,)
    min_pps: float | None = None
    max_pps: float | None = None
    precision: float = 0.005
    duration_s: float = 1.0
    trials: int = 3
    confirm_s: float | None = 0.0
    """Duration of the trial that confirms a rate; 0: none, None: by the queue of the device (search.confirm)."""
    longest_confirm_s: float = LONGEST_S

    @property
    def first_trial_s(self) -> float:
        return min(FIRST_TRIAL_S, self.duration_s)


def parse(
    path: Path,
    losses: list[str],
    min_pps: float | None,
    max_pps: float | None,
    precision: str,
    duration_s: float,
    trials: int,
    confirm_s: float | None = 0.0,
) -> SearchOptions:
    """Parse the options of the command line. Raises BadInput."""
    for key, rate_pps in (("--min", min_pps), ("--max", max_pps)):
        if rate_pps is not None and not 0 < rate_pps < float("inf"):
            raise BadInput(path, "rate out of range", key=key, value=rate_pps, allowed="more than 0 packets/s")
    check_duration(path, "--duration", duration_s, LONGEST_TRIAL_S, "trial")
    if not 1 <= trials <= MOST_TRIALS:
        raise BadInput(
            path, "number of trials out of range", key="--trials", value=trials, allowed=f"1 to {MOST_TRIALS}"
        )
    if confirm_s:
        check_duration(path, "--confirm", confirm_s, LONGEST_TRIAL_S, "trial")
    share = parse_precision(path, precision)
    goals = {_loss(path, text) for text in losses}
    return SearchOptions(tuple(sorted(goals)), min_pps, max_pps, share, duration_s, trials, confirm_s)


def _loss(path: Path, text: str) -> float:
    share = percentage(path, "--loss", text, LOSS)
    if share >= 1:
        raise BadInput(path, "loss out of range", key="--loss", value=text, allowed=LOSS)
    return share


def bounds(path: Path, options: SearchOptions, own_pps: float, least_pps: float) -> tuple[float, float]:
    """Return the lowest and the highest rate to try, in packets/s. Raises BadInput.

    `own_pps`: the rate of the streams in the scenario. `least_pps`: the smallest part of it that one node sends, which
    must be at least one packet in the shortest trial at the lowest rate.
    """
    highest = own_pps if options.max_pps is None else options.max_pps
    one_packet = own_pps / least_pps / options.first_trial_s
    lowest = max(highest * LOWEST_SHARE, one_packet) if options.min_pps is None else options.min_pps
    if lowest >= highest:
        key, value = ("--max", highest) if options.min_pps is None else ("--min", lowest)
        allowed = f"less than {highest:g} packets/s" if key == "--min" else f"more than {lowest:g} packets/s"
        raise BadInput(path, "the lowest rate is not below the highest", key=key, value=value, allowed=allowed)
    if lowest < one_packet:
        problem, allowed = "a trial sends less than one packet of a stream", f"{one_packet:g} packets/s or more"
        raise BadInput(path, problem, key="--min", value=lowest, allowed=allowed)
    return lowest, highest
