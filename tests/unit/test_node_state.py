"""What the master knows of its ranks, by host."""

from __future__ import annotations

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState, reports_by_host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.traffic.protocol.task import Role
from run_events import node_report


def node(number: int, role: Role, told: str) -> NodeState:
    return NodeState(Rank(number, Host("a", "a", ("transmit", "receive")), role), node_report(senders={"xdp": told}))


def test_of_a_host_with_both_roles_the_transmitter_tells_what_it_can_send_with() -> None:
    nodes = [node(1, "transmit", "its driver drops live frames"), node(2, "receive", "")]
    for order in (nodes, nodes[::-1]):
        assert reports_by_host(order)["a"]["senders"] == {"xdp": "its driver drops live frames"}
