"""Addresses for users, where the SMF leaves the choice to the UPF."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.lab.upf.ie import Cause, Ie, Refused
from pktswarm.lab.upf.session import Key


@dataclass
class Pool:
    """Yields free addresses, keys of `table`. Raises Refused when all are in use."""

    table: str
    first: int
    count: int
    size_bytes: int
    next: int = 0

    def take(self, owners: dict[Key, int]) -> bytes:
        for _ in range(self.count):
            address = (self.first + self.next).to_bytes(self.size_bytes, "big")
            self.next = (self.next + 1) % self.count
            if (self.table, address) not in owners:
                return address
        raise Refused(Cause.ADDRESSES_OCCUPIED, Ie.UE_IP_ADDRESS)
