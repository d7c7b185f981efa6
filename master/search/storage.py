"""A search on the disk: search.json and search.csv, written anew after each trial, and a folder for each run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pktswarm.master.files import new_folder, replace_text, write_csv
from pktswarm.master.search.engine import Search

FORMAT_VERSION = 1
TRIAL_COLUMNS = [
    "trial",
    "intended_pps",
    "intended_l2_bps",
    "intended_l1_bps",
    "duration_s",
    "intended_packets",
    "sent_packets",
    "received_packets",
    "lost_packets",
    "loss_ratio",
    "sending_s",
    "took_s",
    "results",
    "problem",
]


class TrialHistory(Protocol):
    @property
    def trials(self) -> Sequence[object]: ...


class Kept:
    """`about`: what the document begins with: the scenario, the streams."""

    kind = "search"

    def __init__(self, results: Path, name: str, about: dict[str, Any]) -> None:
        self.path, self.about = new_folder(results, f"{name}-{self.kind}"), about

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @contextlib.contextmanager
    def unless_nothing_was_tried(self, search: TrialHistory) -> Iterator[None]:
        """An error before the first trial leaves no folder behind."""
        try:
            yield
        except BaseException:
            if not search.trials:
                shutil.rmtree(self.path)
            raise

    def write(self, search: Search) -> dict[str, Any]:
        """The document, as search.json has it now."""
        document = {"format_version": FORMAT_VERSION, **self.about, **search.document()}
        replace_text(self.path / "search.json", json.dumps(document, indent=2) + "\n")
        columns = [*TRIAL_COLUMNS, *(name for loss in search.asked.losses for name in bound_columns(loss))]
        write_csv(self.path / "search.csv", columns, rows(search))
        return document


def bound_columns(loss_ratio: float) -> tuple[str, str]:
    return f"lower_{loss_ratio:g}_pps", f"upper_{loss_ratio:g}_pps"


def rows(search: Search) -> list[dict[str, Any]]:
    """A trial each, with what it leaves each goal's bounds at: the last row has those that were found."""
    made = []
    for number, trial in enumerate(search.trials):
        row = {name: getattr(trial, name) for name in TRIAL_COLUMNS if hasattr(trial, name)}
        row |= {"trial": number + 1, "intended_l2_bps": trial.l2_bps, "intended_l1_bps": trial.l1_bps}
        for loss, bounds in zip(search.asked.losses, search.bounds_after(number), strict=True):
            row |= dict(zip(bound_columns(loss), bounds, strict=True))
        made.append(row)
    return made
