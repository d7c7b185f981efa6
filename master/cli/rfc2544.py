"""`pktswarm rfc2544`: throughput, latency, frame loss rate and back-to-back frames of a device, by RFC 2544."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import benchmark as cli_benchmark
from pktswarm.master.cli.options import (
    DEFAULT_HOSTS,
    DEFAULT_RESULTS,
    AnyAddress,
    ControlInterface,
    Hosts,
    Json,
    Patience,
    Precision,
    Results,
    enter_lab,
    examples,
)

EXAMPLES = examples(
    "rfc2544",
    "rfc2544 --sizes 64,512,1518 --tests throughput,latency",
    "rfc2544 my.yaml --hosts hosts/boards.yml --max 1gbit --full",
)
DEFAULT_SCENARIO = Path("configs/rfc2544.yaml")
SIZES = "64,128,256,512,1024,1280,1518"
TESTS = "throughput,latency,loss,back-to-back"
Scenario = Annotated[Path, typer.Argument(help="Scenario file with the streams; their rate_l1_bps is a load of 100 %.")]
Sizes = Annotated[str, typer.Option("--sizes", help="Frame sizes, bytes with FCS, 64 to 9618, separated by commas.")]
Full = Annotated[
    bool, typer.Option("--full/--quick", help="Use the durations and repetitions of RFC 2544: about 15 hours.")
]
Tests = Annotated[str, typer.Option("--tests", help="Tests to make, separated by commas.")]
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
    float, typer.Option("--longest-burst", help="Longest burst of the test back-to-back, s, more than 0, up to 30.")
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
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    as_json: Json = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """Measure throughput, latency, frame loss rate and back-to-back frames of a device (RFC 2544, RFC 9004).

    The benchmarks overload the device under test: use them only in an isolated test network, NEVER on a network in use
    (RFC 6815). The quick form, which is the default, is not conformant to RFC 2544: its trials are short.
    """
    from pktswarm.master.cluster import inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results import terminal
    from pktswarm.master.rfc2544 import options as ask
    from pktswarm.master.rfc2544 import page, tester
    from pktswarm.master.rfc2544.procedure import Benchmark
    from pktswarm.master.rfc2544.show import print_found, trial_line
    from pktswarm.master.rfc2544.storage import Kept
    from pktswarm.master.scenario import scenario as scenarios
    from pktswarm.master.search.goals import precision_of

    close = precision_of(scenario, precision)
    asked = ask.asked(scenario, sizes, tests, full, medium, close, longest_burst)
    enter_lab(hosts)
    wanted = scenarios.load(scenario)
    loads = tester.loads(scenario, wanted, inventory.load(hosts), asked)
    limits = loads.limits()
    about = {
        **next(iter(loads.of_size.values())).document(),
        "hosts_file": str(hosts),
        "medium_l1_bps": loads.medium_l1_bps,
    }
    kept = Kept(results, wanted.name, about)
    console = terminal.console(stderr=True)
    allow = Allow(any_address, control_interface)
    trials = tester.Tester(loads, hosts, kept.runs, patience, console, allow)
    tell = cli_benchmark.telling(console, trial_line, kept.write_all)
    benchmark = Benchmark(asked, limits, trials.measure, tell)
    with kept.unless_nothing_was_tried(benchmark):
        trials.check(limits)
        console.print(f"{ask.WARNING}\n{asked.conformity}", style="bold", markup=False, highlight=False)
        benchmark.run()
    cli_benchmark.finish(kept.path, kept.write_all(benchmark), as_json, print_found, page.make)
