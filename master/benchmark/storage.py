"""The results folder of a benchmark: its document, its tables as CSV, and the runs of its trials."""

from __future__ import annotations

import contextlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from pktswarm.master.benchmark.document import Interruption, Resumable, TrialFields
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.files import new_folder, replace_text, write_csv

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
    "latency_rise_ns_per_s",
]
Row = dict[str, object]
Table = tuple[list[str], Iterable[Row]]
"""Columns and rows of a CSV file."""


class History(Protocol):
    """A benchmark with its trials so far."""

    @property
    def trials(self) -> Sequence[object]: ...


Benchmark = TypeVar("Benchmark", bound=History)
About = TypeVar("About")
Stored = TypeVar("Stored", bound=Resumable)


class Storage(ABC, Generic[Benchmark, About, Stored]):
    """Writes a benchmark anew after each trial.

    `about`: the part of the document that is known before the first; `name`: begins the name of the folder, may be
    empty; `dut`: the device; `resumed`: the folder of a benchmark that is continued, in place of a new one.
    """

    kind: ClassVar[str]
    """The command: the end of the folder's name, and the name of the document."""

    def __init__(
        self, results: Path, name: str, about: About, dut: DutEntry | None = None, resumed: Path | None = None
    ) -> None:
        self.path = resumed or new_folder(results, "-".join(filter(None, (name, self.kind))))
        self.about, self.dut, self.resumed = about, dut, resumed is not None
        self.interruptions: list[Interruption] = []

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @contextlib.contextmanager
    def discarded_without_trials(self, benchmark: History) -> Iterator[None]:
        """Remove the folder if an error occurs before the first trial, unless it is that of a resumed benchmark."""
        try:
            yield
        except BaseException:
            if not benchmark.trials and not self.resumed:
                shutil.rmtree(self.path)
            raise

    def write(self, benchmark: Benchmark) -> Stored:
        """Write the document and the tables, and return the document."""
        document = self.document(benchmark)
        if self.dut is not None:
            document["dut"] = self.dut
        document["interruptions"] = self.interruptions
        replace_text(self.path / f"{self.kind}.json", json.dumps(document, indent=2) + "\n")
        for name, (columns, rows) in self.tables(benchmark, document).items():
            write_csv(self.path / name, columns, rows)
        return document

    @abstractmethod
    def document(self, benchmark: Benchmark) -> Stored:
        """The document as of now."""

    @abstractmethod
    def tables(self, benchmark: Benchmark, document: Stored) -> Mapping[str, Table]:
        """The CSV files as of now, by name."""


def trial_row(trial: TrialFields, columns: Sequence[str]) -> Row:
    """A row of the table of trials."""
    bits: Row = {"intended_l2_bps": trial["l2_bps"], "intended_l1_bps": trial["l1_bps"]}
    return {name: value for name, value in {**trial, **bits}.items() if name in columns}
