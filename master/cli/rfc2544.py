"""`pktswarm rfc2544`: throughput, latency, frame loss rate and back-to-back frames of a device, by RFC 2544."""

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
    Wait,
    enter_lab,
    examples,
    serve_metrics,
    shipped_or_file,
)
from pktswarm.master.cli.quantity import time_option

EXAMPLES = examples(
    "rfc2544",
    "rfc2544 --sizes 64,512,1518 --tests throughput,latency",
    "rfc2544 my.yaml --hosts hosts/boards.yml --max 1gbit --full",
    "rfc2544 --resume results/20260101T120000Z-rfc2544-rfc2544",
)
DEFAULT_SCENARIO = Path("configs/rfc2544.yaml")
SIZES = "64,128,256,512,1024,1280,1518"
TESTS = "throughput,latency,loss,back-to-back"
Scenario = Annotated[
    Path,
    typer.Argument(
        help="Scenario file with the streams; their rate_l1_bps is a load of 100 %.",
        callback=shipped_or_file,
        autocompletion=complete.scenarios,
    ),
]
Sizes = Annotated[str, typer.Option("--sizes", help="Frame sizes, bytes with FCS, 64 to 9618, separated by commas.")]
Full = Annotated[
    bool, typer.Option("--full/--quick", help="Use the durations and repetitions of RFC 2544: about 15 hours.")
]
Tests = Annotated[str, typer.Option("--tests", help=f"Tests to make, separated by commas: {TESTS}.")]
Medium = Annotated[
    str | None,
    typer.Option(
        "--max",
        metavar="RATE",
        help="Rate of the medium with preamble and gap, e.g. 1gbit: a load of 100 %.",
        show_default="rate_l1_bps of the streams",
    ),
]
LongestBurst = Annotated[
    float,
    typer.Option(
        "--longest-burst",
        parser=time_option("--longest-burst"),
        metavar="TIME",
        help="Longest burst of the test back-to-back, s or 500ms, more than 0, up to 30.",
    ),
]


def rfc2544(
    scenario: Scenario = DEFAULT_SCENARIO,
    hosts: Hosts = DEFAULT_HOSTS,
    sizes: Sizes = SIZES,
    full: Full = False,
    tests: Tests = TESTS,
    medium: Medium = None,
    precision: Precision = "0.5%",
    longest_burst: LongestBurst = 2.0,
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
    """Measure throughput, latency, frame loss rate and back-to-back frames of a device (RFC 2544, RFC 9004).

    The benchmarks overload the device under test: use them only in an isolated test network, NEVER on a network in use
    (RFC 6815). The quick form, which is the default, is not conformant to RFC 2544: its trials are short.
    """
    from pktswarm.master.benchmark.job import Names, inputs
    from pktswarm.master.benchmark.options import WARNING
    from pktswarm.master.benchmark.options import precision as parse_precision
    from pktswarm.master.cluster import dut, inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.rfc2544 import page, tester
    from pktswarm.master.rfc2544.options import parse
    from pktswarm.master.rfc2544.outlook import outlook
    from pktswarm.master.rfc2544.procedure import Benchmark
    from pktswarm.master.rfc2544.show import print_results, trial_line
    from pktswarm.master.rfc2544.storage import Storage
    from pktswarm.master.scenario import scenario as scenarios

    share = parse_precision(scenario, precision)
    options = parse(scenario, sizes, tests, full, medium, share, longest_burst, confirm)
    labels = dut.labels("rfc2544", label or [])
    served = serve_metrics(metrics)
    enter_lab(hosts)
    read, cluster = scenarios.load(scenario), inventory.load(hosts)
    loads = tester.loads(scenario, read, cluster, options)
    limits, allow = loads.limits(), Allow(any_address, control_interface)
    make = partial(Storage, results, read.name, loads.about(hosts), dut.entry(cluster.dut, labels))
    given = inputs(read, cluster, {"rfc2544": options, "labels": labels})
    storage, job = benchmark.begin(make, Names(Storage.kind, read.name), given, resume, served)
    with kept_ranks(wait) as kept:
        trials = tester.Tester(loads, hosts, storage.runs, patience, job.console, allow, kept, labels, job)

        def check() -> None:
            trials.check(limits)
            job.console.print(f"{WARNING}\n{options.conformity}", style="bold", markup=False, highlight=False)

        after_trial = benchmark.after_trial(trial_line, storage, job, outlook)
        running = Benchmark(options, limits, trials.journaled(job), after_trial)
        ended = benchmark.conduct(running, storage, check, job, outlook)
    benchmark.finish(storage.path, ended, as_json, print_results, page.make)
