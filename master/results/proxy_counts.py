"""What came for the addresses that nodes played beside the users' packets: questions that they answered, and what the
UPF said of its tunnels."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pktswarm.master.cluster.node import NodeState

TOLD = {
    "error_indication": "Error Indications came: the UPF knows no tunnel with",
    "end_marker": "End Markers came, of",
}


def document(nodes: Iterable[NodeState]) -> dict[str, Any]:
    """Host → counts of the frames for its proxy addresses."""
    return {
        node.rank.host.name: {"counts": node.played.counts, "teids": node.played.teids, "missed": node.played.missed}
        for node in nodes
        if node.played is not None
    }


def notes(nodes: Iterable[NodeState], but: Collection[str] = ()) -> list[str]:
    """A line for each host and each kind of message that tells of the UPF's tunnels. `but`: kinds told elsewhere."""
    lines = []
    for host, played in document(nodes).items():
        for kind, words in TOLD.items():
            if (count := played["counts"].get(kind)) and kind not in but:
                teids = played["teids"].get(kind, [])
                more = ", …" if count > len(teids) else ""
                named = f"TEID {', '.join(map(str, teids))}{more}" if teids else "a TEID that they do not tell"
                lines.append(f"{host}: {count:,} {words} {named}")
        if missed := played.get("missed"):
            problem = "frames for the addresses that it plays were missed, its queue was full: what came is no less"
            lines.append(f"{host}: {missed:,} {problem}")
    return lines
