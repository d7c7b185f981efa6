"""The flows of section `connections`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pktswarm.master.plan.sources import connection_items
from pktswarm.master.scenario.connection import Connection
from pktswarm.traffic.leg import ConnectionShape, Leg


def connection_legs(
    connection: Connection, path: Path, key: str, pairs: list[tuple[str, str]], first_id: int, seed: int
) -> list[Leg]:
    """A leg for each pair. Each pair has all connections and blocks of the scenario; they are not divided."""
    shape = ConnectionShape(
        protocol=connection.protocol,
        connections=connection.connections,
        direction=connection.direction,
        block_bytes=connection.block_bytes,
        period_ns=None if connection.period_s is None else round(connection.period_s * 1e9),
        blocks=connection.blocks,
        duration_ns=None if connection.duration_s is None else round(connection.duration_s * 1e9),
        pace_bps=connection.pace_bps,
        congestion=connection.congestion,
        nodelay=connection.nodelay,
        send_buffer_bytes=connection.send_buffer_bytes,
        background=connection.background,
    )
    made = []
    for number, (source, target) in enumerate(pairs):
        own = shape
        if connection.source is not None:
            own = replace(shape, items=connection_items(connection, number, path, key, seed))
        made.append(Leg(first_id + number, connection.name, source, target, "connections", "socket", connection=own))
    return made
