"""`pktswarm doctor`: faults of the hosts of an inventory, and their remedies."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pktswarm.master.cli.defaults import DEFAULT_HOSTS
from pktswarm.master.cli.options import Hosts, Json, Patience, enter_lab, examples

EXAMPLES = examples("doctor", "doctor --hosts hosts/example.yml --json", "doctor --mend")


def doctor(
    hosts: Hosts = DEFAULT_HOSTS,
    patience: Patience = 1.0,
    mend: Annotated[
        bool,
        typer.Option("--mend", help="First restore settings that runs left changed because their guard was killed."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every host of an inventory: reachability, versions, engines, and remains of earlier runs.

    Exit status: 0 no fault; 1 a fault prevents correct runs; 2 bad input; 3 a host is unreachable.
    """
    from pktswarm.master.cli import cluster
    from pktswarm.master.cluster import inventory
    from pktswarm.master.doctor import judge
    from pktswarm.master.doctor.ask import Round
    from pktswarm.master.doctor.show import document, print_health
    from pktswarm.master.results import terminal

    enter_lab(hosts)
    read = inventory.load(hosts)
    left = {read.master.name, *(host.name for host in read.hosts)}
    with terminal.console(stderr=True).status(f"checking {len(left)} hosts") as progress:

        def received(name: str) -> None:
            left.discard(name)
            progress.update(f"waiting for {', '.join(sorted(left)) or 'no host'}")

        answers = Round(read, patience, mend).answers(lambda answer: received(answer.host.name))
    findings = judge.findings(answers, cluster.held_by(hosts))
    status = judge.status(findings)
    if as_json:
        print(json.dumps(document(answers, findings, status)))
    else:
        print_health(terminal.console(), answers, findings)
    raise typer.Exit(status)
