"""What a job has found so far, and an estimate of what is left of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pktswarm.master.benchmark.trial import Trial


@dataclass(frozen=True)
class Bounds:
    """The rates between which a figure lies by the trials so far; None: not known."""

    goal: str
    lower_pps: float | None
    upper_pps: float | None


@dataclass(frozen=True)
class Outlook:
    """`stage`: what is measured now. `part` of `parts`: of frame sizes, services, figures or points.

    `left_trials` and `left_s`: estimates of what is left; None: not known.
    """

    trials: int
    stage: str = ""
    part: int | None = None
    parts: int | None = None
    bounds: tuple[Bounds, ...] = ()
    left_trials: int | None = None
    left_s: float | None = None

    def with_left(self, made: Sequence[Trial], durations_s: Sequence[float], pause_s: float = 0.0) -> Outlook:
        """With an estimate from the durations of the trials left. `pause_s`: before each trial."""
        left_s = None
        if not durations_s:
            left_s = 0.0
        elif (overhead := overhead_s(made)) is not None:
            left_s = sum(durations_s) + len(durations_s) * (overhead + pause_s)
        return replace(self, left_trials=len(durations_s), left_s=left_s)


def overhead_s(trials: Sequence[Trial]) -> float | None:
    """Returns the mean time that a trial takes beside its traffic; None: no trial was made."""
    return statistics.fmean(trial.took_s - trial.duration_s for trial in trials) if trials else None


def left_by_parts(took_s: Sequence[float], left: int) -> float | None:
    """Returns the time of the parts left, from the time of those that were measured; None: none was."""
    if not left:
        return 0.0
    return statistics.fmean(took_s) * left if took_s else None
