"""The choice of packets to replay (by pcap filter, time window and direction) and of their node."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay.numbering import Numbering
from pktswarm.traffic.replay.parse import Columns, Parsed
from pktswarm.traffic.replay.table import DOWN, UP, Table

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
NS_PER_S = 1_000_000_000
WIRE_OVERHEAD_BYTES = 24
"""FCS, preamble and interframe gap: the overhead of a packet on the wire."""


def kept(parsed: Parsed, rows: Flags, why: str) -> Parsed:
    """Keeps these rows; the others are counted under `why`. Renumbers pairs and channels."""
    gone = int(np.count_nonzero(~rows))
    if not gone:
        return parsed
    columns = parsed.columns.take(rows)
    pairs, channels = Numbering(), Numbering()
    pair, channel = pairs.of(columns.pair), channels.of(columns.channel)
    old_pairs, old_channels = pairs.values().tolist(), channels.values().tolist()
    number = {old: new for new, old in enumerate(old_pairs)}
    return replace(
        parsed,
        columns=replace(columns, pair=pair, channel=channel),
        pairs=[parsed.pairs[old] for old in old_pairs],
        # A later fragment has the channel of the first one, with the same pair.
        channels=[(number[parsed.channels[old][0]], *parsed.channels[old][1:]) for old in old_channels],
        left_out=parsed.left_out + Counter({why: gone}),
    )


def filtered(parsed: Parsed, expression: str, where: object, key: str) -> Parsed:
    """Applies a filter. BadInput with libpcap's message for an invalid one, and for one that no packet passes."""
    program = pcap.compile_ethernet(expression, where, key)
    columns = parsed.columns
    rows = pcap.matches(program, columns.data, columns.start, columns.captured, columns.length)
    if not rows.any():
        raise BadInput(where, f"no packet of {parsed.path} passes the filter", key=key, value=expression)
    return kept(parsed, rows, "that the filter does not pass")


def within(parsed: Parsed, from_s: float, to_s: float | None, where: object, key: str) -> Parsed:
    """The packets from `from_s` up to, but without, `to_s` after the earliest one."""
    times = parsed.columns.time_ns - parsed.columns.time_ns.min()
    rows = times >= round(from_s * NS_PER_S)
    if to_s is not None:
        rows &= times < round(to_s * NS_PER_S)
    if not rows.any():
        last_s = float(times.max()) / NS_PER_S
        value = f"{from_s:g} to {'the end' if to_s is None else f'{to_s:g}'} s"
        raise BadInput(where, "no packet in this window", key=key, value=value, allowed=f"0 to {last_s:.6f} s")
    return kept(parsed, rows, "outside the window")


def replayable(parsed: Parsed, table: Table) -> Parsed:
    """The packets without the pairs that the table excludes."""
    for why in dict.fromkeys(table.excluded.values()):
        bad = [pair for pair, reason in table.excluded.items() if reason == why]
        parsed = replace(
            parsed, left_out=parsed.left_out + Counter({why: int(np.isin(parsed.columns.pair, bad).sum())})
        )
    if table.excluded:
        rows = ~np.isin(parsed.columns.pair, list(table.excluded))
        parsed = replace(parsed, columns=parsed.columns.take(rows))
    return parsed


def one_way(columns: Columns, table: Table, direction: str) -> Flags:
    """The rows of direction up or down; all rows for any other value."""
    way = table.direction[columns.pair]
    if direction in ("up", "down"):
        return np.asarray(way == (UP if direction == "up" else DOWN))
    return np.ones(len(columns), np.bool_)


# --- among nodes -----------------------------------------------------------------------------------------------------


def shares(group: Integers, frame_bytes: Integers, nodes: int) -> Integers:
    """The node of each packet: groups (flows or users) stay together, and nodes have nearly equal load.

    Groups are assigned in descending size to the node with the least load (the first of equals), so the result is
    deterministic. With fewer groups than nodes some nodes get none.
    """
    if nodes == 1:
        return np.zeros(len(group), np.int64)
    loads = np.bincount(group.astype(np.intp), weights=frame_bytes + WIRE_OVERHEAD_BYTES).astype(np.int64)
    totals, chosen = [0] * nodes, np.zeros(len(loads), np.int64)
    for item in np.argsort(-loads, kind="stable").tolist():
        chosen[item] = totals.index(min(totals))
        totals[int(chosen[item])] += int(loads[item])
    return chosen[group]


def flows(parsed: Parsed) -> Integers:
    """The number of each packet's flow: both channels of a 5-tuple are one."""
    numbers: dict[object, int] = {}
    of_channel = np.zeros(max(1, len(parsed.channels)), np.int64)
    for index, (pair, protocol, sport, dport) in enumerate(parsed.channels):
        source, target = parsed.pairs[pair]
        key = frozenset(((source, sport), (target, dport))), protocol
        of_channel[index] = numbers.setdefault(key, len(numbers))
    return of_channel[parsed.columns.channel]
