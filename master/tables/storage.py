"""Points of a table on the disk: one that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FORMAT_VERSION = 1


class Kept:
    """A folder with a scenario `KEY.yaml` and what came of it, `KEY.json`, for each point."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def measured(self, key: str, scenario: dict[str, Any]) -> dict[str, Any] | None:
        """What was measured before, of the same scenario."""
        try:
            document = json.loads((self.folder / f"{key}.json").read_text())
        except (OSError, ValueError):
            return None
        if document.get("format_version") != FORMAT_VERSION or document.get("scenario") != scenario:
            return None
        return dict(document["measured"])

    def write_scenario(self, key: str, scenario: dict[str, Any]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{key}.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False))
        return path

    def keep(self, key: str, scenario: dict[str, Any], results: Path, measured: dict[str, Any]) -> None:
        """Whole or not at all."""
        document = {"format_version": FORMAT_VERSION, "scenario": scenario, "results": str(results)}
        draft = self.folder / f"{key}.part"
        draft.write_text(json.dumps({**document, "measured": measured}, indent=2) + "\n")
        draft.replace(self.folder / f"{key}.json")
