"""The options of a calibration, and the wiring of its nodes. Checked before a host is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.benchmark.options import LONGEST_TRIAL_S, check_duration, frame_sizes, names
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.traffic.errors import BadInput

COMMAND = "calibrate"
SENDERS = ("xdp", "tc", "pktgen", "trafgen")
"""Engines that send streams at a set rate."""
RECEIVERS = ("xdp", "netsniff-ng")
ENGINES = tuple(dict.fromkeys((*SENDERS, *RECEIVERS)))


@dataclass(frozen=True)
class Form:
    """Duration of a trial, precision of a figure (a share of 1), and number of runs that confirm a rate."""

    trial_s: float
    precision: float
    confirmations: int


QUICK = Form(0.5, 0.1, 1)
USUAL = Form(2.0, 0.05, 1)
FULL = Form(10.0, 0.01, 9)
"""Ten runs at each rate, as in Dirnberger 2021, section 6.3.1: 1,000,000 packets at 100,000 packets/s."""


@dataclass(frozen=True)
class Options:
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    nodes: tuple[str, ...]
    """The nodes to measure."""
    form: Form
    again: bool = False
    """Measure known figures again."""
    mode: str = "count"
    """Mode of receivers; `capture`: packets are written to disk."""


def parse(
    inventory: Inventory,
    sizes: str,
    engines: str,
    nodes: Sequence[str],
    form: Form,
    again: bool = False,
    capture: bool = False,
) -> Options:
    """Parse the options of the command line. Raises BadInput."""
    known = [host.name for host in inventory.hosts]
    for name in nodes:
        if name not in known:
            raise BadInput(COMMAND, "there is no such node", key="--node", value=name, allowed=", ".join(known))
    check_duration(COMMAND, "--seconds", form.trial_s, LONGEST_TRIAL_S, "trial")
    return Options(
        sizes=tuple(frame_sizes(COMMAND, sizes)),
        engines=names(COMMAND, "--engines", engines, ENGINES, "engine to calibrate"),
        nodes=tuple(nodes) or tuple(known),
        form=form,
        again=again,
        mode="capture" if capture else "count",
    )


def wiring(inventory: Inventory) -> str:
    """Describe how the nodes are joined. Raises BadInput if the inventory has a device under test between them."""
    allowed = "nodes wired back to back, or through a switch alone"
    problem = "a device under test between the nodes falsifies the figures"
    for key in ("pktswarm_bottleneck", "pktswarm_upf"):
        if key in inventory.variables:
            raise BadInput(inventory.path, problem, key=f"all.vars.{key}", allowed=allowed)
    sides = {host.side for host in inventory.hosts}
    if sides & {"n3", "n6"}:
        raise BadInput(inventory.path, problem, key="side", value="n3, n6", allowed=allowed)
    if "pktswarm_lab" in inventory.variables:
        return "through the lab's switches, with no device"
    if {"a", "b"} <= sides:
        return "side a to side b; only a cable or a switch may join them, which the inventory does not show"
    pair = len(inventory.hosts) == 2
    return "back to back or through a switch" if pair else "through a switch"
