"""The flows of section `traces`: a flow for each instance of a share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.plan.shares import Share
from pktswarm.master.scenario.trace import Trace
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import AddressPool, Leg, RandomStart, Timing
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay import timing
from pktswarm.traffic.replay.prepare import Prepared, Settings, share_rows
from pktswarm.traffic.replay.table import Pool


def trace_legs(
    trace: Trace, prepared: Prepared, pairs: list[tuple[str, str]], first_id: int
) -> tuple[list[Leg], dict[int, Share], list[str]]:
    legs: list[Leg] = []
    shares: dict[int, Share] = {}
    notes: list[str] = []
    for (source, target), directions in zip(pairs, share_rows(prepared, len(pairs)), strict=True):
        if not any(len(rows) for rows in directions.values()):
            group = "users" if prepared.settings.split == "user" else "flows"
            notes.append(f"{trace.name}: {source} sends nothing, the trace has fewer {group} than transmitters")
        for direction, rows in directions.items():
            if not len(rows):
                continue
            # A single direction goes from `from` to `to`; with direction `both` the downlink goes the other way.
            both = prepared.settings.direction == "both" or prepared.settings.behind_upf
            downlink = direction == "down" and both
            share = Share(prepared, rows, downlink)
            ends = (target, source) if downlink else (source, target)
            made = _instances(trace, share, ends, first_id + len(legs))
            legs += made
            shares |= {leg.id: share for leg in made}
    return legs, shares, notes


def _instances(trace: Trace, share: Share, ends: tuple[str, str], first_id: int) -> list[Leg]:
    """A leg for each instance. Instances share the file of the first one and are counted with it."""
    prepared = share.prepared
    packets = len(share.rows) * trace.repeat
    size_bytes = int(prepared.frame_bytes[share.rows].max()) + FCS_BYTES
    return [
        Leg(
            id=first_id + number,
            stream=trace.name,
            source=ends[0],
            target=ends[1],
            kind="trace",
            engine=trace.engine,
            repeat=trace.repeat,
            size_bytes=size_bytes,
            count_packets=packets,
            intended_packets=packets,
            timing=_timing(share, number),
            shift=prepared.shift(number),
            pools=_pools(prepared),
            stamped_packets=_stamped(trace, share),
            merged_into=first_id if number else None,
            users=None if number else share.users(),
            options=trace.options,
        )
        for number in range(prepared.settings.instances.count)
    ]


def _stamped(trace: Trace, share: Share) -> int | None:
    if not trace.stamped:
        return None
    instances = share.prepared.settings.instances.count
    return int(np.count_nonzero(share.prepared.stamp[share.rows])) * trace.repeat * instances


def _pools(prepared: Prepared) -> dict[str, AddressPool]:
    settings, table = prepared.settings, prepared.table
    given = (("users", settings.users, table.users), ("servers", settings.servers, table.servers))
    return {name: pool.to_data(len(used)) for name, pool, used in given if pool is not None}


def _timing(share: Share, instance: int) -> Timing:
    """Timing of a node's share: the rate applies to the whole trace, and each node sends its part of it.

    At the trace's own timing, `lead_ns` is when the share's first packet is due after the common start, `period_ns`
    from one pass of the whole trace to the next; both in time as replayed.
    """
    due, settings = share.prepared.due, share.prepared.settings
    if due.mode == "top":
        return Timing("top")
    if due.mode in ("pps", "bps"):
        whole = share.prepared.frame_bytes
        part = len(share.rows) / len(whole) if due.mode == "pps" else share.frame_bytes / int(whole.sum())
        return Timing(due.mode, due.value * part)
    times, random = due.time_ns[share.rows], None
    instances = settings.instances
    if instances.start == "random" and instance:
        width = instances.offset_ns or timing.mean_gap_ns(due.time_ns)
        random = RandomStart(instance, width, instances.seed)
        times = due_times(share, random)
    lead = round(int(times[0]) / due.value)
    lead += timing.lead_ns(instance, instances.count, due.period_ns, instances.start)
    return Timing(due.mode, due.value, lead, due.period_ns, random)


def due_times(share: Share, random: RandomStart | None) -> NDArray[np.int64]:
    """Due times of the packets of an instance in the order of sending, at the recorded speed."""
    times = share.prepared.due.time_ns[share.rows]
    if random is None:
        return times
    channel = share.prepared.channel[share.rows]
    return timing.random_times(times, channel, random.instance, random.width_ns, random.seed)[1]


def check_pools_apart(traces: list[Prepared]) -> None:
    """Raise BadInput for an address in the pools of two traces, or of the users and the servers of traces."""
    taken: list[tuple[Settings, str, Pool, int]] = []
    for one in traces:
        for name, pool, need in one.pools:
            for settings, other, theirs, count in taken:
                if settings is not one.settings and pool.overlaps(need, theirs, count):
                    problem = f"overlaps {settings.key}.{other}, {count} addresses from {theirs.name}"
                    raise BadInput(settings.where, problem, key=f"{one.settings.key}.{name}.first", value=pool.name)
            taken.append((one.settings, name, pool, need))
