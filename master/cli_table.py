"""`pktswarm table …`: a reference's table or figures, made again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

app = typer.Typer(help="A reference's table or figures, made again.", no_args_is_help=True)

Hosts = Annotated[Path, typer.Option("--hosts", help="The inventory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.callback()
def _group() -> None:
    """A reference's table or figures, made again."""


@app.command(epilog="Example: pktswarm table netspec --hosts hosts/lab-default.yml")
def netspec(
    hosts: Hosts = Path("hosts/lab-default.yml"),
    out: Annotated[Path, typer.Option(help="Where the points are kept; a table goes on with what is there.")] = Path(
        "results/netspec"
    ),
    seconds: Annotated[float, typer.Option(help="Of each point.", min=0.5)] = 4.0,
    full: Annotated[bool, typer.Option("--full", help="As long as the reference: 700 s a point, 14 hours.")] = False,
    background: Annotated[str, typer.Option(help="Background mixes, Mbit/s.")] = "25,60",
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Json = False,
) -> None:
    """NetSpec's target flows against background traffic, six sets side by side (Lee 1998, figures 5 to 9)."""
    from master.cli import _enter_lab
    from master.inventory import load
    from master.results import Outcome
    from master.run import Run
    from master.show import Watch
    from master.tables import netspec as table

    _enter_lab(hosts)
    console = Console(stderr=True)

    def execute(scenario: Path) -> tuple[Outcome, Path]:
        current = Run(scenario, hosts, out / "runs", patience)
        with Watch(Console(stderr=True, quiet=True), current.plan.expected_s) as watch:
            finished = current.execute(watch)
        if finished.outcome.document["reason"] == "stopped by the user":
            raise PktswarmError(f"interrupted; the points so far are in {out}, the same command goes on with them")
        return finished.outcome, finished.folder

    wanted = table.FULL_S if full else seconds
    work = table.Netspec(load(hosts), out, wanted, _backgrounds(background, tuple(table.CONFIGS)), execute)
    measured, total = [], len(work.points())
    for one in work.run():
        measured.append(one)
        words = f"{len(measured)} of {total}: {one.set}, background {one.background_mbps}, {one.target}"
        console.print(f"{words}{f': {one.problem}' if one.problem else ''}", markup=False, highlight=False)
    problems = [f"{one.set}, {one.background_mbps}, {one.target}: {one.problem}" for one in measured if one.problem]
    document = {
        "seconds": wanted,
        "bottleneck": work.inventory.variables.get("pktswarm_bottleneck"),
        "points": [asdict(one) for one in measured],
        "figures": table.figures(measured),
        "problems": problems,
    }
    (out / "netspec.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        print(json.dumps(document))
    else:
        _print(table.tables(measured), table.captions(), problems, out)
    raise typer.Exit(EXIT_INCOMPLETE if problems else EXIT_AS_EXPECTED)


def _backgrounds(text: str, known: tuple[int, ...]) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or set(found) - set(known):
        raise BadInput("table netspec", "no such mix", key="background", value=text, allowed=", ".join(map(str, known)))
    return tuple(dict.fromkeys(found))


def _print(tables: list[Table], captions: list[str], problems: list[str], out: Path) -> None:
    console = Console()
    for one in tables:
        console.print(one)
    for line in captions:
        console.print(f"[dim]{line}[/]")
    for line in problems:
        console.print(line, style="yellow", markup=False)
    console.print(f"results: {out}", soft_wrap=True)
