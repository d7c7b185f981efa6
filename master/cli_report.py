"""`pktswarm report DIR`: a run's page again, from its folder; and the page that every run ends with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from master.run import Finished

EXAMPLES = "Examples: pktswarm report results/20260101T120000Z-demo · pktswarm report DIR -o demo.html --junit demo.xml"
Junit = Annotated[Path | None, typer.Option("--junit", help="Write the expectations as JUnit XML, for CI.")]


def report(
    result: Annotated[Path, typer.Argument(help="A folder under results/", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page.", show_default="report.html in the folder")
    ] = None,
    junit: Junit = None,
) -> None:
    """Make the page of a run from its results folder; of a run that crashed with what there is.

    One file of HTML with nothing to fetch.
    """
    from master import report as reports
    from master.report.folder import read

    reports.check_target(output, "--output", "report")
    reports.check_target(junit, "--junit", "report")
    if junit is not None:
        reports.write_junit(read(result).document, junit)
    print(reports.make(result, output))


def after_run(finished: Finished, junit: Path | None, page: bool) -> None:
    """What goes wrong here is told in one line: the run's results and its exit status stay."""
    from master import report as reports

    if junit is not None:
        _attempt("the JUnit XML", lambda: reports.write_junit(finished.outcome.document, junit))
    if page:
        _attempt("the report", lambda: print(f"report: {reports.make(finished.folder)}", file=sys.stderr))


def _attempt(what: str, make: Callable[[], None]) -> None:
    try:
        make()
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        print(f"pktswarm: {what} could not be made: {words}", file=sys.stderr)
