"""The report of a run: one HTML page without external parts, and JUnit XML of its expectations.

Jinja2 and matplotlib are imported only when a page is made: nodes and runs do not need them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.master.results.document import RunDocument

PAGE = "report.html"


def make(folder: Path, page: Path | None = None) -> Path:
    """Writes the page of the run in `folder`, and the data of its plots as CSV into that folder. Raises BadInput."""
    from pktswarm.master.files import replace_text
    from pktswarm.master.report import folder as folders
    from pktswarm.master.report.page import html

    target = folder / PAGE if page is None else page
    results = folders.read(folder)
    try:
        replace_text(target, html(results, _address(folder, target.parent)))
    except OSError as error:
        raise BadInput(error.filename or target, f"cannot be written: {error.strerror}") from None
    return target


def _address(folder: Path, start: Path) -> str:
    """The address of a folder relative to another, for links; empty if it is the same."""
    way = os.path.relpath(folder.resolve(), start.resolve())
    return "" if way == "." else f"{quote(way)}/"


def write_junit(documents: Sequence[RunDocument], path: Path) -> None:
    """Raises BadInput where it cannot be written."""
    from pktswarm.master.report import junit

    try:
        junit.write(documents, path)
    except OSError as error:
        raise BadInput(path, f"cannot be written: {error.strerror}") from None


def check_target(path: Path | None, option: str, command: str) -> None:
    """Before anything is done. Raises BadInput."""
    if path is not None and not path.parent.is_dir():
        raise BadInput(command, "there is no such folder", key=option, value=str(path.parent))
    if path is not None and path.is_dir():
        raise BadInput(command, "this is a folder", key=option, value=str(path), allowed="a file")
