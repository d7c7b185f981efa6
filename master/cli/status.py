"""`pktswarm status`: the progress of a run, from another terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.defaults import DEFAULT_RESULTS
from pktswarm.master.cli.options import examples

if TYPE_CHECKING:
    from rich.console import Console

    from pktswarm.master.live.status import Found

EXAMPLES = examples("status", "status --watch", "status results/20260101T120000Z-demo --json")
EVERY_S, LINE_EVERY_S = 1.0, 5.0


def status(
    result: Annotated[
        Path,
        typer.Argument(
            help="Results folder of a run or job, or a folder of such folders: then the newest run.",
            autocompletion=complete.results,
        ),
    ] = DEFAULT_RESULTS,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second until the run has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line on standard output.")] = False,
) -> None:
    """Report the progress of a run, and of the search, benchmark, calibration or table that it is part of.

    Exit status: 0 the run or its job is in progress; that of the job or run when it has finished; 2 bad input; 3 it
    died.
    """
    from pktswarm.master.live import status as statuses
    from pktswarm.master.results import terminal

    path = statuses.find(result)
    console = terminal.console()
    show = _as_json if as_json else _Screen(console, watch)
    progress = statuses.look(path)
    show(progress)
    while watch and progress.is_running:
        time.sleep(EVERY_S)
        # The next trial of a job is another run.
        progress = statuses.look(path if progress.job is None else statuses.find(Path(progress.job["results"])))
        show(progress)
    raise typer.Exit(progress.exit_status)


def _as_json(progress: Found) -> None:
    print(json.dumps(progress.document()), flush=True)


class _Screen:
    """Shows the progress of a run: a screen drawn anew on a terminal, else a line every 5 s."""

    def __init__(self, console: Console, again: bool) -> None:
        self.console, self.again = console, again
        self._next_line = 0.0

    def __call__(self, progress: Found) -> None:
        if progress.is_running and not self.console.is_terminal:
            self._line(progress)
            return
        if self.again:
            self.console.clear()
        self._whole(progress)

    def _line(self, progress: Found) -> None:
        from pktswarm.master.live import view

        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self._job(progress)
            text = "no figures yet" if progress.figures is None else view.line(progress.figures)
            self.console.print(f"{progress.path}: {text}", markup=False, highlight=False, soft_wrap=True)

    def _job(self, progress: Found) -> None:
        from pktswarm.master.live import job as jobs

        if (job := progress.job) is None:
            return
        lines = [f"{job['results']}: {job['state']}{f': {reason}' if (reason := job['problem']) else ''}"]
        lines.append(jobs.headline(job))
        if job["state"] in ("interrupted", "died"):
            lines.append(f"to continue: {job['resume']}")
        self.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def _whole(self, progress: Found) -> None:
        from pktswarm.master.live import view

        self._job(progress)
        reason = (
            "" if progress.outcome is None else f", exit {progress.outcome['status']}: {progress.outcome['reason']}"
        )
        self.console.print(f"{progress.path}: {progress.state}{reason}", markup=False, highlight=False, soft_wrap=True)
        if progress.figures is not None:
            # The job is printed above.
            self.console.print(view.screen({**progress.figures, "job": None}, *self.console.size))
        for total in () if progress.outcome is None else progress.outcome["totals"]:
            self.console.print(_total(total), markup=False, highlight=False, soft_wrap=True)
        if progress.state == "died":
            self.console.print(f"partial results: pktswarm report {progress.path}", markup=False, soft_wrap=True)


def _total(total: Mapping[str, Any]) -> str:
    counts = ((name, total.get(f"{name}_packets")) for name in ("intended", "sent", "received", "lost"))
    return f"{total['stream']}: " + ", ".join(f"{'–' if n is None else f'{n:,}'} {name}" for name, n in counts)
