"""What nodes were told of tunnels, in words."""

from __future__ import annotations

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results import proxy_counts
from pktswarm.traffic.protocol.proxy_count import ProxyCount


def node(name: str, told: ProxyCount | None) -> NodeState:
    host = Host(name, name, ("receive",))
    return NodeState(Rank(1, host, "receive"), played=told)


def test_only_hosts_that_play_are_told_and_only_tunnels_have_a_note() -> None:
    counts = {"arp": 2, "echo": 3, "error_indication": 20, "end_marker": 1}
    told = ProxyCount(counts, {"error_indication": [5, 6], "end_marker": [7]}, {"7": 1}, 0)
    nodes = [node("tx1", told), node("rx1", None), node("rx2", ProxyCount({"arp": 1}, {}, {}, 0))]
    assert proxy_counts.document(nodes) == {
        "tx1": {"counts": counts, "teids": told.teids, "missed": 0},
        "rx2": {"counts": {"arp": 1}, "teids": {}, "missed": 0},
    }
    assert proxy_counts.notes(nodes) == [
        "tx1: 20 Error Indications received: the UPF has no tunnel with TEID 5, 6, …",
        "tx1: 1 End Markers received, for TEID 7",
    ]


def test_what_is_told_elsewhere_and_what_came_too_fast() -> None:
    told = ProxyCount({"end_marker": 9}, {"end_marker": [7]}, {}, 1200)
    assert proxy_counts.notes([node("tx1", told)], but=["end_marker"]) == [
        "tx1: 1,200 frames for its proxy addresses were dropped, its queue was full: their counts are lower bounds"
    ]


def test_an_indication_that_names_no_tunnel() -> None:
    told = ProxyCount({"error_indication": 2}, {}, {}, 0)
    assert proxy_counts.notes([node("tx1", told)]) == [
        "tx1: 2 Error Indications received: the UPF has no tunnel with an unknown TEID"
    ]
