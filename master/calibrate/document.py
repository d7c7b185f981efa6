"""The document that `pktswarm calibrate --json` prints."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.cluster.dut import DutEntry


class CalibrationDocument(TypedDict):
    capacity: str
    """Path of the capacity file."""
    results: str
    """Folder of the runs."""
    status: int
    problem: str
    wiring: str
    lacking: list[str]
    figures: list[dict[str, object]]
    """The fields of plan.capacity.Figure, as in the capacity file."""
    dut: NotRequired[DutEntry]


def document(calibration: Calibration, folder: Path, dut: DutEntry | None = None) -> CalibrationDocument:
    """The state of a calibration."""
    made: CalibrationDocument = {
        "capacity": str(calibration.capacity.path),
        "results": str(folder),
        "status": calibration.status,
        "problem": calibration.problem,
        "wiring": calibration.capacity.wiring,
        "lacking": calibration.lacking(),
        "figures": [figure.model_dump() for figure in calibration.figures],
    }
    if dut is not None:
        made["dut"] = dut
    return made
