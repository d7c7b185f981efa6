"""The activation on the disk: y1564.json and a CSV of the steps, written anew after each; the runs beside."""

from __future__ import annotations

import json
from typing import Any

from pktswarm.master.files import replace_text, write_csv
from pktswarm.master.search import storage
from pktswarm.master.y1564.document import document
from pktswarm.master.y1564.procedure import Activation

DOCUMENT, PAGE = "y1564.json", "report.html"
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


class Kept(storage.Kept):
    kind = "y1564"

    def write_all(self, activation: Activation) -> dict[str, Any]:
        """The document, as y1564.json has it now."""
        found = document(activation, self.about)
        replace_text(self.path / DOCUMENT, json.dumps(found, indent=2) + "\n")
        rows = [{name: one[name] for name in COLUMNS} for one in [*found["steps"], *found["performance"]]]
        write_csv(self.path / "steps.csv", COLUMNS, rows)
        return found
