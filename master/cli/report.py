"""`pktswarm report DIR`: a run's page again, from its folder; and the page that every run ends with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pktswarm.master.run.run import Finished

EXAMPLES = (
    "Examples: pktswarm report results/20260101T120000Z-demo · pktswarm report DIR -o demo.html --junit demo.xml --pdf"
)
Junit = Annotated[Path | None, typer.Option("--junit", help="Write the expectations as JUnit XML, for CI.")]


def report(
    result: Annotated[Path, typer.Argument(help="A folder under results/", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page.", show_default="report.html in the folder")
    ] = None,
    junit: Junit = None,
    as_pdf: Annotated[bool, typer.Option("--pdf", help="As PDF beside it too, by a headless Chromium.")] = False,
) -> None:
    """Make the page of a run from its results folder; of a run that crashed with what there is.

    One file of HTML with nothing to fetch.
    """
    from pktswarm.master import report as reports
    from pktswarm.master.report import pdf
    from pktswarm.master.report.folder import read

    reports.check_target(output, "--output", "report")
    reports.check_target(junit, "--junit", "report")
    if as_pdf:
        pdf.chromium()
    if junit is not None:
        reports.write_junit([read(result).document], junit)
    page = reports.make(result, output)
    print(page)
    if as_pdf:
        pdf.print_page(page, page.with_suffix(".pdf"))
        print(page.with_suffix(".pdf"))


def after_run(finished: Finished, junit: Path | None, page: bool) -> None:
    """What goes wrong here is told in one line: the run's results and its exit status stay."""
    from pktswarm.master import report as reports

    if junit is not None:
        junit_of([finished.outcome.document], junit)
    if page and finished.written:
        attempt("the report", lambda: print(f"report: {reports.make(finished.folder)}", file=sys.stderr))


def junit_of(documents: Sequence[dict[str, Any]], path: Path) -> None:
    """Of one run, or of each of several; what goes wrong is told in one line."""
    from pktswarm.master import report as reports

    attempt("the JUnit XML", lambda: reports.write_junit(documents, path))


def attempt(what: str, make: Callable[[], None]) -> None:
    try:
        make()
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        print(f"pktswarm: {what} could not be made: {words}", file=sys.stderr)
