"""A leg whose users move (Leg.also_at) comes to several nodes: what each of them counted, put together in one row.

Lost is what came to none of them, by the marks of their sequence numbers (traffic.counting.sequence_bitmap). A number
that came to more
than one is a duplicate; whose it is nobody knows, so of single users their lost packets are then a lower bound.
Reordered is what each node saw by itself: there is no order between two of them. The same holds for jitter, which is
not told at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from pktswarm.master.results.row import Row, stream_values
from pktswarm.traffic.counting import sequence_bitmap
from pktswarm.traffic.counting.tally import PERCENTILES, Latency, Tally
from pktswarm.traffic.counting.users import COLUMNS

PART_COLUMNS = [
    *("received_packets", "received_frames", "duplicated_packets", "reordered_packets", "altered_packets"),
    "received_bytes",
    *("latency_min_ns", "latency_mean_ns", "latency_p50_ns", "latency_p90_ns", "latency_p99_ns", "latency_p999_ns"),
    *("latency_max_ns", "latency_bound_ns", "first_ns", "last_ns"),
]


def put_together(row: Row, parts: dict[str, Row]) -> None:
    """Into the leg's row; what one of its receivers did not tell is not known. `parts`: host → what it counted."""
    row.parts = {host: parts[host] for host in row.leg.receivers if host in parts}
    if set(row.parts) != set(row.leg.receivers):
        return
    each = list(row.parts.values())
    row.received = _sum(one.received for one in each)
    row.received_bytes = _sum(one.received_bytes for one in each)
    row.received_frames = _frames(each)
    row.missed = sum(one.missed for one in each)
    row.first_ns = min((one.first_ns for one in each if one.first_ns is not None), default=None)
    row.last_ns = max((one.last_ns for one in each if one.last_ns is not None), default=None)
    row.omitted_timing += [why for one in each for why in one.omitted_timing]
    row.clock_bound_ns = _most(one.clock_bound_ns for one in each if one.received)
    row.tally = _tally(row, each)
    if row.users is not None:
        row.users.take_received(_users(each), stamped=row.tally is not None)
        row.users.timed = all(one.users is None or one.users.timed for one in each)


def document(row: Row) -> dict[str, Any]:
    """For run.json: what each node counted."""
    if not row.parts:
        return {}
    values = {host: stream_values(part) for host, part in row.parts.items()}
    return {"each": [{"to": host} | {name: one.get(name) for name in PART_COLUMNS} for host, one in values.items()]}


def notes(rows: Iterable[Row]) -> list[str]:
    return [
        f"{row.leg.stream} from {row.leg.source}: {row.at_several:,} packets came to more than one gNB; they count as "
        "duplicates, and of single users no more than a part of what was lost may be told"
        for row in rows
        if row.at_several
    ]


def _tally(row: Row, each: Sequence[Row]) -> Tally | None:
    """Its times are of several clocks, and left out."""
    tallies = [one.tally for one in each if one.tally is not None]
    marked = [sequence_bitmap.unpack(one.marks) for one in each if one.marks is not None]
    if len(tallies) < len(each) or len(marked) < len(each):
        return None
    distinct = reduce(or_, marked).bit_count()
    row.at_several = sum(one.bit_count() for one in marked) - distinct
    return Tally(
        packets=sum(one.packets for one in tallies),
        bytes=sum(one.bytes for one in tallies),
        distinct=distinct,
        duplicated=row.at_several + sum(one.duplicated or 0 for one in tallies),
        reordered=sum(one.reordered or 0 for one in tallies),
        too_late=sum(one.too_late or 0 for one in tallies),
        invalid_sequence=sum(one.invalid_sequence or 0 for one in tallies),
        damaged=sum(one.damaged for one in tallies),
        impossible=sum(one.impossible for one in tallies),
        altered=sum(one.altered or 0 for one in tallies),
        altered_by=_by_cause(tallies),
        highest=max((one.highest for one in tallies if one.highest is not None), default=None),
        latency=_latency([one for one in each if one.received]),
    )


def _by_cause(tallies: Sequence[Tally]) -> dict[str, int]:
    causes = dict.fromkeys(cause for one in tallies for cause in one.altered_by or {})
    return {cause: sum((one.altered_by or {}).get(cause, 0) for one in tallies) for cause in causes}


def _latency(each: Sequence[Row]) -> Latency | None:
    """Of all their frames; None where one of them has no clock to go by."""
    known = [one.tally.latency for one in each if one.tally is not None and one.tally.latency is not None]
    if not known or len(known) < len(each):
        return None
    frames = sum(one.frames for one in known)
    points = sorted((ns + _shift_ns(one), count) for one in each for ns, count in one.delays or [])
    return Latency(
        frames=frames,
        min_ns=min(one.min_ns for one in known),
        mean_ns=sum(one.mean_ns * one.frames for one in known) / frames,
        max_ns=max(one.max_ns for one in known),
        negative=sum(one.negative for one in known),
        **{f"{name}_ns": _nearest_rank(points, part) for name, part in PERCENTILES.items()},
    )


def _shift_ns(one: Row) -> int:
    """What its clock, read again after the run, adds to its latencies."""
    return 0 if one.users is None else one.users.shift_ns


def _nearest_rank(points: Sequence[tuple[int, int]], part: float) -> int:
    """As traffic.counting.tally.percentile."""
    wanted, seen = max(1, math.ceil(part * sum(count for _, count in points))), 0
    for ns, count in points:
        seen += count
        if seen >= wanted:
            return ns
    raise ValueError("an empty histogram has no percentiles")


def _users(each: Sequence[Row]) -> dict[str, list[int]] | None:
    """traffic.counting.users.COLUMNS of all of them, latencies by each one's clock as it was read after the run."""
    given = [one.users for one in each if one.users is not None and one.users.received is not None]
    if len(given) < len(each):
        return None
    columns = [{name: np.array((one.received or {})[name], np.int64) for name in COLUMNS} for one in given]
    for one, column in zip(given, columns, strict=True):
        timed = column["latencies"] > 0
        column["latency_sum_ns"] += one.shift_ns * column["latencies"]
        column["latency_min_ns"] = np.where(timed, column["latency_min_ns"] + one.shift_ns, np.iinfo(np.int64).max)
        column["latency_max_ns"] = np.where(timed, column["latency_max_ns"] + one.shift_ns, np.iinfo(np.int64).min)
    ways: dict[str, Any] = {"latency_min_ns": np.minimum.reduce, "latency_max_ns": np.maximum.reduce}
    return {name: ways.get(name, np.add.reduce)([one[name] for one in columns]).tolist() for name in COLUMNS}


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(one or 0 for one in known)


def _frames(each: Sequence[Row]) -> int | None:
    """None where no packet came in fragments; a node where none did had as many frames as packets."""
    if all(one.received_frames is None for one in each):
        return None
    return _sum(one.received if one.received_frames is None else one.received_frames for one in each)


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max((one or 0 for one in known), default=None)
