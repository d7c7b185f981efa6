"""Streams spread over the nodes so that each stays inside what it was seen to send.

A stream's nodes share it evenly as long as each can take its part. Where one cannot it sends what it can, and the
others share what is left, evenly again. Streams are given out in the order of the scenario; what has no choice (one
host's own streams, `per: node`, sessions, traces, sources) comes before all of them. Where all nodes together cannot
take a stream, each has as much too much of it as the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.capacity_limits import ROUNDING, Planned, sending_limit
from pktswarm.master.scenario.scenario import Scenario


def weights(scenario: Scenario, plans: Sequence[Planned], capacity: Capacity) -> dict[int, dict[str, int]]:
    """The stream's place in the scenario → transmitter → how many of its packets that sends; of streams that an even
    split would take beyond a node's limit. `plans`: with an even split."""
    free = _free(scenario, plans, capacity)
    moved = {one.leg.id for stream in free for one in stream.legs}
    room = _room([one for one in plans if one.leg.id not in moved], capacity)
    made = {}
    for stream in free:
        nodes = [one.leg.transmitter for one in stream.legs]
        rooms_pps = [max(0.0, room[node]) / cost_s for node, cost_s in zip(nodes, stream.costs_s, strict=True)]
        shares = spread(stream.pps, rooms_pps)
        for node, share, cost_s in zip(nodes, shares, stream.costs_s, strict=True):
            room[node] -= share * cost_s
        if max(shares) - min(shares) > ROUNDING * stream.pps:
            parts = whole_numbers(stream.packets(scenario), shares, rooms_pps)
            made[stream.place] = dict(zip(nodes, parts, strict=True))
    return made


@dataclass(frozen=True)
class _Free:
    """A stream whose transmitters may share it otherwise. `costs_s`: what a packet takes of each one's second."""

    place: int
    legs: tuple[Planned, ...]
    costs_s: tuple[float, ...]

    @property
    def pps(self) -> float:
        return sum(one.pps or 0.0 for one in self.legs)

    def packets(self, scenario: Scenario) -> int:
        """All that it sends, at a steady rate; else a number to tell its parts by."""
        stream = scenario.streams[self.place]
        return stream.count_packets or max(1, round(self.pps * (stream.duration_s or 1.0)))


def _free(scenario: Scenario, plans: Sequence[Planned], capacity: Capacity) -> list[_Free]:
    """Those of which everything is known, in the order of the scenario."""
    found = []
    for place, stream in enumerate(scenario.streams):
        legs = tuple(one for one in plans if one.leg.stream == stream.name)
        if stream.sessions is not None or stream.per == "node" or len(legs) < 2 or not all(one.pps for one in legs):
            continue
        costs_s = tuple(cost_s for one in legs if (cost_s := _cost_s(one, capacity)) is not None)
        if len(costs_s) == len(legs):
            found.append(_Free(place, legs, costs_s))
    return found


def _cost_s(one: Planned, capacity: Capacity) -> float | None:
    limit = sending_limit(one, capacity)
    return None if limit is None else 1 / limit.rate_pps


def _room(fixed: Iterable[Planned], capacity: Capacity) -> dict[str, float]:
    """Transmitter → the part of its time that is left beside what has to be its own."""
    room: dict[str, float] = defaultdict(lambda: 1.0)
    for one in fixed:
        if one.pps:
            room[one.leg.transmitter] -= one.pps * (_cost_s(one, capacity) or 0.0)
    return room


def spread(total: float, rooms: Sequence[float]) -> list[float]:
    """`total` over nodes with so much room: evenly, but none above its own; beyond all of it in proportion to it."""
    whole = sum(rooms)
    if not whole:
        return [total / len(rooms)] * len(rooms)
    if total >= whole:
        return [total * room / whole for room in rooms]
    shares, left, open_places = [0.0] * len(rooms), total, sorted(range(len(rooms)), key=rooms.__getitem__)
    while open_places:
        place = open_places.pop(0)
        shares[place] = min(rooms[place], left / (len(open_places) + 1))
        left -= shares[place]
    return shares


def whole_numbers(total: int, shares: Sequence[float], rooms: Sequence[float]) -> list[int]:
    """`total` packets in whole numbers by these shares. What rounding leaves goes where most room is left."""
    parts = [int(total * share / sum(shares)) for share in shares]
    by_room = sorted(range(len(shares)), key=lambda place: shares[place] - rooms[place])
    for number in range(total - sum(parts)):
        parts[by_room[number % len(by_room)]] += 1
    return parts
