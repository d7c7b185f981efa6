"""How the figures of a run that was repeated scatter."""

from __future__ import annotations

from typing import Any

from pktswarm.master.compare.comparison import figure_of, subjects_of
from pktswarm.master.compare.figures import FIGURES
from pktswarm.master.compare.run_sets import Side


def spread(side: Side) -> list[dict[str, Any]]:
    """Of each figure, in its unit: mean and standard deviation of a run (None of one run), least and most."""
    found = []
    for subject in subjects_of(side):
        for figure in FIGURES.values():
            one = figure_of(side, subject, figure.key)
            if one is not None:
                values = [run.figures[subject].values[figure.key].value for run in side.runs]
                told = {"subject": subject, "figure": figure.key, "unit": figure.unit, "runs": one.runs}
                found.append({**told, "mean": one.mean, "sd": one.sd, "least": min(values), "most": max(values)})
    return found
