"""`pktswarm provision`: from a fresh system with SSH to a node, and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

EXAMPLES = "Examples: pktswarm provision --hosts hosts/mine.yml · pktswarm provision --undo --hosts hosts/mine.yml"


def provision(
    hosts: Annotated[Path, typer.Option("--hosts", help="The inventory.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Give the nodes back as they were.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Make nodes of the inventory's hosts, by Ansible; a second time changes nothing (docs/provision.md).

    Exit status 3 when a host could not be reached or a task failed there; the others are done.
    """
    from pktswarm.master.provision import playbook

    found = playbook.check(hosts)
    playbook.fetch_ansible()
    if found.variables.get("pktswarm_lab"):
        from pktswarm import lab

        lab.enter(hosts.resolve())
    outcome = playbook.play(found, undo, lambda line: print(line, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(outcome.document()))
    else:
        for one in outcome.hosts:
            state = "unreachable" if one.unreachable else "failed" if one.failed else "in order"
            print(f"{one.host}: {state}, {one.changed} changed")
    raise typer.Exit(EXIT_INCOMPLETE if outcome.failed else EXIT_AS_EXPECTED)
