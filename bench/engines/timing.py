"""How far from its recorded times a trace left, from the times at which it arrived at the other end of a cable."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def errors_ns(arrived_ns: Sequence[int], recorded_ns: Sequence[int]) -> list[float]:
    """|arrived - recorded| of each frame, the two clocks aligned so that the median difference is 0.

    So a constant delay costs nobody anything, and one early or late first frame does not shift all the others.
    """
    differences = [arrived - recorded for arrived, recorded in zip(arrived_ns, recorded_ns, strict=True)]
    middle = statistics.median(differences)
    return [abs(difference - middle) for difference in differences]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
