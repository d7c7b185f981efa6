"""`pktswarm search FILE`: the highest rate at which no more than a given share is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pktswarm.master.cli.options import AnyAddress, ControlInterface, enter_lab

if TYPE_CHECKING:
    from pktswarm.master.search.engine import Search
    from pktswarm.master.search.storage import Kept

EXAMPLES = (
    "Examples: pktswarm search configs/search.yaml · pktswarm search configs/search.yaml --loss 0 --loss 2% --json · "
    "pktswarm search configs/search.yaml --expect latency_p99_us=5000"
)


def search(
    scenario: Annotated[Path, typer.Argument(help="A scenario, e.g. configs/search.yaml", show_default=False)],
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    stream: Annotated[
        list[str] | None, typer.Option(help="Searched; may come again. Left out: all but the background.")
    ] = None,
    loss: Annotated[
        list[str] | None, typer.Option(help="May be lost: 0, 0.5%; may come again.", show_default="0")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LIMIT",
            help="What else has to hold at a load, of each stream, as latency_p99_us=300; may come again.",
        ),
    ] = None,
    lowest: Annotated[
        float | None, typer.Option("--min", help="Packets/s of the searched streams. Left out: a hundredth of --max")
    ] = None,
    highest: Annotated[float | None, typer.Option("--max", help="Left out: the streams' own rates")] = None,
    precision: Annotated[str, typer.Option(help="How close the bounds are in the end.")] = "0.5%",
    duration: Annotated[float, typer.Option(help="Seconds that a trial sends. RFC 2544: 60 or more.")] = 1.0,
    trials: Annotated[int, typer.Option(help="So many decide on a load; half of them may lose more.")] = 3,
    results: Annotated[Path, typer.Option(help="Where the folder of the search is made.")] = Path("results"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """The highest rate at which a scenario's streams lose no more than a given share, by MLRsearch.

    It overloads the device under test on purpose: only in an isolated test network, NEVER on a network in use
    (RFC 6815).
    """
    from pktswarm.master.cluster import inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results import terminal
    from pktswarm.master.scenario import expectations
    from pktswarm.master.scenario import scenario as scenarios
    from pktswarm.master.search import goals
    from pktswarm.master.search.engine import Search
    from pktswarm.master.search.load import load_of
    from pktswarm.master.search.runs import Runs
    from pktswarm.master.search.show import trial_line
    from pktswarm.master.search.storage import Kept
    from pktswarm.master.search.trial import Tolerance

    asked = goals.asked(scenario, loss or ["0"], lowest, highest, precision, duration, trials)
    limits = expectations.parse(scenario, "--expect", expect or [])
    enter_lab(hosts)
    wanted = scenarios.load(scenario)
    load = load_of(scenario, wanted, inventory.load(hosts), stream or [])
    bounds = goals.bounds(scenario, asked, load.own_pps, load.least_pps)
    load.check_lasting(duration)
    kept = Kept(results, wanted.name, load.document())
    console = terminal.console(stderr=True)
    allow = Allow(any_address, control_interface)
    tolerance = Tolerance(asked.precision, losses=asked.losses, limits=limits)
    runs = Runs(load, hosts, kept.runs, tolerance, patience, console, allow)

    def tell(search: Search) -> None:
        console.print(trial_line(search), markup=False, highlight=False)
        kept.write(search)

    searching = Search(asked, *bounds, runs.measure, tell)
    with kept.unless_nothing_was_tried(searching):
        for load_pps in bounds:
            runs.plan(load_pps, asked.first_trial_s)
        searching.run()
    _finish(searching, kept, as_json)


def _finish(search: Search, kept: Kept, as_json: bool) -> NoReturn:
    from pktswarm.master.results import terminal
    from pktswarm.master.search.show import print_found

    document = kept.write(search)
    if as_json:
        print(json.dumps({"results": str(kept.path), **document}))
    else:
        print_found(terminal.console(), search, kept.path)
    raise typer.Exit(search.status)
