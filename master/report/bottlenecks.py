"""What limited a run: a sender that did not send all, a full link, drops of the interfaces.

Only measured figures are used. A limit of the tester is never reported as one of the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pktswarm.master.report.formatting import bps, count, percent, pps, ratio
from pktswarm.master.report.over_time import OverTime
from pktswarm.master.results.document import LegEntry, LegLoad, RunDocument
from pktswarm.master.results.document_rows import RunRow, StreamTotal
from pktswarm.traffic.protocol.node_report import counts_whole_frames

FULL = 0.95
"""Utilisation of a link on layer 1, in one bin, from which it counts as full."""
REASONS = {
    ("transmit", "failed_packets"): "its interface did not take {} packets: its queue was full, or it refused them.",
    ("transmit", "tx_error_packets"): "its interface counted {} transmit errors.",
    ("receive", "rx_error_packets"): "its interface counted {} receive errors, of any traffic.",
    ("transmit", "tx_dropped_packets"): "its interface dropped {} packets before sending.",
    ("receive", "rx_dropped_packets"): "its interface dropped {} received packets, of any traffic.",
    ("receive", "missed_packets"): "the receiving engine missed {} packets: a limit of the receiving node.",
}
"""(role, column of nodes.csv) → its meaning. Columns of the other direction are ignored."""


class RatedRow(RunRow):
    asked_pps: float | None
    """The intended rate; None: not a steady one."""


def describe(document: RunDocument, nodes: Sequence[Mapping[str, str]], over_time: OverTime | None) -> list[str]:
    """Sentences. `nodes`: the rows of nodes.csv."""
    return [
        *_of_sending(document["totals"][:-1], document["rows"]),
        *_of_capacity(document),
        *_of_links(document, over_time),
        *_of_interfaces(nodes),
        *_of_lateness(document["rows"]),
    ]


def with_intended_rates(document: RunDocument) -> list[RatedRow]:
    """The rows of the run with the intended rate of each flow, in packets/s."""
    rates = {leg["id"]: _intended_pps(leg) for leg in document["legs"]}
    return [{**row, "asked_pps": rates.get(row["leg"])} for row in document["rows"]]


def _intended_pps(leg: LegEntry) -> float | None:
    steady = leg["kind"] == "stream" and not leg.get("rates") and not leg.get("sequence_file")
    return leg.get("rate_pps") if steady else None


def _of_sending(streams: Sequence[StreamTotal], rows: Sequence[RunRow]) -> list[str]:
    sentences, whole = [], True
    for total in streams:
        name, intended, sent = total["stream"], total["intended_packets"], total["sent_packets"]
        if intended is None and sent is not None:
            rates = [row["sent_pps"] for row in rows if row["stream"] == name]
            rate = "" if None in rates else f", {pps(sum(rate or 0 for rate in rates))} in total"
            sentences.append(f"{name} was sent as fast as possible{rate}: its senders, or their links, set its rate.")
        elif sent is not None and intended is not None and sent < intended:
            sentences.append(
                f"{name}: the tester sent {count(sent)} of {count(intended)} packets (k_sender "
                f"{ratio(total['k_sender'])}). Packets that were not sent are not lost by the device."
            )
        whole = whole and sent is not None and intended is not None and sent >= intended
    if whole and streams:
        sentences.append("The tester sent all intended packets: lost packets were lost after their senders.")
    return sentences


def _of_capacity(document: RunDocument) -> list[str]:
    """Compares the rates with the measured capacity of the nodes (docs/calibrate.md): the tester itself can lose
    packets."""
    capacity = document.get("capacity")
    if capacity is None:
        return []
    rows = {row["leg"]: row for row in document["rows"]}
    ends: dict[tuple[str, str], list[LegLoad]] = {}
    for end in capacity["legs"]:
        ends.setdefault((end["node"], end["role"]), []).append(end)
    sentences = [_of_node(node, role, those, rows) for (node, role), those in ends.items()]
    return [sentence for sentence in [*sentences, *capacity["not_used"]] if sentence]


def _of_node(node: str, role: str, ends: Sequence[LegLoad], rows: Mapping[int, RunRow]) -> str:
    """Compares a transmitter's intended rate, or the rate sent to a receiver, with its capacity."""
    received = role == "receive"
    if any(end["leg"] not in rows for end in ends):
        return ""
    flows = [rows[end["leg"]] for end in ends]
    rates = [row["sent_pps"] if received else end["pps"] for end, row in zip(ends, flows, strict=True)]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return ""
    share = sum(rate / end["limit"]["rate_pps"] for rate, end in zip(known, ends, strict=True))
    possible = f"{percent(share, 1)} of its calibrated capacity"
    if not received:
        asked = f"{node}: intended {pps(sum(known))}, {possible}"
        return f"{asked}: it cannot have sent all packets in time." if share > 1 else ""
    offered = f"{node}: offered {pps(sum(known))}, {possible}"
    if share > 1:
        return f"{offered}: lost packets can be its own loss, not the device's."
    lost = [row.get("lost_packets") for row in flows]
    if None not in lost and any(lost) and _all_of(node, ends, rows):
        return f"{offered}: during calibration it lost nothing at such a rate."
    return ""


def _all_of(node: str, ends: Sequence[LegLoad], rows: Mapping[int, RunRow]) -> bool:
    """Whether the load of every flow to the node is known."""
    known = {end["leg"] for end in ends}
    return all(leg in known for leg, row in rows.items() if node in row["to"].split("+"))


def _of_links(document: RunDocument, over_time: OverTime | None) -> list[str]:
    sentences = []
    peaks = {} if over_time is None else {(node.node, node.role): node for node in over_time.nodes}
    for rank in document["ranks"].values():
        interface, peak = rank.get("interface", {}), peaks.get((rank["host"], rank["role"]))
        mbps, whole = interface.get("speed_mbps"), counts_whole_frames(interface.get("driver"), rank["role"])
        load = None if peak is None or not whole else peak.load(mbps)
        if load is not None and mbps is not None and load >= FULL:
            speed = bps(mbps * 1e6)
            sentences.append(f"{rank['host']}: its link of {speed} was full (up to {100 * load:.0f} % on layer 1).")
    return sentences


def _of_interfaces(nodes: Sequence[Mapping[str, str]]) -> list[str]:
    counts = (
        (node, text, int(node.get(column) or 0))
        for node in nodes
        for (role, column), text in REASONS.items()
        if node.get("role") == role
    )
    return [f"{node['node']}: {text.format(count(packets))}" for node, text, packets in counts if packets]


def _of_lateness(rows: Sequence[RunRow]) -> list[str]:
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        if (late := row.get("late_packets")) and (sent := row["sent_packets"]):
            late_before, sent_before = sums.get(row["stream"], (0, 0))
            sums[row["stream"]] = late_before + late, sent_before + sent
    return [
        f"{name}: {count(late)} of {count(sent)} packets left after their due times."
        for name, (late, sent) in sums.items()
    ]
