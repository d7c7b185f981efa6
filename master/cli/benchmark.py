"""The parts that the commands search, rfc2544 and y1564 share: a line for each trial, results, page, exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

import typer

from pktswarm.master.cli.report import attempt

if TYPE_CHECKING:
    from rich.console import Console

    from pktswarm.master.benchmark.document import Outcome
    from pktswarm.master.benchmark.storage import History, Storage

    class Benchmark(History, Protocol):
        """A benchmark that runs its trials."""

        @property
        def status(self) -> int: ...

        def run(self) -> None: ...

    Trials = TypeVar("Trials", bound=Benchmark)
    About = TypeVar("About")
    Stored = TypeVar("Stored", bound=Outcome)


def after_trial(
    console: Console, line: Callable[[Trials], str], storage: Storage[Trials, About, Stored]
) -> Callable[[Trials], None]:
    """Return the callback of a benchmark: it prints the line of each trial once, and stores the results so far."""
    printed = 0

    def callback(benchmark: Trials) -> None:
        nonlocal printed
        if len(benchmark.trials) > printed:
            printed = len(benchmark.trials)
            console.print(line(benchmark), markup=False, highlight=False)
        storage.write(benchmark)

    return callback


def conduct(benchmark: Trials, storage: Storage[Trials, About, Stored], check: Callable[[], None]) -> Stored:
    """Check and run a benchmark, and store its results. Without a trial no folder stays."""
    with storage.discarded_without_trials(benchmark):
        check()
        benchmark.run()
    return storage.write(benchmark)


def finish(
    folder: Path,
    document: Stored,
    as_json: bool,
    print_results: Callable[[Console, Stored, Path], None],
    make_page: Callable[[Path, Stored], Path] | None = None,
) -> NoReturn:
    """Print the results, make the page, and exit. A page that cannot be made leaves results and exit status alone."""
    from pktswarm.master.results import terminal

    if as_json:
        print(json.dumps({"results": str(folder), **document}))
    else:
        print_results(terminal.console(), document, folder)
    if make_page is not None:
        attempt("the report", lambda: print(f"report: {make_page(folder, document)}", file=sys.stderr))
    raise typer.Exit(document["status"])
