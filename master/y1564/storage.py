"""An activation on disk: y1564.json, and steps.csv with a row for each step."""

from __future__ import annotations

from collections.abc import Mapping

from pktswarm.master.benchmark import storage
from pktswarm.master.benchmark.storage import Row, Table
from pktswarm.master.y1564.document import About, ActivationDocument, document
from pktswarm.master.y1564.procedure import Activation

COLUMNS = [
    "service",
    "step",
    "load_bps",
    "duration_s",
    "received_bps",
    "loss_ratio",
    "delay_mean_ns",
    "delay_variation_ns",
    "delay_bound_ns",
    "availability",
    "verdict",
    "problem",
]


class Storage(storage.Storage[Activation, About, ActivationDocument]):
    kind = "y1564"

    def document(self, benchmark: Activation) -> ActivationDocument:
        return document(benchmark, self.about)

    def tables(self, benchmark: Activation, document: ActivationDocument) -> Mapping[str, Table]:
        steps = [*document["steps"], *document["performance"]]
        rows: list[Row] = [{name: value for name, value in step.items() if name in COLUMNS} for step in steps]
        return {"steps.csv": (COLUMNS, rows)}
