"""Ranges of UE addresses and TEIDs of a group, and the check that no two groups overlap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface

import numpy as np
from numpy.typing import NDArray

LAST_TEID = 2**32 - 1
USER_PREFIX = 64
"""Length of the prefix of each IPv6 user (TS 23.501, 5.8.2.2.1)."""


@dataclass(frozen=True)
class Pool:
    """Numbers from `first` to `last`; for IPv6 addresses the upper 64 bits."""

    version: int
    """IP version 4 or 6; 0 for TEIDs."""
    first: int

    last: int
    text: str
    low_bits: int = 0
    """The lower 64 bits of every IPv6 address."""

    @property
    def room(self) -> int:
        return self.last - self.first + 1

    def address(self, number: int) -> str:
        value = self.first + number
        if self.version == 0:
            return str(value)
        return str(IPv4Address(value)) if self.version == 4 else str(IPv6Address(value << 64 | self.low_bits))

    def holds(self, address: str, count: int) -> bool:
        """Whether one of the first `count` users has this address, or for IPv6 this prefix."""
        return any(self.first <= value < self.first + count for value in self._values([address]))

    def beyond(self, taken: Sequence[str], count: int) -> Pool:
        """The pool moved up to the first `count` consecutive addresses without one of `taken`.

        Users stay one step apart, as counting requires. Raises ValueError if no such range is left.
        """
        first = self.first
        for value in sorted(self._values(taken)):
            if first <= value < first + count:
                first = value + 1
        if first == self.first:
            return self
        moved = replace(self, first=first)
        if count > moved.room:
            raise ValueError(f"{count} consecutive addresses without {', '.join(taken)} do not fit in {self.text}")
        prefix = self.text.partition("/")[2]
        return replace(moved, text=moved.address(0) + (f"/{prefix}" if prefix else ""))

    def _values(self, addresses: Sequence[str]) -> list[int]:
        """Numbers of the addresses that have the IP version of the pool."""
        same = [one for one in map(ip_address, addresses) if one.version == self.version]
        return [int(one) >> USER_PREFIX if one.version == 6 else int(one) for one in same]

    def packed(self, count: int) -> NDArray[np.uint8]:
        """(count, 4 or 16) bytes of the first `count` addresses."""
        upper = np.uint64(self.first) + np.arange(count, dtype=np.uint64)
        if self.version == 4:
            return upper.astype(">u4").view(np.uint8).reshape(count, 4)
        both = np.empty((count, 2), dtype=">u8")
        both[:, 0], both[:, 1] = upper, self.low_bits
        return both.view(np.uint8).reshape(count, 16)


def parse_pool(text: str) -> Pool:
    """10.45.0.1 (to the end of the address space) or 10.45.0.1/16; without a host part it begins after the network's
    own address, and IPv4's broadcast address is left out. Raises ValueError."""
    try:
        given = ip_interface(text)
    except ValueError:
        raise ValueError(f"{text!r} must be an address or an address with a prefix length") from None
    if isinstance(given, IPv4Interface):
        return _ipv4(given, text)
    return _ipv6(given, text)


def _ipv4(given: IPv4Interface, text: str) -> Pool:
    if "/" not in text:
        return Pool(4, int(given.ip), 2**32 - 1, text)
    network = given.network
    if network.prefixlen >= 31:
        return Pool(4, int(given.ip), int(network.broadcast_address), text)
    lowest = int(network.network_address) + 1
    return Pool(4, max(int(given.ip), lowest), int(network.broadcast_address) - 1, text)


def _ipv6(given: IPv6Interface, text: str) -> Pool:
    if "/" in text and given.network.prefixlen > USER_PREFIX:
        raise ValueError(f"{text}: each user has its own /{USER_PREFIX}; the pool's prefix must not be longer")
    upper, low_bits = divmod(int(given.ip), 2**64)
    last = int(given.network.broadcast_address) >> 64 if "/" in text else 2**64 - 1
    return Pool(6, upper, last, text, low_bits or 1)


def check_apart(what: str, taken: Sequence[tuple[str, Pool, int]]) -> None:
    """Raise ValueError for two groups that overlap. `taken`: (group, pool, number of values)."""
    spans = sorted(taken, key=lambda one: (one[1].version, one[1].first))
    for (name, pool, count), (other, following, _) in itertools.pairwise(spans):
        if pool.version == following.version and following.first < pool.first + count:
            raise ValueError(f"groups {name} and {other} overlap: both have {what} from {following.address(0)} on")
