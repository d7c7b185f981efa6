"""`pktswarm table`: tables and figures of the references, measured again."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from pktswarm.master.cli import complete
from pktswarm.master.cli.cluster import kept_ranks
from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import (
    AnyAddress,
    ControlInterface,
    Hosts,
    Json,
    Labels,
    Metrics,
    Patience,
    Resume,
    Wait,
    enter_lab,
    examples,
    serve_metrics,
    shipped_or_file,
)
from pktswarm.master.cli.quantity import time_option
from pktswarm.master.cli.report import attempt
from pktswarm.master.live.job import estimate
from pktswarm.traffic import units
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.benchmark.document import Interruption
    from pktswarm.master.benchmark.job import Job
    from pktswarm.master.benchmark.outlook import Outlook
    from pktswarm.master.cluster.dut import DutEntry
    from pktswarm.master.live.metrics import Served
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results.folder import Outcome
    from pktswarm.master.run.kept_ranks import KeptRanks
    from pktswarm.master.tables.document import TableDocument

EXAMPLES = examples(
    "table netspec", "table configs/tables/ericload-5.1.yaml --seconds 60", "table netspec --resume results/netspec"
)
PIPED_WIDTH = 160
"""Columns of a table that is not printed to a terminal."""
NETSPEC = "netspec"


COMMAND = "table"
P = TypeVar("P")
Say = Callable[[P], tuple[str, str]]
"""Returns the label and the problem of a point."""


def _netspec_or_file(context: typer.Context, what: str) -> str:
    return what if what == NETSPEC else str(shipped_or_file(context, Path(what)))


def table(
    what: Annotated[
        str,
        typer.Argument(
            help="netspec, or the file of a family of runs in configs/tables.",
            show_default=False,
            callback=_netspec_or_file,
            autocompletion=complete.scenarios,
        ),
    ],
    hosts: Hosts = DEFAULT_HOSTS,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the measured points; points that it holds are reused.", show_default="results/NAME"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            parser=time_option("--seconds", units.Range(least=0.5)),
            metavar="TIME",
            help="Duration of each point, s or 2min, 0.5 or more.",
            show_default="the table's",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Use the durations of the reference (netspec: 700 s a point, 14 hours).")
    ] = False,
    background: Annotated[
        str, typer.Option(help="netspec: background loads, Mbit/s or with a unit: 25, 60Mbit or both.")
    ] = "25,60",
    resume: Resume = None,
    metrics: Metrics = None,
    patience: Patience = 1.0,
    wait: Wait = False,
    as_json: Json = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
    label: Labels = None,
) -> None:
    """Measure a table or figure of a reference again; every point is a run.

    Exit status: 0 all points were measured; 2 bad input; 3 a point has a problem.
    """
    from pktswarm.master.cluster import dut
    from pktswarm.master.cluster.inventory import load
    from pktswarm.master.plan.allowlist import Allow

    _check_folders(out, resume)
    allow, labels = Allow(any_address, control_interface), dut.labels(COMMAND, label or [])
    served = serve_metrics(metrics)
    enter_lab(hosts)
    device = dut.entry(load(hosts).dut, labels)
    with kept_ranks(wait) as kept:
        work = _Work(hosts, resume or out, patience, allow, kept, labels, device, resume is not None, served)
        if what == NETSPEC:
            _netspec(work, seconds, full, background, as_json)
        else:
            _family(Path(what), work, seconds, full, as_json)


def _check_folders(out: Path | None, resume: Path | None) -> None:
    """Raise BadInput for two folders."""
    if out is not None and resume is not None and out.resolve() != resume.resolve():
        problem = "another folder than that of --resume"
        raise BadInput(COMMAND, problem, key="--out", value=str(out), allowed=str(resume))


@dataclass
class _Work:
    """The runs of a table. `out` None: the folder by the table's name. `device`: all that is known of it."""

    hosts: Path
    out: Path | None
    patience: float
    allow: Allow
    kept: KeptRanks
    labels: dict[str, str]
    device: DutEntry | None
    resumes: bool
    served: Served | None
    job: Job | None = None
    took_s: list[float] = field(default_factory=list)
    """The times of the points that were made."""

    def folder(self, name: str) -> Path:
        self.out = self.out or DEFAULT_RESULTS / name
        return self.out

    def execute(self, scenario: Path) -> tuple[Outcome, Path]:
        """Make the run of a point."""
        from pktswarm.master.benchmark.runs import watching
        from pktswarm.master.run.run import Run

        assert self.out is not None
        began = time.monotonic()
        # Hundreds of points replay the same large traces: their sent packets are not stored.
        current = Run(
            scenario,
            self.hosts,
            self.out / "runs",
            self.patience,
            keep_sent=False,
            allow=self.allow,
            kept=self.kept,
            labels=self.labels,
        )
        with watching(Console(stderr=True, quiet=True), current, self.job, None) as watch:
            finished = current.execute(watch)
        if finished.outcome.document["reason"] == "stopped by the user":
            raise PktswarmError(
                f"interrupted; {self.out} holds the measured points, and the same command continues from them"
            )
        self.took_s.append(time.monotonic() - began)
        return finished.outcome, finished.folder

    def follow(self, name: str, scenarios: Mapping[str, object], points: Iterable[P], say: Say[P]) -> list[P]:
        """Measure all points as a job. `scenarios`: by point. `say`: the label and the problem of a point."""
        from pktswarm.master.benchmark.job import Job, Names, check_resumable, inputs
        from pktswarm.master.cluster import inventory

        folder = self.folder(name)
        given = inputs(None, inventory.load(self.hosts), {"points": scenarios, "labels": self.labels})
        check_resumable(folder if self.resumes else None, COMMAND, given)
        folder.mkdir(parents=True, exist_ok=True)
        self.job = Job(folder, Names(COMMAND, name), given, Console(stderr=True), self.served, self.resumes)
        measured: list[P] = []
        with contextlib.closing(self.job) as job:
            job.begin(self._outlook(0, len(scenarios), ""), "the measured points")
            try:
                for point in points:
                    measured.append(point)
                    label, problem = say(point)
                    job.note(self._outlook(len(measured), len(scenarios), label))
                    _progress(len(measured), len(scenarios), label, problem, estimate(job.progress))
            except PktswarmError as error:
                job.end(error.exit_status, str(error))
                raise
            problems = sum(bool(say(point)[1]) for point in measured)
            why = f"{problems} of {len(measured)} points have a problem" if problems else ""
            job.end(EXIT_INCOMPLETE if problems else EXIT_AS_EXPECTED, why)
        return measured

    def _outlook(self, done: int, total: int, label: str) -> Outlook:
        from pktswarm.master.benchmark.outlook import Outlook, left_by_parts

        left = total - done
        part = min(done + 1, total)
        return Outlook(done, label, part, total, left_trials=left, left_s=left_by_parts(self.took_s, left))

    @property
    def interruptions(self) -> list[Interruption]:
        return [] if self.job is None else self.job.interruptions


def _family(path: Path, work: _Work, seconds: float | None, full: bool, as_json: bool) -> None:
    from pktswarm.master.tables import document
    from pktswarm.master.tables import family as families

    family = families.load(path)
    family = family.in_full() if full else family
    folder = work.folder(family.table)
    if full and family.reference_seconds is None:
        raise BadInput(path, "missing, and required by --full", key="reference_seconds")
    wanted = family.reference_seconds if full else seconds
    runs = families.Runs(path, family, folder, wanted, work.execute, work.device)
    scenarios = {point.key: runs.scenario(point) for point in runs.points}

    def say(point: families.PointResult) -> tuple[str, str]:
        return ", ".join(point["labels"]), point["problem"]

    points = work.follow(family.table, scenarios, runs.run(), say)
    results = document.of_family(str(path), runs, points, work.device)
    results["interruptions"] = work.interruptions
    _finish(folder, results, as_json)


def _netspec(work: _Work, seconds: float | None, full: bool, background: str, as_json: bool) -> None:
    """Measure NetSpec's target flows against background traffic, in six sets (Lee 1998, figures 5 to 9)."""
    from pktswarm.master.cluster.inventory import load
    from pktswarm.master.tables import document, netspec

    wanted, out = netspec.FULL_S if full else seconds or netspec.SECONDS, work.folder(NETSPEC)
    backgrounds = _backgrounds(background, tuple(netspec.CONFIGS))
    runs = netspec.Netspec(load(work.hosts), out, wanted, backgrounds, work.execute, work.device)
    scenarios = {point.key: runs.scenario(point) for point in runs.points()}

    def say(point: netspec.Measured) -> tuple[str, str]:
        return f"{point.set}, background {point.background_mbps} Mbit/s, {point.target}", point.problem

    measured = work.follow(NETSPEC, scenarios, runs.run(), say)
    results = document.of_netspec(runs, measured, work.device)
    results["interruptions"] = work.interruptions
    _finish(out, results, as_json)


def _backgrounds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    try:
        loads = tuple(round(units.parse(part, units.MEGABITS)) for part in text.split(","))
    except units.UnitError:
        loads = ()
    if not loads or set(loads) - set(known):
        raise BadInput(
            "table netspec",
            "unknown background load",
            key="--background",
            value=text,
            allowed=", ".join(map(str, known)),
        )
    return tuple(dict.fromkeys(loads))


def _progress(number: int, total: int, label: str, problem: str, remarks: list[str]) -> None:
    line = "; ".join([f"{number} of {total}: {label}{f': {problem}' if problem else ''}", *remarks])
    Console(stderr=True).print(line, markup=False, highlight=False)


def _finish(folder: Path, results: TableDocument, as_json: bool) -> NoReturn:
    """Store the document, print it and make the page."""
    from pktswarm.master.tables import document, page

    (folder / f"{results['name']}.json").write_text(json.dumps(results, indent=2) + "\n")
    if as_json:
        print(json.dumps(results))
    else:
        _print(document.tables(results), document.captions(results), results["problems"], folder)
    attempt("the report", lambda: print(f"report: {page.make(folder, results)}", file=sys.stderr))
    raise typer.Exit(results["status"])


def _print(tables: list[Table], captions: list[str], problems: list[str], out: Path) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for table in tables:
        console.print(table)
    for line in captions:
        console.print(f"[dim]{line}[/]")
    for line in problems:
        console.print(line, style="yellow", markup=False)
    console.print(f"results: {out}", soft_wrap=True)
