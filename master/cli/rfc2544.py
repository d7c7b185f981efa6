"""`pktswarm rfc2544 [FILE]`: throughput, latency, frame loss rate and back-to-back frames of a device, by RFC 2544."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import benchmark as cli_benchmark
from pktswarm.master.cli.options import AnyAddress, ControlInterface, enter_lab

EXAMPLES = (
    "Examples: pktswarm rfc2544 · pktswarm rfc2544 --sizes 64,512,1518 --tests throughput,latency · "
    "pktswarm rfc2544 my.yaml --hosts hosts/boards.yml --max 1gbit --full"
)
SIZES = "64,128,256,512,1024,1280,1518"
TESTS = "throughput,latency,loss,back-to-back"


def rfc2544(
    scenario: Annotated[Path, typer.Argument(help="Whose streams are sent; their rate_l1_bps are 100 %.")] = Path(
        "configs/rfc2544.yaml"
    ),
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    sizes: Annotated[str, typer.Option(help="Of the frames, bytes with FCS.")] = SIZES,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Trials as long and as many as RFC 2544 asks: some 15 hours.")
    ] = False,
    tests: Annotated[str, typer.Option(help="Which of them.")] = TESTS,
    medium: Annotated[
        str | None,
        typer.Option(
            "--max", metavar="RATE", help="100 %: what the medium carries, 1gbit. Left out: the streams' own."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="Of the throughput: how close its bounds are in the end.")] = "0.5%",
    longest_burst: Annotated[float, typer.Option(help="Back-to-back: the longest burst, seconds, up to 30.")] = 2.0,
    results: Annotated[Path, typer.Option(help="Where the folder is made.")] = Path("results"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """Throughput, latency, frame loss rate and back-to-back frames of a device, by RFC 2544 and RFC 9004.

    It overloads the device under test on purpose: only in an isolated test network, NEVER on a network in use
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
