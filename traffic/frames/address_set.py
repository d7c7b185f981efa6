"""A set of IP addresses as ranges: a pool of a million addresses takes as much room as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address
Range = tuple[int, int, int]
"""IP version, first, last."""


class AddressSet:
    """Ranges, of which adjacent and overlapping ones are merged."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.ranges = merged(ranges)
        self._starts = [(version, first) for version, first, _ in self.ranges]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> AddressSet:
        """From addresses, prefixes and ranges (str()'s). ValueError for anything else."""
        return cls(parse_range(text) for text in texts)

    def __contains__(self, packed: bytes) -> bool:
        """Whether the set has an address, given as 4 or 16 bytes."""
        version, value = 4 if len(packed) == 4 else 6, int.from_bytes(packed, "big")
        place = bisect_right(self._starts, (version, value)) - 1
        if len(packed) not in (4, 16) or place < 0:
            return False
        found, _, last = self.ranges[place]
        return found == version and value <= last

    def __or__(self, other: AddressSet) -> AddressSet:
        return AddressSet([*self.ranges, *other.ranges])

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressSet) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(tuple(self.ranges))

    def covers(self, wanted: Range) -> bool:
        """Whether the set has every address of a range."""
        version, first, last = wanted
        place = bisect_right(self._starts, (version, first)) - 1
        return place >= 0 and self.ranges[place][0] == version and last <= self.ranges[place][2]

    def without(self, other: AddressSet) -> AddressSet:
        """The addresses that `other` does not have."""
        left: list[Range] = []
        for version, first, last in self.ranges:
            place = max(0, bisect_right(other._starts, (version, first)) - 1)
            for own, low, high in other.ranges[place:]:
                if (own, low) > (version, last):
                    break
                if own != version or high < first:
                    continue
                left += [(version, first, low - 1)] if first < low else []
                first = high + 1
            left += [(version, first, last)] if first <= last else []
        return AddressSet(left)

    def addresses(self, most: int) -> Iterator[Address]:
        """The first `most` addresses."""
        for version, first, last in self.ranges:
            make = IPv4Address if version == 4 else IPv6Address
            for value in range(first, min(last, first + most - 1) + 1):
                most -= 1
                yield make(value)
            if most <= 0:
                return

    def texts(self) -> list[str]:
        """One text for each range: "10.0.0.1", or "10.0.0.1-10.0.0.9"."""
        return [text_of(one) for one in self.ranges]

    def __str__(self) -> str:
        return ", ".join(self.texts())


def parse_range(text: str) -> Range:
    """ "10.0.0.1", "10.0.0.0/24" or "10.0.0.1-10.0.0.9". ValueError for anything else."""
    if "-" in text:
        first, last = (ip_address(part.strip()) for part in text.split("-", 1))
        if first.version != last.version or int(first) > int(last):
            raise ValueError(f"{text!r} is not a range of addresses")
        return first.version, int(first), int(last)
    network = ip_network(text)
    return network.version, int(network[0]), int(network[-1])


def text_of(one: Range) -> str:
    version, first, last = one
    make = IPv4Address if version == 4 else IPv6Address
    return str(make(first)) if first == last else f"{make(first)}-{make(last)}"


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges with adjacent and overlapping ones merged."""
    found: list[Range] = []
    for version, first, last in sorted(ranges):
        if found and found[-1][0] == version and first <= found[-1][2] + 1:
            found[-1] = (version, found[-1][1], max(last, found[-1][2]))
        else:
            found.append((version, first, last))
    return found
