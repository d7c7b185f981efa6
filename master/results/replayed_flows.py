"""The flows of interactive traces: the columns of flows.csv and the code that fills them, notes, a terminal table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from pktswarm.master.results.document_rows import ReplayedFlow
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.flow_report import FlowReport

COLUMNS = [
    "stream",
    "from",
    "to",
    "flow",
    "ports",
    "state",
    "recorded_ns",
    "replayed_ns",
    "stretch",
    "sent_packets",
    "resent_packets",
    "received_packets",
    "answers_sent_packets",
    "answers_resent_packets",
    "answers_received_packets",
    "duplicated_packets",
]
_STATES = ("complete", "unfinished", "given up")
"""In the order of their rank: the state of a flow is the last one that an end reports."""
WORST_SHOWN = 10


def flow_rows(there: Leg, begun: list[FlowReport], answered: list[FlowReport]) -> list[ReplayedFlow]:
    """One row for each flow, from the reports of its two ends. Figures of an end without a report are None."""
    other = {report.flow: report for report in answered}
    return [_flow_row(there, report, other.get(report.flow)) for report in begun]


def _flow_row(leg: Leg, begun: FlowReport, answered: FlowReport | None) -> ReplayedFlow:
    recorded_ns, replayed_ns = begun.recorded_ns, begun.replayed_ns
    states = [begun.state, *([] if answered is None else [answered.state])]
    return {
        "stream": leg.stream,
        "from": leg.source,
        "to": leg.target,
        "flow": begun.flow,
        "ports": begun.label,
        "state": max(states, key=_STATES.index),
        "recorded_ns": recorded_ns,
        "replayed_ns": replayed_ns,
        "stretch": None if replayed_ns is None or not recorded_ns else round(replayed_ns / recorded_ns, 4),
        "sent_packets": begun.sent,
        "resent_packets": begun.resent,
        "received_packets": None if answered is None else answered.received,
        "answers_sent_packets": None if answered is None else answered.sent,
        "answers_resent_packets": None if answered is None else answered.resent,
        "answers_received_packets": begun.received,
        "duplicated_packets": None if answered is None else begun.duplicates + answered.duplicates,
    }


def trouble(flows: Sequence[ReplayedFlow]) -> list[str]:
    """A note for each stream with incomplete flows."""
    notes = []
    for name in dict.fromkeys(flow["stream"] for flow in flows):
        states = [flow["state"] for flow in flows if flow["stream"] == name]
        for state in _STATES[1:]:
            if state in states:
                notes.append(f"{name}: {states.count(state)} of {len(states)} flows {state}")
    return notes


def table(flows: Sequence[ReplayedFlow]) -> Table:
    """Table of the worst flows: incomplete ones first, then those with the largest added time."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("stream", no_wrap=True)
    table.add_column("flow", no_wrap=True)
    for name in ("recorded, s", "replayed, s", "stretch", "resent packets", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    # Sorted by added time, not by ratio: a look-up of microseconds takes a hundred times as long through any device.
    worst = sorted(flows, key=lambda flow: (_STATES.index(flow["state"]), _added_ns(flow)), reverse=True)
    for flow in worst[:WORST_SHOWN]:
        again = flow["resent_packets"] + (flow["answers_resent_packets"] or 0)
        stretch = "–" if flow["stretch"] is None else f"{flow['stretch']:.2f}"
        times = (flow["recorded_ns"], flow["replayed_ns"])
        seconds = ["–" if time_ns is None else f"{time_ns / 1e9:.3f}" for time_ns in times]
        table.add_row(escape(flow["stream"]), escape(flow["ports"]), *seconds, stretch, f"{again:,}", flow["state"])
    return table


def _added_ns(flow: ReplayedFlow) -> int:
    return 0 if flow["replayed_ns"] is None else int(flow["replayed_ns"] - flow["recorded_ns"])
