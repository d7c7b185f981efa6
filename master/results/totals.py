"""Sums over flows: by stream, by group and by node. A sum with an unmeasured part is None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pktswarm.master.results.document_rows import GroupTotal, NodeTotal, PacketSums, StreamRow, StreamTotal
from pktswarm.master.results.row import Row


def totals(rows: Sequence[Row]) -> list[StreamTotal]:
    """One for each stream, and the last over all."""
    names = list(dict.fromkeys(row.leg.stream for row in rows))
    streams = [(name, [row for row in rows if row.leg.stream == name]) for name in names]
    return [{"stream": name, **_row_sums(part)} for name, part in [*streams, ("total", rows)]]


def group_totals(rows: Sequence[Row]) -> list[GroupTotal]:
    """One for the targets and one for the background; empty unless there are both."""
    names = sorted({row.leg.group for row in rows}, reverse=True)
    if len(names) < 2:
        return []
    return [{"group": name, **_row_sums([row for row in rows if row.leg.group == name])} for name in names]


def node_totals(rows: Iterable[StreamRow]) -> list[NodeTotal]:
    """One for each transmitter over the flows it sends, and one for each receiver over those sent to it."""
    flows: dict[tuple[str, str], list[StreamRow]] = {}
    for row in rows:
        flows.setdefault(("transmit", row["from"]), []).append(row)
        flows.setdefault(("receive", row["to"]), []).append(row)
    ordered = sorted(flows.items(), key=lambda item: (item[0][0] != "transmit", item[0][1]))
    return [{"node": node, "role": role, **_column_sums(those)} for (role, node), those in ordered]


def _row_sums(rows: Sequence[Row]) -> PacketSums:
    return _sums(
        _add([row.intended for row in rows]),
        _add([row.sent.packets for row in rows]),
        _add([row.received.packets for row in rows]),
        _add([row.lost for row in rows]),
    )


def _column_sums(rows: Sequence[StreamRow]) -> PacketSums:
    return _sums(
        _add([row.get("intended_packets") for row in rows]),
        _add([row.get("sent_packets") for row in rows]),
        _add([row.get("received_packets") for row in rows]),
        _add([row.get("lost_packets") for row in rows]),
    )


def _sums(intended: int | None, sent: int | None, received: int | None, lost: int | None) -> PacketSums:
    return {
        "intended_packets": intended,
        "sent_packets": sent,
        "received_packets": received,
        "lost_packets": lost,
        "k": received / intended if received is not None and intended else None,
        "k_sender": sent / intended if sent is not None and intended else None,
    }


def _add(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
