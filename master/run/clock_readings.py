"""Rank 0's readings of the nodes' clocks against its own."""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

from pktswarm.master.cluster.clock_offsets import Reading, offset_at
from pktswarm.master.run.members import Members
from pktswarm.traffic.protocol import rank_orders
from pktswarm.traffic.protocol.rank0_events import Clock, Drift

CLOCK_READINGS, CLOCK_ROUNDS = 12, 8
MOST_MISSES = 3
"""Readings of a round without an answer before the next rank's turn."""
CLOSE_READING_NS = 40_000
"""A bound that is good enough; a busy host gets more rounds of readings before a worse one is taken."""
MORE_ROUNDS_S = 1.0
"""Time for all rounds, the first included."""
READING_S, LONGEST_READING_S = 0.5, 1.0
"""Timeout of one reading; the node can be at work on its files. Even with patience it stays below half of the time that
guards wait for a Word, which is sent between two readings."""
OWN_CLOCK_READINGS = 2
"""Readings of a node with the master's own clock, whose offset is known: they have to agree with it."""
CHECK_READINGS = 4
"""Readings of a check."""
CHECK_EVERY_S = 20.0
"""While frames are sent, when nodes have other work: interval of the checks of each clock."""

When = Literal["before", "start", "after"]


class Exchange(NamedTuple):
    sent_ns: int
    node_ns: int
    node_realtime_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.received_ns - self.sent_ns

    def reading(self) -> Reading:
        middle_ns = (self.sent_ns + self.received_ns) // 2
        return Reading(middle_ns, self.node_ns - middle_ns, self.round_trip_ns // 2)


def read_of(exchange: Exchange, on_our_clock: bool) -> Reading:
    """A node on the master's own clock has an offset of exactly 0, unless the reading excludes it."""
    reading = exchange.reading()
    if on_our_clock and abs(reading.offset_ns) <= reading.bound_ns + 1:
        return Reading(reading.at_ns, 0, 0)
    return reading


class ClockReadings:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._readings: dict[int, list[Reading]] = {}
        self._next_check = 0.0
        self._last_checked = 0

    def read(self, when: When) -> None:
        """Each node's CLOCK_MONOTONIC against the master's; the reading with the least round trip counts.

        A busy rank is read again behind all others, as long as there is time for it: a large cluster is read once, its
        busy nodes as often as a small one's. A rank that did not answer at all is read once more in any case. Those on
        the master's own clock are read once: in a busy lab the readings took two thirds of rank 0's processor time.
        """
        members = self._members
        ours = members.on_our_clock
        best: dict[int, Exchange] = {}
        left, no_round_after = members.active(), time.monotonic() + MORE_ROUNDS_S
        for turn in range(CLOCK_ROUNDS):
            for rank in left:
                count = OWN_CLOCK_READINGS if rank in ours else CLOCK_READINGS
                exchanges = [*self._exchanges(rank, count), *([best[rank]] if rank in best else [])]
                if exchanges:
                    best[rank] = min(exchanges, key=lambda exchange: exchange.round_trip_ns)
            late = time.monotonic() > no_round_after
            silent = [rank for rank in left if rank in members.living and rank not in best and turn == 0]
            apart = [rank for rank in left if rank in best and rank not in ours]
            busy = [rank for rank in apart if best[rank].round_trip_ns > 2 * CLOSE_READING_NS]
            left = silent if late else sorted(silent + busy)
            if not left:
                break
        for rank in members.active():
            if rank in best:
                self._keep(rank, when, best[rank])
            else:
                members.lose(rank, "its clock could not be read")

    def begin_checks(self) -> None:
        self._next_check = time.monotonic() + CHECK_EVERY_S

    def check_next(self) -> None:
        """One node after another, for the live view's warning of a drift. The counts have readings of their own."""
        living = self._members.active()
        if time.monotonic() < self._next_check or not living:
            return
        self._next_check = time.monotonic() + CHECK_EVERY_S / len(living)
        rank = min(living, key=lambda rank: (rank <= self._last_checked, rank))
        self._last_checked = rank
        if exchanges := self._exchanges(rank, CHECK_READINGS):
            shortest = min(exchanges, key=lambda exchange: exchange.round_trip_ns)
            best = read_of(shortest, rank in self._members.on_our_clock)
            self._members.report(Drift(rank, best.at_ns, best.offset_ns, best.bound_ns))

    def _exchanges(self, rank: int, count: int) -> list[Exchange]:
        """The readings that were answered in time. A rank can be found dead at any of them."""
        members = self._members
        members.send(rank, rank_orders.Ping(count))
        members.flush()
        exchanges: list[Exchange] = []
        misses = 0
        while rank in members.living and len(exchanges) + misses < count and misses < MOST_MISSES:
            # A slow host takes seconds for all its readings. Meanwhile the others need their Word, and their messages
            # must be received: libfabric keeps some dozens that nobody receives, and all behind them wait.
            members.pump()
            figures = members.world.read_clock(rank, min(READING_S * members.patience, LONGEST_READING_S))
            if figures is None:
                misses += 1
            else:
                exchanges.append(Exchange(*figures))
        return exchanges

    def _keep(self, rank: int, when: When, exchange: Exchange) -> None:
        reading = read_of(exchange, rank in self._members.on_our_clock)
        self._readings.setdefault(rank, []).append(reading)
        closest = offset_at(self._readings[rank], reading.at_ns)  # a fresh reading is not always the closer one
        assert closest is not None
        self._members.offsets_ns[rank] = closest.offset_ns
        behind_ns = exchange.node_realtime_ns - exchange.node_ns
        found = reading.at_ns, reading.offset_ns, reading.bound_ns, exchange.round_trip_ns
        self._members.report(Clock(rank, when, *found, behind_ns))
