"""What was captured of a trace, by its receivers or elsewhere, against what was intended: packet by packet where asked
for, flow by flow, and as latency."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.cluster.clock_offsets import offset_at
from pktswarm.master.plan import interactive
from pktswarm.master.results.recount import captured_packets, captures_of, run_json, together
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.counting.tally import PERCENTILES, Latency
from pktswarm.traffic.counting.trace_verify import Verified, arrivals, intended, verified
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, leg_from_json
from pktswarm.traffic.replay import flows
from pktswarm.traffic.replay.flows import FlowCount

if TYPE_CHECKING:
    from pktswarm.master.cluster.node import NodeState
    from pktswarm.master.results.row import Row

MOST_CAPTURED_BYTES = 1 << 30
FLOW_COLUMNS = [
    *("stream", "from", "to", *flows.COLUMNS, "intended_packets", "sent_packets", "received_packets"),
    *("lost_packets", "lost_by"),
]


@dataclass(frozen=True)
class Compared:
    """A row of the run: its captured frames beside those intended."""

    leg: Leg
    verified: Verified | None
    """None: not asked for."""
    flows: list[FlowCount]
    delays_ns: NDArray[np.int64] | None
    """Arrival (UTC of the receiver) − due time (from the start); None: nothing has a due time."""

    def agrees(self, row: Row) -> bool:
        """Whether the capture that came to the master has what the run counted."""
        return row.received == sum(each.received for each in self.flows)


def compare(
    folder: Path,
    legs: list[Leg],
    receives: dict[str, ReceiveTask],
    asked: set[str],
    notes: list[str],
    untimed: Collection[str] = (),
) -> list[Compared]:
    """Of all traces that were captured whole. `receives`: host → its task; `asked`: the traces to verify; `untimed`:
    hosts whose UTC was set meanwhile. Captures that are very large are left alone unless that is asked for, and
    `notes` are told."""
    groups = together(legs)
    found = []
    for host, task in receives.items():
        framed = [leg for leg in task.legs if leg.kind != "connections" and leg.engine != interactive.ENGINE]
        mine = [leg for leg in framed if leg.kind == "trace"]
        whole = task.mode == "capture" and task.capture_every == 1 and not task.capture_filter
        if not mine or not whole:
            continue
        captures = captures_of(folder, host)
        size = sum(path.stat().st_size for path in captures)
        must = bool(asked & {leg.stream for leg in mine})
        if size > MOST_CAPTURED_BYTES and not must:
            notes.append(f"{host} captured {size / 1e9:.1f} GB: no loss by flow and no latency is made of so much")
            continue
        try:
            packets, _ = captured_packets(captures, framed, {leg.id for leg in mine})
        except BadInput as error:
            if must:
                raise
            notes.append(f"no loss by flow and no latency by captures: {error}")
            continue
        found += [
            _compared(folder, groups[leg.id], packets[leg.id], leg.stream in asked, host not in untimed) for leg in mine
        ]
    return found


def elsewhere(folder: Path, capture: Path) -> list[Compared]:
    """Of a run's traces, what `capture` has: one made by other means, as at a switch's mirror port.

    One result for each row of the run whose packets are in it. Raises BadInput where there are none.
    """
    document = run_json(folder)
    legs = [leg_from_json(data) for data in document["legs"] if data["kind"] != "connections"]
    groups = together(legs)
    packets, unmatched = captured_packets([capture], [leg for leg in legs if leg.merged_into is None])
    # An interactive trace has no times of its own to hold it to, and a UPF changes the frames of one of sessions.
    changed = {one["name"] for one in document["scenario"]["traces"] if one.get("sessions")}
    traces = [leg for leg in legs if leg.kind == "trace" and leg.engine != interactive.ENGINE]
    traces = [leg for leg in traces if leg.stream not in changed]
    found = [_compared(folder, groups[leg.id], packets[leg.id], True) for leg in traces if packets.get(leg.id)]
    if not found:
        problem = f"has no packet of a trace of {folder} that arrives as it was sent"
        raise BadInput(capture, problem, value=f"{unmatched} other packets")
    return found


def _compared(folder: Path, legs: list[Leg], captured: list[Packet], asked: bool, timed: bool = True) -> Compared:
    """`legs`: those of one row; `asked`: packet by packet too; `timed`: whether the times of the capture tell."""
    wanted = intended(legs, folder / "sent")
    arrived = arrivals(wanted, captured, timed)
    timed = timed and legs[0].timing.mode != "top"
    result = verified(wanted, arrived, timed) if asked else None
    sent = (wanted.tuples[number] for number in wanted.content.tolist())
    delays_ns = arrived.delays_ns(wanted) if timed else None
    return Compared(legs[0], result, flows.count(sent, arrived.tuples), delays_ns)


def verdicts(results: Sequence[Compared]) -> list[dict[str, Any]]:
    """As master.results.verdicts's."""
    return [_verdict(one, one.verified) for one in results if one.verified is not None]


def _verdict(one: Compared, found: Verified) -> dict[str, Any]:
    path, words = f"{one.leg.stream} from {one.leg.source}", found.describe()
    parts = {"what": f"{path}: packet by packet", "found": words, "expected": "none altered, twice or out of order"}
    return {"text": f"{path}: {words}", "holds": found.holds, **parts}


def document(results: Sequence[Compared]) -> list[dict[str, Any]]:
    return [
        {
            "leg": one.leg.id,
            "stream": one.leg.stream,
            "from": one.leg.source,
            "to": one.leg.target,
            **one.verified.to_json(),
        }
        for one in results
        if one.verified is not None
    ]


def _row(one: Compared, rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.leg.id == one.leg.id)


def trouble(results: Sequence[Compared], rows: Sequence[Row]) -> list[str]:
    """Captures that cannot be whole: nothing is made of them."""
    told = []
    for one in results:
        row, captured = _row(one, rows), sum(each.received for each in one.flows)
        if not one.agrees(row):
            path = f"{one.leg.stream}, {one.leg.source} → {one.leg.target}"
            told.append(f"{path}: the run counted {row.received} packets, the capture has {captured}: no loss by flow")
    return told


def flow_rows(results: Sequence[Compared], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """FLOW_COLUMNS. What was sent of each flow is known where all that was intended was sent."""
    found = []
    for one in results:
        row = _row(one, rows)
        if not one.agrees(row):
            continue
        whole = row.sent is not None and row.sent == sum(each.intended for each in one.flows)
        for each in one.flows:
            sent = each.intended if whole else None
            ends = {"stream": one.leg.stream, "from": one.leg.source, "to": one.leg.target, **each.flow.values()}
            counts = {"intended_packets": each.intended, "sent_packets": sent, "received_packets": each.received}
            lost = None if sent is None else sent - each.received
            found.append({**ends, **counts, "lost_packets": lost, "lost_by": None if lost is None else "difference"})
    return found


# --- latency by matching captures -----------------------------------------------------------------------------------


def latency(
    one: Compared, row: Row, sender: NodeState, receiver: NodeState, start_ns: int, at_ns: int
) -> tuple[Latency, int] | None:
    """From due time to capture, and how far off that may be: the clocks' bounds, what the receiver's UTC moved against
    its monotonic clock, and how late a frame left at most. `at_ns`: the middle of the sending, on the master's clock.

    None where a clock was not read, or the sender does not tell how late its frames left.
    """
    here, there, began = receiver.offset_at(at_ns), sender.offset_at(at_ns), _told_start(sender)
    utc = [clock.realtime_minus_monotonic_ns for clock in receiver.clock.values()]
    if one.delays_ns is None or not len(one.delays_ns) or row.latest_ns is None or not utc:
        return None
    if here is None or there is None or began is None:
        return None
    # A frame due d ns after the start left at start + began + d of the sender's clock, and arrived at some UTC of the
    # receiver's: both on the master's clock.
    middle = (min(utc) + max(utc)) // 2
    delays_ns = np.sort(one.delays_ns - middle - here.offset_ns - start_ns - began + there.offset_ns)
    bound_ns = here.bound_ns + there.bound_ns + row.latest_ns + -(-(max(utc) - min(utc)) // 2)
    points = {f"{name}_ns": int(delays_ns[_rank(len(delays_ns), part)]) for name, part in PERCENTILES.items()}
    ends = {"min_ns": int(delays_ns[0]), "mean_ns": float(delays_ns.mean()), "max_ns": int(delays_ns[-1])}
    return Latency(len(delays_ns), **ends, **points), bound_ns  # type: ignore[arg-type]


def _rank(count: int, part: float) -> int:
    """The nearest rank, from 0."""
    return max(1, int(np.ceil(part * count))) - 1


def _told_start(sender: NodeState) -> int | None:
    """What the master took the sender's clock to be ahead of its own by when it told it the start."""
    known = [reading for when, reading in sender.readings().items() if when != "after"]
    told = offset_at(known, max(one.at_ns for one in known)) if known else None
    return None if told is None else told.offset_ns


def latencies(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of every row that has one by captures, beside that by stamps, if it has that too."""
    return [
        {"leg": row.leg.id, **asdict(row.matched), "bound_ns": row.matched_bound_ns, "latest_ns": row.latest_ns}
        for row in rows
        if row.matched is not None
    ]


def describe(row: Row) -> str:
    """What the latency of a row is that no stamp tells; empty for others."""
    if row.latency_by != "captures" or row.matched is None or row.latest_ns is None or row.matched_bound_ns is None:
        return ""
    one = row.matched
    points = (("p50", one.p50_ns), ("p99", one.p99_ns), ("max", one.max_ns))
    times = ", ".join(f"{name} {value / 1e3:,.1f}" for name, value in points)
    path = f"{row.leg.stream}, {row.leg.source} → {row.leg.target}"
    return (
        f"{path}: latency {times} ± {row.matched_bound_ns / 1e3:,.1f} us "
        f"from matching captures ({one.frames:,} frames): sent is when each was due, left up to "
        f"{row.latest_ns / 1e3:,.1f} us later, which is in the bound"
    )
