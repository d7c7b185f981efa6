"""The bounds of a search so far, and the trials that are left of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pktswarm.master.benchmark.outlook import Bounds, Outlook
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.search import confirm
from pktswarm.master.search.engine import PRECEDING_TARGETS, ROUNDING, Search
from pktswarm.master.search.goals import SearchOptions

MOST_HALVINGS = PRECEDING_TARGETS + 2
"""MLRsearch computes a load from the loss at the highest one, and comes within its first target in two trials."""
CONFIRMING = "confirming trials"


def outlook(search: Search) -> Outlook:
    """What a search has found so far."""
    options = search.options
    return Outlook(
        len(search.trials),
        stage="" if search.confirming_from is None else CONFIRMING,
        bounds=tuple(bounds(search.trials, loss, search.confirming_from) for loss in options.losses),
    ).with_left(search.trials, left_s(search))


def bounds(trials: Sequence[Trial], loss_ratio: float, confirming_from: int | None = None) -> Bounds:
    """The highest load that held, below the lowest that did not. At a load its longest trials count, by majority.

    From the index `confirming_from` on, a load at which the latency rises does not hold.
    """
    outcomes: dict[float, list[tuple[float, bool]]] = {}
    for index, trial in enumerate(trials):
        if not trial.problem:
            confirms = confirming_from is not None and index >= confirming_from
            holds = confirm.holds(trial, loss_ratio) if confirms else _holds(trial, loss_ratio)
            outcomes.setdefault(trial.intended_pps, []).append((trial.duration_s, holds))
    held = {load_pps: _by_longest(each) for load_pps, each in outcomes.items()}
    upper = min((load for load, holds in held.items() if not holds), default=None)
    lower = max((load for load, holds in held.items() if holds and (upper is None or load < upper)), default=None)
    return Bounds(f"loss {100 * loss_ratio:g} %", lower, upper)


def _by_longest(outcomes: list[tuple[float, bool]]) -> bool:
    longest_s = max(duration_s for duration_s, _ in outcomes)
    decisive = [holds for duration_s, holds in outcomes if duration_s == longest_s]
    return 2 * sum(decisive) >= len(decisive)


def _holds(trial: Trial, loss_ratio: float) -> bool:
    return trial.loss_ratio is not None and trial.loss_ratio <= loss_ratio and not trial.not_held


def left_s(search: Search) -> list[float]:
    """The durations of the trials that are left, an estimate."""
    options, left = search.options, []
    if search.confirming_from is None:
        left = left_to_find(options, search.lowest_pps, search.highest_pps, search.trials)
    return left + left_to_confirm(options, search.lowest_pps, search.trials, _confirmed(search))


def _confirmed(search: Search) -> set[float]:
    """The confirmed goals, with the one that the last trial confirms."""
    found, options = search.confirmed, search.options
    now = next((loss for loss in options.losses if loss not in found), None)
    if now is not None and search.trials and search.confirms(len(search.trials) - 1):
        last = search.trials[-1]
        if not last.problem and confirm.holds(last, now):
            found.add(now)
    return found


def left_to_find(options: SearchOptions, lowest_pps: float, highest_pps: float, trials: Sequence[Trial]) -> list[float]:
    """The durations of the trials that are left until the bounds of each goal are within the precision."""
    left = [] if trials else [options.first_trial_s]
    for loss in options.losses:
        found = bounds(trials, loss)
        lower, upper = found.lower_pps, found.upper_pps
        is_highest = upper is None and lower is not None and lower >= highest_pps * (1 - ROUNDING)
        is_below = _is_below(found, lowest_pps)
        width = 1 - (lower or lowest_pps) / (upper or highest_pps)
        close = width <= options.precision * (1 + ROUNDING)
        halvings = 0 if is_highest or is_below or close else _halvings(width, options.precision)
        coarse = max(0, halvings - PRECEDING_TARGETS)
        left += [options.first_trial_s] * coarse + [options.duration_s] * (halvings - coarse)
        left += [options.duration_s] * _left_to_decide(options, trials, lower, upper, halvings)
    return left


def _is_below(found: Bounds, lowest_pps: float) -> bool:
    upper = found.upper_pps
    return found.lower_pps is None and upper is not None and upper <= lowest_pps * (1 + ROUNDING)


def _halvings(width: float, precision: float) -> int:
    return min(MOST_HALVINGS, max(1, math.ceil(math.log2(width / precision))))


def _left_to_decide(
    options: SearchOptions, trials: Sequence[Trial], lower: float | None, upper: float | None, halvings: int
) -> int:
    """The further trials at the two bounds: more than half of `options.trials` decide on a load."""
    needed = options.trials // 2 + 1
    if halvings:
        return 2 * (needed - 1)
    at = [load for load in (lower, upper) if load is not None]
    made = [sum(t.intended_pps == load and t.duration_s >= options.duration_s for t in trials) for load in at]
    return sum(max(0, needed - count) for count in made)


def left_to_confirm(
    options: SearchOptions, lowest_pps: float, trials: Sequence[Trial], confirmed: Collection[float]
) -> list[float]:
    """The durations of the trials that confirm the goals that have a rate and are not confirmed yet."""
    if options.confirm_s == 0:
        return []
    trial_s = confirm.duration_s(options.confirm_s, options.longest_confirm_s, options.precision, trials)
    unconfirmed = [loss for loss in options.losses if loss not in confirmed]
    return [trial_s for loss in unconfirmed if not _is_below(bounds(trials, loss), lowest_pps)]
