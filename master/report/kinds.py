"""The kinds of results folders, and their documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pktswarm.master.report.folder import REPEATED
from pktswarm.master.results.read_document import RUN as RUN_FILE
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.typed_json import Json

RUN, REPEAT, COMPARE, TABLE = "run", "repeat", "compare", "table"
FILES = {
    RUN: RUN_FILE,
    REPEAT: REPEATED,
    COMPARE: "compare.json",
    "search": "search.json",
    "rfc2544": "rfc2544.json",
    "y1564": "y1564.json",
    "calibrate": "calibrate.json",
    "sessions": "sessions.json",
    "upf probe": "probe.json",
}
"""Kind → its document. A table's has the name of the table."""
FORMAT_VERSIONS = (1, None)
"""None: of documents that had no version at first."""


def kind_of(folder: Path) -> str:
    """Returns the kind of a folder; `run` of one without a document, as a crashed run leaves it. Raises BadInput."""
    if not folder.is_dir():
        raise BadInput(folder, "there is no such folder", allowed="a folder under results/")
    found = next((kind for kind, name in FILES.items() if (folder / name).is_file()), None)
    return found or (RUN if next(_tables(folder), None) is None else TABLE)


def document_of(folder: Path, kind: str) -> Json:
    """Reads the document of any kind but a run. Raises BadInput."""
    path = next(_tables(folder)) if kind == TABLE else folder / FILES[kind]
    document = _read(path)
    if not isinstance(document, dict):
        raise BadInput(path, "cannot be read: not a JSON object")
    version = document.get("format_version")
    if version not in FORMAT_VERSIONS:
        raise BadInput(path, "unsupported format", key="format_version", value=version, allowed="1")
    return document


def _tables(folder: Path) -> Iterator[Path]:
    """Yields the documents of tables in a folder. A table's folder also has a small document for each point."""
    for path in sorted(folder.glob("*.json")):
        try:
            document = _read(path)
        except BadInput:
            continue
        if isinstance(document, dict) and {"points", "problems"} <= set(document):
            yield path


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
