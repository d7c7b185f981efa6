"""Options and arguments that several commands share, and the checks of their values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pktswarm.master import shipped
from pktswarm.master.cli import complete
from pktswarm.master.cli.quantity import quantity, time_option
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.master.live.metrics import Served

NS_PER_S = 1_000_000_000
LEAST_TIME_S, TIME_LIMIT_S = 1e-9, 1e9


def shipped_or_file(context: typer.Context, path: Path | None) -> Path | None:
    """The callback of a scenario argument: a file, or the shipped scenario of that name."""
    found = None if path is None else shipped.scenario(path)
    if found != path and not context.resilient_parsing:
        print(f"pktswarm: {path}: no such file here, taking the shipped {found}", file=sys.stderr)
    return found


ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help="Scenario file, e.g. configs/demo.yaml, or the name of a shipped scenario, e.g. demo.",
        show_default=False,
        callback=shipped_or_file,
        autocompletion=complete.scenarios,
    ),
]
ResultFolder = Annotated[
    Path,
    typer.Argument(
        help="Results folder of a run, e.g. results/20260101T120000Z-demo.",
        show_default=False,
        autocompletion=complete.results,
    ),
]
AnyResultFolder = Annotated[
    Path,
    typer.Argument(
        help="Results folder of a run, search, rfc2544, y1564, calibrate, table, sessions, compare or upf probe.",
        show_default=False,
        autocompletion=complete.results,
    ),
]
Hosts = Annotated[Path, typer.Option("--hosts", help="Inventory file.", autocompletion=complete.inventories)]
Results = Annotated[Path, typer.Option("--results", help="Parent folder of the results folder.")]
Patience = Annotated[
    float,
    typer.Option(
        "--patience",
        parser=quantity("--patience", units.PLAIN, units.Range(least=0.1)),
        metavar="FACTOR",
        help="Factor on timeouts, safety timeouts excepted, 0.1 or more; for slow hosts.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Png = Annotated[Path | None, typer.Option("--png", help="Draw every plot into this PNG file.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Draw every plot into this SVG file.")]
PlotData = Annotated[Path | None, typer.Option("--csv", help="Write the data of every plot as CSV into this folder.")]
BinWidth = Annotated[
    float | None,
    typer.Option(
        "--bin",
        parser=time_option("--bin"),
        metavar="TIME",
        help="Bin width, 1e-9 s or more and below 1e9 s.",
        show_default="from the data",
    ),
]
Precision = Annotated[
    str,
    typer.Option("--precision", help="Largest distance of the bounds of a rate, 0.01% to 50% of the upper bound."),
]
Confirm = Annotated[
    float | None,
    typer.Option(
        "--confirm",
        parser=time_option("--confirm"),
        metavar="TIME",
        help="Duration of the trial that confirms each rate, s or 2min, up to 3600; 0: none. A rate fails it by loss, "
        "or by a latency that rises throughout the trial.",
        show_default="10 to 60, by the queue of the device",
    ),
]
AnyAddress = Annotated[
    bool,
    typer.Option("--allow-any-address", help="Allow destination addresses that the inventory does not list as tested."),
]
ControlInterface = Annotated[
    bool,
    typer.Option(
        "--allow-control-interface",
        help="Allow sending on an interface with the default route or the control connection.",
    ),
]

Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        help="Label of the device under test, kept in the results and compared, e.g. firmware=2.1; repeatable.",
        show_default=False,
    ),
]

Metrics = Annotated[
    int | None,
    typer.Option("--metrics", help="Loopback port that serves live figures to Prometheus, 0 to 65535; 0: any free."),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for a cluster that is up and in use; without it the command is refused.")
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FOLDER",
        help="Continue the interrupted command of this results folder, with the same scenario, inventory and options; "
        "finished trials are not repeated.",
        autocompletion=complete.jobs,
    ),
]


def examples(*commands: str) -> str:
    """The end of a help text: each example on a line of its own."""
    return "\n\n".join(["Examples:" if len(commands) > 1 else "Example:", *(f"pktswarm {words}" for words in commands)])


def nanoseconds(command: str, option: str, seconds: float | None, noun: str) -> int | None:
    """Convert the value of a time option. `noun` names the value in the error. Raises BadInput."""
    if seconds is None:
        return None
    if not LEAST_TIME_S <= seconds < TIME_LIMIT_S:
        allowed = f"{LEAST_TIME_S:g} s or more and below {TIME_LIMIT_S:g} s"
        raise BadInput(command, f"{noun} out of range", key=option, value=seconds, allowed=allowed)
    return round(seconds * NS_PER_S)


def serve_metrics(port: int | None) -> Served | None:
    """Bind the port of --metrics in the namespace of the caller, before a lab is entered. Starts no thread."""
    if port is None:
        return None
    from pktswarm.master.live.metrics import Served

    return Served(port)


def enter_lab(hosts: Path) -> None:
    """Enter the namespaces of a lab's master if the inventory is a lab's. Must run before any thread starts."""
    from pktswarm.master.cluster import inventory

    if inventory.load(hosts).variables.get("pktswarm_lab"):
        from pktswarm import lab

        lab.enter(hosts.resolve())
