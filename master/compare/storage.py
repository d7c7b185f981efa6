"""Files of a comparison: the page and its data."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

from pktswarm.master.compare.comparison import Comparison, Difference
from pktswarm.master.compare.document import FigureRow
from pktswarm.master.compare.kinds import FIGURES
from pktswarm.master.files import new_folder, replace_text, write_csv
from pktswarm.traffic.errors import BadInput

COLUMNS = [field.name for field in fields(Difference)]
RUN_COLUMNS = ["side", "run", "subject", "figure", "unit", "value"]
PAGE = "compare.html"


def keep(comparison: Comparison, results: Path) -> Path:
    """Writes `results/<UTC time>-compare/`, and returns it. Raises BadInput if it cannot."""
    from pktswarm.master.compare.page import html

    try:
        folder = new_folder(results, "compare")
        replace_text(folder / "compare.json", json.dumps(comparison.document(), indent=2) + "\n")
        write_csv(folder / "compare.csv", COLUMNS, [asdict(each) for each in comparison.differences])
        write_csv(folder / "runs.csv", RUN_COLUMNS, _runs(comparison))
        replace_text(folder / PAGE, html(comparison, folder))
    except OSError as error:
        raise BadInput(error.filename or results, f"cannot be written: {error.strerror}", key="--results") from None
    return folder


def _runs(comparison: Comparison) -> list[FigureRow]:
    return [
        {
            "side": side.letter,
            "run": run.path.name,
            "subject": subject,
            "figure": key,
            "unit": FIGURES[key].unit,
            "value": value.value,
        }
        for side in comparison.sides
        for run in side.runs
        for subject, measured in run.figures.items()
        for key, value in measured.values.items()
    ]
