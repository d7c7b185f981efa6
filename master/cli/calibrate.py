"""`pktswarm calibrate`: the rates that each node can send, and receive without loss."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Annotated

import typer

from pktswarm.master.cli.options import (
    DEFAULT_HOSTS,
    DEFAULT_RESULTS,
    Hosts,
    Json,
    Patience,
    Results,
    enter_lab,
    examples,
)
from pktswarm.traffic.errors import BadInput

EXAMPLES = examples(
    "calibrate --quick",
    "calibrate --hosts hosts/mine.yml --sizes 64,1518 --engines xdp,trafgen --node tx1 --again",
)
SIZES = "64,512,1518"
Sizes = Annotated[str, typer.Option("--sizes", help="Frame sizes, bytes with FCS, 64 to 9618, separated by commas.")]
Engines = Annotated[
    str,
    typer.Option(
        "--engines",
        help="Engines of senders and receivers, separated by commas.",
        show_default="xdp,pktgen,trafgen,netsniff-ng",
    ),
]
Nodes = Annotated[list[str] | None, typer.Option("--node", help="Node to measure; repeatable.", show_default="all")]
Quick = Annotated[bool, typer.Option("--quick", help="Trials of 0.5 s, precision 10 %.")]
Full = Annotated[bool, typer.Option("--full", help="Trials of 10 s, precision 1 %, ten trials at the result.")]
Seconds = Annotated[
    float | None, typer.Option("--seconds", help="Duration of a trial, s, more than 0, up to 3600.", show_default="2")
]
Again = Annotated[bool, typer.Option("--again", help="Measure again the figures that the capacity file holds.")]
Capture = Annotated[bool, typer.Option("--capture", help="Measure receivers that also write captures to disk.")]


def calibrate(
    hosts: Hosts = DEFAULT_HOSTS,
    sizes: Sizes = SIZES,
    engines: Engines = "",
    node: Nodes = None,
    quick: Quick = False,
    full: Full = False,
    seconds: Seconds = None,
    again: Again = False,
    capture: Capture = False,
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    as_json: Json = False,
) -> None:
    """Measure the rate that each node can send, and receive without loss, by frame size and engine.

    The figures are written into the capacity file beside the inventory. Nodes must be wired back to back or through a
    switch, with NO device under test between them and no other equipment: they are overloaded (RFC 6815).
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
        raise BadInput(asking.COMMAND, "mutually exclusive", key="--quick, --full", allowed="one of them")
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
