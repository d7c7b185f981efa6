"""The results folder of `pktswarm sessions`: sessions.json, sessions.csv and the page."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pktswarm.master.benchmark.document import Outcome
from pktswarm.master.files import new_folder, replace_text
from pktswarm.master.upf.document import N4Document

FORMAT_VERSION = 1
SESSIONS = "sessions"


class SessionsDocument(Outcome, N4Document):
    """sessions.json."""

    scenario_file: str
    hosts_file: str
    hold_s: float


def document(config: Path, hosts: Path | None, hold_s: float, status: int, results: N4Document) -> SessionsDocument:
    own = {
        "format_version": FORMAT_VERSION,
        "name": config.stem,
        "scenario_file": str(config),
        "hosts_file": "" if hosts is None else str(hosts),
        "hold_s": hold_s,
        "status": status,
        "problem": "",
    }
    return cast(SessionsDocument, {**results, **own})


@contextlib.contextmanager
def folder(results: Path, config: Path) -> Iterator[Path]:
    """Make the folder, and remove it on an error: it has no results then."""
    made = new_folder(results, f"{config.stem}-{SESSIONS}")
    try:
        yield made
    except BaseException:
        shutil.rmtree(made)
        raise


def write(folder: Path, document: SessionsDocument) -> None:
    replace_text(folder / f"{SESSIONS}.json", json.dumps(document, indent=2) + "\n")
