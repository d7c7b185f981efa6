"""The base class of application sources: users, items on each user's link, packets, and theoretical mean rates.

A source makes items: bytes of one user at an instant. An item is sent in packets back to back at `link_bps`, after the
user's earlier items; each user has its own link.
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
"""Ethernet header and FCS."""
TCP_BYTES = 20
UDP_BYTES = 8
RTP_BYTES = 12
"""RTP header (RFC 3550, section 5.1) without contributing sources."""
LEAST_FRAME_BYTES = 64
BLOCK_USERS = 64
"""Number of users that share a random generator."""
LEADS = 20
"""Mean transfer times by which items begin before the run, so that transfers are in progress at its start."""
LONGEST_LEAD_S = 86_400.0


@dataclass(frozen=True, eq=False)
class Packets:
    """The packets of a source in the order of time. Sizes are those of frames with FCS, or of whole items."""

    time_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int32] | NDArray[np.int64]
    user: NDArray[np.int32]
    flow: NDArray[np.int32]
    """Number of the session, request, page or call, over all users."""

    def __len__(self) -> int:
        return self.time_ns.size


@dataclass(frozen=True, eq=False)
class Items:
    """Items in any order; those that begin before 0 can reach into the run."""

    start_s: Floats
    size_bytes: Floats
    user: Ints
    flow: Ints


def law(default: Distribution | None, *, at_least: float = 0.0) -> Any:
    """A parameter that is a distribution with a finite mean above `at_least`; default None: optional."""
    return field(default=default, metadata={"law": at_least})


def parameter(default: float, limit: str = "> 0") -> Any:
    """A parameter that is a number within `limit` (traffic.random.parse.MEETS)."""
    return field(default=default, metadata={"limit": limit})


def checked(default: Any, check: Callable[[Any], Any], allowed: str) -> Any:
    """A parameter of another type: `check` returns its value, or None for an invalid one."""
    return field(default=default, metadata={"check": check, "allowed": allowed})


def _whole(least: int) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """An application. Its fields are parameters that a scenario can set."""

    link_bps: float = parameter(100e6)
    mtu_bytes: int = checked(1500, _whole(576), "a whole number, 576 or more")
    ip_header_bytes: int = checked(20, lambda value: value if value in (20, 40) else None, "20 or 40")

    name: ClassVar[str]
    transport_bytes: ClassVar[int] = TCP_BYTES
    """Bytes of the headers between IP and the item."""
    largest_payload: ClassVar[int | None] = None
    """The application's limit of packet sizes, if below the MTU."""
    arrival_field: ClassVar[str] = ""
    """The parameter with the distribution of gaps between arrivals."""

    # --- the model

    @abstractmethod
    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        """The items of this many users in a run."""

    @abstractmethod
    def item_rates(self) -> list[tuple[float, Distribution]]:
        """(items per second of one user, their size in bytes) for each kind of item."""

    @property
    def steerable(self) -> bool:
        """Whether it has arrivals that a profile can change."""
        return bool(self.arrival_field) and getattr(self, self.arrival_field) is not None

    def scaled(self, factor: float) -> Self | None:
        """The source with `factor` times the mean rate; None if its rate cannot change."""
        if not self.steerable:
            return None
        gaps: dict[str, Any] = {self.arrival_field: times(getattr(self, self.arrival_field), 1 / factor)}
        return replace(self, **gaps)

    # --- theory

    @property
    def mean_pps(self) -> float:
        """Mean packets/s of one user."""
        return sum(rate * self.wire(size)[0] for rate, size in self.item_rates())

    @property
    def mean_bps(self) -> float:
        """Mean bits (of frames with FCS) per second of one user."""
        return sum(rate * self.wire(size)[1] * 8 for rate, size in self.item_rates())

    @property
    def load(self) -> float:
        """The load of a user's link, with preambles and interframe gaps."""
        return (self.mean_bps + self.mean_pps * ETHERNET_OVERHEAD_BYTES * 8) / self.link_bps

    def wire(self, size: Distribution) -> tuple[float, float]:
        """Mean packets and mean frame bytes of an item.

        The bytes added by segments, rounding and padding are bounded, so their mean over quantiles is accurate even for
        heavy tails.
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
        """Maximum bytes of an item in one packet."""
        fits = self.mtu_bytes - self.ip_header_bytes - self.transport_bytes
        return fits if self.largest_payload is None else min(fits, self.largest_payload)

    @property
    def frame_bytes(self) -> int:
        """Frame size of a full packet."""
        return self.header_bytes + self.segment_bytes

    def _segments(self, size_bytes: Ints) -> tuple[Ints, Ints]:
        """(number of packets, frame size of the last one) of each item."""
        count = -(-size_bytes // self.segment_bytes)
        last = size_bytes - (count - 1) * self.segment_bytes + self.header_bytes
        return count, np.maximum(last, LEAST_FRAME_BYTES)

    def lead_s(self) -> float:
        """Time before the run at which items begin."""
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
        """The packets of users `first_user`, …, reproducible by the arguments.

        `profile` scales the rate of session arrivals relative to its mean. Sources with the same seed differ by
        `stream`. Each block of BLOCK_USERS users has its own generator: a share of whole blocks is independent of the
        others.
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
        """The items of users for real connections: whole items with the bytes of the application.

        Each begins when its user's link is free, as in generate(), without items that began before the run.
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
        """The packets of a block, and the number of flows."""
        slot_s = (self.frame_bytes + ETHERNET_OVERHEAD_BYTES) * 8 / self.link_bps
        sent = self._sent(items, duration_s, slot_s)
        counts = sent.stop - sent.first
        row, number = ragged(counts)
        time_ns = (number * (slot_s * NS)).astype(np.int64)
        time_ns += np.rint((sent.begin_s + sent.first * slot_s) * NS).astype(np.int64)[row]
        size = np.full(row.size, self.frame_bytes, np.int32)
        size[np.cumsum(counts)[sent.ends] - 1] = sent.last_bytes[sent.ends]
        # Sorted here, in the processor's cache; whole users are merged later.
        order = np.argsort(time_ns, kind="stable")
        time_ns = time_ns[order]
        within = slice(*np.searchsorted(time_ns, [0, round(duration_s * NS)]))
        row = row[order[within]]
        used, flow = np.unique(sent.flow, return_inverse=True)
        users, flows = (sent.user + first_user).astype(np.int32), (flow.ravel() + first_flow).astype(np.int32)
        return Packets(time_ns[within], size[order[within]], users[row], flows[row]), used.size

    def _sent(self, items: Items, duration_s: float, slot_s: float) -> _Sent:
        """The time at which the link begins each item, and its packets within the run; a full packet takes `slot_s`."""
        order = np.lexsort((items.start_s, items.user))
        user, start_s = items.user[order], items.start_s[order]
        count, last = self._segments(whole_bytes(items.size_bytes[order]))
        takes_s = (count - 1) * slot_s + (last + ETHERNET_OVERHEAD_BYTES) * 8 / self.link_bps
        # Limited to the end of the run, so that sums stay small enough to be exact.
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
    """First packet within the run."""
    stop: Ints
    """First packet behind the end of the run."""
    last_bytes: Ints
    ends: NDArray[np.bool_]
    """Whether the last packet is within the run."""


def whole_bytes(size: Floats) -> Ints:
    """Item sizes in bytes, from 1 to the capacity of a link in the longest run."""
    return np.ceil(np.clip(size, 1, 2.0**52)).astype(np.int64)


def queued(user: Ints, start_s: Floats, takes_s: Floats) -> Floats:
    """The time at which each item begins to be sent, after the user's earlier items; in the order of users and starts.

    begin(i) is the maximum of start(j) + the duration of items j … i-1, over all j up to i of the user.
    """
    if not user.size:
        return start_s
    sums = np.cumsum(takes_s) - takes_s
    firsts = np.flatnonzero(np.diff(user, prepend=-1))
    before = sums - np.repeat(sums[firsts], np.diff(firsts, append=user.size))
    ahead = start_s - before
    # Offsets between users keep the maxima of one user out of the next.
    apart = (user - user[0]) * (float(ahead.max() - ahead.min()) + 1)
    return np.asarray(np.maximum.accumulate(ahead + apart) - apart + before)


def merged(parts: list[Packets]) -> Packets:
    """Merges packets of several sources, or of shares of one, in the order of time; users and flows keep their
    numbers."""
    time_ns = np.concatenate([part.time_ns for part in parts])
    order = np.argsort(time_ns, kind="stable")
    rest = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("size_bytes", "user", "flow"))
    return Packets(time_ns[order], *rest)


# --- sessions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Continuous(Source):
    """A source that sends all the time, or in sessions if both distributions are given."""

    session_gap_s: Distribution | None = law(None)
    session_s: Distribution | None = law(None)

    arrival_field: ClassVar[str] = "session_gap_s"

    @property
    def share(self) -> float:
        """Mean number of simultaneous sessions of a user."""
        if self.session_gap_s is None or self.session_s is None:
            return 1.0
        return float(self.session_s.moment(1)) / float(self.session_gap_s.moment(1))

    def ticks_a_second(self, period_s: float) -> float:
        """Events per second of one user, at a session's begin and every `period_s` after."""
        if self.session_gap_s is None or self.session_s is None:
            return 1 / period_s
        return mean_count(self.session_s, period_s) / float(self.session_gap_s.moment(1))

    def spells(
        self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering, begin_s: float
    ) -> Spells:
        """Sessions that last beyond `begin_s`; without sessions one per user, begun before that."""
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
    """Sessions that last beyond `begin_s`, including those in progress."""
    lead = min(LONGEST_LEAD_S, float(lengths.inverse(1 - 1e-5)))
    user, start_s = arrivals(draws, gaps, users, begin_s - lead, duration_s, steering)
    found = Spells(user, start_s, start_s + lengths.draw(draws, user.size))
    return found[found.end_s > begin_s]
