"""Packets that arrived at a wrong receiver: a switch floods, or delivers to a wrong port.

They do not count as received. A receiver that reads stamps reports their streams; for others only the counter of the
interface shows them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pktswarm.master.cluster.node import NodeState, received_frames
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.row import Row
from pktswarm.traffic.leg import MADE_IN_KERNEL

MOST_OF_OTHERS = 100
"""Frames of no stream that are ignored: announcements, ARP, LLDP and the like."""
PART_OF_OTHERS = 0.01


def take(rows: Iterable[Row], nodes: Iterable[NodeState]) -> None:
    """Sets the packets of each row that other hosts than its receivers report; None if no other host reads stamps."""
    by_host = {node.rank.host.name: packets for node in nodes if (packets := _wrong_packets(node)) is not None}
    for row in rows:
        stamps = row.leg.engine in MADE_IN_KERNEL and row.received.numbered
        others = {host: each for host, each in by_host.items() if host not in row.leg.receivers}
        if stamps and others:
            number = str(row.leg.id)
            row.misdelivered = {host: each[number] for host, each in others.items() if number in each}


def _wrong_packets(node: NodeState) -> dict[str, int] | None:
    counts = node.received or []
    return next((count.misdelivered for count in counts if count.misdelivered is not None), None)


def notes(rows: Iterable[Row], nodes: Iterable[NodeState], resolved: Resolved) -> list[str]:
    by_stream: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for host, packets in (row.misdelivered or {}).items():
            key = row.leg.stream, row.leg.to, host
            by_stream[key] = by_stream.get(key, 0) + packets
    known = [f"{stream}: {n:,} packets for {to} arrived at {host}" for (stream, to, host), n in by_stream.items()]
    return known + [note for node in nodes if (note := _of_no_stream(node, resolved))]


def _of_no_stream(node: NodeState, resolved: Resolved) -> str:
    """A note on uncounted frames at the interface of a receiver that counts all its frames and sends none."""
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
    known = taken + sum((_wrong_packets(node) or {}).values())
    more = node.interface["rx_packets"] - known
    if more <= max(MOST_OF_OTHERS, PART_OF_OTHERS * taken):
        return ""
    return f"{node.name}: {more:,} frames that arrived at {task.interface} belong to none of its streams"
