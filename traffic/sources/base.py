"""What all application sources share: users, items on a link of the user's own, packets, mean rates in theory.

A source makes items: so many bytes of one user at an instant. An item leaves in packets back to back at `link_bps`,
after those of the user's earlier items: a link of its own for each user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.random.parse import Distribution, Floats, generator, times
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES, Rates
from pktswarm.traffic.sources.counts import mean_count, quantile_table
from pktswarm.traffic.sources.processes import Ints, Spells, Steering, arrivals, ragged

NS = 1e9
ETHERNET_BYTES = 18
"""Header and FCS."""
TCP_BYTES = 20
UDP_BYTES = 8
RTP_BYTES = 12
"""RFC 3550, section 5.1, with no contributing sources."""
LEAST_FRAME_BYTES = 64
BLOCK_USERS = 64
"""Users that share one generator."""
LEADS = 20
"""How many mean transfer times before the run the items begin, so that the first are already on their way."""
LONGEST_LEAD_S = 86_400.0


@dataclass(frozen=True, eq=False)
class Packets:
    """What a source sends, in the order of time. Sizes are of frames with their FCS, or of whole items."""

    time_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int32] | NDArray[np.int64]
    user: NDArray[np.int32]
    flow: NDArray[np.int32]
    """A session, request, page or call: numbered over all users."""

    def __len__(self) -> int:
        return self.time_ns.size


@dataclass(frozen=True, eq=False)
class Items:
    """In any order; those that begin before 0 may reach into the run."""

    start_s: Floats
    size_bytes: Floats
    user: Ints
    flow: Ints


def law(default: Distribution | None, *, at_least: float = 0.0) -> Any:
    """A field for a distribution with a finite mean above `at_least`; None: may be left out."""
    return field(default=default, metadata={"law": at_least})


def parameter(default: float, limit: str = "> 0") -> Any:
    """A field for a number that meets `limit` (traffic.random.parse.MEETS)."""
    return field(default=default, metadata={"limit": limit})


def checked(default: Any, check: Callable[[Any], Any], allowed: str) -> Any:
    """A field for anything else: `check` returns the value to have, or None for a bad one."""
    return field(default=default, metadata={"check": check, "allowed": allowed})


def _whole(least: int) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """One application. Fields are its parameters; a scenario may set each."""

    link_bps: float = parameter(100e6)
    mtu_bytes: int = checked(1500, _whole(576), "a whole number, 576 or more")
    ip_header_bytes: int = checked(20, lambda value: value if value in (20, 40) else None, "20 or 40")

    name: ClassVar[str]
    transport_bytes: ClassVar[int] = TCP_BYTES
    """Headers between IP and what an item's bytes count."""
    largest_payload: ClassVar[int | None] = None
    """Where the application itself sends less than the MTU allows."""
    arrival_field: ClassVar[str] = ""
    """The distribution of gaps that makes it send more or less often."""

    # --- what a source says of itself

    @abstractmethod
    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        """What this many users send in a run."""

    @abstractmethod
    def item_rates(self) -> list[tuple[float, Distribution]]:
        """Items a second of one user, and their size in bytes; one for each kind of item."""

    @property
    def steerable(self) -> bool:
        """Whether it has arrivals that a profile can steer."""
        return bool(self.arrival_field) and getattr(self, self.arrival_field) is not None

    def scaled(self, factor: float) -> Self | None:
        """One with `factor` times the mean rate; None if its rate is what it is."""
        if not self.steerable:
            return None
        gaps: dict[str, Any] = {self.arrival_field: times(getattr(self, self.arrival_field), 1 / factor)}
        return replace(self, **gaps)

    # --- theory

    @property
    def mean_pps(self) -> float:
        """Of one user."""
        return sum(rate * self.wire(size)[0] for rate, size in self.item_rates())

    @property
    def mean_bps(self) -> float:
        """Of one user: bits of frames with FCS."""
        return sum(rate * self.wire(size)[1] * 8 for rate, size in self.item_rates())

    @property
    def load(self) -> float:
        """The share of its link that a user takes, preamble and gaps too."""
        return (self.mean_bps + self.mean_pps * ETHERNET_OVERHEAD_BYTES * 8) / self.link_bps

    def wire(self, size: Distribution) -> tuple[float, float]:
        """Mean packets and mean frame bytes of an item.

        What segments, whole bytes and padding add to a share of the size is bounded: its mean over quantiles will do,
        however heavy the tail.
        """
        quantiles = quantile_table(size)
        whole = whole_bytes(quantiles)
        count, last = self._segments(whole)
        frames = (count - 1) * self.frame_bytes + last
        mean, added = float(size.moment(1)), 1 + self.header_bytes / self.segment_bytes
        packets = mean / self.segment_bytes + float((count - quantiles / self.segment_bytes).mean())
        return packets, mean * added + float((frames - quantiles * added).mean())

    # --- packets

    @property
    def header_bytes(self) -> int:
        return ETHERNET_BYTES + self.ip_header_bytes + self.transport_bytes

    @property
    def segment_bytes(self) -> int:
        """The most of an item that one packet carries."""
        fits = self.mtu_bytes - self.ip_header_bytes - self.transport_bytes
        return fits if self.largest_payload is None else min(fits, self.largest_payload)

    @property
    def frame_bytes(self) -> int:
        """A full one's."""
        return self.header_bytes + self.segment_bytes

    def _segments(self, size_bytes: Ints) -> tuple[Ints, Ints]:
        """How many packets, and the last one's frame."""
        count = -(-size_bytes // self.segment_bytes)
        last = size_bytes - (count - 1) * self.segment_bytes + self.header_bytes
        return count, np.maximum(last, LEAST_FRAME_BYTES)

    def lead_s(self) -> float:
        """How long before the run its items begin."""
        largest = max(float(size.moment(1)) for _, size in self.item_rates())
        return min(LONGEST_LEAD_S, LEADS * largest * 8 / self.link_bps)

    def generate(
        self,
        users: int,
        duration_s: float,
        seed: int,
        *,
        profile: Rates | None = None,
        stream: tuple[int, ...] = (),
        first_user: int = 0,
    ) -> Packets:
        """What users `first_user`, … send. The same arguments give the same packets.

        `profile` steers how often sessions arrive; its mean counts as their own rate. `stream` tells sources with one
        seed apart. Users come in blocks of BLOCK_USERS with a generator each: a share that begins and ends at a
        block's border is the same whether or not the others are made.
        """
        if profile is not None and not self.steerable:
            raise ValueError(f"{self.name} has no arrivals to steer")
        steering, parts, flows = Steering(profile), [], 0
        last_user = first_user + users
        for first in range(first_user, last_user, BLOCK_USERS):
            count = min(BLOCK_USERS, last_user - first)
            items = self.items(generator(seed, *stream, first), count, duration_s, steering)
            part, used = self._send(items, duration_s, first, flows)
            parts.append(part)
            flows += used
        return merged(parts)

    def blocks(
        self, users: int, duration_s: float, seed: int, *, profile: Rates | None = None, stream: tuple[int, ...] = ()
    ) -> Packets:
        """What users hand to connections of a transport of its own: whole items, their bytes those of the application.

        Each when its user's link comes to it, as in generate(); those that began before the run are left out.
        """
        if profile is not None and not self.steerable:
            raise ValueError(f"{self.name} has no arrivals to steer")
        steering, parts = Steering(profile), []
        for first in range(0, users, BLOCK_USERS):
            count = min(BLOCK_USERS, users - first)
            items = self.items(generator(seed, *stream, first), count, duration_s, steering)
            parts.append(self._whole(items, duration_s, first))
        return merged(parts)

    def _whole(self, items: Items, duration_s: float, first_user: int) -> Packets:
        order = np.lexsort((items.start_s, items.user))
        user, size = items.user[order], whole_bytes(items.size_bytes[order])
        takes_s = np.minimum((size + self.header_bytes) * 8 / self.link_bps, duration_s + LONGEST_LEAD_S)
        time_ns = np.rint(queued(user, items.start_s[order], takes_s) * NS).astype(np.int64)
        within = np.flatnonzero((time_ns >= 0) & (time_ns < round(duration_s * NS)))
        within = within[np.argsort(time_ns[within], kind="stable")]
        users, flow = (user + first_user).astype(np.int32), items.flow[order].astype(np.int32)
        return Packets(time_ns[within], size[within], users[within], flow[within])

    def _send(self, items: Items, duration_s: float, first_user: int, first_flow: int) -> tuple[Packets, int]:
        """The packets of a block, and how many flows there are."""
        slot_s = (self.frame_bytes + ETHERNET_OVERHEAD_BYTES) * 8 / self.link_bps
        sent = self._sent(items, duration_s, slot_s)
        counts = sent.stop - sent.first
        row, number = ragged(counts)
        time_ns = (number * (slot_s * NS)).astype(np.int64)
        time_ns += np.rint((sent.begin_s + sent.first * slot_s) * NS).astype(np.int64)[row]
        size = np.full(row.size, self.frame_bytes, np.int32)
        size[np.cumsum(counts)[sent.ends] - 1] = sent.last_bytes[sent.ends]
        # Sorted here, where all of it is in the processor's cache; whole users are then merged.
        order = np.argsort(time_ns, kind="stable")
        time_ns = time_ns[order]
        within = slice(*np.searchsorted(time_ns, [0, round(duration_s * NS)]))
        row = row[order[within]]
        used, flow = np.unique(sent.flow, return_inverse=True)
        users, flows = (sent.user + first_user).astype(np.int32), (flow.ravel() + first_flow).astype(np.int32)
        return Packets(time_ns[within], size[order[within]], users[row], flows[row]), used.size

    def _sent(self, items: Items, duration_s: float, slot_s: float) -> _Sent:
        """When its link takes each item, and what of it falls into the run; a full packet takes `slot_s`."""
        order = np.lexsort((items.start_s, items.user))
        user, start_s = items.user[order], items.start_s[order]
        count, last = self._segments(whole_bytes(items.size_bytes[order]))
        takes_s = (count - 1) * slot_s + (last + ETHERNET_OVERHEAD_BYTES) * 8 / self.link_bps
        # Longer than to the end of the run makes no difference, and sums stay small enough to be exact.
        longest_s = duration_s - float(start_s.min(initial=0.0))
        begin_s = queued(user, start_s, np.minimum(takes_s, longest_s))
        first = np.maximum(np.ceil(-begin_s / slot_s), 0).astype(np.int64)
        stop = np.minimum(count, np.ceil((duration_s - begin_s) / slot_s)).astype(np.int64)
        seen = np.flatnonzero(stop > first)
        ends = stop[seen] == count[seen]
        return _Sent(user[seen], items.flow[order][seen], begin_s[seen], first[seen], stop[seen], last[seen], ends)


@dataclass(frozen=True, eq=False)
class _Sent:
    """Items with packets in the run, in the order of users and times."""

    user: Ints
    flow: Ints
    begin_s: Floats
    first: Ints
    """The first packet of it that is in the run …"""
    stop: Ints
    """… and the first that is not any more."""
    last_bytes: Ints
    ends: NDArray[np.bool_]
    """Whether its last packet is in the run."""


def whole_bytes(size: Floats) -> Ints:
    """At least one byte; no item is larger than what a link carries in any run."""
    return np.ceil(np.clip(size, 1, 2.0**52)).astype(np.int64)


def queued(user: Ints, start_s: Floats, takes_s: Floats) -> Floats:
    """When each item begins to be sent, the earlier ones of its user first; in the order of users and starts.

    Begin(i) is the largest of start(j) + what j … i-1 take, over all j up to i of the user.
    """
    if not user.size:
        return start_s
    sums = np.cumsum(takes_s) - takes_s
    firsts = np.flatnonzero(np.diff(user, prepend=-1))
    before = sums - np.repeat(sums[firsts], np.diff(firsts, append=user.size))
    ahead = start_s - before
    # Users are moved so far apart that none's largest reaches into the next one's.
    apart = (user - user[0]) * (float(ahead.max() - ahead.min()) + 1)
    return np.asarray(np.maximum.accumulate(ahead + apart) - apart + before)


def merged(parts: list[Packets]) -> Packets:
    """Packets of several sources, or shares of one, in the order of time; users and flows keep their numbers."""
    time_ns = np.concatenate([part.time_ns for part in parts])
    order = np.argsort(time_ns, kind="stable")
    rest = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("size_bytes", "user", "flow"))
    return Packets(time_ns[order], *rest)


# --- sessions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Continuous(Source):
    """One that sends all the time, or in sessions: both distributions are given, or neither."""

    session_gap_s: Distribution | None = law(None)
    session_s: Distribution | None = law(None)

    arrival_field: ClassVar[str] = "session_gap_s"

    @property
    def share(self) -> float:
        """Mean number of sessions that a user has at once."""
        if self.session_gap_s is None or self.session_s is None:
            return 1.0
        return float(self.session_s.moment(1)) / float(self.session_gap_s.moment(1))

    def ticks_a_second(self, period_s: float) -> float:
        """Of one user, who sends at a session's begin and every `period_s` after."""
        if self.session_gap_s is None or self.session_s is None:
            return 1 / period_s
        return mean_count(self.session_s, period_s) / float(self.session_gap_s.moment(1))

    def spells(
        self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering, begin_s: float
    ) -> Spells:
        """Sessions that reach beyond `begin_s`; without sessions one of each user, begun before that."""
        if self.session_gap_s is None or self.session_s is None:
            begin = np.full(users, begin_s)
            return Spells(np.arange(users), begin, np.full(users, duration_s))
        return sessions(draws, self.session_gap_s, self.session_s, users, duration_s, steering, begin_s)


def sessions(
    draws: np.random.Generator,
    gaps: Distribution,
    lengths: Distribution,
    users: int,
    duration_s: float,
    steering: Steering,
    begin_s: float = 0.0,
) -> Spells:
    """Sessions that last beyond `begin_s`, those that are under way then too."""
    lead = min(LONGEST_LEAD_S, float(lengths.inverse(1 - 1e-5)))
    user, start_s = arrivals(draws, gaps, users, begin_s - lead, duration_s, steering)
    found = Spells(user, start_s, start_s + lengths.draw(draws, user.size))
    return found[found.end_s > begin_s]
