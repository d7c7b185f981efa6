"""A calibration on disk: calibrate.json, and calibrate.csv with a row for each figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pktswarm.master.benchmark import storage
from pktswarm.master.benchmark.storage import Table
from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.calibrate.document import CalibrationDocument, document

COLUMNS = [
    "node",
    "role",
    "engine",
    "mode",
    "size_bytes",
    "state",
    "rate_pps",
    "above_pps",
    "top_pps",
    "trials",
    "problem",
    "utc",
]


class Storage(storage.Storage[Calibration, Path, CalibrationDocument]):
    """`about`: the inventory."""

    kind = "calibrate"

    def document(self, benchmark: Calibration) -> CalibrationDocument:
        return document(benchmark, self.path, self.about)

    def tables(self, benchmark: Calibration, document: CalibrationDocument) -> Mapping[str, Table]:
        return {"calibrate.csv": (COLUMNS, [{name: row[name] for name in COLUMNS} for row in document["figures"]])}
