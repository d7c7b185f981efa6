"""A comparison as a person reads it: figures with their digits, and what there is to say in a few sentences."""

from __future__ import annotations

from pktswarm.master.compare.comparison import BEYOND, Comparison, Difference
from pktswarm.master.compare.figures import FIGURES
from pktswarm.master.compare.noise import ENOUGH_RUNS, LEAST_RUNS
from pktswarm.master.compare.run_sets import Side
from pktswarm.master.report.formatting import NOT_MEASURED

SCALES = {"count": 1.0, "ratio": 0.01, "pps": 1.0, "bps": 1e6, "ns": 1e3}
"""Unit → in which of it a person reads it, as the figures' titles say."""
DIGITS = {"count": 1, "ratio": 2, "pps": 1, "bps": 3, "ns": 1}
MOST_LINES = 12
MANY = 10.0


def number(unit: str, value: float | None, sign: bool = False) -> str:
    """A small part is not rounded away; a whole count has no digits behind the point."""
    if value is None:
        return NOT_MEASURED
    plus, scaled = "+" if sign else "", value / SCALES[unit]
    if unit == "count" and scaled == int(scaled):
        return f"{scaled:{plus},.0f}"
    digits = DIGITS[unit]
    return f"{scaled:{plus},.{digits}f}" if scaled == 0 or abs(scaled) >= 10.0**-digits else f"{scaled:{plus}.2g}"


def percent(share: float | None) -> str:
    """Of a difference: none where there is none, and no digits that say nothing of what is many times as much."""
    if share is None:
        return NOT_MEASURED
    if not share:
        return "0 %"
    return f"{100 * share:+,.0f} %" if abs(share) >= MANY else f"{number('ratio', share, sign=True)} %"


def spread(one: Difference, first: bool) -> str:
    """Mean ± standard deviation of a run, where there are several."""
    mean, sd = (one.first, one.first_sd) if first else (one.other, one.other_sd)
    return number(one.unit, mean) if sd is None else f"{number(one.unit, mean)} ± {number(one.unit, sd)}"


def title(one: Difference) -> str:
    return FIGURES[one.figure].title


def shown(differences: list[Difference]) -> list[Difference]:
    """Without what is 0 on both sides."""
    return [one for one in differences if one.first or one.other]


def sentence(one: Difference) -> str:
    change = f"{number(one.unit, one.difference, sign=True)}, noise ±{number(one.unit, one.noise)}"
    if one.relative is not None and one.unit != "ratio":
        change = f"{percent(one.relative)}: {change}"
    figures = f"{number(one.unit, one.first)} → {number(one.unit, one.other)}"
    return f"{one.subject}: {title(one)}: {figures} ({change})"


def verdict(comparison: Comparison) -> str:
    """In one line."""
    if not comparison.all_whole:
        return "Not all sides have a run that is whole: nothing can be said of differences"
    if not comparison.noise_is_known:
        return "The noise is not known: not every side was repeated"
    beyond = beyond_first(comparison)
    worse = [one for one in beyond if one.for_the_worse]
    if worse:
        return f"Worse by more than the noise: {_figures(len(worse))}"
    if beyond:
        return f"Different by more than the noise: {_figures(len(beyond))}, none for the worse"
    return "No difference is larger than the noise"


def _figures(count: int) -> str:
    return "1 figure" if count == 1 else f"{count} figures"


def explanation(comparison: Comparison) -> str:
    if comparison.noise_is_known:
        few = min(len(side.runs) for side in comparison.sides) < ENOUGH_RUNS
        return (
            "Noise: how far the means may be apart by chance alone (Welch's interval). Runs of the same thing are told "
            f"apart in at most {1 - comparison.confidence:.0%} of comparisons, over all figures together."
            + (f" It is wide where runs are few: {ENOUGH_RUNS} of each side find smaller differences." if few else "")
        )
    single = [side.letter for side in comparison.sides if len(side.runs) < LEAST_RUNS]
    told = f"{' and '.join(single)} {'is' if len(single) == 1 else 'are'} one run each: " if single else ""
    return (
        f"{told}how much such runs differ among themselves is not known, so a difference may be chance. "
        f"`pktswarm run --repeat {ENOUGH_RUNS}` tells."
    )


def doubts(side: Side) -> list[str]:
    """What keeps the runs of a side from being trusted, or from being repetitions."""
    told = [f"{side.letter}: its counts cannot be trusted in full: {why}" for why in side.doubts]
    return told + [f"{side.letter}: left out: {why}" for why in side.left_out]


def beyond_first(comparison: Comparison) -> list[Difference]:
    """What is for the worse, then what else is larger than the noise; once, where several figures say the same."""
    found = [one for one in comparison.differences if one.verdict == BEYOND]
    said = {(one.side, one.subject) for one in found if not FIGURES[one.figure].derived}
    told = [one for one in found if not FIGURES[one.figure].derived or (one.side, one.subject) not in said]
    return sorted(told, key=lambda one: not one.for_the_worse)
