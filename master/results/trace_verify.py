"""Compares captures of a trace, by its receivers or made elsewhere, with the intended packets: packet by packet where
requested, flow by flow, and as latency."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from pktswarm.master.cluster.clock_offsets import offset_at
from pktswarm.master.plan import interactive
from pktswarm.master.results.captures import by_row, captured_packets, captures_of
from pktswarm.master.results.document import Verdict
from pktswarm.master.results.document_rows import CaptureLatency, Ends, VerifiedTrace
from pktswarm.master.results.read_document import leg_of
from pktswarm.master.results.recount import run_json
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.tally import PERCENTILES, Latency
from pktswarm.traffic.counting.trace_verify import Verified, arrivals, intended, verified
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.replay import flows
from pktswarm.traffic.replay.files import frames_to_send
from pktswarm.traffic.replay.flows import FlowCount

if TYPE_CHECKING:
    from pktswarm.master.cluster.node import NodeState
    from pktswarm.master.results.row import Row

MOST_CAPTURED_BYTES = 1 << 30
FLOW_COLUMNS = [
    *("stream", "from", "to", *flows.COLUMNS, "intended_packets", "sent_packets", "received_packets"),
    *("lost_packets", "lost_by"),
]


class FlowKey(TypedDict):
    """The 5-tuple of a flow. Frames without one are together in one row with the protocol `other`."""

    protocol: int | str
    source: NotRequired[str]
    target: NotRequired[str]
    source_port: NotRequired[int | None]
    target_port: NotRequired[int | None]


class FlowCountRow(Ends, FlowKey):
    """A row of flow_counts.csv."""

    stream: str
    intended_packets: int
    sent_packets: int | None
    received_packets: int
    lost_packets: int | None
    lost_by: str | None


@dataclass(frozen=True)
class Compared:
    """The captured frames of one row of the run, compared with the intended ones."""

    leg: Leg
    verified: Verified | None
    """None: not requested."""
    flows: list[FlowCount]
    delays_ns: NDArray[np.int64] | None
    """Arrival (UTC of the receiver) − due time (from the start); None: the trace has no due times."""

    def agrees(self, row: Row) -> bool:
        """Whether the capture has as many packets as the run counted."""
        return row.received.packets == sum(flow.received for flow in self.flows)


def compare(
    folder: Path,
    legs: list[Leg],
    receives: dict[str, ReceiveTask],
    asked: set[str],
    notes: list[str],
    untimed: Collection[str] = (),
) -> list[Compared]:
    """Compares all traces that were captured whole. `receives`: host → its task; `asked`: the traces to verify;
    `untimed`: hosts whose UTC was set during the run. Captures above MOST_CAPTURED_BYTES are compared only if
    verification was requested; `notes` receives a note for each that was not."""
    groups = by_row(legs)
    results = []
    for host, task in receives.items():
        framed = [leg for leg in task.legs if leg.kind != "connections" and leg.engine != interactive.ENGINE]
        traces = [leg for leg in framed if leg.kind == "trace"]
        is_complete = task.mode == "capture" and task.capture_every == 1 and not task.capture_filter
        if not traces or not is_complete:
            continue
        captures = captures_of(folder, host)
        size = sum(path.stat().st_size for path in captures)
        requested = bool(asked & {leg.stream for leg in traces})
        if size > MOST_CAPTURED_BYTES and not requested:
            limit = f"the limit is {MOST_CAPTURED_BYTES / 1e9:.1f} GB"
            notes.append(f"{host} captured {size / 1e9:.1f} GB, {limit}: no loss by flow, no latency by captures")
            continue
        try:
            packets, _ = captured_packets(captures, framed, {leg.id for leg in traces})
        except BadInput as error:
            if requested:
                raise
            notes.append(f"no loss by flow and no latency by captures: {error}")
            continue
        results += [
            _compared(folder, groups[leg.id], packets[leg.id], leg.stream in asked, host not in untimed)
            for leg in traces
        ]
    return results


def elsewhere(folder: Path, capture: Path) -> list[Compared]:
    """Compares `capture`, made by other means such as a switch's mirror port, with a run's traces.

    One result for each row of the run that has packets in it, in front of a router or behind it. Raises BadInput where
    there are none.
    """
    document = run_json(folder)
    legs = [leg_of(entry) for entry in document["legs"] if entry["kind"] != "connections"]
    # An interactive trace has no due times, and a UPF changes the frames of a trace of sessions.
    changed = {trace["name"] for trace in document["scenario"].get("traces", []) if trace.get("sessions")}
    results: dict[int, Compared] = {}
    for view in [[_in_front(leg, folder) for leg in legs], legs] if any(leg.gateway for leg in legs) else [legs]:
        groups = by_row(view)
        packets, unmatched = captured_packets([capture], [leg for leg in view if leg.merged_into is None])
        for leg in view:
            is_trace = leg.kind == "trace" and leg.engine != interactive.ENGINE and leg.stream not in changed
            if is_trace and leg.id not in results and packets.get(leg.id):
                results[leg.id] = _compared(folder, groups[leg.id], packets[leg.id], True)
    if not results:
        problem = f"has no packet of a trace of {folder} that arrives as it was sent"
        raise BadInput(capture, problem, value=f"{unmatched} other packets")
    return [results[number] for number in sorted(results)]


def _in_front(leg: Leg, folder: Path) -> Leg:
    """The flow in front of its router, if it has one: with the MAC addresses of the sent frames."""
    if leg.gateway is None:
        return leg
    match = Match.from_data(leg.match)
    macs = frames_to_send(leg, folder / "sent")[0].frame(0)[:12] if leg.kind == "trace" else b""
    match = _with_macs(match, macs)
    return replace(leg, gateway=None, match=match.to_data())


def _with_macs(match: Match, macs: bytes) -> Match:
    """The match of frames between other MAC addresses; empty: between any."""
    mask = (b"\xff" if macs else b"\0") * 12 + match.mask[12:]
    others = tuple(_with_macs(other, b"") for other in match.others)
    return replace(match, mask=mask, value=(macs or bytes(12)) + match.value[12:], others=others)


def _compared(folder: Path, legs: list[Leg], captured: list[Packet], asked: bool, timed: bool = True) -> Compared:
    """`legs`: those of one row; `asked`: packet by packet too; `timed`: whether the capture's times are usable."""
    wanted = intended(legs, folder / "sent")
    arrived = arrivals(wanted, captured, timed)
    timed = timed and legs[0].timing.mode != "top"
    result = verified(wanted, arrived, timed) if asked else None
    sent = (wanted.tuples[number] for number in wanted.content.tolist())
    delays_ns = arrived.delays_ns(wanted) if timed else None
    return Compared(legs[0], result, flows.count(sent, arrived.tuples), delays_ns)


def verdicts(results: Sequence[Compared]) -> list[Verdict]:
    """One for each compared trace."""
    return [_verdict(result.leg, result.verified) for result in results if result.verified is not None]


def _verdict(leg: Leg, verified: Verified) -> Verdict:
    path, text = f"{leg.stream} from {leg.source}", verified.describe()
    return {
        "text": f"{path}: {text}",
        "holds": verified.holds,
        "what": f"{path}: packet by packet",
        "found": text,
        "expected": "none altered, duplicated or reordered",
    }


def document(results: Sequence[Compared]) -> list[VerifiedTrace]:
    """The results for run.json."""
    return [_document(result.leg, result.verified) for result in results if result.verified is not None]


def _document(leg: Leg, verified: Verified) -> VerifiedTrace:
    return {
        "leg": leg.id,
        "stream": leg.stream,
        "from": leg.source,
        "to": leg.target,
        "intended": verified.intended,
        "captured": verified.captured,
        "as_intended": verified.as_intended,
        "altered": verified.altered,
        "lost": verified.lost,
        "duplicated": verified.duplicated,
        "reordered": verified.reordered,
        "error_p50_ns": verified.error_p50_ns,
        "error_p90_ns": verified.error_p90_ns,
        "error_p99_ns": verified.error_p99_ns,
        "error_max_ns": verified.error_max_ns,
    }


def _row(result: Compared, rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.leg.id == result.leg.id)


def trouble(results: Sequence[Compared], rows: Sequence[Row]) -> list[str]:
    """A note for each incomplete capture, of which no figures are made."""
    notes = []
    for result in results:
        row, captured = _row(result, rows), sum(flow.received for flow in result.flows)
        if not result.agrees(row):
            path = f"{result.leg.stream}, {result.leg.source} → {result.leg.target}"
            notes.append(
                f"{path}: the run counted {row.received.packets} packets, the capture has {captured}: no loss by flow"
            )
    return notes


def flow_rows(results: Sequence[Compared], rows: Sequence[Row]) -> list[FlowCountRow]:
    """The rows of flow_counts.csv. The packets sent of a flow are known only where the whole trace was sent."""
    table: list[FlowCountRow] = []
    for result in results:
        row = _row(result, rows)
        if not result.agrees(row):
            continue
        all_sent = row.sent.packets == sum(flow.intended for flow in result.flows)
        table += [_flow_row(result.leg, flow, flow.intended if all_sent else None) for flow in result.flows]
    return table


def _flow_row(leg: Leg, count: FlowCount, sent: int | None) -> FlowCountRow:
    return {
        "stream": leg.stream,
        "from": leg.source,
        "to": leg.target,
        **cast(FlowKey, count.flow.values()),
        "intended_packets": count.intended,
        "sent_packets": sent,
        "received_packets": count.received,
        "lost_packets": None if sent is None else sent - count.received,
        "lost_by": None if sent is None else "difference",
    }


# --- latency by matching captures -----------------------------------------------------------------------------------


def latency(
    result: Compared, row: Row, sender: NodeState, receiver: NodeState, start_ns: int, at_ns: int
) -> tuple[Latency, int] | None:
    """Latency from due time to capture, and its error bound: the clocks' bounds, the drift of the receiver's UTC
    against its monotonic clock, the time that reading both took, and the largest lateness of a frame. `at_ns`: the
    middle of the sending, on the master's clock.

    None where a clock was not read, or the sender does not report how late its frames left.
    """
    here, there, began = receiver.offset_at(at_ns), sender.offset_at(at_ns), _start_offset_ns(sender)
    utc = [clock.realtime_minus_monotonic_ns for clock in receiver.clock.values()]
    if result.delays_ns is None or not len(result.delays_ns) or row.sent.max_lateness_ns is None or not utc:
        return None
    if here is None or there is None or began is None:
        return None
    # A frame due d ns after the start left at start + began + d of the sender's clock, and arrived at some UTC of the
    # receiver's: both on the master's clock.
    middle = (min(utc) + max(utc)) // 2
    delays_ns = np.sort(result.delays_ns - middle - here.offset_ns - start_ns - began + there.offset_ns)
    utc_bound_ns = -(-(max(utc) - min(utc)) // 2) + min(clock.round_trip_ns for clock in receiver.clock.values())
    bound_ns = here.bound_ns + there.bound_ns + row.sent.max_lateness_ns + utc_bound_ns
    points = {f"{name}_ns": int(delays_ns[_rank(len(delays_ns), share)]) for name, share in PERCENTILES.items()}
    ends = {"min_ns": int(delays_ns[0]), "mean_ns": float(delays_ns.mean()), "max_ns": int(delays_ns[-1])}
    return Latency(len(delays_ns), **ends, **points), bound_ns  # type: ignore[arg-type] # the names are Latency's


def _rank(count: int, share: float) -> int:
    """The nearest rank, from 0."""
    return max(1, int(np.ceil(share * count))) - 1


def _start_offset_ns(sender: NodeState) -> int | None:
    """The offset of the sender's clock that the master used for the start instant."""
    known = [reading for when, reading in sender.readings().items() if when != "after"]
    offset = offset_at(known, max(reading.at_ns for reading in known)) if known else None
    return None if offset is None else offset.offset_ns


def latencies(rows: Sequence[Row]) -> list[CaptureLatency]:
    """The latency by captures of every row that has one, also of those that have a latency by stamps."""
    return [_capture_latency(row, row.capture.latency) for row in rows if row.capture.latency is not None]


def _capture_latency(row: Row, latency: Latency) -> CaptureLatency:
    return {
        "leg": row.leg.id,
        "frames": latency.frames,
        "min_ns": latency.min_ns,
        "mean_ns": latency.mean_ns,
        "p50_ns": latency.p50_ns,
        "p90_ns": latency.p90_ns,
        "p99_ns": latency.p99_ns,
        "p999_ns": latency.p999_ns,
        "max_ns": latency.max_ns,
        "negative": latency.negative,
        "bound_ns": row.capture.latency_bound_ns,
        "latest_ns": row.sent.max_lateness_ns,
    }


def describe(row: Row) -> str:
    """The latency by captures of a row without stamps, for the terminal; empty for others."""
    latency, bound_ns, lateness_ns = row.capture.latency, row.capture.latency_bound_ns, row.sent.max_lateness_ns
    if row.latency_by != "captures" or latency is None or lateness_ns is None or bound_ns is None:
        return ""
    points = (("p50", latency.p50_ns), ("p99", latency.p99_ns), ("maximum", latency.max_ns))
    times = ", ".join(f"{name} {value / 1e3:,.1f}" for name, value in points)
    path = f"{row.leg.stream}, {row.leg.source} → {row.leg.target}"
    return (
        f"{path}: latency {times} ± {bound_ns / 1e3:,.1f} µs "
        f"from due times to captures ({latency.frames:,} frames); the bound includes the frames' lateness of up to "
        f"{lateness_ns / 1e3:,.1f} µs"
    )
