"""`pktswarm provision`: install nodes on hosts that have SSH, and remove them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.options import Json, examples
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput

EXAMPLES = examples(
    "provision --hosts hosts/mine.yml",
    "provision --check --hosts hosts/mine.yml",
    "provision --undo --hosts hosts/mine.yml",
)


def provision(
    hosts: Annotated[
        Path,
        typer.Option("--hosts", help="Inventory file.", show_default=False, autocompletion=complete.inventories),
    ],
    undo: Annotated[
        bool, typer.Option("--undo", help="Remove pktswarm from the hosts, and restore their settings.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing: report which hosts can be nodes, and what would be installed."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Install the nodes of an inventory with Ansible; a repeated call changes nothing (docs/provision.md).

    Exit status: 0 all hosts are in order; 2 bad input; 3 a host is unreachable, or refused, or a task failed there, and
    the other hosts are complete.
    """
    from pktswarm.master.provision import playbook

    if check and undo:
        raise BadInput("provision", "not with --undo", key="--check", allowed="one of the two")
    cluster = playbook.check(hosts)
    playbook.fetch_ansible()
    if cluster.variables.get("pktswarm_lab"):
        from pktswarm import lab

        lab.enter(hosts.resolve())
    action: playbook.Action = "check" if check else "undo" if undo else "provision"
    outcome = playbook.play(cluster, action, lambda line: print(line, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(outcome.document()))
    else:
        for host in outcome.hosts:
            state = "unreachable" if host.unreachable else "failed" if host.failed else "in order"
            print(f"{host.host}: {host.finding or state}" if check else f"{host.host}: {state}, {host.changed} changed")
    raise typer.Exit(EXIT_INCOMPLETE if outcome.failed else EXIT_AS_EXPECTED)
