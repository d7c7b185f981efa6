"""The result of a run: verdicts, doubts, notes, exit status, and the document of run.json."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import cast

from pktswarm.master.cluster.node import mended, outages, unfinished
from pktswarm.master.dut_host import report as host_report
from pktswarm.master.files import utc
from pktswarm.master.results import (
    doubts as doubts_of,
)
from pktswarm.master.results import (
    handover_report,
    handover_rows,
    metric_verdicts,
    misdelivered,
    proxy_counts,
    replayed_flows,
    trace_verify,
    user_report,
)
from pktswarm.master.results.count_verdicts import (
    judge,
    judge_connections,
    judge_mbr,
    judge_tunnels,
    with_host_drops,
)
from pktswarm.master.results.document import FORMAT_VERSION, PhaseTime, RunDocument, RunInputs, Verdict
from pktswarm.master.results.document_handover import HandoverResult
from pktswarm.master.results.document_rows import ReplayedFlow
from pktswarm.master.results.flow_rows import rows as rows_of
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.node_rows import connection_rows, node_rows
from pktswarm.master.results.row import Row
from pktswarm.master.results.run_state import RunState
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.results.totals import group_totals, node_totals, totals
from pktswarm.master.results.trace_verify import Compared
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.upf.moves import Moves
from pktswarm.traffic.connections.counts import values as connection_values
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED
from pktswarm.traffic.frames.stamp import LAYOUT_VERSION
from pktswarm.traffic.protocol.codec import to_fields


def outcome(state: RunState, expect: Expect, inputs: RunInputs, compared: Sequence[Compared] = ()) -> Outcome:
    """The result of the run so far. `compared`: traces whose captures were compared with the intended packets."""
    rows, connections = rows_of(state), connection_rows(state)
    _match_latencies(state, rows, compared)
    counted = [row.users for row in rows if row.users is not None]
    users = user_report.report(counted)
    moves = None if state.moves is None else _handover(state, state.moves, counted)
    lost = totals(rows)[-1]["lost_packets"]
    host = None if state.dut_host is None else host_report.document(state.dut_host, lost)
    verdicts = [
        *judge(expect, rows),
        *metric_verdicts.of_streams(expect, rows),
        *metric_verdicts.of_users(expect, rows),
        *judge_tunnels(expect, rows),
        *judge_mbr(expect, users["mbr"]),
        *metric_verdicts.of_sessions(expect, inputs.get("upf")),
        *metric_verdicts.of_end_markers(expect, moves),
        *judge_connections(expect, connections),
        *trace_verify.verdicts(compared),
    ]
    verdicts = with_host_drops(verdicts, host)
    why = doubts(state, rows)
    status, reason = _status(state, verdicts, why)
    flows = flow_rows(rows)
    document = {
        "format_version": FORMAT_VERSION,
        "stamp_layout": LAYOUT_VERSION,
        "status": status,
        "reason": reason,
        "verdicts": verdicts,
        "doubts": why,
        **_course(state, rows),
        "notes": _notes(state, rows, compared, flows, with_moves=moves is not None),
        **_counts(state, rows, compared),
        "flows": flows,
        "connections": [{"leg": row.leg.id, **connection_values(row)} for row in connections],
        **({"users": users} if counted else {}),
        **({"handover": moves} if moves else {}),
        **({"dut_host": host} if host else {}),
        **inputs,
    }
    counts = trace_verify.flow_rows(compared, rows)
    return Outcome(status, reason, rows, node_rows(state), connections, cast(RunDocument, document), flows, counts)


def _course(state: RunState, rows: list[Row]) -> dict[str, object]:
    """The start, the phases and the clocks of the run."""
    return {
        "start_utc": None if state.start_utc_ns is None else utc(state.start_utc_ns),
        "phases": _phase_table(state),
        "release_skew_ns": state.release_skew_ns(),
        "first_frame_skew_ns": first_frame_skew_ns(rows),
        "engines": state.resolved.choices,
        "ranks": {
            str(number): {
                "host": node.rank.host.name,
                "role": node.rank.role,
                **(node.report.to_json() if node.report else {}),
            }
            for number, node in state.nodes.items()
        },
        "clocks": {
            str(number): {when: to_fields(reading) for when, reading in node.clock.items()}
            for number, node in state.nodes.items()
        },
    }


def _counts(state: RunState, rows: list[Row], compared: Sequence[Compared]) -> dict[str, object]:
    return {
        "played": proxy_counts.document(state.nodes.values()),
        "totals": totals(rows),
        "groups": group_totals(rows),
        "by_node": node_totals(map(stream_values, rows)),
        "rows": [{"leg": row.leg.id, **stream_values(row), **handover_rows.document(row)} for row in rows],
        "verified": trace_verify.document(compared),
        "latency_by_captures": trace_verify.latencies(rows),
    }


def _notes(
    state: RunState, rows: list[Row], compared: Sequence[Compared], flows: list[ReplayedFlow], with_moves: bool
) -> list[str]:
    """Observations that do not change the exit status. `with_moves`: end markers are reported with the handover."""
    return [
        *state.resolved.notes,
        *state.notes,
        *host_report.notes(state.dut_host),
        *replayed_flows.trouble(flows),
        *trace_verify.trouble(compared, rows),
        *handover_rows.notes(rows),
        *_partly_timed(rows),
        *proxy_counts.notes(state.nodes.values(), ["end_marker"] if with_moves else []),
        *mended(state.nodes.values()),
        *unfinished(state.nodes.values()),
        *outages(state.nodes.values()),
        *misdelivered.notes(rows, state.nodes.values(), state.resolved),
        *(
            f"the master: {step.describe(state.start_ns or 0)}; so are the times in the log"
            for step in state.master_utc.found
        ),
        *state.faults().notes(rows),
        *state.ptp_clocks().notes((row.leg.source, row.leg.receiver) for row in rows),
    ]


def _partly_timed(rows: list[Row]) -> list[str]:
    """A note for each flow whose receiver did not time each frame (receive.timed_every)."""
    return [
        f"{row.leg.stream} from {row.leg.source} to {row.leg.target}: latency and jitter are of {latency.frames:,} of "
        f"{tally.distinct:,} packets: two of {row.received.timed_every} in a row (receive.timed_every)"
        for row in rows
        if row.received.timed_every > 1
        and (tally := row.received.tally) is not None
        and (latency := row.received.latency) is not None
        and latency.frames < (tally.distinct or 0)
    ]


def _handover(state: RunState, moves: Moves, users: list[Users]) -> HandoverResult:
    gathered_ns = dict(state.phases).get("gather")
    return handover_report.report(moves, users, state.resolved.proxy_addresses, state.nodes.values(), gathered_ns)


def _status(state: RunState, verdicts: list[Verdict], doubts: list[str]) -> tuple[int, str]:
    if state.stopped:
        return EXIT_INCOMPLETE, state.stopped
    if not state.over:
        return EXIT_INCOMPLETE, f"rank 0 was lost in phase {state.phase!r}"
    if doubts:
        return EXIT_INCOMPLETE, doubts[0]
    failed = [verdict for verdict in verdicts if not verdict["holds"]]
    if failed:
        return EXIT_NOT_AS_EXPECTED, failed[0]["text"]
    return EXIT_AS_EXPECTED, "as expected" if verdicts else "nothing was expected"


def _phase_table(state: RunState) -> list[PhaseTime]:
    return [
        {"phase": name, "at_ns": None if state.start_ns is None else at_ns - state.start_ns, "monotonic_ns": at_ns}
        for name, at_ns in state.phases
    ]


def _match_latencies(state: RunState, rows: list[Row], compared: Sequence[Compared]) -> None:
    by_leg = {row.leg.id: row for row in rows}
    ends = {(node.rank.host.name, node.rank.role): node for node in state.nodes.values()}
    for comparison in compared:
        row, leg = by_leg[comparison.leg.id], comparison.leg
        sender, receiver = ends[leg.transmitter, "transmit"], ends[leg.receiver, "receive"]
        if why := state.faults().of_capture(leg):
            row.capture.omitted_timing.append(f"latency by captures, because {why}")
        elif state.start_ns is not None and comparison.agrees(row):
            latency = trace_verify.latency(comparison, row, sender, receiver, state.start_ns, state.middle_ns())
            row.capture.latency, row.capture.latency_bound_ns = latency or (None, None)


def doubts(state: RunState, rows: list[Row] | None = None) -> list[str]:
    """The reasons why counts can be wrong; empty: there are none. `rows`: those of the run, if already made."""
    rows = rows_of(state) if rows is None else rows
    reasons = doubts_of.doubts(list(state.nodes.values()), state.resolved, rows, connection_rows(state))
    return reasons + state.more_doubts


def flow_rows(rows: list[Row]) -> list[ReplayedFlow]:
    """The flows of interactive traces, from the reports of both ends."""
    back = {row.leg.answers: row for row in rows if row.leg.answers is not None}
    flows: list[ReplayedFlow] = []
    for row in rows:
        if row.sent.flows is not None and row.leg.id in back:
            flows += replayed_flows.flow_rows(row.leg, row.sent.flows, back[row.leg.id].sent.flows or [])
    return flows


def first_frame_skew_ns(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Engine → the spread of its nodes' first frames, and their median delay after the start instant, or after the due
    time of a trace's first packet. Receive times stand in where an engine does not report send times."""
    return {engine: _skew(rows, engine) for engine in sorted({row.sent.engine for row in rows}) if _skew(rows, engine)}


def _skew(rows: list[Row], engine: str) -> dict[str, float]:
    firsts: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        first_ns = row.received.first_ns if row.sent.first_ns is None else row.sent.first_ns
        first = row.leg.answers is None and row.leg.echo_of is None
        if row.sent.engine == engine and first_ns is not None and first:
            firsts.setdefault(row.leg.source, []).append((first_ns, row.leg.timing.lead_ns))
    nodes = [first_ns - lead_ns for first_ns, lead_ns in map(min, firsts.values())]
    if not nodes:
        return {}
    return {"nodes": len(nodes), "skew": max(nodes) - min(nodes), "median_after_start": statistics.median(nodes)}
