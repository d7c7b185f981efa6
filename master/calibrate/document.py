"""The document of a calibration: calibrate.json, which `pktswarm calibrate --json` prints."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.benchmark.document import Resumable
from pktswarm.master.calibrate.calibration import Calibration

FORMAT_VERSION = 1


class CalibrationDocument(Resumable):
    capacity: str
    """Path of the capacity file."""
    results: str
    """Folder of the runs."""
    wiring: str
    lacking: list[str]
    figures: list[dict[str, object]]
    """The fields of plan.capacity.Figure, as in the capacity file."""
    hosts_file: str


def document(calibration: Calibration, folder: Path, hosts: Path) -> CalibrationDocument:
    """The state of a calibration."""
    return {
        "format_version": FORMAT_VERSION,
        "name": hosts.stem,
        "capacity": str(calibration.capacity.path),
        "results": str(folder),
        "status": calibration.status,
        "problem": calibration.problem,
        "wiring": calibration.capacity.wiring,
        "lacking": calibration.lacking(),
        "figures": [figure.model_dump() for figure in calibration.figures],
        "hosts_file": str(hosts),
        "interruptions": [],
    }
