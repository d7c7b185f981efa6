"""`pktswarm table`: tables and figures of the references, measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.cluster.dut import DutEntry
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results.folder import Outcome
    from pktswarm.master.run.kept_ranks import KeptRanks

EXAMPLES = examples("table netspec", "table configs/tables/ericload-5.1.yaml --seconds 60")
PIPED_WIDTH = 160
"""Columns of a table that is not printed to a terminal."""
NETSPEC = "netspec"


@dataclass(frozen=True)
class Device:
    """The device under test. `labels`: of the command line; `entry`: all that is known of it."""

    labels: dict[str, str]
    entry: DutEntry | None

    def document(self) -> dict[str, object]:
        return {} if self.entry is None else {"dut": self.entry}


Execute = Callable[[Path], "tuple[Outcome, Path]"]


def table(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="netspec, or the file of a family of runs in configs/tables.",
            show_default=False,
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
        float | None, typer.Option(help="Duration of each point, s, 0.5 or more.", show_default="the table's", min=0.5)
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Use the durations of the reference (netspec: 700 s a point, 14 hours).")
    ] = False,
    background: Annotated[str, typer.Option(help="netspec: background loads, Mbit/s: 25, 60 or both.")] = "25,60",
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
            path = shipped_or_file(context, Path(what)) or Path(what)
            _family(path, hosts, out, seconds, full, patience, allow, kept, device, as_json)


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
    from pktswarm.master.tables import failure_table
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
    problems = [f"{', '.join(point['labels'])}: {point['problem']}" for point in points if point["problem"]]
    document = {**work.document(), "points": points, "problems": problems}
    captions = [family.title, *([f"in brackets: {family.reference.source}"] if family.reference else [])]
    if less := families.not_sent(points):
        captions.append(less)
    tables = families.tables(family, points)
    if family.failures:
        document["failures"] = failure_table.rows(family, points)
        tables.append(failure_table.table(family, points))
    _finish(document | device.document(), folder / f"{family.table}.json", tables, captions, problems, as_json)


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
    from pktswarm.master.tables import netspec

    wanted = netspec.FULL_S if full else seconds or netspec.SECONDS
    backgrounds = _backgrounds(background, tuple(netspec.CONFIGS))
    work = netspec.Netspec(load(hosts), out, wanted, backgrounds, execute, device.entry)
    measured, total = [], len(work.points())
    for point in work.run():
        measured.append(point)
        label = f"{point.set}, background {point.background_mbps} Mbit/s, {point.target}"
        _progress(len(measured), total, label, point.problem)
    problems = [
        f"{point.set}, background {point.background_mbps} Mbit/s, {point.target}: {point.problem}"
        for point in measured
        if point.problem
    ]
    document = {
        "seconds": wanted,
        "bottleneck": work.inventory.variables.get("pktswarm_bottleneck"),
        "points": [asdict(point) for point in measured],
        "figures": netspec.figures(measured),
        "problems": problems,
        **device.document(),
    }
    _finish(document, out / "netspec.json", netspec.tables(measured), netspec.captions(), problems, as_json)


def _backgrounds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    try:
        loads = tuple(int(part) for part in text.split(","))
    except ValueError:
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


def _finish(
    document: dict[str, Any], file: Path, tables: list[Table], captions: list[str], problems: list[str], as_json: bool
) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        print(json.dumps(document))
    else:
        _print(tables, captions, problems, file.parent)
    raise typer.Exit(EXIT_INCOMPLETE if problems else EXIT_AS_EXPECTED)


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
