"""`pktswarm table`: tables and figures of the references, measured again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pktswarm.master.cli import complete
from pktswarm.master.cli.options import (
    DEFAULT_HOSTS,
    DEFAULT_RESULTS,
    AnyAddress,
    ControlInterface,
    Hosts,
    Json,
    Labels,
    Patience,
    enter_lab,
    examples,
    shipped_or_file,
)
from pktswarm.master.cli.quantity import time_option
from pktswarm.master.cli.report import attempt
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput, PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.cluster.dut import DutEntry
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results.folder import Outcome
    from pktswarm.master.run.kept_ranks import KeptRanks
    from pktswarm.master.tables.document import TableDocument

EXAMPLES = examples("table netspec", "table configs/tables/ericload-5.1.yaml --seconds 60")
PIPED_WIDTH = 160
"""Columns of a table that is not printed to a terminal."""
NETSPEC = "netspec"


@dataclass(frozen=True)
class Device:
    """The device under test. `labels`: of the command line; `entry`: all that is known of it."""

    labels: dict[str, str]
    entry: DutEntry | None


def _netspec_or_file(context: typer.Context, what: str) -> str:
    return what if what == NETSPEC else str(shipped_or_file(context, Path(what)))


Execute = Callable[[Path], "tuple[Outcome, Path]"]


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
    patience: Patience = 1.0,
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
    from pktswarm.master.run.kept_ranks import KeptRanks

    allow, labels = Allow(any_address, control_interface), dut.labels("table", label or [])
    enter_lab(hosts)
    device = Device(labels, dut.entry(load(hosts).dut, labels))
    with KeptRanks() as kept:
        if what == NETSPEC:
            folder = out or DEFAULT_RESULTS / NETSPEC
            execute = _executing(hosts, folder, patience, allow, kept, device)
            _netspec(hosts, folder, seconds, full, background, execute, device, as_json)
        else:
            _family(Path(what), hosts, out, seconds, full, patience, allow, kept, device, as_json)


def _executing(hosts: Path, out: Path, patience: float, allow: Allow, kept: KeptRanks, device: Device) -> Execute:
    from pktswarm.master.live.watch import Watch
    from pktswarm.master.run.run import Run

    def execute(scenario: Path) -> tuple[Outcome, Path]:
        # Hundreds of points replay the same large traces: their sent packets are not stored.
        folder, labels = out / "runs", device.labels
        current = Run(scenario, hosts, folder, patience, keep_sent=False, allow=allow, kept=kept, labels=labels)
        with Watch(Console(stderr=True, quiet=True), current) as watch:
            finished = current.execute(watch)
        if finished.outcome.document["reason"] == "stopped by the user":
            raise PktswarmError(
                f"interrupted; {out} holds the measured points, and the same command continues from them"
            )
        return finished.outcome, finished.folder

    return execute


def _family(
    path: Path,
    hosts: Path,
    out: Path | None,
    seconds: float | None,
    full: bool,
    patience: float,
    allow: Allow,
    kept: KeptRanks,
    device: Device,
    as_json: bool,
) -> None:
    from pktswarm.master.tables import document
    from pktswarm.master.tables import family as families

    family = families.load(path)
    family = family.in_full() if full else family
    folder = out or DEFAULT_RESULTS / family.table
    if full and family.reference_seconds is None:
        raise BadInput(path, "missing, and required by --full", key="reference_seconds")
    wanted = family.reference_seconds if full else seconds
    execute = _executing(hosts, folder, patience, allow, kept, device)
    work = families.Runs(path, family, folder, wanted, execute, device.entry)
    points: list[families.PointResult] = []
    for point in work.run():
        points.append(point)
        _progress(len(points), len(work.points), ", ".join(point["labels"]), point["problem"])
    _finish(folder, document.of_family(str(path), work, points, device.entry), as_json)


def _netspec(
    hosts: Path,
    out: Path,
    seconds: float | None,
    full: bool,
    background: str,
    execute: Execute,
    device: Device,
    as_json: bool,
) -> None:
    """Measure NetSpec's target flows against background traffic, in six sets (Lee 1998, figures 5 to 9)."""
    from pktswarm.master.cluster.inventory import load
    from pktswarm.master.tables import document, netspec

    wanted = netspec.FULL_S if full else seconds or netspec.SECONDS
    backgrounds = _backgrounds(background, tuple(netspec.CONFIGS))
    work = netspec.Netspec(load(hosts), out, wanted, backgrounds, execute, device.entry)
    measured, total = [], len(work.points())
    for point in work.run():
        measured.append(point)
        label = f"{point.set}, background {point.background_mbps} Mbit/s, {point.target}"
        _progress(len(measured), total, label, point.problem)
    _finish(out, document.of_netspec(work, measured, device.entry), as_json)


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


def _progress(number: int, total: int, label: str, problem: str) -> None:
    line = f"{number} of {total}: {label}{f': {problem}' if problem else ''}"
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
