"""Random processes of sources, for many users at once, as arrays. Times are in seconds from the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.ragged import repeat
from pktswarm.traffic.random.parse import Distribution, Floats, times
from pktswarm.traffic.random.rates import Rates

Ints = NDArray[np.int64]
MOST_AT_ONCE = 1_000_000
"""Values drawn at once, to limit the memory of rejected ones."""


@dataclass(frozen=True)
class Steering:
    """The relative rate of session arrivals over time: a profile with mean 1 over the run."""

    profile: Rates | None = None

    @property
    def peak(self) -> float:
        return 1.0 if self.profile is None else float(self.profile.rate.max()) / self.profile.mean

    def kept(self, draws: np.random.Generator, time_s: Floats) -> NDArray[np.bool_]:
        """Thinning: whether each arrival at the peak rate is kept."""
        if self.profile is None:
            return np.ones(time_s.size, bool)
        return np.asarray(draws.random(time_s.size) * self.profile.rate.max() < self.profile.at(time_s))


@dataclass(frozen=True, eq=False)
class Spells:
    """Intervals of users: sessions, calls, talk spurts."""

    user: Ints
    begin_s: Floats
    end_s: Floats

    def __getitem__(self, which: NDArray[np.bool_] | Ints) -> Spells:
        return Spells(self.user[which], self.begin_s[which], self.end_s[which])


def renewals(draws: np.random.Generator, gaps: Distribution, first_s: Floats, until_s: Floats) -> tuple[Ints, Floats]:
    """Row and time of events: the first one of a row, then gap after gap before its `until_s`."""
    row = np.flatnonzero(first_s < until_s)
    at = first_s[row]
    rows, found, mean = [row], [at], float(gaps.moment(1))
    while row.size:
        left = until_s[row] - at
        columns = int(min(MOST_AT_ONCE // row.size, float(left.mean()) / mean * 1.2 + 8)) or 1
        reach = at[:, None] + np.cumsum(gaps.draw(draws, (row.size, columns)), axis=1)
        inside = reach < until_s[row][:, None]
        rows.append(np.repeat(row, inside.sum(axis=1)))
        found.append(reach[inside])
        going = inside[:, -1]
        row, at = row[going], reach[going, -1]
    return np.concatenate(rows), np.concatenate(found)


def arrivals(
    draws: np.random.Generator, gaps: Distribution, users: int, begin_s: float, until_s: float, steering: Steering
) -> tuple[Ints, Floats]:
    """User and time of the arrivals of a stationary process per user, with the relative rate of `steering`."""
    faster = times(gaps, 1 / steering.peak)
    first = begin_s + faster.residual(draws, users)
    user, time_s = renewals(draws, faster, first, np.full(users, until_s))
    kept = steering.kept(draws, time_s)
    return user[kept], time_s[kept]


def alternating(draws: np.random.Generator, on: Distribution, off: Distribution, within: Spells) -> tuple[Ints, Spells]:
    """The `on` intervals of an alternating process within the intervals `within`, and the row of `within` of each.

    The first state has the stationary probability, so the process is stationary from its begin.
    """
    mean_on, mean_off = float(on.moment(1)), float(off.moment(1))
    count = within.user.size
    begins_on = draws.random(count) < mean_on / (mean_on + mean_off)
    rest = np.where(begins_on, on.residual(draws, count), off.residual(draws, count))
    rows, begins, ends = [np.flatnonzero(begins_on)], [within.begin_s[begins_on]], [(within.begin_s + rest)[begins_on]]
    at = within.begin_s + rest + np.where(begins_on, off.draw(draws, count), 0)
    row = np.flatnonzero(at < within.end_s)
    at = at[row]
    while row.size:
        left = float((within.end_s[row] - at).mean())
        columns = int(min(MOST_AT_ONCE // row.size, left / (mean_on + mean_off) * 1.2 + 8)) or 1
        lasts, pauses = on.draw(draws, (row.size, columns)), off.draw(draws, (row.size, columns))
        after = at[:, None] + np.cumsum(lasts + pauses, axis=1)
        begin = after - pauses - lasts
        inside = begin < within.end_s[row][:, None]
        rows.append(np.repeat(row, inside.sum(axis=1)))
        begins.append(begin[inside])
        ends.append((begin + lasts)[inside])
        going = after[:, -1] < within.end_s[row]
        row, at = row[going], after[going, -1]
    which = np.concatenate(rows)
    end = np.minimum(np.concatenate(ends), within.end_s[which])
    return which, Spells(within.user[which], np.concatenate(begins), end)


def ticks(spells: Spells, period_s: float, begin_s: float, until_s: float) -> tuple[Ints, Ints, Floats]:
    """Row, number and time of events at an interval's begin and every `period_s` after, from `begin_s` to `until_s`."""
    first = np.maximum(np.ceil((begin_s - spells.begin_s) / period_s), 0).astype(np.int64)
    stop = np.ceil((np.minimum(spells.end_s, until_s) - spells.begin_s) / period_s).astype(np.int64)
    row, number = ragged(np.maximum(stop - first, 0))
    number += first[row]
    return row, number, spells.begin_s[row] + number * period_s


def ragged(counts: Ints) -> tuple[Ints, Ints]:
    """(row, place in the row) of each entry of rows with these numbers of entries."""
    row = repeat(np.arange(counts.size), counts)
    return row, np.arange(row.size) - repeat(np.cumsum(counts) - counts, counts)


def running_sums(values: Floats, row: Ints, place: Ints) -> Floats:
    """Cumulative sums along each row of ragged(), inclusive."""
    sums = np.cumsum(values)
    starts = np.flatnonzero(place == 0)
    lengths = np.diff(starts, append=values.size)
    return np.asarray(sums - np.repeat(sums[starts] - values[starts], lengths))
