"""`pktswarm search`: the highest rate at which no more than an allowed share is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pktswarm.master.cli import benchmark, complete
from pktswarm.master.cli.cluster import kept_ranks
from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import (
    AnyAddress,
    Confirm,
    ControlInterface,
    Hosts,
    Json,
    Labels,
    Metrics,
    Patience,
    Precision,
    Results,
    Resume,
    ScenarioFile,
    Wait,
    enter_lab,
    examples,
    serve_metrics,
)
from pktswarm.master.cli.quantity import quantity, time_option
from pktswarm.traffic import units

if TYPE_CHECKING:
    from pktswarm.master.benchmark.job import Job
    from pktswarm.master.benchmark.runs import Runs
    from pktswarm.master.search.document import SearchDocument
    from pktswarm.master.search.goals import SearchOptions
    from pktswarm.master.search.storage import Storage

EXAMPLES = examples(
    "search configs/search.yaml",
    "search configs/search.yaml --loss 0 --loss 2% --json",
    "search configs/search.yaml --min 10kpps --max 1.5M --duration 500ms",
    "search configs/search.yaml --expect latency_p99_us=5000",
    "search configs/search.yaml --confirm 60",
    "search configs/search.yaml --resume results/20260101T120000Z-search-search",
)
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        help="Stream to search; repeatable.",
        show_default="all but the background",
        autocompletion=complete.streams,
    ),
]
Losses = Annotated[
    list[str] | None,
    typer.Option(
        "--loss", help="Allowed loss, 0 or a percentage below 100% such as 0.5%; repeatable.", show_default="0"
    ),
]
Expectations = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="KEY=LIMIT",
        help="Further limit that each searched stream must meet at a rate, e.g. latency_p99_us=300; repeatable.",
    ),
]
LowestRate = Annotated[
    float | None,
    typer.Option(
        "--min",
        parser=quantity("--min", units.PACKET_RATE),
        metavar="RATE",
        help="Lowest rate of all searched streams together, packets/s, or with a unit: 10kpps.",
        show_default="a hundredth of --max",
    ),
]
HighestRate = Annotated[
    float | None,
    typer.Option(
        "--max",
        parser=quantity("--max", units.PACKET_RATE),
        metavar="RATE",
        help="Highest rate of all searched streams together, packets/s, or with a unit: 1.5M.",
        show_default="their rates in the file",
    ),
]
Duration = Annotated[
    float,
    typer.Option(
        "--duration",
        parser=time_option("--duration"),
        metavar="TIME",
        help="Duration of a trial, s or 500ms, more than 0, up to 3600; RFC 2544 asks for 60.",
    ),
]
Trials = Annotated[
    int, typer.Option("--trials", help="Trials that decide on a rate, 1 to 100; half of them may exceed the loss.")
]


def search(
    scenario: ScenarioFile,
    hosts: Hosts = DEFAULT_HOSTS,
    stream: Streams = None,
    loss: Losses = None,
    expect: Expectations = None,
    lowest: LowestRate = None,
    highest: HighestRate = None,
    precision: Precision = "0.5%",
    duration: Duration = 1.0,
    trials: Trials = 3,
    confirm: Confirm = None,
    resume: Resume = None,
    metrics: Metrics = None,
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    wait: Wait = False,
    as_json: Json = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
    label: Labels = None,
) -> None:
    """Search for the highest rate at which a scenario's streams lose no more than an allowed share, by MLRsearch.

    The search overloads the device under test: use it only in an isolated test network, NEVER on a network in use
    (RFC 6815).
    """
    from pktswarm.master.benchmark.job import Names, inputs
    from pktswarm.master.benchmark.load import load_of
    from pktswarm.master.benchmark.runs import Runs
    from pktswarm.master.benchmark.trial import Tolerance
    from pktswarm.master.cluster import dut, inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.scenario import expectations
    from pktswarm.master.scenario import scenario as scenarios
    from pktswarm.master.search import goals, page
    from pktswarm.master.search.document import about
    from pktswarm.master.search.show import print_results
    from pktswarm.master.search.storage import Storage

    options = goals.parse(scenario, loss or ["0"], lowest, highest, precision, duration, trials, confirm)
    limits, labels = expectations.parse(scenario, "--expect", expect or []), dut.labels("search", label or [])
    served = serve_metrics(metrics)
    enter_lab(hosts)
    read, cluster = scenarios.load(scenario), inventory.load(hosts)
    load = load_of(scenario, read, cluster, stream or [])
    bounds = goals.bounds(scenario, options, load.own_pps, load.least_pps)
    load.check_lasting(max(duration, confirm or 0.0))
    asked = {"search": options, "bounds_pps": bounds, "streams": load.unit_pps, "expect": limits, "labels": labels}
    options, allow = replace(options, longest_confirm_s=load.lasts_s()), Allow(any_address, control_interface)
    make = partial(Storage, results, read.name, about(load, hosts, expect or []), dut.entry(cluster.dut, labels))
    storage, job = benchmark.begin(make, Names(Storage.kind, read.name), inputs(read, cluster, asked), resume, served)
    tolerance = Tolerance(options.precision, losses=options.losses, limits=limits)
    with kept_ranks(wait) as kept:
        runs = Runs(load, hosts, storage.runs, tolerance, patience, job.console, allow, kept, labels, job)
        ended = _run(options, bounds, runs, storage, job)
    benchmark.finish(storage.path, ended, as_json, print_results, page.make)


def _run(options: SearchOptions, bounds: tuple[float, float], runs: Runs, storage: Storage, job: Job) -> SearchDocument:
    from pktswarm.master.search.engine import Search
    from pktswarm.master.search.outlook import outlook
    from pktswarm.master.search.show import trial_line

    callback = benchmark.after_trial(trial_line, storage, job, outlook)
    running = Search(options, *bounds, runs.journaled(job), callback)
    check = partial(runs.check, bounds, options.first_trial_s)
    return benchmark.conduct(running, storage, check, job, outlook)
