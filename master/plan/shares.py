"""Share of a trace that one node sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.counting import users
from pktswarm.traffic.leg import FlowUsers
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay.prepare import Prepared
from pktswarm.traffic.replay.table import SOURCE_SERVER, TARGET_SERVER

MOST_USERS = 1 << 16
"""Limit of the users of a trace that are counted individually."""


@dataclass(frozen=True)
class Share:
    """The part of a trace that one transmitter sends: rows of `prepared` in the order of sending."""

    prepared: Prepared
    rows: NDArray[np.int64]
    downlink: bool = False
    """Sent by the node of the servers to the node of the users."""

    @property
    def frame_bytes(self) -> int:
        return int(self.prepared.frame_bytes[self.rows].sum())

    def users(self) -> FlowUsers | None:
        """Leg.users: users of a pool, identified by one address of each packet; None if they are not counted."""
        found = {name: (pool, need) for name, pool, need in self.prepared.pools}
        by = {"up": "src_ip", "down": "dst_ip", "both": "dst_ip" if self.downlink else "src_ip"}
        way = by.get(self.prepared.settings.direction)
        if "users" not in found or way is None or found["users"][1] > MOST_USERS:
            return None
        pool, need = found["users"]
        return users.of_addresses(way, pool.first, need)

    def by_user(self, repeat: int) -> tuple[list[int], list[int]] | None:
        """(packets, bytes with FCS) to or from each user in all passes and instances, in the order of Leg.users; None
        if some packets belong to no user (IPv6, or between two servers)."""
        prepared, leg_users = self.prepared, self.users()
        if leg_users is None:
            return None
        columns = prepared.pieces.columns.take(self.rows)
        not_users = SOURCE_SERVER if leg_users.by == "src_ip" else TARGET_SERVER
        if (prepared.table.ends[columns.pair] & not_users).any() or (columns.version == 6).any():
            return None
        packets, size_bytes = np.zeros((2, leg_users.count), np.int64)
        for instance in range(prepared.settings.instances.count):
            user = prepared.table.user[columns.pair] + prepared.shift(instance).user
            np.add.at(packets, user, repeat)
            np.add.at(size_bytes, user, repeat * (prepared.frame_bytes[self.rows] + FCS_BYTES))
        return packets.tolist(), size_bytes.tolist()
