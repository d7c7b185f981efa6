"""What nodes were told of tunnels, in words."""

from __future__ import annotations

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results import proxy_counts


def node(name: str, told: dict[str, object] | None) -> NodeState:
    host = Host(name, name, ("receive",))
    return NodeState(Rank(1, host, "receive"), played=told)


def test_only_hosts_that_play_are_told_and_only_tunnels_have_a_note() -> None:
    counts = {"arp": 2, "echo": 3, "error_indication": 20, "end_marker": 1}
    told = {"counts": counts, "teids": {"error_indication": [5, 6], "end_marker": [7]}}
    quiet = {"counts": {"arp": 1}, "teids": {}, "missed": 0}
    nodes = [node("tx1", {**told, "ended": {7: 1}}), node("rx1", None), node("rx2", quiet)]
    assert proxy_counts.document(nodes) == {"tx1": told, "rx2": quiet}
    assert proxy_counts.notes(nodes) == [
        "tx1: 20 Error Indications came: the UPF knows no tunnel with TEID 5, 6, …",
        "tx1: 1 End Markers came, of TEID 7",
    ]


def test_what_is_told_elsewhere_and_what_came_too_fast() -> None:
    told = {"counts": {"end_marker": 9}, "teids": {"end_marker": [7]}, "missed": 1200}
    assert proxy_counts.notes([node("tx1", told)], but=["end_marker"]) == [
        "tx1: 1,200 frames for the addresses that it plays were missed, its queue was full: what came is no less"
    ]


def test_an_indication_that_names_no_tunnel() -> None:
    told = {"counts": {"error_indication": 2}, "teids": {}}
    assert proxy_counts.notes([node("tx1", told)]) == [
        "tx1: 2 Error Indications came: the UPF knows no tunnel with a TEID that they do not tell"
    ]
