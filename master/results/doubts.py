"""Doubts: reasons why counts of a run can be wrong, from engines against interfaces and counters against captures."""

from __future__ import annotations

from pktswarm.master.cluster.node import NodeState, dropped_packets, received_packets, sum_sent
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.row import ReceivedCounts, Row
from pktswarm.traffic.connections.counts import ConnectionRow
from pktswarm.traffic.protocol.task import ReceiveTask

MISSED = "the receiver itself missed"


def doubts(nodes: list[NodeState], resolved: Resolved, rows: list[Row], connections: list[ConnectionRow]) -> list[str]:
    """The reasons why counts can be wrong; empty: there are none."""
    reasons = [f"{node.name}: {node.problem}" for node in nodes if node.problem]
    for node in nodes:
        reasons += [f"{node.name}: {why}" for why in node.link.doubts(node.rank.host.traffic_interface)]
        reasons += _against_interface(node) + _bytes_against_interface(node) + _frames_of_its_own(node, resolved)
    for row in rows:
        reasons += _of_capture(row, resolved.receives.get(row.leg.target))
    for row in rows:
        reasons += row.users.doubts(row.sent.packets, row.received.packets) if row.users is not None else []
    reasons += _of_connections(nodes, resolved, connections)
    missing = [row.leg for row in rows if row.sent.packets is None or row.received.packets is None]
    missing += [row.leg for row in connections if row.sent is None or row.received is None]
    if missing and not reasons:
        reasons.append(f"no counts for {missing[0].stream} from {missing[0].source}")
    return reasons


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
    """A capture must have all counted frames, one in `capture_every`, or those that pass its filter."""
    every, some = (task.capture_every, bool(task.capture_filter)) if task is not None else (1, False)
    received, captured = row.received.packets, row.capture.packets
    due = _captures_due(row.received, every)
    if captured is None or captured == due or (some and due is not None and captured < due):
        return []
    text = f"{row.leg.target}: the counter has {received} packets of {row.leg.stream}, the capture {captured}"
    return [text + (f" of {due} (one in {every})" if due != received else "")]


def _captures_due(received: ReceivedCounts, every: int) -> int | None:
    """Frames that a capture of one in `every` has. Frames of a stamped trace without a stamp are selected apart."""
    if received.packets is None:
        return None
    apart = received.unstamped or 0
    return -(-(received.packets - apart) // every) - (-apart // every)


def _frames_of_its_own(node: NodeState, resolved: Resolved) -> list[str]:
    """Frames of the sender's kernel between the two MACs of a trace would count with the trace. A trace of sessions
    is identified by its users instead, and its node answers for other addresses."""
    host = node.rank.host
    sent = [leg for leg in resolved.legs if leg.kind == "trace" and leg.transmitter == host.name]
    traces = any(leg.match is None or leg.match.kind == "rest" for leg in sent)
    # The kernel sends connections there, which differ from the trace by their addresses.
    if any(leg.kind == "connections" and host.name in (leg.source, leg.target) for leg in resolved.legs):
        return []
    # A host that also receives announces itself through the same interface.
    if node.rank.role != "transmit" or not traces or "receive" in host.roles or node.sent is None:
        return []
    more = (node.interface or {}).get("tx_packets", 0) - (sum_sent(node) or 0)
    if more <= 0:
        return []
    return [
        f"{node.name}: {host.traffic_interface} sent {more} packets more than the engines: its kernel sends "
        "frames of its own, which cannot be distinguished from a trace's (remove the IP address of that interface)"
    ]


def _against_interface(node: NodeState) -> list[str]:
    """The engines cannot have sent or received more packets than their interface."""
    if node.sent is None or node.interface is None:
        return []
    figures = {"tx_packets": sum_sent(node), "rx_packets": received_packets(node)}
    doubts = []
    for counter, count in figures.items():
        if count is not None and count > node.interface[counter]:
            seen = node.interface[counter]
            doubts.append(f"{node.name}: the engines counted {count} packets, {counter} of the interface is {seen}")
    missed = dropped_packets(node)
    if missed:
        doubts.append(f"{node.name}: {MISSED} {missed} packets (ring full): a lower bound")
    return doubts


def _bytes_against_interface(node: NodeState) -> list[str]:
    """The connections cannot have sent or received more bytes than their interface."""
    if node.interface is None:
        return []
    ends = node.connections.values()
    carried = {
        "tx_bytes": sum(end.sent.sent_bytes for end in ends if end.sent),
        "rx_bytes": sum(end.received.bytes for end in ends if end.received),
    }
    return [
        f"{node.name}: the connections counted {count} bytes, {name} of the interface is {node.interface[name]}"
        for name, count in carried.items()
        if count > node.interface[name]
    ]
