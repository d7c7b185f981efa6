"""New ports for flows that share addresses after rewriting, and for further instances.

The unit is the channel (one direction of a flow), of which there are few compared with packets.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.errors import PktswarmError

Integers = NDArray[np.int64]
FIRST_FREE_PORT = 49152
"""First of the dynamic ports (RFC 6335, section 6)."""
ALL_PORTS = 1 << 16
End = tuple[Hashable, int]


@dataclass(frozen=True)
class Channel:
    """One direction of a flow: recorded `ends`, and its new `source` and `target`."""

    kind: Hashable
    """IP version and protocol."""
    ends: tuple[End, End]
    source: Hashable
    target: Hashable

    @property
    def flow(self) -> Hashable:
        return frozenset(self.ends), self.kind


@dataclass(frozen=True)
class Ports:
    source: Integers
    target: Integers
    moved_flows: int
    """Number of flows with a new port."""


def keep_apart(channels: list[Channel], one_way: bool) -> Ports:
    """The ports of each channel; -1 without ports.

    The later of two colliding flows gets a free port in place of its higher one (mostly the client's); with two
    equal ports (2152 to 2152) in place of the source port, so that the target port still identifies the protocol.
    `one_way`: both directions are sent from the same node to the same node, with the same addresses.
    """
    book = _Book(one_way)
    pairs = [book.of(channel) for channel in channels]
    source, target = ([pair[side] for pair in pairs] for side in (0, 1))
    return Ports(np.array(source, np.int64), np.array(target, np.int64), len(book.moved))


class _Book:
    def __init__(self, one_way: bool) -> None:
        self._one_way = one_way
        self._taken: dict[Hashable, Hashable] = {}
        self.moved: dict[Hashable, int] = {}
        """The new port of each flow that has one."""

    def of(self, channel: Channel) -> tuple[int, int]:
        (_, source), (_, target) = channel.ends
        if source < 0:
            return source, target
        flow = channel.flow
        if flow not in self.moved:
            if self._claim(channel, flow, source, target):
                return source, target
            self.moved[flow] = self._free_port(channel, source, target)
        if source >= target:
            source = self.moved[flow]
        else:
            target = self.moved[flow]
        self._claim(channel, flow, source, target)
        return source, target

    def _places(self, channel: Channel, source: int, target: int) -> tuple[Hashable, Hashable]:
        """The keys on the wire of this channel and of its reverse."""
        there = (channel.kind, channel.source, source, channel.target, target)
        if self._one_way:
            return there, (channel.kind, channel.source, target, channel.target, source)
        return there, (channel.kind, channel.target, target, channel.source, source)

    def _claim(self, channel: Channel, flow: Hashable, source: int, target: int) -> bool:
        """Reserves both directions for `flow`; False if another flow has one of them."""
        places = self._places(channel, source, target)
        if any(self._taken.get(place, flow) != flow for place in places):
            return False
        self._taken.update(dict.fromkeys(places, flow))
        return True

    def _free_port(self, channel: Channel, source: int, target: int) -> int:
        for port in range(FIRST_FREE_PORT, ALL_PORTS):
            ports = (port, target) if source >= target else (source, port)
            if not any(place in self._taken for place in self._places(channel, *ports)):
                return port
        raise PktswarmError(f"no free port is left: over {ALL_PORTS - FIRST_FREE_PORT} flows to one port")


def step(user_ports: Integers, instances: int) -> int | None:
    """The offset of the users' ports per instance with which no two instances share a port; None if there is none."""
    ports = np.unique(user_ports[user_ports >= 0])
    if not len(ports) or instances == 1:
        return 0
    if len(ports) * instances > ALL_PORTS - 1:
        return None
    used = np.zeros(ALL_PORTS, np.bool_)
    used[ports] = used[0] = True
    for candidate in range(1, ALL_PORTS):
        if not any(used[(ports + candidate * k) % ALL_PORTS].any() for k in range(1, instances)):
            return candidate
    return None
