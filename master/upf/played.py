"""What came for the addresses that nodes played beside the users' packets: questions that they answered, and what the
UPF said of its tunnels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from master.node_state import NodeState

TOLD = {
    "error_indication": "Error Indications came: the UPF knows no tunnel with",
    "end_marker": "End Markers came, of",
}


def document(nodes: Iterable[NodeState]) -> dict[str, Any]:
    """Host → traffic.playing.Played, of those that played an address."""
    return {node.rank.host.name: node.played for node in nodes if node.played is not None}


def notes(nodes: Iterable[NodeState]) -> list[str]:
    """A line for each host and each kind of message that tells of the UPF's tunnels."""
    lines = []
    for host, played in document(nodes).items():
        for kind, words in TOLD.items():
            if count := played["counts"].get(kind):
                teids = played["teids"].get(kind, [])
                more = ", …" if count > len(teids) else ""
                named = f"TEID {', '.join(map(str, teids))}{more}" if teids else "a TEID that they do not tell"
                lines.append(f"{host}: {count:,} {words} {named}")
    return lines
