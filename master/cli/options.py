"""The two options by which a command that sends is told that it may do what is refused otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass

AnyAddress = Annotated[
    bool, typer.Option("--allow-any-address", help="Send to addresses that the inventory has not under test.")
]
ControlInterface = Annotated[
    bool, typer.Option("--allow-control-interface", help="Send where the default route or the connection to us goes.")
]


def enter_lab(hosts: Path) -> None:
    """When the inventory is a lab's, go into the namespaces of its master; before any thread exists."""
    from pktswarm.master.cluster import inventory

    if inventory.load(hosts).variables.get("pktswarm_lab"):
        from pktswarm import lab

        lab.enter(hosts.resolve())
