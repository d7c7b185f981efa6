"""The parts that the commands search, rfc2544 and y1564 share: a line for each trial, results, page, exit status."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import typer

from pktswarm.master.cli.report import attempt

if TYPE_CHECKING:
    from rich.console import Console

    from pktswarm.master.benchmark.document import Resumable
    from pktswarm.master.benchmark.job import Inputs, Job, Names
    from pktswarm.master.benchmark.outlook import Outlook
    from pktswarm.master.benchmark.storage import History, Storage
    from pktswarm.master.live.metrics import Served

    class Benchmark(History, Protocol):
        """A benchmark that runs its trials."""

        @property
        def status(self) -> int: ...

        def run(self) -> None: ...

    Trials = TypeVar("Trials", bound=Benchmark)
    About = TypeVar("About")
    Stored = TypeVar("Stored", bound=Resumable)
    AnyStorage = TypeVar("AnyStorage", bound=Storage[Any, Any, Any])


def begin(
    make: Callable[..., AnyStorage],
    names: Names,
    given: Inputs,
    resume: Path | None,
    served: Served | None,
) -> tuple[AnyStorage, Job]:
    """Make the storage of a new benchmark, or of the one that --resume names. Raises BadInput if that is another."""
    from pktswarm.master.benchmark.job import Job, check_resumable
    from pktswarm.master.results import terminal

    resumed = check_resumable(resume, names.command, given)
    storage = make(resumed=resumed)
    return storage, Job(storage.path, names, given, terminal.console(stderr=True), served, resumed is not None)


def after_trial(
    line: Callable[[Trials], str],
    storage: Storage[Trials, About, Stored],
    job: Job,
    look: Callable[[Trials], Outlook],
) -> Callable[[Trials], None]:
    """Return the callback of a benchmark: it prints a line for each trial, and stores the results so far.

    `look` returns what the benchmark has found so far.
    """
    printed = 0

    def callback(benchmark: Trials) -> None:
        nonlocal printed
        job.note(look(benchmark))
        if job.replaying:
            return
        if len(benchmark.trials) > printed:
            printed = len(benchmark.trials)
            job.console.print("; ".join(filter(None, [line(benchmark), job.remarks()])), markup=False, highlight=False)
        storage.write(benchmark)

    return callback


def conduct(
    benchmark: Trials,
    storage: Storage[Trials, About, Stored],
    check: Callable[[], None],
    job: Job,
    look: Callable[[Trials], Outlook],
) -> Stored:
    """Check and run a benchmark, and store its results. Without a trial no folder stays."""
    storage.interruptions = job.interruptions
    with contextlib.closing(job):
        with storage.discarded_without_trials(benchmark):
            check()
            job.begin(look(benchmark), f"{job.kept} trials")
            benchmark.run()
        document = storage.write(benchmark)
        job.end(document["status"], document["problem"])
    return document


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
