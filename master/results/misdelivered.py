"""What came to receivers that it was not for: a switch that floods, or delivers to a wrong port.

It is no part of what was received. A receiver that reads stamps tells of which stream it was; of others the counter of
their interface shows that there was something.
"""

from __future__ import annotations

from collections.abc import Iterable

from pktswarm.master.cluster.node import NodeState, received_frames
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.row import Row

MOST_OF_OTHERS = 100
"""Announcements, ARP, LLDP and the like: so many frames of no stream are nothing to speak of."""
PART_OF_OTHERS = 0.01


def take(rows: Iterable[Row], nodes: Iterable[NodeState]) -> None:
    """Into each row what other hosts than its receivers tell of it; where none looks for its stamps it is not known."""
    told = {node.rank.host.name: found for node in nodes if (found := _told(node)) is not None}
    for row in rows:
        stamps = row.leg.engine == "xdp" and row.tally is not None and row.tally.distinct is not None
        others = {host: each for host, each in told.items() if host not in row.leg.receivers}
        if stamps and others:
            number = str(row.leg.id)
            row.misdelivered = {host: each[number] for host, each in others.items() if number in each}


def _told(node: NodeState) -> dict[str, int] | None:
    counts = node.received or []
    return next((count.misdelivered for count in counts if count.misdelivered is not None), None)


def notes(rows: Iterable[Row], nodes: Iterable[NodeState], resolved: Resolved) -> list[str]:
    by_stream: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for host, packets in (row.misdelivered or {}).items():
            key = row.leg.stream, row.leg.to, host
            by_stream[key] = by_stream.get(key, 0) + packets
    known = [f"{stream}: {n:,} packets for {to} came to {host}" for (stream, to, host), n in by_stream.items()]
    return known + [words for node in nodes if (words := _of_no_stream(node, resolved))]


def _of_no_stream(node: NodeState, resolved: Resolved) -> str:
    """Of a receiver whose frames are all counted, and that does not talk itself, by the counter of its interface."""
    task = resolved.receives.get(node.rank.host.name)
    taken = received_frames(node)
    if node.rank.role != "receive" or task is None or node.interface is None or taken is None:
        return ""
    if (
        task.filter
        or task.proxy_addresses
        or any(leg.kind == "connections" or leg.engine == "interactive" for leg in task.legs)
    ):
        return ""
    known = taken + sum((_told(node) or {}).values())
    more = node.interface["rx_packets"] - known
    if more <= max(MOST_OF_OTHERS, PART_OF_OTHERS * taken):
        return ""
    return f"{node.name}: {more:,} frames came to {task.interface} that are of none of its streams"
