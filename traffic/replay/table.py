"""The reference table of a trace: its addresses as users (UE) and servers (PDN), and their new addresses.

After Hrustic 2022, section 3.3 and Listing 3. The unit is the pair of addresses, to which packets refer by number.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import AddressPool
from pktswarm.traffic.replay.parse import ACK, SYN, Parsed

Role = Literal["user", "server"]
UP, DOWN = 0, 1
SOURCE_SERVER, TARGET_SERVER = 1, 2
IPV6_PREFIX = "fd00::"
LAST_IPV4 = 2**32 - 1


@dataclass(frozen=True)
class Pool:
    """Addresses that replace those of the trace, from `first` on. IPv6 addresses are `prefix6` with the same last
    bits."""

    first: int
    count: int | None = None
    """Number of addresses; None: as many as needed."""
    prefix6: int = int(ipaddress.IPv6Address(IPV6_PREFIX))

    @property
    def name(self) -> str:
        return str(ipaddress.IPv4Address(self.first))

    def address(self, number: int, version: int) -> bytes:
        value = self.first + number
        return value.to_bytes(4, "big") if version == 4 else (self.prefix6 | value).to_bytes(16, "big")

    def overlaps(self, need: int, other: Pool, other_need: int) -> bool:
        return self.first < other.first + other_need and other.first < self.first + need

    def to_data(self, count: int) -> AddressPool:
        return AddressPool(self.name, count, str(ipaddress.IPv6Address(self.prefix6)))


def pool(first: str, count: int | None = None, prefix6: str = IPV6_PREFIX) -> Pool:
    """ValueError for an invalid address, or a prefix with any of its last 32 bits set."""
    prefix = int(ipaddress.IPv6Address(prefix6))
    if prefix & 0xFFFF_FFFF:
        raise ValueError(f"{prefix6}: the last 32 bits must be 0, they hold the IPv4 address")
    return Pool(int(ipaddress.IPv4Address(first)), count, prefix)


@dataclass(frozen=True)
class Rule:
    """The rule for users: the source of the first packet, a prefix of users, or the sender of the TCP SYN."""

    by: Literal["first", "prefix", "syn"] = "first"
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Users and servers of a trace, numbered in the order of their first appearance."""

    roles: dict[bytes, tuple[Role, int]]
    direction: NDArray[np.int64]
    """Direction of each pair: UP or DOWN."""
    user: NDArray[np.int64]
    """User number of each pair."""
    server: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Flags of each pair: SOURCE_SERVER, TARGET_SERVER."""
    excluded: dict[int, str] = field(default_factory=dict)
    """Pair → reason why its packets cannot be replayed."""
    same: tuple[int, ...] = ()
    """Pairs between two users or two servers."""

    @property
    def users(self) -> list[bytes]:
        return [address for address, (role, _) in self.roles.items() if role == "user"]

    @property
    def servers(self) -> list[bytes]:
        return [address for address, (role, _) in self.roles.items() if role == "server"]


def make_table(parsed: Parsed, rule: Rule) -> Table:
    """The roles of every address of the trace."""
    excluded: dict[int, str] = {}
    known: dict[bytes, Role] = {}
    if rule.by == "prefix":
        known, excluded = _by_prefix(parsed.pairs, rule.prefixes)
    elif rule.by == "syn":
        known = _by_syn(parsed)
    roles = _number(parsed.pairs, known, excluded)
    direction, user, server, ends = (np.zeros(len(parsed.pairs), np.int64) for _ in range(4))
    same = []
    for index, (source, target) in enumerate(parsed.pairs):
        if index in excluded:
            continue
        (from_role, from_number), (to_role, to_number) = roles[source], roles[target]
        up = from_role == "user"
        if from_role == to_role:
            same.append(index)
        direction[index] = UP if up else DOWN
        ends[index] = SOURCE_SERVER * (not up) + TARGET_SERVER * (to_role == "server")
        user[index] = from_number if up else to_number
        server[index] = to_number if up else from_number
    return Table(roles, direction, user, server, ends, excluded, tuple(same))


def _number(
    pairs: list[tuple[bytes, bytes]], known: dict[bytes, Role], excluded: dict[int, str]
) -> dict[bytes, tuple[Role, int]]:
    """Roles with numbers, pair by pair: an unknown source is a user unless it answers one (Listing 3)."""
    roles: dict[bytes, tuple[Role, int]] = {}
    counts: dict[Role, int] = {"user": 0, "server": 0}

    def place(address: bytes, role: Role) -> None:
        if address not in roles:
            role = known.get(address, role)
            roles[address] = role, counts[role]
            counts[role] += 1

    for index, (source, target) in enumerate(pairs):
        if index not in excluded:
            there = roles[target][0] if target in roles else known.get(target)
            place(source, "server" if there == "user" else "user")
            place(target, "server" if roles[source][0] == "user" else "user")
    return roles


def _by_prefix(pairs: list[tuple[bytes, bytes]], prefixes: tuple[str, ...]) -> tuple[dict[bytes, Role], dict[int, str]]:
    networks = [ipaddress.ip_network(prefix) for prefix in prefixes]
    known: dict[bytes, Role] = {}
    for pair in pairs:
        for address in pair:
            if address not in known:
                inside = any(ipaddress.ip_address(address) in network for network in networks)
                known[address] = "user" if inside else "server"
    words = {("user", "user"): "with both addresses in client_prefix"}
    words[("server", "server")] = "with neither address in client_prefix"
    ends = [(known[source], known[target]) for source, target in pairs]
    return known, {index: words[both] for index, both in enumerate(ends) if both in words}


def _by_syn(parsed: Parsed) -> dict[bytes, Role]:
    """The sender of the first SYN is a user, its target a server; without a SYN the first packet decides."""
    columns, known = parsed.columns, dict[bytes, Role]()
    for row in np.flatnonzero(columns.flags & SYN).tolist():
        source, target = parsed.pairs[int(columns.pair[row])]
        client, server = (target, source) if columns.flags[row] & ACK else (source, target)
        if client not in known and server not in known:
            known[client], known[server] = "user", "server"
        elif client not in known and known[server] == "server":
            known[client] = "user"
        elif server not in known and known[client] == "user":
            known[server] = "server"
    return known


def check_pools(where: object, key: str, users: Pool | None, servers: Pool | None, need: dict[str, int]) -> None:
    """BadInput for a pool too small for `need` ("users", "servers": over all instances), and for overlapping pools."""
    for name, given in (("users", users), ("servers", servers)):
        if given is None:
            continue
        if given.count is not None and given.count < need[name]:
            problem = f"the pool is too small: the trace needs {need[name]} {name}"
            raise BadInput(
                where, problem, key=f"{key}.{name}.count", value=given.count, allowed=f"{need[name]} or more"
            )
        if given.first + need[name] - 1 > LAST_IPV4:
            problem = f"{need[name]} {name} from this address on exceed 255.255.255.255"
            raise BadInput(where, problem, key=f"{key}.{name}.first", value=given.name)
    if users and servers and users.overlaps(need["users"], servers, need["servers"]):
        problem = f"the pools overlap: {need['users']} users from {users.name}, {need['servers']} servers"
        raise BadInput(where, problem, key=f"{key}.servers.first", value=servers.name)
