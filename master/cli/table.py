"""`pktswarm table WHAT`: a reference's table or figures, made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pktswarm.master.cli.options import AnyAddress, ControlInterface, enter_lab
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results.folder import Outcome

EXAMPLES = "Examples: pktswarm table netspec · pktswarm table configs/tables/ericload-5.1.yaml --seconds 60"
PIPED_WIDTH = 160
"""Of tables that go to no terminal."""
Execute = Callable[[Path], "tuple[Outcome, Path]"]


def table(
    what: Annotated[str, typer.Argument(help="netspec, or a family of runs (configs/tables).", show_default=False)],
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    out: Annotated[
        Path | None,
        typer.Option(help="Where the points are kept; a table goes on with what is there. Left out: results/NAME"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of each point. Left out: what the table says.", min=0.5)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="As long as the reference (netspec: 700 s, 14 hours).")] = False,
    background: Annotated[str, typer.Option(help="netspec: background mixes, Mbit/s.")] = "25,60",
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """A reference's table or figures, made again: every point is a run."""
    from pktswarm.master.plan.allowlist import Allow

    allow = Allow(any_address, control_interface)
    enter_lab(hosts)
    if what == "netspec":
        folder = out or Path("results/netspec")
        _netspec(hosts, folder, seconds, full, background, _executing(hosts, folder, patience, allow), as_json)
    else:
        _family(Path(what), hosts, out, seconds, full, patience, allow, as_json)


def _executing(hosts: Path, out: Path, patience: float, allow: Allow) -> Execute:
    from pktswarm.master.live.watch import Watch
    from pktswarm.master.run.run import Run

    def execute(scenario: Path) -> tuple[Outcome, Path]:
        # Hundreds of points replay the same large traces.
        current = Run(scenario, hosts, out / "runs", patience, keep_sent=False, allow=allow)
        with Watch(Console(stderr=True, quiet=True), current) as watch:
            finished = current.execute(watch)
        if finished.outcome.document["reason"] == "stopped by the user":
            raise PktswarmError(f"interrupted; the points so far are in {out}, the same command goes on with them")
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
    as_json: bool,
) -> None:
    from pktswarm.master.tables import failure_table
    from pktswarm.master.tables import family as families

    family = families.load(path)
    family = family.in_full() if full else family
    folder = out or Path("results") / family.table
    if full and family.reference_seconds is None:
        raise BadInput(path, "--full: it does not say how long the reference's points are", key="reference_seconds")
    wanted = family.reference_seconds if full else seconds
    work = families.Runs(path, family, folder, wanted, _executing(hosts, folder, patience, allow))
    told: list[dict[str, Any]] = []
    for one in work.run():
        told.append(one)
        _progress(len(told), len(work.points), ", ".join(one["labels"]), one["problem"])
    problems = [f"{', '.join(one['labels'])}: {one['problem']}" for one in told if one["problem"]]
    document = {**work.document(), "points": told, "problems": problems}
    captions = [family.title, *([f"in brackets: {family.reference.source}"] if family.reference else [])]
    if less := families.not_sent(told):
        captions.append(less)
    tables = families.tables(family, told)
    if family.failures:
        document["failures"] = failure_table.rows(family, told)
        tables.append(failure_table.table(family, told))
    _finish(document, folder / f"{family.table}.json", tables, captions, problems, as_json)


def _netspec(
    hosts: Path, out: Path, seconds: float | None, full: bool, background: str, execute: Execute, as_json: bool
) -> None:
    """NetSpec's target flows against background traffic, six sets side by side (Lee 1998, figures 5 to 9)."""
    from pktswarm.master.cluster.inventory import load
    from pktswarm.master.tables import netspec

    wanted = netspec.FULL_S if full else seconds or netspec.SECONDS
    work = netspec.Netspec(load(hosts), out, wanted, _backgrounds(background, tuple(netspec.CONFIGS)), execute)
    measured, total = [], len(work.points())
    for one in work.run():
        measured.append(one)
        _progress(len(measured), total, f"{one.set}, background {one.background_mbps}, {one.target}", one.problem)
    problems = [f"{one.set}, {one.background_mbps}, {one.target}: {one.problem}" for one in measured if one.problem]
    document = {
        "seconds": wanted,
        "bottleneck": work.inventory.variables.get("pktswarm_bottleneck"),
        "points": [asdict(one) for one in measured],
        "figures": netspec.figures(measured),
        "problems": problems,
    }
    _finish(document, out / "netspec.json", netspec.tables(measured), netspec.captions(), problems, as_json)


def _backgrounds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or set(found) - set(known):
        raise BadInput("table netspec", "no such mix", key="background", value=text, allowed=", ".join(map(str, known)))
    return tuple(dict.fromkeys(found))


def _progress(number: int, total: int, what: str, problem: str) -> None:
    words = f"{number} of {total}: {what}{f': {problem}' if problem else ''}"
    Console(stderr=True).print(words, markup=False, highlight=False)


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
    for one in tables:
        console.print(one)
    for line in captions:
        console.print(f"[dim]{line}[/]")
    for line in problems:
        console.print(line, style="yellow", markup=False)
    console.print(f"results: {out}", soft_wrap=True)
