"""What a calibration is asked for, and how the nodes are wired. Checked before a host is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.traffic.errors import BadInput

COMMAND = "calibrate"
SENDERS = ("xdp", "pktgen", "trafgen")
"""Of streams; a trace's and connections' rates are their own."""
RECEIVERS = ("xdp", "netsniff-ng")
ENGINES = tuple(dict.fromkeys((*SENDERS, *RECEIVERS)))
LEAST_BYTES, MOST_BYTES = 64, 9618
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Form:
    """How long a trial sends, how close a figure's bounds are in the end (a share), and how many runs at a rate confirm
    the one that found it."""

    trial_s: float
    precision: float
    confirmations: int


QUICK = Form(0.5, 0.1, 1)
USUAL = Form(2.0, 0.05, 1)
FULL = Form(10.0, 0.01, 9)
"""Each rate ten times, as in Dirnberger 2021, section 6.3.1; 1,000,000 packets at 100,000 a second."""


@dataclass(frozen=True)
class Asked:
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    nodes: tuple[str, ...]
    """Whose figures are wanted."""
    form: Form
    again: bool = False
    """Also what is known already."""
    mode: str = "count"
    """Of receivers; `capture`: to disk."""


def asked(
    inventory: Inventory,
    sizes: str,
    engines: str,
    nodes: Sequence[str],
    form: Form,
    again: bool = False,
    capture: bool = False,
) -> Asked:
    """From the command line's words. BadInput names the option."""
    known = [host.name for host in inventory.hosts]
    for name in nodes:
        if name not in known:
            raise BadInput(COMMAND, "there is no such node", key="--node", value=name, allowed=", ".join(known))
    if not 0 < form.trial_s <= LONGEST_S:
        raise BadInput(
            COMMAND,
            "trial duration out of range",
            key="--seconds",
            value=form.trial_s,
            allowed=f"more than 0, up to {LONGEST_S:g} s",
        )
    wanted = tuple(nodes) or tuple(known)
    mode = "capture" if capture else "count"
    return Asked(_sizes(sizes), _engines(engines), wanted, form, again, mode)


def _sizes(text: str) -> tuple[int, ...]:
    allowed = f"{LEAST_BYTES} to {MOST_BYTES} bytes with FCS, e.g. 64,512,1518"
    found = []
    for word in text.split(","):
        size = int(word) if word.strip().isascii() and word.strip().isdigit() else 0
        if not LEAST_BYTES <= size <= MOST_BYTES:
            raise BadInput(COMMAND, "frame size out of range", key="--sizes", value=word, allowed=allowed)
        found.append(size)
    return tuple(dict.fromkeys(found))


def _engines(text: str) -> tuple[str, ...]:
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if name not in ENGINES:
            raise BadInput(
                COMMAND,
                "unknown engine, or not one to calibrate",
                key="--engines",
                value=name,
                allowed=", ".join(ENGINES),
            )
    return tuple(dict.fromkeys(names))


def wiring(inventory: Inventory) -> str:
    """How the nodes are joined, as far as the inventory tells. BadInput where a device under test is between them."""
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
