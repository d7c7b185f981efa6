"""What a node tells while a run goes, as rows of samples.csv: one of its interface, and one of each stream it has."""

from __future__ import annotations

from typing import Any

from traffic.task import Leg

INTERFACE = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "rx_dropped")
RECEIVED = {
    "received_packets": "packets",
    "received_bytes": "bytes",
    "missing_packets": "missing",
    "duplicated_packets": "duplicated",
    "reordered_packets": "reordered",
    "altered_packets": "altered",
}
"""Column → what a receiver calls it. Missing: of the numbers up to the highest that has come, those that have not."""
COLUMNS = [
    *("time_ns", "node", "role", "tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "rx_dropped_packets"),
    *("stream", "from", "to", "sent_packets", *RECEIVED),
]


def rows(event: dict[str, Any], node: str, role: str, time_ns: int, legs: dict[int, Leg]) -> list[list[Any]]:
    """In the order of COLUMNS; what does not apply, or is not known, is empty. All counts are since the start."""
    begin = [time_ns, node, role]
    found = [[*begin, *(event["interface"][name] for name in INTERFACE), *[None] * (4 + len(RECEIVED))]]
    for number, figures in event.get("legs", {}).items():
        leg = legs[int(number)]
        to = leg.to
        if leg.also_at and role == "receive":  # what is missing here may have come elsewhere
            to, figures = node, {**figures, "missing": None}
        received = [figures.get(name) for name in RECEIVED.values()]
        nothing = [None] * len(INTERFACE)
        found.append([*begin, *nothing, leg.stream, leg.source, to, figures.get("sent_packets"), *received])
    return found
