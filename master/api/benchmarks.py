"""Results of the commands that make several runs, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pktswarm.master.doctor.judge import Finding
from pktswarm.traffic.errors import EXIT_AS_EXPECTED

if TYPE_CHECKING:  # they load the benchmarks, which only the process that works for the program needs
    from pktswarm.master.calibrate.document import CalibrationDocument
    from pktswarm.master.rfc2544.document import BenchmarkDocument
    from pktswarm.master.search.document import SearchDocument
    from pktswarm.master.sessions.storage import SessionsDocument
    from pktswarm.master.tables.document import TableDocument
    from pktswarm.master.y1564.document import ActivationDocument


@dataclass(frozen=True)
class Benchmark:
    """The result of a command. `document`: the JSON file of the folder (docs/python.md)."""

    folder: Path
    document: Mapping[str, Any]

    @property
    def status(self) -> int:
        """Exit status of the command line: 0 as expected, 1 not as expected, 3 incomplete."""
        return int(self.document["status"])

    @property
    def complete(self) -> bool:
        return self.status <= 1

    @property
    def problem(self) -> str:
        """Why it is incomplete; else empty."""
        return str(self.document["problem"])


@dataclass(frozen=True)
class Search(Benchmark):
    document: SearchDocument

    @property
    def rates_pps(self) -> dict[float, float | None]:
        """Allowed loss, a share of 1 → the highest rate that meets it, packets/s; None: none was found."""
        return {goal["loss_ratio"]: goal["rate_pps"] for goal in self.document["goals"]}


@dataclass(frozen=True)
class Rfc2544(Benchmark):
    document: BenchmarkDocument


@dataclass(frozen=True)
class Y1564(Benchmark):
    document: ActivationDocument


@dataclass(frozen=True)
class Calibration(Benchmark):
    document: CalibrationDocument


@dataclass(frozen=True)
class Sessions(Benchmark):
    document: SessionsDocument


@dataclass(frozen=True)
class Table(Benchmark):
    document: TableDocument


@dataclass(frozen=True)
class Health:
    """The findings of `doctor`. `document`: what `pktswarm doctor --json` prints."""

    document: Mapping[str, Any]

    @property
    def status(self) -> int:
        """Exit status of the command line: 0 no fault, 1 a fault prevents correct runs, 3 a host is unreachable."""
        return int(self.document["status"])

    @property
    def is_whole(self) -> bool:
        """Whether there is no fault; notes are none."""
        return self.status == EXIT_AS_EXPECTED

    @property
    def findings(self) -> list[Finding]:
        """With `host`, `level` (unreachable, wrong or note), `what` and `mend`, the remedy."""
        return [Finding(**one) for host in self.document["hosts"].values() for one in host["findings"]]
