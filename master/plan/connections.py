"""The flows of section `connections`."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.plan.sources import connection_items
from pktswarm.master.scenario.connection import Connection
from pktswarm.traffic.leg import Leg


def connection_legs(
    connection: Connection, path: Path, key: str, pairs: list[tuple[str, str]], first_id: int, seed: int
) -> list[Leg]:
    """Every pair has the connections and the blocks that the scenario names: they are no shares."""
    names = "protocol connections direction block_bytes blocks pace_bps congestion nodelay send_buffer_bytes background"
    shape = {name: getattr(connection, name) for name in names.split()}
    shape["period_ns"] = None if connection.period_s is None else round(connection.period_s * 1e9)
    shape["duration_ns"] = None if connection.duration_s is None else round(connection.duration_s * 1e9)
    made = []
    for number, (source, target) in enumerate(pairs):
        leg = Leg(first_id + number, connection.name, source, target, "connections", "socket", connection=dict(shape))
        if connection.source is not None:
            leg.connection["items"] = connection_items(connection, number, path, key, seed)
        made.append(leg)
    return made
