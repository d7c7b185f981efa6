"""The figures and trials of a calibration on disk: an interrupted calibration is continued from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from pktswarm.master.benchmark.job import OPTION, TRIALS, Job
from pktswarm.master.files import replace_text
from pktswarm.master.plan.capacity import Figure
from pktswarm.traffic.errors import BadInput

FIGURES = "figures"
Key = tuple[str, str, str, str, int]
"""Node, role, engine, mode, frame size."""


@dataclass(frozen=True)
class KeptFigure:
    """A figure, and the time that it took."""

    figure: Figure
    took_s: float


_KEPT = TypeAdapter(KeptFigure)


class Kept:
    """A file for each figure in the folder of a job, and one for each trial."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def figure(self, key: Key) -> KeptFigure | None:
        """The figure of a key; None: it is not stored. Raises BadInput."""
        path = self._path(key)
        try:
            return _KEPT.validate_python(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, ValidationError) as error:
            raise BadInput(path, f"cannot be read as a figure: {type(error).__name__}", key=OPTION) from None

    def keep(self, key: Key, kept: KeptFigure) -> None:
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        replace_text(path, json.dumps(_KEPT.dump_python(kept, mode="json"), indent=1) + "\n")

    def describe(self) -> str:
        """The number of figures and trials that are stored."""
        figures, trials = (list((self.job.folder / name).rglob("*.json")) for name in (FIGURES, TRIALS))
        return f"{len(figures)} figures and {len(trials)} trials"

    def _path(self, key: Key) -> Path:
        return self.job.folder / FIGURES / f"{name_of(key)}.json"


def name_of(key: Key) -> str:
    return "-".join(str(part) for part in key if part)


Result = TypeVar("Result")


class Trials(Generic[Result]):
    """The trials of one figure. `kept` None: they are not stored. `problem`: see benchmark.journal.Journal."""

    def __init__(self, kept: Kept | None, key: Key, result: type[Result], problem: Callable[[Result], str]) -> None:
        self._journal = None if kept is None else kept.job.journal(result, problem, name_of(key))

    def measure(self, plan: object, make: Callable[[], Result]) -> Result:
        return make() if self._journal is None else self._journal.measure(plan, make)
