"""`pktswarm report`, and the pages and JUnit files that other commands write at their end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pktswarm.master.cli import pages
from pktswarm.master.cli.options import AnyResultFolder, examples
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.master.results.document import RunDocument
    from pktswarm.master.run.run import Finished

EXAMPLES = examples(
    "report results/20260101T120000Z-demo",
    "report results/20260101T120000Z-demo-search",
    "report results/20260101T120000Z-demo -o demo.html --junit demo.xml --pdf",
)
Junit = Annotated[Path | None, typer.Option("--junit", help="Write the verdicts as JUnit XML into this file, for CI.")]


def report(
    result: AnyResultFolder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file.", show_default="report.html in the folder")
    ] = None,
    junit: Junit = None,
    as_pdf: Annotated[
        bool, typer.Option("--pdf", help="Also write the page as PDF beside it; needs a headless Chromium.")
    ] = False,
) -> None:
    """Write the page of a results folder: of a run, also of one that did not end, and of any other command.

    The page is one HTML file that loads nothing from elsewhere.
    """
    from pktswarm.master import report as reports
    from pktswarm.master.report import pdf
    from pktswarm.master.report.folder import read
    from pktswarm.master.report.kinds import RUN, kind_of

    reports.check_target(output, "--output", "report")
    reports.check_target(junit, "--junit", "report")
    if as_pdf:
        pdf.chromium()
    kind = kind_of(result)
    if junit is not None:
        if kind != RUN:
            problem, allowed = f"a {kind} has no verdicts of a run", "the folder of a run"
            raise BadInput("report", problem, key="--junit", value=str(junit), allowed=allowed)
        reports.write_junit([read(result).document], junit)
    page = reports.make(result, output) if kind == RUN else pages.make(kind, result, output)
    print(page)
    if as_pdf:
        pdf.print_page(page, page.with_suffix(".pdf"))
        print(page.with_suffix(".pdf"))


def after_run(finished: Finished, junit: Path | None, page: bool) -> None:
    """Write the JUnit file and the page of a run. An error prints one line; results and exit status stay."""
    from pktswarm.master import report as reports

    if junit is not None:
        junit_of([finished.outcome.document], junit)
    if page and finished.written:
        attempt("the report", lambda: print(f"report: {reports.make(finished.folder)}", file=sys.stderr))


def junit_of(documents: Sequence[RunDocument], path: Path) -> None:
    """Write one JUnit file of one or several runs. An error prints one line."""
    from pktswarm.master import report as reports

    attempt("the JUnit XML", lambda: reports.write_junit(documents, path))


def attempt(what: str, make: Callable[[], None]) -> None:
    """Call `make`; an error prints one line. `what` names the object that was not made."""
    try:
        make()
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        print(f"pktswarm: {what} could not be made: {problem}", file=sys.stderr)
