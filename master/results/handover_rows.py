"""Merges the counts of a flow whose users move between receivers (Leg.handover_targets) into one row.

A packet is lost if no receiver has its sequence number (traffic.counting.sequence_bitmap). A number at more than one
receiver is a duplicate. Its user is unknown: the lost packets of single users are then a lower bound. Reordering is
counted at each receiver and summed: there is no order between two receivers. For the same reason jitter is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Literal

import numpy as np

from pktswarm.master.results.document_rows import ReceiverPart
from pktswarm.master.results.row import Row, stream_values
from pktswarm.traffic.counting import sequence_bitmap
from pktswarm.traffic.counting.tally import PERCENTILES, Latency, Tally
from pktswarm.traffic.counting.users import COLUMNS


def merge(row: Row, parts: dict[str, Row]) -> None:
    """Sums `parts` (host → its counts) into the flow's row. A figure that one receiver did not report stays None."""
    row.parts = {host: parts[host] for host in row.leg.receivers if host in parts}
    if set(row.parts) != set(row.leg.receivers):
        return
    each = list(row.parts.values())
    row.received = _sum(part.received for part in each)
    row.received_bytes = _sum(part.received_bytes for part in each)
    row.received_frames = _frames(each)
    row.missed = sum(part.missed for part in each)
    row.first_ns = min((part.first_ns for part in each if part.first_ns is not None), default=None)
    row.last_ns = max((part.last_ns for part in each if part.last_ns is not None), default=None)
    row.omitted_timing += [why for part in each for why in part.omitted_timing]
    row.clock_bound_ns = _most(part.clock_bound_ns for part in each if part.received)
    row.tally = _tally(row, each)
    if row.users is not None:
        row.users.take_received(_users(each), stamped=row.tally is not None)
        row.users.timed = all(part.users is None or part.users.timed for part in each)


def document(row: Row) -> dict[Literal["each"], list[ReceiverPart]]:
    """The counts of each receiver, for run.json; empty for a flow with one receiver."""
    return {"each": [_part(host, part) for host, part in row.parts.items()]} if row.parts else {}


def _part(host: str, part: Row) -> ReceiverPart:
    values = stream_values(part)
    return {
        "to": host,
        "received_packets": values["received_packets"],
        "received_frames": values["received_frames"],
        "duplicated_packets": values.get("duplicated_packets"),
        "reordered_packets": values.get("reordered_packets"),
        "altered_packets": values.get("altered_packets"),
        "received_bytes": values["received_bytes"],
        "latency_min_ns": values.get("latency_min_ns"),
        "latency_mean_ns": values.get("latency_mean_ns"),
        "latency_p50_ns": values.get("latency_p50_ns"),
        "latency_p90_ns": values.get("latency_p90_ns"),
        "latency_p99_ns": values.get("latency_p99_ns"),
        "latency_p999_ns": values.get("latency_p999_ns"),
        "latency_max_ns": values.get("latency_max_ns"),
        "latency_bound_ns": values.get("latency_bound_ns"),
        "first_ns": values["first_ns"],
        "last_ns": values["last_ns"],
    }


def notes(rows: Iterable[Row]) -> list[str]:
    return [
        f"{row.leg.stream} from {row.leg.source}: {row.at_several:,} packets arrived at more than one gNB and count as "
        "duplicates; the lost packets of single users are a lower bound"
        for row in rows
        if row.at_several
    ]


def _tally(row: Row, each: Sequence[Row]) -> Tally | None:
    """The sums of all receivers, without jitter."""
    tallies = [part.tally for part in each if part.tally is not None]
    bitmaps = [sequence_bitmap.unpack(part.marks) for part in each if part.marks is not None]
    if len(tallies) < len(each) or len(bitmaps) < len(each):
        return None
    distinct = reduce(or_, bitmaps).bit_count()
    row.at_several = sum(bitmap.bit_count() for bitmap in bitmaps) - distinct
    return Tally(
        packets=sum(tally.packets for tally in tallies),
        bytes=sum(tally.bytes for tally in tallies),
        distinct=distinct,
        duplicated=row.at_several + sum(tally.duplicated or 0 for tally in tallies),
        reordered=sum(tally.reordered or 0 for tally in tallies),
        too_late=sum(tally.too_late or 0 for tally in tallies),
        invalid_sequence=sum(tally.invalid_sequence or 0 for tally in tallies),
        damaged=sum(tally.damaged for tally in tallies),
        impossible=sum(tally.impossible for tally in tallies),
        altered=sum(tally.altered or 0 for tally in tallies),
        altered_by=_by_cause(tallies),
        highest=max((tally.highest for tally in tallies if tally.highest is not None), default=None),
        latency=_latency([part for part in each if part.received]),
    )


def _by_cause(tallies: Sequence[Tally]) -> dict[str, int]:
    causes = dict.fromkeys(cause for tally in tallies for cause in tally.altered_by or {})
    return {cause: sum((tally.altered_by or {}).get(cause, 0) for tally in tallies) for cause in causes}


def _latency(each: Sequence[Row]) -> Latency | None:
    """Latency over the frames of all receivers; None where one has no clock reading."""
    known = [part.tally.latency for part in each if part.tally is not None and part.tally.latency is not None]
    if not known or len(known) < len(each):
        return None
    frames = sum(latency.frames for latency in known)
    points = sorted((ns + _shift_ns(part), count) for part in each for ns, count in part.delays or [])
    return Latency(
        frames=frames,
        min_ns=min(latency.min_ns for latency in known),
        mean_ns=sum(latency.mean_ns * latency.frames for latency in known) / frames,
        max_ns=max(latency.max_ns for latency in known),
        negative=sum(latency.negative for latency in known),
        **{f"{name}_ns": _nearest_rank(points, share) for name, share in PERCENTILES.items()},
    )


def _shift_ns(part: Row) -> int:
    """Correction of a receiver's latencies by the clock readings after the run."""
    return 0 if part.users is None else part.users.shift_ns


def _nearest_rank(points: Sequence[tuple[int, int]], share: float) -> int:
    """The percentile of (latency, frames), as traffic.counting.tally.percentile."""
    wanted, seen = max(1, math.ceil(share * sum(count for _, count in points))), 0
    for ns, count in points:
        seen += count
        if seen >= wanted:
            return ns
    raise ValueError("an empty histogram has no percentiles")


def _users(each: Sequence[Row]) -> dict[str, list[int]] | None:
    """traffic.counting.users.COLUMNS over all receivers, with latencies corrected by each receiver's clock."""
    counted = [part.users for part in each if part.users is not None and part.users.received is not None]
    if len(counted) < len(each):
        return None
    columns = [{name: np.array((users.received or {})[name], np.int64) for name in COLUMNS} for users in counted]
    for users, column in zip(counted, columns, strict=True):
        timed = column["latencies"] > 0
        column["latency_sum_ns"] += users.shift_ns * column["latencies"]
        column["latency_min_ns"] = np.where(timed, column["latency_min_ns"] + users.shift_ns, np.iinfo(np.int64).max)
        column["latency_max_ns"] = np.where(timed, column["latency_max_ns"] + users.shift_ns, np.iinfo(np.int64).min)
    reduce_by = {"latency_min_ns": np.minimum, "latency_max_ns": np.maximum}
    return {name: reduce_by.get(name, np.add).reduce([column[name] for column in columns]).tolist() for name in COLUMNS}


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _frames(each: Sequence[Row]) -> int | None:
    """None where no packet arrived in fragments. A receiver without fragments has one frame for each packet."""
    if all(part.received_frames is None for part in each):
        return None
    return _sum(part.received if part.received_frames is None else part.received_frames for part in each)


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max((value or 0 for value in known), default=None)
