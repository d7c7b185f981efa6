"""Servers of the data network: a pool of addresses, divided among the nodes that play them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from pydantic import Field, model_validator

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.scenario.fields import Strict
from pktswarm.master.scenario.upf_pools import USER_PREFIX, Pool
from pktswarm.traffic.errors import BadInput

Address = IPv4Address | IPv6Address
MOST_SERVERS = 4096
KINDS = ("ipv4", "ipv6")


class Servers(Strict):
    first: str | list[str] = Field(description="an IPv4 or an IPv6 address, or one of each")
    count: int = Field(ge=1, le=MOST_SERVERS, strict=True)

    @model_validator(mode="after")
    def _ranges(self) -> Servers:
        found = self.addresses()
        if not found or len({one.version for one in found}) < len(found):
            raise ValueError(f"servers: first is an IPv4 address, an IPv6 address or one of each, not {self.first}")
        for one in found:
            width = 32 if one.version == 4 else 64
            if (int(one) + self.count - 1) >> width != int(one) >> width:
                end = "0.0.0.0/0" if one.version == 4 else "a /64"
                raise ValueError(f"servers: {self.count} addresses from {one} on do not end within {end}")
        return self

    def addresses(self) -> list[Address]:
        """First address of each IP version. Raises ValueError for an invalid address."""
        return [ip_address(one) for one in ([self.first] if isinstance(self.first, str) else self.first)]

    def meets(self, pool: Pool, users: int) -> bool:
        """Whether a server has the address of one of the first `users` users of a pool."""
        step = 0 if pool.version == 4 else USER_PREFIX
        for one in self.addresses():
            first, last = int(one) >> step, (int(one) + self.count - 1) >> step
            if one.version == pool.version and first < pool.first + users and pool.first <= last:
                return True
        return False

    def check(self, where: Path, inventory: Inventory, others: Mapping[str, str]) -> None:
        """Raise BadInput for a server address in use elsewhere, or for fewer addresses than hosts of the data network.

        `others`: owner → address, in addition to the inventory.
        """
        core = _core(inventory)
        if self.count < len(core):
            problem = f"each host of side n6 in {inventory.path} serves some of them"
            raise BadInput(where, problem, key="upf.servers.count", value=self.count, allowed=f"{len(core)} or more")
        given = inventory.variables.get("pktswarm_upf") or {}
        taken = [(f"the UPF on {side.upper()}", given.get(f"{side}_{ip}")) for side in ("n3", "n6") for ip in KINDS]
        taken += [(host.name, getattr(host, ip)) for host in inventory.hosts for ip in KINDS]
        for name, address in [*taken, *others.items()]:
            if address and self._has(ip_address(address)):
                problem = f"{name} has {address}, which is one of the {self.count} server addresses"
                raise BadInput(where, problem, key="upf.servers.first", value=str(self.first))

    def _has(self, address: Address) -> bool:
        return any(
            one.version == address.version and 0 <= int(address) - int(one) < self.count for one in self.addresses()
        )

    def of(self, host: str, ip: str, inventory: Inventory) -> tuple[Address, int] | None:
        """(first address, count) of the servers that a host of the data network plays: consecutive parts of the pool,
        those of the first hosts one longer. None: no servers of that IP version ("ipv4", "ipv6")."""
        core = [one.name for one in _core(inventory)]
        first = next((one for one in self.addresses() if ip == f"ipv{one.version}"), None)
        if first is None:
            return None
        begin, end = (_share(self.count, len(core), core.index(host) + more) for more in (0, 1))
        return first + begin, end - begin


def _share(count: int, parts: int, part: int) -> int:
    """Index of the first server of a part."""
    return count // parts * part + min(part, count % parts)


def _core(inventory: Inventory) -> Sequence[Host]:
    return [host for host in inventory.hosts if host.side == "n6"]


def played(servers: tuple[Address, int] | None) -> list[str]:
    return [] if servers is None else [str(servers[0] + number) for number in range(servers[1])]
