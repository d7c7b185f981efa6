"""`pktswarm doctor`: what keeps the hosts of an inventory from a right run, and how to mend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli.options import enter_lab

EXAMPLES = "Examples: pktswarm doctor · pktswarm doctor --hosts hosts/example.yml --json · pktswarm doctor --mend"


def doctor(
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.")] = Path("hosts/lab-default.yml"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    mend: Annotated[
        bool, typer.Option("--mend", help="Put back first what runs whose guard was killed have left changed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Ask every host at once: is it reached, are versions equal, what can it send and receive with, what is left over.

    Exit status: 0 all well, 1 something keeps a run from being right, 2 bad input, 3 a host is not reached.
    """
    from pktswarm.master.cluster import inventory
    from pktswarm.master.doctor import judge
    from pktswarm.master.doctor.ask import Round
    from pktswarm.master.doctor.show import document, print_health
    from pktswarm.master.results import terminal

    enter_lab(hosts)
    read = inventory.load(hosts)
    left = {read.master.name, *(host.name for host in read.hosts)}
    with terminal.console(stderr=True).status(f"asking {len(left)} hosts") as progress:

        def told(name: str) -> None:
            left.discard(name)
            progress.update(f"waiting for {', '.join(sorted(left)) or 'nobody'}")

        answers = Round(read, patience, mend).answers(lambda answer: told(answer.host.name))
    found = judge.findings(answers)
    status = judge.status(found)
    if as_json:
        print(json.dumps(document(answers, found, status)))
    else:
        print_health(terminal.console(), answers, found)
    raise typer.Exit(status)
