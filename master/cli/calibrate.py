"""`pktswarm calibrate`: the rates that each node can send, and receive without loss."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pktswarm.master.cli import benchmark
from pktswarm.master.cli.cluster import kept_ranks
from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import (
    Hosts,
    Json,
    Labels,
    Metrics,
    Patience,
    Results,
    Resume,
    Wait,
    enter_lab,
    examples,
    serve_metrics,
)
from pktswarm.master.cli.quantity import time_option
from pktswarm.master.cli.report import attempt
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pktswarm.master.benchmark.job import Job
    from pktswarm.master.benchmark.trial import Trial
    from pktswarm.master.calibrate.calibration import Calibration
    from pktswarm.master.calibrate.kept import Kept
    from pktswarm.master.calibrate.options import Form
    from pktswarm.master.calibrate.storage import Storage

EXAMPLES = examples(
    "calibrate --quick",
    "calibrate --hosts hosts/mine.yml --sizes 64,1518 --engines xdp,trafgen --node tx1 --again",
    "calibrate --quick --resume results/20260101T120000Z-calibrate",
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
    float | None,
    typer.Option(
        "--seconds",
        parser=time_option("--seconds"),
        metavar="TIME",
        help="Duration of a trial, s or 500ms, more than 0, up to 3600.",
        show_default="2",
    ),
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
    resume: Resume = None,
    metrics: Metrics = None,
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    wait: Wait = False,
    as_json: Json = False,
    label: Labels = None,
) -> None:
    """Measure the rate that each node can send, and receive without loss, by frame size and engine.

    The figures are written into the capacity file beside the inventory. Nodes must be wired back to back or through a
    switch, with NO device under test between them and no other equipment: they are overloaded (RFC 6815).
    """
    from pktswarm.master.benchmark.job import Names, inputs
    from pktswarm.master.calibrate import options as options_of
    from pktswarm.master.calibrate.calibration import Calibration
    from pktswarm.master.calibrate.kept import Kept
    from pktswarm.master.calibrate.runs import Runs
    from pktswarm.master.calibrate.show import line
    from pktswarm.master.calibrate.storage import Storage
    from pktswarm.master.cluster import dut, inventory
    from pktswarm.master.plan import capacity

    form = _form(quick, full, seconds)
    labels = dut.labels(options_of.COMMAND, label or [])
    cluster = inventory.load(hosts)
    names = engines or ",".join(options_of.ENGINES)
    options = options_of.parse(cluster, sizes, names, node or [], form, again, capture)
    wiring = options_of.wiring(cluster)
    known = capacity.beside(hosts) or capacity.Capacity(capacity.path_of(hosts))
    served = serve_metrics(metrics)
    enter_lab(hosts)
    make = partial(Storage, results, "", hosts, dut.entry(cluster.dut, labels))
    given = inputs(None, cluster, {"calibrate": options, "labels": labels})
    storage, job = benchmark.begin(make, Names(options_of.COMMAND, hosts.stem), given, resume, served)
    storage.interruptions = job.interruptions
    job.console.print(f"wiring: {wiring}", markup=False, highlight=False)
    on_trial = _trial_printer(job)

    def on_figure(figure: capacity.Figure, before: bool) -> None:
        job.console.print(line(figure, before), markup=False, highlight=False)
        storage.write(calibration)

    with kept_ranks(wait) as kept:
        runs = Runs(hosts, storage.runs, form.precision / 2, patience, job.console, kept, labels, job, on_trial)
        capacities, stored = replace(known, wiring=wiring), Kept(job)
        calibration = Calibration(cluster, options, runs, capacities, on_figure, stored, job.note)
        _run(calibration, job, stored)
    _print(calibration, storage, as_json)
    raise typer.Exit(calibration.status)


def _trial_printer(job: Job) -> Callable[[Trial, float | None], None]:
    """Return a function that prints a line for each trial."""
    from pktswarm.master.calibrate.show import trial_line
    from pktswarm.master.live.job import estimate

    def on_trial(trial: Trial, unpaced_pps: float | None) -> None:
        text = f"{job.progress['stage']}: {trial_line(trial, unpaced_pps)}"
        job.console.print("; ".join([text, *estimate(job.progress)]), markup=False, highlight=False)

    return on_trial


def _run(calibration: Calibration, job: Job, stored: Kept) -> None:
    """Run a calibration. Without a run no folder stays."""
    from pktswarm.master.benchmark.outlook import Outlook

    with contextlib.closing(job):
        try:
            job.begin(Outlook(0), stored.describe())
            calibration.run()
        except BaseException:
            if not any((job.folder / "runs").glob("*")):
                job.discard()
            raise
        job.end(calibration.status, calibration.problem)


def _form(quick: bool, full: bool, seconds: float | None) -> Form:
    """The durations of the trials. Raises BadInput."""
    from pktswarm.master.calibrate import options

    if quick and full:
        raise BadInput(options.COMMAND, "mutually exclusive", key="--quick, --full", allowed="one of them")
    form = options.QUICK if quick else options.FULL if full else options.USUAL
    return form if seconds is None else replace(form, trial_s=seconds)


def _print(calibration: Calibration, storage: Storage, as_json: bool) -> None:
    """Store the results, print them and make the page."""
    from pktswarm.master.calibrate import page
    from pktswarm.master.calibrate.show import print_results
    from pktswarm.master.results import terminal

    storage.path.mkdir(exist_ok=True)
    document = storage.write(calibration)
    if as_json:
        print(json.dumps(document))
    else:
        print_results(terminal.console(), calibration, storage.path)
    attempt("the report", lambda: print(f"report: {page.make(storage.path, document)}", file=sys.stderr))
