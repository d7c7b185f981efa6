"""A search on disk: search.json, and search.csv with a row for each trial."""

from __future__ import annotations

from collections.abc import Mapping

from pktswarm.master.benchmark import storage
from pktswarm.master.benchmark.storage import TRIAL_COLUMNS, Row, Table, trial_row
from pktswarm.master.search.document import SearchAbout, SearchDocument, document
from pktswarm.master.search.engine import Search


class Storage(storage.Storage[Search, SearchAbout, SearchDocument]):
    kind = "search"

    def document(self, benchmark: Search) -> SearchDocument:
        return document(benchmark, self.about)

    def tables(self, benchmark: Search, document: SearchDocument) -> Mapping[str, Table]:
        columns = [*TRIAL_COLUMNS, *(name for loss in document["asked"]["losses"] for name in bound_columns(loss))]
        return {"search.csv": (columns, rows(benchmark, document))}


def bound_columns(loss_ratio: float) -> tuple[str, str]:
    return f"lower_{loss_ratio:g}_pps", f"upper_{loss_ratio:g}_pps"


def rows(search: Search, document: SearchDocument) -> list[Row]:
    """A row for each trial, with the bounds of each goal after it."""
    made = []
    for index, trial in enumerate(document["trials"]):
        row = trial_row(trial, TRIAL_COLUMNS)
        for loss, bounds in zip(search.options.losses, search.bounds_after(index), strict=True):
            row |= dict(zip(bound_columns(loss), bounds, strict=True))
        made.append(row)
    return made
