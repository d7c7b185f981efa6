"""The pages of all results but a run's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pktswarm.traffic.errors import BadInput

Html = Callable[[Path, Any], str]
"""Makes the page of a folder and its document."""
MODULES = {
    **{kind: f"pktswarm.master.{kind}.page" for kind in ("search", "rfc2544", "y1564", "calibrate", "sessions")},
    "table": "pktswarm.master.tables.page",
    "repeat": "pktswarm.master.compare.repeat_page",
}
"""Kind → the module of its page."""


def make(kind: str, folder: Path, page: Path | None) -> Path:
    """Write the page of a folder. Raises BadInput of a document that lacks a field, and where it cannot be written."""
    from pktswarm.master.files import replace_text
    from pktswarm.master.report import PAGE
    from pktswarm.master.report.kinds import COMPARE, FILES, document_of

    document = document_of(folder, kind)
    try:
        text = _html(kind)(folder, document)
    except (LookupError, TypeError, ValueError) as error:
        problem = f"cannot be shown: {type(error).__name__} {error}"
        raise BadInput(folder / FILES.get(kind, ""), problem, allowed=f"the document of pktswarm {kind}") from None
    target = folder / ("compare.html" if kind == COMPARE else PAGE) if page is None else page
    try:
        replace_text(target, text)
    except OSError as error:
        raise BadInput(error.filename or target, f"cannot be written: {error.strerror}") from None
    return target


def _html(kind: str) -> Html:
    """Loads the libraries of one kind of page: they take half a second."""
    if kind == "compare":
        return _comparison
    if kind == "upf probe":
        return _probe
    return cast(Html, importlib.import_module(MODULES[kind]).html)


def _comparison(folder: Path, document: Mapping[str, Any]) -> str:
    """Compare again: the folders of all runs must be where they were."""
    from pktswarm.master.compare.comparison import Comparison
    from pktswarm.master.compare.page import html
    from pktswarm.master.compare.run_sets import sides

    first, *others = sides([",".join(run["folder"] for run in side["runs"]) for side in document["sides"]])
    return html(Comparison(first, others), folder)


def _probe(folder: Path, document: Mapping[str, Any]) -> str:
    from pktswarm.master.upf.probe.page import of_document

    return of_document(document)
