"""The interfaces below an interface: frames of a VLAN, a bridge or a bond leave by another one."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from pktswarm.nodes import interface

_LOWER = "lower_"
"""Links in an interface's folder of sysfs, to each interface directly below it."""


def below(name: str) -> list[str]:
    """All interfaces below `name`, each once, nearer ones first; empty for a card's own interface."""
    found: list[str] = []
    for lower in _directly_below(name):
        found += [one for one in (lower, *below(lower)) if one not in found]
    return found


def shared(name: str, control: Iterable[int]) -> str:
    """The interface of a card that both `name` and another interface use; empty: there is none.

    `control`: numbers of the interfaces of the control connection. An interface that is itself one of them, or is below
    one, does not share its wire: it carries the connection.
    """
    wires = _cards(name)
    for other in names(control):
        if name not in (other, *below(other)) and (both := wires & _cards(other)):
            return min(both)
    return ""


def carries(name: str, control: Iterable[int]) -> bool:
    """Whether `name`, or an interface above it, is one of `control` (numbers of interfaces)."""
    return any(name in (other, *below(other)) for other in names(control))


def names(numbers: Iterable[int]) -> list[str]:
    """Interface names in a fixed order, without the loopback."""
    known = dict(socket.if_nameindex())
    return sorted(known[number] for number in numbers if known.get(number, "lo") != "lo")


def _cards(name: str) -> set[str]:
    chain = (name, *below(name))
    return {one for one in chain if not _directly_below(one)}


def _directly_below(name: str) -> list[str]:
    return sorted(link.name.removeprefix(_LOWER) for link in (interface.SYS_NET / name).glob(f"{_LOWER}*"))
