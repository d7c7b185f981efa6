"""A trial: a run at a load, and the reason why its counts may not measure the device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.metric_verdicts import of_limits
from pktswarm.master.results.row import Row
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.scenario.expectations import Limits
from pktswarm.traffic.errors import EXIT_INCOMPLETE
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

UNSENT_RATIO = 0.001
"""Share of the intended packets that may stay unsent."""
LEAST_SLACK_S = 0.01
"""Least tolerance of the duration of sending, for scheduling delays."""
GAPS = 10
"""Further tolerance towards a shorter duration, in gaps: the last packet leaves at least one gap before the end."""
HELD_UP_RATIO = 0.5
"""Deviation from the duration of sending, as a share of it: below it a node was held up, above it is at its limit."""
OWN_QUEUE = 1.5
"""Least queueing delay, in terms of the largest lateness of a sender, that the lateness cannot have caused."""
OWN_LIMIT = "this is a limit of the tester, not of the device: use a lower rate or more transmitters"


@dataclass(frozen=True)
class Trial:
    """The counts of a trial, summed over the searched streams; None: not measured.

    `problem`: why the counts do not measure the device. `l2_bps` and `l1_bps`: the intended load in bits/s of frames
    with FCS, and with preamble and gap, for the mean size of the sent frames.
    """

    intended_pps: float
    duration_s: float
    intended_packets: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None
    lost_packets: int | None = None
    sending_s: float | None = None
    l2_bps: float | None = None
    l1_bps: float | None = None
    took_s: float = 0.0
    results: str = ""
    """The results folder of the run, inside that of the benchmark."""
    problem: str = ""
    held_up: bool = False
    """Whether the problem is a disturbance of a node, which a repeated trial can avoid."""
    not_held: tuple[str, ...] = ()
    """The further limits that were not met, with the figures in their place."""
    latency_rise_ns_per_s: float | None = None
    """The rise of the latency throughout the trial (benchmark.latency_trend): a queue fills. 0.0: none."""
    queue_delay_ns: int | None = None
    """The largest less the smallest latency, of the flow where it is largest."""

    @property
    def loss_ratio(self) -> float | None:
        return None if self.lost_packets is None or not self.sent_packets else self.lost_packets / self.sent_packets


@dataclass(frozen=True)
class Tolerance:
    """The allowed deviations of a trial from its plan.

    `load`: deviation of the load, as a share of it. `least_s`: least allowed deviation of the duration of sending, and
    of the lateness of a packet. `losses`: the loss ratios that the trial decides on. `figures`: whether the loss or the
    latency of the trial is a result itself. `limits`: further limits of each stream.
    """

    load: float
    least_s: float = LEAST_SLACK_S
    losses: tuple[float, ...] = (0.0,)
    figures: bool = False
    limits: Limits | None = None


def trial_of(
    load_pps: float,
    duration_s: float,
    names: set[str],
    tolerance: Tolerance,
    outcome: Outcome,
    results: Path,
    took_s: float,
) -> Trial:
    """Evaluate a run as a trial. `names`: the searched streams."""
    rows = [row for row in outcome.rows if row.leg.stream in names]
    sent, lost = _sum([row.sent.packets for row in rows]), _sum([row.lost for row in rows])
    l2_bps, l1_bps = _bits(load_pps, rows, sent)
    problem, held_up = _problem(outcome, rows), False
    if not problem:
        problem, held_up = _out_of_pace(rows, duration_s, tolerance)
    if not problem:
        problem = _uneven(rows, tolerance)
        held_up = bool(problem)
    return Trial(
        intended_pps=load_pps,
        duration_s=duration_s,
        intended_packets=_sum([row.intended for row in rows]),
        sent_packets=sent,
        received_packets=_sum([row.received.packets for row in rows]),
        lost_packets=lost,
        sending_s=max((row.sent.seconds for row in rows if row.sent.seconds is not None), default=None),
        l2_bps=l2_bps,
        l1_bps=l1_bps,
        took_s=took_s,
        results=str(results),
        problem=problem,
        held_up=held_up,
        not_held=() if problem or tolerance.limits is None else _not_held(tolerance.limits, rows),
        queue_delay_ns=_queue_delay_ns(rows),
    )


def _queue_delay_ns(rows: list[Row]) -> int | None:
    flows = [row.received.latency for row in rows if row.received.latency is not None]
    return max((flow.max_ns - flow.min_ns for flow in flows), default=None)


def _not_held(limits: Limits, rows: list[Row]) -> tuple[str, ...]:
    """The limits that were not met, were not measured, or are undecided."""
    verdicts = []
    for name in dict.fromkeys(row.leg.stream for row in rows):
        verdicts += of_limits(name, limits, [stream_values(row) for row in rows if row.leg.stream == name])
    return tuple(verdict["text"] for verdict in verdicts if not verdict["holds"])


def _sum(values: list[int | None]) -> int | None:
    return None if not values or None in values else sum(value or 0 for value in values)


def _bits(load_pps: float, rows: list[Row], sent: int | None) -> tuple[float | None, float | None]:
    size_bytes = _sum([row.sent.bytes for row in rows])
    if not sent or size_bytes is None:
        return None, None
    frames = sum(row.sent.frames or row.sent.packets or 0 for row in rows)
    l1_bytes = size_bytes + frames * ETHERNET_OVERHEAD_BYTES
    return 8 * load_pps * size_bytes / sent, 8 * load_pps * l1_bytes / sent


def _problem(outcome: Outcome, rows: list[Row]) -> str:
    """Why the counts of a run do not measure the device; empty: they do."""
    # The status of a run with a doubt is EXIT_INCOMPLETE too.
    if outcome.status == EXIT_INCOMPLETE:
        return outcome.reason
    sent, intended = _sum([row.sent.packets for row in rows]), _sum([row.intended for row in rows])
    received, lost = _sum([row.received.packets for row in rows]), _sum([row.lost for row in rows])
    if sent is None or intended is None or received is None or lost is None:
        return "the run has no counts of sent, received and lost packets"
    if abs(sent - intended) > UNSENT_RATIO * intended:
        return f"{sent:,} packets were sent and {intended:,} intended; {OWN_LIMIT}"
    if lost < 0 or any((row.lost or 0) < 0 for row in rows):
        return "more packets were received than sent, so that the loss is unknown"
    return ""


def _out_of_pace(rows: list[Row], duration_s: float, tolerance: Tolerance) -> tuple[str, bool]:
    """The node with the largest deviation from the duration of sending, and whether it was held up."""
    row = max(rows, key=lambda row: _off_pace_s(row, duration_s))
    off_s = _off_pace_s(row, duration_s)
    if off_s <= max(tolerance.load * duration_s, tolerance.least_s):
        return "", False
    held_up = off_s < HELD_UP_RATIO * duration_s
    problem = f"{row.leg.source} sent {row.leg.stream} in {row.sent.seconds:.3f} s instead of {duration_s:.3f} s"
    return problem + ("" if held_up else f"; {OWN_LIMIT}"), held_up


def _off_pace_s(row: Row, duration_s: float) -> float:
    """Deviation from the duration of sending: the same packets in another time are another load."""
    if row.sent.seconds is None or not row.intended:
        return 0.0
    gaps_s = (GAPS + int(row.leg.options.get("burst", 1))) * duration_s / row.intended
    return max(row.sent.seconds - duration_s, duration_s - gaps_s - row.sent.seconds, 0.0)


def _uneven(rows: list[Row], tolerance: Tolerance) -> str:
    """The problem of a node that was held up while it sent, and then sent the due packets in one burst.

    The burst is another load: as many packets as were late may be lost by it, and others are delayed. Only engines with
    due times report late packets. A sender is behind its schedule by the largest lateness at most, so a device
    that forwards the load never delays a packet by more: a longer delay is the device's own queue, and so is its loss.
    """
    row = max(rows, key=lambda row: row.sent.max_lateness_ns or 0)
    latest_s, late = (row.sent.max_lateness_ns or 0) / 1e9, sum(row.sent.late or 0 for row in rows)
    sent, lost = sum(row.sent.packets or 0 for row in rows), sum(row.lost or 0 for row in rows)
    own_queue = (_queue_delay_ns(rows) or 0) > OWN_QUEUE * (row.sent.max_lateness_ns or 0)
    decides = not own_queue and any(lost - late <= share * sent < lost for share in tolerance.losses)
    shows = tolerance.figures and late > tolerance.load * sent
    if latest_s <= tolerance.least_s or not (decides or shows):
        return ""
    flows = [flow for flow in rows if flow.leg.stream == row.leg.stream]
    late, sent = sum(flow.sent.late or 0 for flow in flows), sum(flow.sent.packets or 0 for flow in flows)
    lost = sum(flow.lost or 0 for flow in flows)
    return (
        f"{row.leg.source} was held up for up to {latest_s:.3f} s while it sent {row.leg.stream}: {late:,} of {sent:,} "
        f"packets of this stream were sent late, and {lost:,} of them were lost"
    )
