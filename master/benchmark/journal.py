"""The finished trials of a job on disk: an interrupted job is continued from them.

The decisions of a benchmark depend on the results of its trials only. A resumed job decides anew, and gets the stored
results, in their order, in place of trials; it makes trials from the first one that is not stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from pktswarm.master.files import replace_text
from pktswarm.master.results.run_state import STOPPED
from pktswarm.traffic.errors import BadInput, PktswarmError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class LoadPlan:
    """A trial of one load."""

    load_pps: float
    duration_s: float


Result = TypeVar("Result")


class Journal(Generic[Result]):
    """Trials in `folder`, a file each. `on_use`: called with whether a trial is replayed.

    `problem`: why a result is none. The last trials do not count if they have a problem: the job can have ended by
    them, and a resumed one makes them again.
    """

    def __init__(
        self,
        folder: Path,
        result: type[Result],
        problem: Callable[[Result], str],
        on_use: Callable[[bool], None] = lambda replayed: None,
    ) -> None:
        self.folder, self._problem, self._on_use = folder, problem, on_use
        self._adapter: TypeAdapter[Result] = TypeAdapter(result)
        self._stored = [self._read(path) for path in sorted(folder.glob("*.json"))]
        while self._stored and problem(self._stored[-1][1]):
            self._path(len(self._stored)).unlink()
            self._stored.pop()
        self._next = 0

    @property
    def kept(self) -> int:
        """The number of stored trials."""
        return len(self._stored)

    def measure(self, plan: object, make: Callable[[], Result]) -> Result:
        """Return the stored result of the next trial, or make and store it. Raises PktswarmError for another plan."""
        wanted = _json(plan)
        self._next += 1
        if self._next <= len(self._stored):
            stored, result = self._stored[self._next - 1]
            if stored != wanted:
                raise PktswarmError(f"{self._path(self._next)}: the trial is {stored}, and the job asks for {wanted}")
            self._on_use(True)
            return result
        self._on_use(False)
        result = make()
        # An interrupted trial is not whole.
        if self._problem(result) != STOPPED:
            self._write(wanted, result)
        return result

    def _write(self, plan: JsonValue, result: Result) -> None:
        document = {"format_version": FORMAT_VERSION, "plan": plan, "result": _json(result)}
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_text(self._path(self._next), json.dumps(document, indent=1) + "\n")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.json"

    def _read(self, path: Path) -> tuple[JsonValue, Result]:
        try:
            document = json.loads(path.read_text())
            return document["plan"], self._adapter.validate_python(document["result"])
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise BadInput(path, f"cannot be read as a trial: {type(error).__name__}", key="--resume") from None


def _json(value: object) -> JsonValue:
    """`value` as it is read back."""
    found: JsonValue = json.loads(json.dumps(to_jsonable_python(value)))
    return found
