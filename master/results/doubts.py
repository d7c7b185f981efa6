"""Why a run's counts cannot be trusted in full: engines against interfaces, counters against captures."""

from __future__ import annotations

from pktswarm.master.cluster.node import NodeState, dropped_packets, received_packets, sum_sent
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.row import Row
from pktswarm.traffic.connections.counts import ConnectionRow
from pktswarm.traffic.protocol.task import ReceiveTask

MISSED = "the receiver itself missed"


def doubts(nodes: list[NodeState], resolved: Resolved, rows: list[Row], connections: list[ConnectionRow]) -> list[str]:
    """Why the counts cannot be trusted in full; empty when they can."""
    found = [f"{node.name}: {node.problem}" for node in nodes if node.problem]
    for node in nodes:
        found += [f"{node.name}: {why}" for why in node.link.doubts(node.rank.host.traffic_interface)]
        found += _against_interface(node) + _bytes_against_interface(node) + _frames_of_its_own(node, resolved)
    for row in rows:
        found += _of_capture(row, resolved.receives.get(row.leg.target))
    for row in rows:
        found += row.users.doubts(row.sent, row.received) if row.users is not None else []
    found += _of_connections(nodes, resolved, connections)
    missing = [row.leg for row in rows if row.sent is None or row.received is None]
    missing += [row.leg for row in connections if row.sent is None or row.received is None]
    if missing and not found:
        found.append(f"no counts for {missing[0].stream} from {missing[0].source}")
    return found


def _of_connections(nodes: list[NodeState], resolved: Resolved, connections: list[ConnectionRow]) -> list[str]:
    doubts = []
    streams = {leg.id: leg.stream for leg in resolved.legs}
    for node in nodes:
        for leg, end in node.connections.items():
            where = f"{node.name}: {streams[leg]}"
            doubts += [f"{where}: {why}" for why in end.failures]
            if end.received and end.received.dropped:
                doubts.append(f"{where}: the receiving socket itself dropped {end.received.dropped} datagrams")
    for row in connections:
        if row.disagreement:
            doubts.append(f"{row.leg.stream} from {row.source} to {row.target}: {row.disagreement}")
    return doubts


def _of_capture(row: Row, task: ReceiveTask | None) -> list[str]:
    """What was captured is all that was counted, one frame in so many of it, or what a filter let through."""
    every, some = (task.capture_every, bool(task.capture_filter)) if task is not None else (1, False)
    due = _captures_due(row, every)
    if row.captured is None or row.captured == due or (some and due is not None and row.captured < due):
        return []
    text = f"{row.leg.target}: the counter has {row.received} packets of {row.leg.stream}, the capture {row.captured}"
    return [text + (f" of {due} (one in {every})" if due != row.received else "")]


def _captures_due(row: Row, every: int) -> int | None:
    """The first of each so many frames; those of a stamped trace that have no stamp are counted apart."""
    if row.received is None:
        return None
    apart = row.unstamped or 0
    return -(-(row.received - apart) // every) - (-apart // every)


def _frames_of_its_own(node: NodeState, resolved: Resolved) -> list[str]:
    """A trace is told by its two MACs: what the sender's kernel adds between them would be counted with it. One of
    sessions is told by its users, and its node answers for other addresses meanwhile."""
    host = node.rank.host
    sent = [leg for leg in resolved.legs if leg.kind == "trace" and leg.transmitter == host.name]
    traces = any(leg.match is None or leg.match.kind == "rest" for leg in sent)
    # Its kernel is meant to send there, and what it sends is told from the trace by its addresses.
    if any(leg.kind == "connections" and host.name in (leg.source, leg.target) for leg in resolved.legs):
        return []
    # A host that receives too announces itself through the same interface.
    if node.rank.role != "transmit" or not traces or "receive" in host.roles or node.sent is None:
        return []
    more = (node.interface or {}).get("tx_packets", 0) - (sum_sent(node) or 0)
    if more <= 0:
        return []
    return [
        f"{node.name}: {more} packets more left {host.traffic_interface} than the engines sent: its kernel sends "
        "frames of its own, which cannot be told from a trace's (take the IP address off that interface)"
    ]


def _against_interface(node: NodeState) -> list[str]:
    """An engine cannot have sent or taken more than its interface did."""
    if node.sent is None or node.interface is None:
        return []
    figures = {"tx_packets": sum_sent(node), "rx_packets": received_packets(node)}
    doubts = []
    for counter, count in figures.items():
        if count is not None and count > node.interface[counter]:
            seen = node.interface[counter]
            doubts.append(f"{node.name}: the engines say {count} packets, the interface's {counter} only {seen}")
    missed = dropped_packets(node)
    if missed:
        doubts.append(f"{node.name}: {MISSED} {missed} packets (ring full): a lower bound")
    return doubts


def _bytes_against_interface(node: NodeState) -> list[str]:
    """As for packets: what connections carried is only a part of the frames' bytes."""
    if node.interface is None:
        return []
    ends = node.connections.values()
    carried = {
        "tx_bytes": sum(end.sent.sent_bytes for end in ends if end.sent),
        "rx_bytes": sum(end.received.bytes for end in ends if end.received),
    }
    return [
        f"{node.name}: the connections say {count} bytes, the interface's {name} only {node.interface[name]}"
        for name, count in carried.items()
        if count > node.interface[name]
    ]
