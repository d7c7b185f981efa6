"""The verification of a replayed trace packet by packet: content, order within a flow, and time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.counting import routed
from pktswarm.traffic.leg import Gateway, Leg
from pktswarm.traffic.replay.files import frames_to_send
from pktswarm.traffic.replay.flows import Flow, flow_of
from pktswarm.traffic.replay.stamps import blanked
from pktswarm.traffic.schedule.trace import due_times

Integers = NDArray[np.int64]
MIN_WIRE_BYTES = 60
"""Shortest frame on a wire, without FCS: shorter ones are padded, and a capture can contain the padding."""


@dataclass(frozen=True)
class Intended:
    """The intended frames of all passes and instances in the order of their due times."""

    due_ns: Integers
    """Due times from the start instant."""
    content: Integers
    """Number of the frame's content; equal frames have one."""
    flow: Integers
    """Number of the flow's direction in the recording, distinct for each instance."""
    names: dict[bytes, int]
    """Digest of a frame → its content's number."""
    tuples: list[Flow]
    """The 5-tuple of each content."""
    stamped: int | None = None
    """The stream number in the stamps, whose sequence numbers and times do not count as content."""
    gateway: Gateway | None = None

    def number(self, frame: bytes) -> int:
        """Number of a frame's content; -1: no intended frame has it."""
        return self.names.get(digest(routed.as_captured(self.gateway, frame), self.stamped), -1)


@dataclass(frozen=True)
class Verified:
    """`captured` = as_intended + altered + duplicated; `intended` = as_intended + lost. Times in nanoseconds."""

    intended: int
    captured: int
    as_intended: int
    altered: int
    """Captured frames that equal no intended frame."""
    lost: int
    duplicated: int
    reordered: int
    """Frames that arrived after one of their flow with a later due time (RFC 4737, within a flow)."""
    error_p50_ns: int | None
    """Deviation of arrival − due time from its median; None: not timed."""
    error_p90_ns: int | None
    error_p99_ns: int | None
    error_max_ns: int | None

    @property
    def holds(self) -> bool:
        """Whether all received packets are as intended; `expect.loss` judges lost ones."""
        return not (self.altered or self.duplicated or self.reordered)

    def to_json(self) -> dict[str, int | None]:
        return asdict(self)

    def describe(self) -> str:
        text = f"{self.as_intended:,} of {self.intended:,} packets arrived as intended"
        odd = {"altered": self.altered, "lost": self.lost, "duplicated": self.duplicated}
        odd["reordered in their flow"] = self.reordered
        text += "".join(f", {count:,} {what}" for what, count in odd.items() if count)
        if self.error_p50_ns is None or self.error_p99_ns is None or self.error_max_ns is None:
            return text
        times = ", ".join(
            f"{name} {value / 1000:,.1f} µs"
            for name, value in (
                ("median", self.error_p50_ns),
                ("p99", self.error_p99_ns),
                ("maximum", self.error_max_ns),
            )
        )
        return f"{text}; deviation from their times: {times}"


def intended(legs: list[Leg], folder: Path) -> Intended:
    """The intended frames of a trace's legs that are counted together, from the files of their senders."""
    names: dict[bytes, int] = {}
    due: list[Integers] = []
    content: list[Integers] = []
    flow: list[Integers] = []
    tuples: list[Flow] = []
    flows, stamped = 0, stream_of(legs)
    for leg in legs:
        frames, order = frames_to_send(leg, folder)
        times, period_ns = due_times(frames.time_ns[order], frames.length[order], leg)
        arriving = (routed.as_received(leg.gateway, frames.frame(row)) for row in order.tolist())
        numbers = np.array([_name(frame, stamped, names, tuples) for frame in arriving], np.int64)
        count = leg.count_packets or len(order)
        passes = -(-count // len(order))
        starts = np.arange(passes) * period_ns + leg.timing.lead_ns
        due_ns = (starts[:, None] + times[None, :]).ravel()[:count]
        # Frames due after the scenario's duration are not intended.
        sent = slice(None) if leg.duration_s is None else due_ns < round(leg.duration_s * 1e9)
        due.append(due_ns[sent])
        content.append(np.tile(numbers, passes)[:count][sent])
        flow.append(np.tile(frames.flow[order] + flows, passes)[:count][sent])
        flows += int(frames.flow.max()) + 1
    whole = np.concatenate(due)
    rank = np.argsort(whole, kind="stable")
    content_of, flow_of_each = (np.concatenate(one)[rank] for one in (content, flow))
    return Intended(whole[rank], content_of, flow_of_each, names, tuples, stamped, legs[0].gateway)


def _name(frame: bytes, stamped: int | None, names: dict[bytes, int], tuples: list[Flow]) -> int:
    """The number of a frame's content, a new one for new content."""
    number = names.setdefault(digest(frame, stamped), len(names))
    if number == len(tuples):
        tuples.append(flow_of(frame))
    return number


def stream_of(legs: list[Leg]) -> int | None:
    """The stream number in the stamps of a trace's legs; None without stamps."""
    return legs[0].id if legs[0].stamped_packets is not None else None


def digest(frame: bytes, stamped: int | None = None) -> bytes:
    """Digest of a frame with its padding, which a capture on a veth lacks. `stamped`: the stream whose sequence numbers
    and times are left out."""
    frame = frame if stamped is None else blanked(frame, stamped)
    return hashlib.blake2b(frame.ljust(MIN_WIRE_BYTES, b"\0"), digest_size=16).digest()


@dataclass(frozen=True)
class Arrivals:
    """The captured frames of a trace's legs, in the order of capture."""

    times_ns: Integers
    """Times of arrival in UTC."""
    content: Integers
    """Number of the content; -1: no intended frame has it."""
    place: Integers
    """Place in Intended of the frame that it is matched with; -1: none."""
    tuples: list[Flow]

    def delays_ns(self, wanted: Intended) -> Integers:
        """Arrival − due time of the frames of contents without loss and duplication, which are matched without
        doubt."""
        known = self.content[self.content >= 0]
        size = len(wanted.names)
        whole = np.bincount(known, minlength=size) == np.bincount(wanted.content, minlength=size)
        sure = (self.place >= 0) & whole[self.content]
        return np.asarray(self.times_ns[sure] - wanted.due_ns[self.place[sure]])


def arrivals(wanted: Intended, captured: Iterable[Packet], clocked: bool = True) -> Arrivals:
    """`captured`: the frames of these legs in the order of capture. Not `clocked`: their clock was set during the
    run."""
    numbered = [(packet.time_ns, wanted.number(packet.data), packet) for packet in captured]
    times = np.array([time for time, _, _ in numbered], np.int64)
    content = np.array([number for _, number, _ in numbered], np.int64)
    tuples = [wanted.tuples[number] if number >= 0 else flow_of(packet.data) for _, number, packet in numbered]
    return Arrivals(times, content, _matched(wanted, times if clocked else None, content), tuples)


def verify(wanted: Intended, captured: Iterable[Packet], timed: bool = True) -> Verified:
    """`captured`: the frames of these legs in the order of capture."""
    return verified(wanted, arrivals(wanted, captured), timed)


def verified(wanted: Intended, arrived: Arrivals, timed: bool = True) -> Verified:
    times, content, place = arrived.times_ns, arrived.content, arrived.place
    known, matched = content >= 0, place >= 0
    errors = times[matched] - wanted.due_ns[place[matched]] if timed else np.zeros(0, np.int64)
    spread = np.sort(np.abs(errors - _median(errors))) if len(errors) else errors
    points = [int(spread[min(len(spread) - 1, int(len(spread) * part))]) if len(spread) else None
              for part in (0.5, 0.9, 0.99, 1.0)]  # fmt: skip
    received = int(np.count_nonzero(matched))
    return Verified(
        len(wanted.due_ns), len(content), received, int(np.count_nonzero(~known)), len(wanted.due_ns) - received,
        int(np.count_nonzero(known & ~matched)), _reordered(wanted.flow, place[matched]), *points,
    )  # fmt: skip


def _median(values: Integers) -> int:
    """The median as an integer: NumPy's is a float, which cannot hold UTC in nanoseconds."""
    return int(np.partition(values, len(values) // 2)[len(values) // 2])


def _matched(wanted: Intended, times: Integers | None, content: Integers) -> Integers:
    """The place in `wanted` of each captured frame, -1 for none. Equal frames are matched by the nearest time, in
    order; without times by the last frame before them that is matched without doubt."""
    place = np.full(len(content), -1, np.int64)
    expected = np.argsort(wanted.content, kind="stable")
    bounds = np.searchsorted(wanted.content[expected], np.arange(len(wanted.names) + 1))
    arrived = np.argsort(content, kind="stable")
    starts = np.searchsorted(content[arrived], np.arange(len(wanted.names) + 1))
    several = []
    for number in range(len(wanted.names)):
        due = expected[bounds[number] : bounds[number + 1]]
        came = arrived[starts[number] : starts[number + 1]]
        if len(due) == len(came):
            place[came] = due
        elif len(came):
            several.append((due, came))
    done = place >= 0
    if times is None:
        times, offset = _due_of_the_last(wanted.due_ns, place), 0 if done.any() else None
    else:
        offset = _median(times[done] - wanted.due_ns[place[done]]) if done.any() else None
    for due, came in several:
        _match_equal(wanted.due_ns, times, due, came, offset, place)
    return place


def _due_of_the_last(due_ns: Integers, place: Integers) -> Integers:
    """For each frame the due time of the last matched frame up to it; 0 before the first."""
    last = np.maximum.accumulate(np.where(place >= 0, np.arange(len(place)), -1))
    return np.where(last >= 0, due_ns[place[last]], 0)


def _match_equal(
    due_ns: Integers, times: Integers, due: Integers, came: Integers, offset: int | None, place: Integers
) -> None:
    """Matches equal frames of which some are lost or duplicated: each with the nearest free due time."""
    first = 0
    for row in came.tolist():
        if first >= len(due):
            return
        nearest = first
        if offset is not None:
            free = np.abs(due_ns[due[first:]] + offset - times[row])
            nearest = first + int(free.argmin())
            # Leave enough due times for the frames that follow.
            left = int(np.count_nonzero(came >= row))
            nearest = max(first, min(nearest, len(due) - left)) if left <= len(due) - first else nearest
        place[row], first = due[nearest], nearest + 1


def _reordered(flow: Integers, place: Integers) -> int:
    """Number of reordered frames. `place`: the places of the frames in the order of arrival."""
    if not len(place):
        return 0
    flows = flow[place]
    by_flow = np.argsort(flows, kind="stable")
    count = 0
    edges = np.flatnonzero(np.diff(flows[by_flow], prepend=-1)).tolist()
    for start, stop in zip(edges, [*edges[1:], len(place)], strict=True):
        mine = place[by_flow[start:stop]]
        count += int(np.count_nonzero(mine < np.maximum.accumulate(mine)))
    return count
