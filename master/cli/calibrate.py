"""`pktswarm calibrate`: what each node can send and receive without loss."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli.options import enter_lab
from pktswarm.traffic.errors import BadInput

EXAMPLES = (
    "Examples: pktswarm calibrate --quick · "
    "pktswarm calibrate --hosts hosts/mine.yml --sizes 64,1518 --engines xdp,trafgen --node tx1 --again"
)
SIZES = "64,512,1518"


def calibrate(
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    sizes: Annotated[str, typer.Option(help="Of frames, in bytes with FCS.")] = SIZES,
    engines: Annotated[
        str, typer.Option(help="Of senders and receivers.", show_default="xdp,pktgen,trafgen,netsniff-ng")
    ] = "",
    node: Annotated[list[str] | None, typer.Option(help="Only this one; may come again.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Trials of 0.5 s, bounds within 10 %.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Trials of 10 s, within 1 %, ten at the rate found.")] = False,
    seconds: Annotated[float | None, typer.Option(help="That a trial sends.", show_default="2")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what is known already.")] = False,
    capture: Annotated[bool, typer.Option("--capture", help="Receivers write to disk too.")] = False,
    results: Annotated[Path, typer.Option(help="Where the folder of the runs is made.")] = Path("results"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """What each node can send, and receive without loss, by frame size and engine; kept beside the inventory.

    Nodes are wired back to back or through a switch, with NO device between them and nothing else: they are
    overloaded on purpose (RFC 6815).
    """
    from pktswarm.master.calibrate import options as asking
    from pktswarm.master.calibrate.calibration import Calibration
    from pktswarm.master.calibrate.runs import Runs
    from pktswarm.master.calibrate.show import line, print_found
    from pktswarm.master.cluster import inventory
    from pktswarm.master.files import new_folder
    from pktswarm.master.plan import capacity
    from pktswarm.master.results import terminal

    if quick and full:
        raise BadInput(asking.COMMAND, "contradict each other", key="--quick, --full", allowed="one of them")
    form = asking.QUICK if quick else asking.FULL if full else asking.USUAL
    form = form if seconds is None else replace(form, trial_s=seconds)
    cluster = inventory.load(hosts)
    named = engines or ",".join(asking.ENGINES)
    wanted = asking.asked(cluster, sizes, named, node or [], form, again, capture)
    wiring = asking.wiring(cluster)
    known = capacity.beside(hosts) or capacity.Capacity(capacity.path_of(hosts))
    enter_lab(hosts)
    folder, console = new_folder(results, asking.COMMAND), terminal.console(stderr=True)
    console.print(f"wired {wiring}", markup=False, highlight=False)
    runs = Runs(hosts, folder / "runs", form.precision / 2, patience, console)

    def tell(figure: capacity.Figure, before: bool) -> None:
        console.print(line(figure, before), markup=False, highlight=False)

    work = Calibration(cluster, wanted, runs, replace(known, wiring=wiring), tell)
    try:
        work.run()
    finally:
        for empty in (folder / "runs", folder):
            with contextlib.suppress(OSError):
                empty.rmdir()  # of a calibration that ended before its first run
    if as_json:
        done = [one.model_dump() for one in work.done]
        about = {"status": work.status, "problem": work.problem, "wiring": wiring, "lacking": work.lacking()}
        print(json.dumps({"capacity": str(known.path), "results": str(folder), **about, "figures": done}))
    else:
        print_found(terminal.console(), work, folder)
    raise typer.Exit(work.status)
