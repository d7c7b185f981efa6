"""The MPI ranks of a run: rank 0 is the master, each other rank is one role of one host."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role


@dataclass(frozen=True)
class Rank:
    """One MPI process: `number` in COMM_WORLD, one role of one host."""

    number: int
    host: Host
    role: Role

    @property
    def place(self) -> tuple[str, Role]:
        return self.host.name, self.role


def ranks(inventory: Inventory, legs: tuple[Leg, ...]) -> list[Rank]:
    """One rank for each (host, role) that has work, transmitters first; rank 0 is the master's and not among them."""
    busy: dict[Role, set[str]] = {
        "transmit": {leg.transmitter for leg in legs},
        "receive": {name for leg in legs for name in leg.receivers},
    }
    return _numbered(inventory, busy)


def all_ranks(inventory: Inventory) -> list[Rank]:
    """One rank for each role of each host, in the order of ranks()."""
    roles: tuple[Role, ...] = ("transmit", "receive")
    return _numbered(inventory, {role: {host.name for host in inventory.with_role(role)} for role in roles})


def _numbered(inventory: Inventory, busy: dict[Role, set[str]]) -> list[Rank]:
    pairs = [(host, role) for role, names in busy.items() for host in inventory.hosts if host.name in names]
    return [Rank(number, host, role) for number, (host, role) in enumerate(pairs, start=1)]
