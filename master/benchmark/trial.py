"""One trial of a search: a run at a load, and why it may say nothing about the device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.limits import of_limits
from pktswarm.master.results.row import Row, stream_values
from pktswarm.master.scenario.expectations import Limits
from pktswarm.traffic.errors import EXIT_INCOMPLETE
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

UNSENT_RATIO = 0.001
"""Of the intended packets; a tester that leaves more unsent did not send the load."""
LEAST_SLACK_S = 0.01
"""By how much a trial's sending may be longer or shorter than intended at the least: a processor was elsewhere."""
GAPS = 10
"""Shorter by so many gaps too: the last packet leaves one gap before the end, at random arrivals some more."""

HELD_UP_RATIO = 0.5
"""A node whose sending was off by less of its time may have been held up for once; by more it is at its limit."""
OWN_LIMIT = "this is the tester's limit, not the device's: give a lower --max, or more transmitters"


@dataclass(frozen=True)
class Trial:
    """Counts are of the searched streams together; None was not measured. `problem`: why it is none of the device's.

    `l2_bps` and `l1_bps`: the intended load in bits of frames with FCS, and with preamble and gap, by the frames' mean
    size as they were sent.
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
    """The folder of the run, inside that of the search."""
    problem: str = ""
    held_up: bool = False
    """The problem is a node's pace, and may be gone when it is tried again."""
    not_held: tuple[str, ...] = ()
    """Of the limits that were asked for beside the loss: what was found in place of each."""

    @property
    def loss_ratio(self) -> float | None:
        return None if self.lost_packets is None or not self.sent_packets else self.lost_packets / self.sent_packets


@dataclass(frozen=True)
class Tolerance:
    """What a trial may differ by from what was intended.

    `load`: how far its load may be off, as a share of it (the precision asked); `least_s`: how much longer or shorter
    its sending may be, or how late a packet, where the share is less; `losses`: it decides whether no more than these
    shares of what was sent are lost; `figures`: its loss or its times are taken as they are. `limits`: what else has to
    hold, of each stream.
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
    """`names`: the searched streams."""
    rows = [row for row in outcome.rows if row.leg.stream in names]
    sent, lost = _sum([row.sent for row in rows]), _sum([row.lost for row in rows])
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
        received_packets=_sum([row.received for row in rows]),
        lost_packets=lost,
        sending_s=max((row.seconds for row in rows if row.seconds is not None), default=None),
        l2_bps=l2_bps,
        l1_bps=l1_bps,
        took_s=took_s,
        results=str(results),
        problem=problem,
        held_up=held_up,
        not_held=() if problem or tolerance.limits is None else _not_held(tolerance.limits, rows),
    )


def _not_held(limits: Limits, rows: list[Row]) -> tuple[str, ...]:
    """What was not decided or not measured is none that held."""
    told = []
    for name in dict.fromkeys(row.leg.stream for row in rows):
        told += of_limits(name, limits, [stream_values(row) for row in rows if row.leg.stream == name])
    return tuple(one["text"] for one in told if not one["holds"])


def _sum(values: list[int | None]) -> int | None:
    return None if not values or None in values else sum(value or 0 for value in values)


def _bits(load_pps: float, rows: list[Row], sent: int | None) -> tuple[float | None, float | None]:
    size_bytes = _sum([row.sent_bytes for row in rows])
    if not sent or size_bytes is None:
        return None, None
    frames = sum(row.sent_frames or row.sent or 0 for row in rows)
    l1_bytes = size_bytes + frames * ETHERNET_OVERHEAD_BYTES
    return 8 * load_pps * size_bytes / sent, 8 * load_pps * l1_bytes / sent


def _problem(outcome: Outcome, rows: list[Row]) -> str:
    """Empty where its counts tell of the device."""
    # A run with a doubt ends so too.
    if outcome.status == EXIT_INCOMPLETE:
        return outcome.reason
    sent, intended = _sum([row.sent for row in rows]), _sum([row.intended for row in rows])
    received, lost = _sum([row.received for row in rows]), _sum([row.lost for row in rows])
    if sent is None or intended is None or received is None or lost is None:
        return "the run has no counts of what was sent, received and lost"
    if abs(sent - intended) > UNSENT_RATIO * intended:
        return f"{sent:,} packets were sent where {intended:,} were intended; {OWN_LIMIT}"
    if lost < 0 or any((row.lost or 0) < 0 for row in rows):
        return "more was received than sent, so that the loss is not known"
    return ""


def _out_of_pace(rows: list[Row], duration_s: float, tolerance: Tolerance) -> tuple[str, bool]:
    """Whose sending took longer, or less long, and whether it may have been held up for once."""
    row = max(rows, key=lambda row: _off_pace_s(row, duration_s))
    off_s = _off_pace_s(row, duration_s)
    if off_s <= max(tolerance.load * duration_s, tolerance.least_s):
        return "", False
    held_up = off_s < HELD_UP_RATIO * duration_s
    words = f"{row.leg.source} took {row.seconds:.3f} s in place of {duration_s:.3f} s to send {row.leg.stream}"
    return words + ("" if held_up else f"; {OWN_LIMIT}"), held_up


def _off_pace_s(row: Row, duration_s: float) -> float:
    """By how much the sending was longer or shorter than intended: all packets in another time are another load."""
    if row.seconds is None or not row.intended:
        return 0.0
    gaps_s = (GAPS + int(row.leg.options.get("burst", 1))) * duration_s / row.intended
    return max(row.seconds - duration_s, duration_s - gaps_s - row.seconds, 0.0)


def _uneven(rows: list[Row], tolerance: Tolerance) -> str:
    """A node that was held up in the midst of its time sends what was due meanwhile all at once, which is another load:
    as many as were late may be lost by that, and others wait for them. Of engines that have due times."""
    row = max(rows, key=lambda row: row.latest_ns or 0)
    latest_s, late = (row.latest_ns or 0) / 1e9, sum(row.late or 0 for row in rows)
    sent, lost = sum(row.sent or 0 for row in rows), sum(row.lost or 0 for row in rows)
    decides = any(lost - late <= share * sent < lost for share in tolerance.losses)
    shows = tolerance.figures and late > tolerance.load * sent
    if latest_s <= tolerance.least_s or not (decides or shows):
        return ""
    return (
        f"{row.leg.source} was held up for up to {latest_s:.3f} s while it sent {row.leg.stream}, so that {late:,} "
        f"packets left late and together; {lost:,} were lost"
    )
