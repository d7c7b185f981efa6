"""Dispersion of the figures of a repeated run."""

from __future__ import annotations

from pktswarm.master.compare.comparison import figure_of, subjects_of
from pktswarm.master.compare.document import Dispersion
from pktswarm.master.compare.kinds import FIGURES
from pktswarm.master.compare.run_sets import Side


def spread(side: Side) -> list[Dispersion]:
    """Returns mean, standard deviation, minimum and maximum of each figure."""
    found: list[Dispersion] = []
    for subject in subjects_of(side):
        for figure in FIGURES.values():
            measured = figure_of(side, subject, figure.key)
            if measured is not None:
                values = [run.figures[subject].values[figure.key].value for run in side.runs]
                row: Dispersion = {
                    "subject": subject,
                    "figure": figure.key,
                    "unit": figure.unit,
                    "runs": measured.runs,
                    "mean": measured.mean,
                    "sd": measured.sd,
                    "least": min(values),
                    "most": max(values),
                }
                found.append(row)
    return found
