"""Frames for the addresses that nodes answer for beside the users' packets: requests, and messages of the UPF about its
tunnels."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.document import ProxyCounts

KINDS = {
    "error_indication": "Error Indications received: the UPF has no tunnel with",
    "end_marker": "End Markers received, for",
}


def document(nodes: Iterable[NodeState]) -> dict[str, ProxyCounts]:
    """Host → counts of the frames for its proxy addresses."""
    return {
        node.rank.host.name: {"counts": node.played.counts, "teids": node.played.teids, "missed": node.played.missed}
        for node in nodes
        if node.played is not None
    }


def notes(nodes: Iterable[NodeState], but: Collection[str] = ()) -> list[str]:
    """A note for each host and kind of message about a tunnel. `but`: kinds that are reported elsewhere."""
    lines = []
    for host, received in document(nodes).items():
        for kind, text in KINDS.items():
            if (count := received["counts"].get(kind)) and kind not in but:
                teids = received["teids"].get(kind, [])
                more = ", …" if count > len(teids) else ""
                tunnel = f"TEID {', '.join(map(str, teids))}{more}" if teids else "an unknown TEID"
                lines.append(f"{host}: {count:,} {text} {tunnel}")
        if missed := received.get("missed"):
            problem = "frames for its proxy addresses were dropped, its queue was full: their counts are lower bounds"
            lines.append(f"{host}: {missed:,} {problem}")
    return lines
