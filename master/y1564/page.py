"""The page of an activation: verdicts first, then each service's steps and the performance of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pktswarm.master.files import replace_text
from pktswarm.master.report.render import render
from pktswarm.master.y1564.show import cells, failed, remarks
from pktswarm.master.y1564.storage import PAGE
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Every service passed", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
FAILED = ("Not every service passed", "bad")
FILES = [
    ("y1564.json", "everything that was asked and found"),
    ("steps.csv", "a row for each step of each service, and of the performance test; bits/s, ns, ratios of 1"),
    ("runs/", "the runs, each like any other"),
]


def make(folder: Path, document: dict[str, Any]) -> Path:
    """OSError where it cannot be written."""
    replace_text(folder / PAGE, html(folder, document))
    return folder / PAGE


def html(folder: Path, document: dict[str, Any]) -> str:
    verdict, kind = VERDICTS.get(document["status"], FAILED)
    asked = document["asked"]
    command = (
        f"pktswarm y1564 {document['scenario_file']} --hosts {document['hosts_file']} "
        f"--tests {','.join(asked['tests'])} --step {asked['step_s']:g} --performance {asked['performance_s']:g}"
    )
    context = {
        "name": document["name"],
        "what": "Service activation (Y.1564)",
        "folder": folder.resolve().name,
        "path": folder,
        "document": document,
        "outcome": {"verdict": verdict, "kind": kind},
        "remarks": remarks(document),
        "cells": cells,
        "failed": failed,
        "command": command,
        "files": FILES,
    }
    return render("y1564.html", context)
