"""What a search is asked for: the losses, the bounds, how close, how long. Checked before anything is planned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pktswarm.traffic.errors import BadInput

LOSS = "0, or a percentage such as 0.5%, below 100%"
PRECISION = "0.01% to 50%"
LEAST_PRECISION, MOST_PRECISION = 0.0001, 0.5
LOWEST_SHARE = 0.01
"""Of the highest rate, where no lowest one is given."""
LONGEST_S = 3600.0
MOST_TRIALS = 100
EXCEED_RATIO = 0.5
"""As much of a load's trials may lose more than the goal (Goal Exceed Ratio): most trials decide."""
FIRST_TRIAL_S = 1.0
"""What the first looks at the device take at most, where trials are longer."""


@dataclass(frozen=True)
class Asked:
    """Rates in packets/s, shares of 1. `trials` of `duration_s` decide on a load."""

    losses: tuple[float, ...] = (0.0,)
    min_pps: float | None = None
    max_pps: float | None = None
    precision: float = 0.005
    duration_s: float = 1.0
    trials: int = 3

    @property
    def first_trial_s(self) -> float:
        return min(FIRST_TRIAL_S, self.duration_s)


def asked(
    path: Path,
    losses: list[str],
    min_pps: float | None,
    max_pps: float | None,
    precision: str,
    duration_s: float,
    trials: int,
) -> Asked:
    """From the command line's words. BadInput names the option."""
    for key, rate_pps in (("--min", min_pps), ("--max", max_pps)):
        if rate_pps is not None and not 0 < rate_pps < float("inf"):
            raise BadInput(path, "rate out of range", key=key, value=rate_pps, allowed="more than 0 packets/s")
    if not 0 < duration_s <= LONGEST_S:
        raise BadInput(
            path,
            "trial duration out of range",
            key="--duration",
            value=duration_s,
            allowed=f"more than 0, up to {LONGEST_S:g} s",
        )
    if not 1 <= trials <= MOST_TRIALS:
        raise BadInput(
            path, "number of trials out of range", key="--trials", value=trials, allowed=f"1 to {MOST_TRIALS}"
        )
    close = precision_of(path, precision)
    goals = dict.fromkeys(_loss(path, text) for text in losses)
    return Asked(tuple(sorted(goals)), min_pps, max_pps, close, duration_s, trials)


def precision_of(path: Path, text: str) -> float:
    """As a share of 1. BadInput for what precision out of range."""
    close = _share(path, "--precision", text, PRECISION)
    if not LEAST_PRECISION <= close <= MOST_PRECISION:
        raise BadInput(path, "precision out of range", key="--precision", value=text, allowed=PRECISION)
    return close


def _loss(path: Path, text: str) -> float:
    share = _share(path, "--loss", text, LOSS)
    if share >= 1:
        raise BadInput(path, "loss out of range", key="--loss", value=text, allowed=LOSS)
    return share


def _share(path: Path, key: str, text: str, allowed: str) -> float:
    """Of 1. Without its sign 2 could be packets, or all of them twice."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) ?%", text.strip())
    if found:
        return float(found[1]) / 100
    if re.fullmatch(r"0+(\.0*)?", text.strip()):
        return 0.0
    raise BadInput(path, "not a percentage", key=key, value=text, allowed=allowed)


def bounds(path: Path, wanted: Asked, own_pps: float, least_pps: float) -> tuple[float, float]:
    """The lowest and the highest rate in packets/s. `own_pps`: the streams' own rate; `least_pps`: what of it a node
    sends least, which at the lowest rate has to be a packet in the shortest trial."""
    highest = own_pps if wanted.max_pps is None else wanted.max_pps
    one_packet = own_pps / least_pps / wanted.first_trial_s
    lowest = max(highest * LOWEST_SHARE, one_packet) if wanted.min_pps is None else wanted.min_pps
    if lowest >= highest:
        key, value = ("--max", highest) if wanted.min_pps is None else ("--min", lowest)
        allowed = f"less than {highest:g} packets/s" if key == "--min" else f"more than {lowest:g} packets/s"
        raise BadInput(path, "the lowest rate is not below the highest", key=key, value=value, allowed=allowed)
    if lowest < one_packet:
        problem, allowed = "a trial sends less than one packet of a stream", f"{one_packet:g} packets/s or more"
        raise BadInput(path, problem, key="--min", value=lowest, allowed=allowed)
    return lowest, highest
