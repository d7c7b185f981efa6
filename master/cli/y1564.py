"""`pktswarm y1564 FILE`: is each service what was agreed, alone step by step, and all of them together?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import benchmark
from pktswarm.master.cli.options import AnyAddress, ControlInterface, enter_lab
from pktswarm.traffic.errors import BadInput

EXAMPLES = (
    "Examples: pktswarm y1564 configs/services/access.yaml · "
    "pktswarm y1564 configs/services/access.yaml --tests performance --performance 900"
)
LONGEST_S = 86400.0


def y1564(
    file: Annotated[Path, typer.Argument(help="A scenario with a section services.", show_default=False)],
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    tests: Annotated[str, typer.Option(help="Which of them.")] = "configuration,performance",
    step: Annotated[float, typer.Option(help="Seconds of each step of the configuration test.")] = 5.0,
    performance: Annotated[float, typer.Option(help="Seconds of the performance test. Y.1564: 900 or more.")] = 30.0,
    results: Annotated[Path, typer.Option(help="Where the folder is made.")] = Path("results"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """Service activation like ITU-T Y.1564's: each service at 25, 50, 75, 100 % of its CIR and above it, then all.

    Only in an isolated test network, NEVER on a network in use (RFC 6815): services are sent above what was agreed.
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
            raise BadInput(file, "is no test's", key=key, value=value, allowed=f"up to {LONGEST_S:g} s")
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
