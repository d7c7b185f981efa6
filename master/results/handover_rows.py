"""Merges the counts of a flow whose users move between receivers (Leg.handover_targets) into one row.

A packet is lost if no receiver has its sequence number (traffic.counting.sequence_bitmap). A number at more than one
receiver is a duplicate. Its user is unknown: the lost packets of single users are then a lower bound. Reordering is
counted at each receiver and summed: there is no order between two receivers. For the same reason jitter is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Literal

import numpy as np

from pktswarm.master.results.document_rows import LatencyColumns, ReceiverPart
from pktswarm.master.results.latency_histogram import nearest_rank
from pktswarm.master.results.row import ReceivedCounts, ReceiverCounts, Row
from pktswarm.master.results.streams_csv import latency_values
from pktswarm.traffic.counting import sequence_bitmap
from pktswarm.traffic.counting.tally import PERCENTILES, Latency, Tally
from pktswarm.traffic.counting.users import COLUMNS


def merge(row: Row, counts: dict[str, ReceiverCounts]) -> None:
    """Sums `counts` (host → its counts) into the flow's row. A figure that one receiver did not report stays None."""
    row.handover.receivers = {host: counts[host] for host in row.leg.receivers if host in counts}
    if set(row.handover.receivers) != set(row.leg.receivers):
        return
    receivers = list(row.handover.receivers.values())
    each = [receiver.received for receiver in receivers]
    row.handover.duplicated, tally = _tally(receivers)
    row.received = ReceivedCounts(
        packets=_sum(received.packets for received in each),
        bytes=_sum(received.bytes for received in each),
        frames=_frames(each),
        missed=sum(received.missed for received in each),
        tally=tally,
        delays=_delays(receivers) if tally is not None and tally.latency is not None else None,
        latency_bound_ns=_most(received.latency_bound_ns for received in each if received.packets),
        first_ns=min((received.first_ns for received in each if received.first_ns is not None), default=None),
        last_ns=max((received.last_ns for received in each if received.last_ns is not None), default=None),
        timed_every=max(received.timed_every for received in each),
        omitted_timing=[why for received in each for why in received.omitted_timing],
    )
    if row.users is not None:
        row.users.take_received(_users(receivers), stamped=tally is not None)
        row.users.timed = all(receiver.users.timed for receiver in receivers)


def document(row: Row) -> dict[Literal["each"], list[ReceiverPart]]:
    """The counts of each receiver, for run.json; empty for a flow with one receiver."""
    receivers = row.handover.receivers
    return {"each": [_document(host, counts.received) for host, counts in receivers.items()]} if receivers else {}


def _document(host: str, received: ReceivedCounts) -> ReceiverPart:
    tally, latency = received.tally, received.latency
    values: LatencyColumns = {} if latency is None else latency_values(latency, received.latency_bound_ns)
    return {
        "to": host,
        "received_packets": received.packets,
        "received_frames": received.frames,
        "duplicated_packets": None if tally is None else tally.duplicated,
        "reordered_packets": None if tally is None else tally.reordered,
        "altered_packets": None if tally is None else tally.altered,
        "received_bytes": received.bytes,
        "latency_min_ns": values.get("latency_min_ns"),
        "latency_mean_ns": values.get("latency_mean_ns"),
        "latency_p50_ns": values.get("latency_p50_ns"),
        "latency_p90_ns": values.get("latency_p90_ns"),
        "latency_p99_ns": values.get("latency_p99_ns"),
        "latency_p999_ns": values.get("latency_p999_ns"),
        "latency_max_ns": values.get("latency_max_ns"),
        "latency_bound_ns": values.get("latency_bound_ns"),
        "first_ns": received.first_ns,
        "last_ns": received.last_ns,
    }


def notes(rows: Iterable[Row]) -> list[str]:
    """A note for each flow with packets that arrived at more than one receiver."""
    return [
        f"{row.leg.stream} from {row.leg.source}: {row.handover.duplicated:,} packets arrived at more than one gNB and "
        "count as duplicates; the lost packets of single users are a lower bound"
        for row in rows
        if row.handover.duplicated
    ]


def _tally(receivers: Sequence[ReceiverCounts]) -> tuple[int, Tally | None]:
    """The packets that arrived at more than one receiver, and the sums of all receivers, without jitter."""
    tallies = [receiver.received.tally for receiver in receivers if receiver.received.tally is not None]
    bitmaps = [sequence_bitmap.unpack(receiver.marks) for receiver in receivers if receiver.marks is not None]
    if len(tallies) < len(receivers) or len(bitmaps) < len(receivers):
        return 0, None
    distinct = reduce(or_, bitmaps).bit_count()
    duplicated = sum(bitmap.bit_count() for bitmap in bitmaps) - distinct
    return duplicated, Tally(
        packets=sum(tally.packets for tally in tallies),
        bytes=sum(tally.bytes for tally in tallies),
        distinct=distinct,
        duplicated=duplicated + sum(tally.duplicated or 0 for tally in tallies),
        reordered=sum(tally.reordered or 0 for tally in tallies),
        too_late=sum(tally.too_late or 0 for tally in tallies),
        invalid_sequence=sum(tally.invalid_sequence or 0 for tally in tallies),
        damaged=sum(tally.damaged for tally in tallies),
        impossible=sum(tally.impossible for tally in tallies),
        altered=sum(tally.altered or 0 for tally in tallies),
        altered_by=_by_cause(tallies),
        highest=max((tally.highest for tally in tallies if tally.highest is not None), default=None),
        latency=_latency([receiver for receiver in receivers if receiver.received.packets]),
    )


def _by_cause(tallies: Sequence[Tally]) -> dict[str, int]:
    causes = dict.fromkeys(cause for tally in tallies for cause in tally.altered_by or {})
    return {cause: sum((tally.altered_by or {}).get(cause, 0) for tally in tallies) for cause in causes}


def _latency(receivers: Sequence[ReceiverCounts]) -> Latency | None:
    """Latency over the frames of all receivers; None where one has no clock reading."""
    known = [receiver.received.latency for receiver in receivers if receiver.received.latency is not None]
    if not known or len(known) < len(receivers):
        return None
    frames = sum(latency.frames for latency in known)
    points = _delays(receivers)
    return Latency(
        frames=frames,
        min_ns=min(latency.min_ns for latency in known),
        mean_ns=sum(latency.mean_ns * latency.frames for latency in known) / frames,
        max_ns=max(latency.max_ns for latency in known),
        negative=sum(latency.negative for latency in known),
        **{f"{name}_ns": nearest_rank(points, share) for name, share in PERCENTILES.items()},
    )


def _delays(receivers: Sequence[ReceiverCounts]) -> list[tuple[int, int]]:
    return sorted(point for receiver in receivers for point in receiver.received.delays or [])


def _users(receivers: Sequence[ReceiverCounts]) -> dict[str, list[int]] | None:
    """traffic.counting.users.COLUMNS over all receivers, with latencies corrected by each receiver's clock."""
    counted = [receiver.users for receiver in receivers if receiver.users.received is not None]
    if len(counted) < len(receivers):
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


def _frames(each: Sequence[ReceivedCounts]) -> int | None:
    """None where no packet arrived in fragments. A receiver without fragments has one frame for each packet."""
    if all(received.frames is None for received in each):
        return None
    return _sum(received.packets if received.frames is None else received.frames for received in each)


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max((value or 0 for value in known), default=None)
