"""Questions for a neighbour's MAC address, which travel to the guard of a node."""

from __future__ import annotations

from pktswarm.traffic.plain import plain


@plain
class Question:
    """`address`: the neighbour; `asked_from`: the address of the node that asks."""

    address: str
    asked_from: str
