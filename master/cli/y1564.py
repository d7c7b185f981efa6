"""`pktswarm y1564`: service activation tests after ITU-T Y.1564."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import benchmark, complete
from pktswarm.master.cli.cluster import kept_ranks
from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import (
    AnyAddress,
    ControlInterface,
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
    shipped_or_file,
)
from pktswarm.master.cli.quantity import time_option

EXAMPLES = examples(
    "y1564 configs/services/access.yaml",
    "y1564 configs/services/access.yaml --tests performance --performance 15min",
    "y1564 configs/services/access.yaml --resume results/20260101T120000Z-access-y1564",
)
LONGEST_S = 86400.0
ServicesFile = Annotated[
    Path,
    typer.Argument(
        help="Scenario file with a section services.",
        show_default=False,
        callback=shipped_or_file,
        autocompletion=complete.scenarios,
    ),
]
TESTS = "configuration,performance"
Tests = Annotated[str, typer.Option("--tests", help=f"Tests to make, separated by commas: {TESTS}.")]
StepSeconds = Annotated[
    float,
    typer.Option(
        "--step",
        parser=time_option("--step"),
        metavar="TIME",
        help="Duration of each step of the configuration test, s or 500ms, more than 0, up to 86400.",
    ),
]
PerformanceSeconds = Annotated[
    float,
    typer.Option(
        "--performance",
        parser=time_option("--performance"),
        metavar="TIME",
        help="Duration of the performance test, s or 500ms, more than 0, up to 86400; Y.1564 asks for 900.",
    ),
]


def y1564(
    file: ServicesFile,
    hosts: Hosts = DEFAULT_HOSTS,
    tests: Tests = TESTS,
    step: StepSeconds = 5.0,
    performance: PerformanceSeconds = 30.0,
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
    """Test services at 25, 50, 75 and 100 % of their CIR and above it, then all at once (after ITU-T Y.1564).

    Services are sent above their agreed rates: use this only in an isolated test network, NEVER on a network in use
    (RFC 6815).
    """
    from pktswarm.master.benchmark.job import Names, inputs
    from pktswarm.master.benchmark.options import WARNING, check_duration, names
    from pktswarm.master.cluster import dut, inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.y1564 import page, procedure, services, tester
    from pktswarm.master.y1564.document import CONFORMITY
    from pktswarm.master.y1564.document import About as Y1564About
    from pktswarm.master.y1564.outlook import outlook
    from pktswarm.master.y1564.show import print_results, trial_line
    from pktswarm.master.y1564.storage import Storage

    chosen = names(file, "--tests", tests, procedure.TESTS, "test")
    check_duration(file, "--step", step, LONGEST_S, "test")
    check_duration(file, "--performance", performance, LONGEST_S, "test")
    labels = dut.labels("y1564", label or [])
    served = serve_metrics(metrics)
    enter_lab(hosts)
    read, cluster = services.load(file), inventory.load(hosts)
    name, longest_s = read.scenario.name, max(step, performance)
    loads = tester.loads(read, cluster, longest_s)
    about = Y1564About(name=name, scenario_file=str(file), hosts_file=str(hosts))
    in_order = tuple(test for test in procedure.TESTS if test in chosen)
    asked = {"tests": in_order, "step_s": step, "performance_s": performance, "services": read.services}
    make = partial(Storage, results, name, about, dut.entry(cluster.dut, labels))
    given = inputs(read.scenario, cluster, {**asked, "labels": labels})
    storage, job = benchmark.begin(make, Names(Storage.kind, name), given, resume, served)
    allow = Allow(any_address, control_interface)
    callback = benchmark.after_trial(trial_line, storage, job, outlook)
    with kept_ranks(wait) as kept:
        trials = tester.Tester(read, loads, hosts, storage.runs, patience, job.console, allow, kept, labels, job)

        def check() -> None:
            trials.check(longest_s)
            job.console.print(f"{WARNING}\n{CONFORMITY}", style="bold", markup=False, highlight=False)

        running = procedure.Activation(read.services, in_order, step, performance, trials.journaled(job), callback)
        ended = benchmark.conduct(running, storage, check, job, outlook)
    benchmark.finish(storage.path, ended, as_json, print_results, page.make)
