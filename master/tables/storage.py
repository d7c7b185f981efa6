"""Storage of a table's points: an interrupted table is continued from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pktswarm.master.cluster.dut import DutEntry

FORMAT_VERSION = 1
Scenario = dict[str, object]
"""A scenario as YAML has it; the run checks it."""


class Storage:
    """A folder with a scenario `KEY.yaml` and its result `KEY.json` for each point. `dut`: the device under test."""

    def __init__(self, folder: Path, dut: DutEntry | None = None) -> None:
        self.folder, self.dut = folder, dut

    def measured(self, key: str, scenario: Scenario) -> dict[str, Any] | None:
        """Returns the stored measures of the same scenario and device."""
        try:
            document = json.loads((self.folder / f"{key}.json").read_text())
        except (OSError, ValueError):
            return None
        if document.get("format_version") != FORMAT_VERSION or document.get("scenario") != scenario:
            return None
        if document.get("dut") != self.dut:
            return None
        return dict(document["measured"])

    def write_scenario(self, key: str, scenario: Scenario) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{key}.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False))
        return path

    def keep(self, key: str, scenario: Scenario, results: Path, measured: Mapping[str, object]) -> None:
        """Stores the measures of a point atomically."""
        document = {"format_version": FORMAT_VERSION, "scenario": scenario, "results": str(results), "dut": self.dut}
        draft = self.folder / f"{key}.part"
        draft.write_text(json.dumps({**document, "measured": measured}, indent=2) + "\n")
        draft.replace(self.folder / f"{key}.json")
