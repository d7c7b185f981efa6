"""Numbers for the pairs of addresses and for the channels (pairs with protocol and ports)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.replay.numbering import Numbering

Integers = NDArray[np.int64]
Found = dict[str, NDArray[Any]]


class Pairs:
    """Numbers of (source, target) and of (pair, protocol, ports), in the order of appearance."""

    def __init__(self) -> None:
        self._four, self._hosts6, self._six, self._both = Numbering(), Numbering(), Numbering(), Numbering()
        self._channels = Numbering()

    def number(self, found: Found) -> tuple[Integers, Integers]:
        """The pair and channel of each packet of the next chunk."""
        pair = self._pair(found)
        ported = found["sport"] >= 0
        ports = np.where(ported, 1 << 32 | found["sport"] << 16 | found["dport"], 0)
        return pair, self._channels.of(pair << 41 | found["protocol"] << 33 | ports)

    def _pair(self, found: Found) -> Integers:
        # Even numbers are pairs of IPv4 addresses, odd ones of IPv6 addresses.
        number = np.empty(len(found["version"]), np.int64)
        four, six = np.flatnonzero(found["version"] == 4), np.flatnonzero(found["version"] == 6)
        key = found["source"][four].astype(np.uint64) << np.uint64(32) | found["target"][four].astype(np.uint64)
        number[four] = 2 * self._four.of(key)
        if len(six):
            ends = np.stack([found["source6"][six], found["target6"][six]], axis=1).ravel()
            hosts = self._hosts6.of(ends).reshape(-1, 2)
            number[six] = 2 * self._six.of(hosts[:, 0] << 32 | hosts[:, 1]) + 1
        return self._both.of(number)

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        keys4, keys6 = self._four.values().tolist(), self._six.values().tolist()
        names = [bytes(name).ljust(16, b"\0") for name in self._hosts6.values().tolist()]
        pairs = []
        for value in self._both.values().tolist():
            high, low = divmod((keys6 if value % 2 else keys4)[value // 2], 1 << 32)
            pairs.append((names[high], names[low]) if value % 2 else (high.to_bytes(4, "big"), low.to_bytes(4, "big")))
        return pairs

    @property
    def channels(self) -> list[tuple[int, int, int, int]]:
        """(pair, protocol, source port, target port); -1: no port."""
        channels = []
        for key in self._channels.values().tolist():
            pair, protocol, ports = key >> 41, key >> 33 & 0xFF, key & 0x1_FFFF_FFFF
            channels.append((pair, protocol, *((ports >> 16 & 0xFFFF, ports & 0xFFFF) if ports else (-1, -1))))
        return channels


def join_fragments(found: Found) -> None:
    """Gives later fragments the channel of the first one."""
    channel = found["channel"]
    rows = np.flatnonzero(found["fragment"] >= 0).tolist()
    of_datagram: dict[tuple[int, int, int], int] = {}
    columns = [found[name][rows].tolist() for name in ("pair", "protocol", "fragment")]
    keys: dict[int, tuple[int, int, int]] = dict(zip(rows, zip(*columns, strict=True), strict=True))
    for row in rows:
        if found["has_l4"][row]:
            # A fragment can precede the one with the ports: until then the first one is used.
            of_datagram.setdefault(keys[row], int(channel[row]))
    for row in rows:
        if found["has_l4"][row]:
            of_datagram[keys[row]] = int(channel[row])
        channel[row] = of_datagram.get(keys[row], int(channel[row]))
