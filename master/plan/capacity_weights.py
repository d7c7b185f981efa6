"""Distribution of streams over transmitters so that none exceeds its measured capacity.

The transmitters of a stream share it evenly as long as each can send its part. A transmitter that cannot sends up to
its capacity; the others share the rest evenly. Load that cannot be distributed (streams of one host, `per: node`,
sessions, traces, sources) is subtracted first; then streams are distributed in the order of the scenario. Where all
transmitters together cannot send a stream, each exceeds its free capacity by the same factor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.capacity_limits import ROUNDING, Planned, sending_limit
from pktswarm.master.scenario.scenario import Scenario


def weights(scenario: Scenario, plans: Sequence[Planned], capacity: Capacity) -> dict[int, dict[str, int]]:
    """Index of the stream in the scenario → transmitter → number of packets it sends. Contains only streams that are
    not split evenly because a transmitter would exceed its limit. `plans`: with an even split."""
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
    """A stream that can be split unevenly. `costs_s`: time that one packet takes at each transmitter."""

    place: int
    legs: tuple[Planned, ...]
    costs_s: tuple[float, ...]

    @property
    def pps(self) -> float:
        return sum(one.pps or 0.0 for one in self.legs)

    def packets(self, scenario: Scenario) -> int:
        """Number of packets to split: `count_packets`, else rate times duration (1 s without one)."""
        stream = scenario.streams[self.place]
        return stream.count_packets or max(1, round(self.pps * (stream.duration_s or 1.0)))


def _free(scenario: Scenario, plans: Sequence[Planned], capacity: Capacity) -> list[_Free]:
    """Streams that can be split and have a known cost at every transmitter, in the order of the scenario."""
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
    """Transmitter → fraction of its capacity that is left by the load that cannot be distributed."""
    room: dict[str, float] = defaultdict(lambda: 1.0)
    for one in fixed:
        if one.pps:
            room[one.leg.transmitter] -= one.pps * (_cost_s(one, capacity) or 0.0)
    return room


def spread(total: float, rooms: Sequence[float]) -> list[float]:
    """Split `total` evenly, none above its room; in proportion to the rooms if `total` exceeds their sum."""
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
    """Split `total` packets into whole numbers in proportion to `shares`; the rest goes where most room is left."""
    parts = [int(total * share / sum(shares)) for share in shares]
    by_room = sorted(range(len(shares)), key=lambda place: shares[place] - rooms[place])
    for number in range(total - sum(parts)):
        parts[by_room[number % len(by_room)]] += 1
    return parts
