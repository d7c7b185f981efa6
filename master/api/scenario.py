"""Scenarios made in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pktswarm.master.cluster.inventory import load_yaml
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.fields import Yaml

NAME = "Scenario"
"""The place that messages name."""


class Scenario:
    """A scenario: keys and values as in a scenario file (docs/guide.md), checked like one.

    >>> Scenario(name="hello", streams=[{"name": "hello", "size_bytes": 128, "rate": "1000 pps", "duration": "1 s"}])

    Relative paths of traces are below the working directory. Raises BadInput, which names the key.
    """

    def __init__(self, **keys: Any) -> None:
        keys = {"name": "scenario", **keys}
        checked = scenarios.checked(Path(NAME), _copy(keys))
        self.name = checked.name
        self.keys: Mapping[str, Any] = {**keys, **self._absolute(keys, checked)}

    @staticmethod
    def _absolute(keys: Mapping[str, Any], checked: scenarios.Scenario) -> dict[str, Any]:
        """The traces, with the absolute paths of their files."""
        if "traces" not in keys:
            return {}
        pairs = zip(keys["traces"], checked.traces, strict=True)
        return {"traces": [{**given, "file": str(trace.file)} for given, trace in pairs]}

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """Reads a scenario file. Raises BadInput with every wrong key, and its line."""
        file = Path(path).absolute()
        made = scenarios.load(file)
        keys = load_yaml(file, Yaml)
        scenario = cls.__new__(cls)
        scenario.name, scenario.keys = made.name, {**keys, **cls._absolute(keys, made)}
        return scenario

    def replace(self, **keys: Any) -> Scenario:
        """Returns a copy with other keys at its top level."""
        return Scenario(**{**self.keys, **keys})

    def write(self, path: str | Path) -> None:
        """Writes a scenario file."""
        Path(path).write_text(self.text())

    def text(self) -> str:
        """The scenario as YAML."""
        return yaml.safe_dump(_copy(dict(self.keys)), sort_keys=False, allow_unicode=True)

    def __repr__(self) -> str:
        return f"Scenario(name={self.name!r})"


def _copy(value: Any) -> Any:
    """Plain lists and mappings: checking changes them."""
    if isinstance(value, Mapping):
        return {str(key): _copy(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(each) for each in value]
    return str(value) if isinstance(value, Path) else value
