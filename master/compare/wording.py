"""Text of a comparison: formatted figures, sentences and verdict."""

from __future__ import annotations

from pktswarm.master.compare.comparison import BEYOND, Comparison, Difference
from pktswarm.master.compare.kinds import FIGURES
from pktswarm.master.compare.noise import ENOUGH_RUNS, LEAST_RUNS
from pktswarm.master.compare.run_sets import Side
from pktswarm.master.report.formatting import NOT_MEASURED

SCALES = {"count": 1.0, "ratio": 0.01, "pps": 1.0, "bps": 1e6, "ns": 1e3, "number": 1.0}
"""Unit → unit of display, as in the figures' titles."""
DIGITS = {"count": 1, "ratio": 2, "pps": 1, "bps": 3, "ns": 1, "number": 3}
MOST_LINES = 12
MANY = 10.0


def number(unit: str, value: float | None, sign: bool = False) -> str:
    """Formats a value; small values keep two digits, integer counts have no decimals."""
    if value is None:
        return NOT_MEASURED
    plus, scaled = "+" if sign else "", value / SCALES[unit]
    if unit == "count" and scaled == int(scaled):
        return f"{scaled:{plus},.0f}"
    digits = DIGITS[unit]
    return f"{scaled:{plus},.{digits}f}" if scaled == 0 or abs(scaled) >= 10.0**-digits else f"{scaled:{plus}.2g}"


def percent(share: float | None) -> str:
    """Formats a relative difference; large ones have no decimals."""
    if share is None:
        return NOT_MEASURED
    if not share:
        return "0 %"
    return f"{100 * share:+,.0f} %" if abs(share) >= MANY else f"{number('ratio', share, sign=True)} %"


def spread(difference: Difference, first: bool) -> str:
    """Formats mean ± standard deviation of a run."""
    mean, sd = (difference.first, difference.first_sd) if first else (difference.other, difference.other_sd)
    unit = difference.unit
    return number(unit, mean) if sd is None else f"{number(unit, mean)} ± {number(unit, sd)}"


def title(difference: Difference) -> str:
    return FIGURES[difference.figure].title


def shown(differences: list[Difference]) -> list[Difference]:
    """Returns the differences without figures that are 0 on both sides."""
    return [difference for difference in differences if difference.first or difference.other]


def sentence(difference: Difference) -> str:
    unit = difference.unit
    change = f"{number(unit, difference.difference, sign=True)}, noise ±{number(unit, difference.noise)}"
    if difference.relative is not None and unit != "ratio":
        change = f"{percent(difference.relative)}: {change}"
    figures = f"{number(unit, difference.first)} → {number(unit, difference.other)}"
    return f"{difference.subject}: {title(difference)}: {figures} ({change})"


def verdict(comparison: Comparison) -> str:
    """Returns the verdict in one line. It names what differs between the devices under test."""
    keys = dict.fromkeys(each["key"] for each in comparison.devices)
    return _of_figures(comparison) + (f". The devices under test differ: {', '.join(keys)}" if keys else "")


def device(comparison: Comparison) -> str:
    """Returns a line on the devices where nothing differs between them: whether they are the same."""
    if not comparison.not_described:
        return "The devices under test are described in the same way."
    return (
        f"Whether the devices under test differ is unknown: nothing is known of the device of "
        f"{' and '.join(comparison.not_described)}. Describe it by pktswarm_dut in the inventory, or by --label."
    )


def nodes(comparison: Comparison) -> str:
    """Returns a line on the nodes where nothing differs between them."""
    if not comparison.without_nodes:
        return "Nodes, versions and engines are the same."
    return f"Nodes, versions and engines are unknown of {' and '.join(comparison.without_nodes)}: no run is kept there."


def _of_figures(comparison: Comparison) -> str:
    if not comparison.all_whole:
        return "A side has no complete run: no verdict on differences"
    if not comparison.noise_is_known:
        return "The noise is unknown: a side has a single run"
    beyond = beyond_first(comparison)
    worse = [difference for difference in beyond if difference.for_the_worse]
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
            "Noise: half the confidence interval of the difference of the means (Welch). Runs of the same scenario are "
            f"reported as different in at most {1 - comparison.confidence:.0%} of comparisons, all figures together."
            + (f" It is wide for few runs: {ENOUGH_RUNS} on each side find smaller differences." if few else "")
        )
    single = [side.letter for side in comparison.sides if len(side.runs) < LEAST_RUNS]
    sides = f"{' and '.join(single)} {'is a single run' if len(single) == 1 else 'are single runs'}: " if single else ""
    return (
        f"{sides}the differences between repeated runs are unknown, so a difference may be random. "
        f"`pktswarm run --repeat {ENOUGH_RUNS}` measures them."
    )


def doubts(side: Side) -> list[str]:
    """Returns a line for each incomplete run of a side."""
    lines = [f"{side.letter}: incomplete: {why}" for why in side.doubts]
    return lines + [f"{side.letter}: left out: {why}" for why in side.left_out]


def beyond_first(comparison: Comparison) -> list[Difference]:
    """Returns differences larger than the noise, the worse first, without those that follow from others."""
    found = [difference for difference in comparison.differences if difference.verdict == BEYOND]
    covered = {(difference.side, difference.subject) for difference in found if not FIGURES[difference.figure].derived}
    kept = [
        difference
        for difference in found
        if not FIGURES[difference.figure].derived or (difference.side, difference.subject) not in covered
    ]
    return sorted(kept, key=lambda difference: not difference.for_the_worse)
