"""The samples of a node as rows of samples.csv: one for its interface and one for each of its flows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pktswarm.traffic.counting import samples as traffic_samples
from pktswarm.traffic.counting.samples import SENT, unpack
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank_events import Sample
from pktswarm.traffic.protocol.task import with_fcs

INTERFACE = {
    "tx_packets": "tx_packets",
    "tx_bytes": "tx_bytes",
    "rx_packets": "rx_packets",
    "rx_bytes": "rx_bytes",
    "rx_dropped_packets": "rx_dropped",
    "tx_dropped_packets": "tx_dropped",
    "link_downs": "link_downs",
}
"""Column → name in a sample."""
RECEIVED = {
    "received_packets": "packets",
    "received_bytes": "bytes",
    "missing_packets": "missing",
    "duplicated_packets": "duplicated",
    "reordered_packets": "reordered",
    "altered_packets": "altered",
}
"""Missing: sequence numbers below the highest received that were not received."""
LATENCY = ("latency_packets", "latency_sum_ns", "latency_min_ns", "latency_max_ns")
COLUMNS = [
    *("time_ns", "node", "role", *INTERFACE, "cpu_busy_s"),
    *("stream", "from", "to", "sent_packets", *RECEIVED, "group", "sent_bytes", *LATENCY),
]
"""Readers use the names. Columns of an interface precede `stream`; columns of a flow follow it."""
_OF_LEG = len(COLUMNS) - COLUMNS.index("stream")
_OF_INTERFACE = COLUMNS.index("stream") - COLUMNS.index("role") - 1


def rows(event: Sample, node: str, role: str, time_ns: int, legs: dict[int, Leg]) -> list[list[Any]]:
    """Rows in the order of COLUMNS; None: not applicable or unknown. Counts are since the start; bytes of streams count
    the FCS, as in streams.csv."""
    begin = [time_ns, node, role]
    counters = event.interface
    busy_ms = counters.get("cpu_busy_ms")
    interface = [*(counters.get(name) for name in INTERFACE.values()), None if busy_ms is None else busy_ms / 1000]
    table = [[*begin, *interface, *[None] * _OF_LEG]]
    begin += [None] * _OF_INTERFACE
    for leg, sent in sent_of_rows(unpack(event.sent, SENT), legs):
        bytes_sent = with_fcs(sent["sent_bytes"], sent["sent_packets"])
        nothing = [None] * len(RECEIVED)
        end = [leg.group, bytes_sent, *[None] * len(LATENCY)]
        table.append([*begin, leg.stream, leg.source, leg.to, sent["sent_packets"], *nothing, *end])
    for number, counts in unpack(event.received, traffic_samples.RECEIVED).items():
        leg = legs[number]
        to = leg.to
        if leg.handover_targets:  # a packet missing here can have arrived at another receiver
            to, counts = node, {**counts, "missing": None}
        counts = {**counts, "bytes": with_fcs(counts["bytes"], counts["packets"])}
        received = [counts[name] for name in RECEIVED.values()]
        end = [leg.group, None, *(counts[name] for name in LATENCY)]
        table.append([*begin, leg.stream, leg.source, to, None, *received, *end])
    return table


def sent_of_rows(
    sent: dict[int, dict[str, int | None]], legs: dict[int, Leg]
) -> Iterable[tuple[Leg, dict[str, int | None]]]:
    """Adds the figures of a merged leg to those of its row, as in streams.csv. A sum with an unknown part is None."""
    summed: dict[int, dict[str, int | None]] = {}
    for number, figures in sent.items():
        leg = legs[number]
        row = leg.id if leg.merged_into is None else leg.merged_into
        summed[row] = _added(summed[row], figures) if row in summed else figures
    return [(legs[number], figures) for number, figures in summed.items()]


def _added(figures: dict[str, int | None], more: dict[str, int | None]) -> dict[str, int | None]:
    return {name: _sum(value, more[name]) for name, value in figures.items()}


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
