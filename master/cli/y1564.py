"""`pktswarm y1564`: service activation tests after ITU-T Y.1564."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import benchmark
from pktswarm.master.cli.options import (
    DEFAULT_HOSTS,
    DEFAULT_RESULTS,
    AnyAddress,
    ControlInterface,
    Hosts,
    Json,
    Patience,
    Results,
    enter_lab,
    examples,
)
from pktswarm.traffic.errors import BadInput

EXAMPLES = examples(
    "y1564 configs/services/access.yaml", "y1564 configs/services/access.yaml --tests performance --performance 900"
)
LONGEST_S = 86400.0
ServicesFile = Annotated[Path, typer.Argument(help="Scenario file with a section services.", show_default=False)]
Tests = Annotated[str, typer.Option("--tests", help="Tests to make, separated by commas.")]
StepSeconds = Annotated[
    float,
    typer.Option("--step", help="Duration of each step of the configuration test, s, more than 0, up to 86400."),
]
PerformanceSeconds = Annotated[
    float,
    typer.Option(
        "--performance", help="Duration of the performance test, s, more than 0, up to 86400; Y.1564 asks for 900."
    ),
]


def y1564(
    file: ServicesFile,
    hosts: Hosts = DEFAULT_HOSTS,
    tests: Tests = "configuration,performance",
    step: StepSeconds = 5.0,
    performance: PerformanceSeconds = 30.0,
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    as_json: Json = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """Test services at 25, 50, 75 and 100 % of their CIR and above it, then all at once (after ITU-T Y.1564).

    Services are sent above their agreed rates: use this only in an isolated test network, NEVER on a network in use
    (RFC 6815).
    """
    from pktswarm.master.cluster import inventory
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results import terminal
    from pktswarm.master.rfc2544.options import WARNING
    from pktswarm.master.y1564 import page, services, tester
    from pktswarm.master.y1564.document import CONFORMITY
    from pktswarm.master.y1564.procedure import Activation
    from pktswarm.master.y1564.show import print_found, trial_line
    from pktswarm.master.y1564.storage import Kept

    wanted = _tests(file, tests)
    for key, value in (("--step", step), ("--performance", performance)):
        if not 0 < value <= LONGEST_S:
            raise BadInput(
                file, "test duration out of range", key=key, value=value, allowed=f"more than 0, up to {LONGEST_S:g} s"
            )
    enter_lab(hosts)
    described = services.load(file)
    name = described.scenario.name
    longest_s = max(step, performance)
    loads = tester.loads(described, inventory.load(hosts), longest_s)
    kept = Kept(results, name, {"name": name, "scenario_file": str(file), "hosts_file": str(hosts)})
    console = terminal.console(stderr=True)
    allow = Allow(any_address, control_interface)
    runs = tester.Tester(described, loads, hosts, kept.runs, patience, console, allow)
    tell = benchmark.telling(console, trial_line, kept.write_all)
    activation = Activation(described.services, wanted, step, performance, runs.measure, tell)
    with kept.unless_nothing_was_tried(activation):
        runs.check(longest_s)
        console.print(f"{WARNING}\n{CONFORMITY}", style="bold", markup=False, highlight=False)
        activation.run()
    benchmark.finish(kept.path, kept.write_all(activation), as_json, print_found, page.make)


def _tests(where: Path, text: str) -> tuple[str, ...]:
    from pktswarm.master.y1564.procedure import TESTS

    wanted = [word.strip() for word in text.split(",")]
    if unknown := [word for word in wanted if word not in TESTS]:
        raise BadInput(where, "there is no such test", key="--tests", value=unknown[0], allowed=", ".join(TESTS))
    return tuple(name for name in TESTS if name in wanted)
