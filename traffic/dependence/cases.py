"""Repeated and scaled arrival times of a trace, as pure functions of sorted nanoseconds.

Ericload (Hrustic 2022) repeats by appending and scales by sending every packet N times at once (section 4.4); its
section 6.3 proposes a random offset in place of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Start = Literal["together", "spread", "random_offset"]
STARTS: tuple[Start, ...] = get_args(Start)


@dataclass(frozen=True)
class Case:
    name: str
    times_ns: Integers
    passes: int = 1

    @property
    def warnings(self) -> list[str]:
        if self.passes == 1:
            return []
        pass_s = (self.times_ns[-1] - self.times_ns[0]) / 1e9 / self.passes
        return [f"repeated: scales beyond a pass of {pass_s:.4g} s hold its repetition only, and no dependence"]


def mean_gap_ns(times_ns: Integers) -> int:
    return int(times_ns[-1] - times_ns[0]) // max(1, len(times_ns) - 1)


def period_ns(times_ns: Integers) -> int:
    """From the start of one pass to the start of the next: the duration and one mean gap, as Trace.period_ns."""
    return int(times_ns[-1] - times_ns[0]) + mean_gap_ns(times_ns)


def repeated(times_ns: Integers, repeat: int) -> Integers:
    """`repeat` passes, one after the other."""
    shifts = np.arange(repeat, dtype=np.int64) * period_ns(times_ns)
    return np.asarray((shifts[:, None] + times_ns[None, :]).ravel())


def scaled(times_ns: Integers, scale: int, start: Start = "together", seed: int = 1, offset_ns: int = 0) -> Integers:
    """`scale` instances at once, sorted again.

    together: each packet arrives `scale` times at one instant. spread: instance i starts i ÷ scale of the period later,
    so the rate rises at the start and falls at the end. random_offset: the first instance is unchanged; every packet of
    the others is delayed by a random time, uniform from 0 to `offset_ns` (0: one mean gap).
    """
    if start == "together":
        return np.repeat(times_ns, scale)
    copies = np.tile(times_ns, (scale, 1))
    if start == "spread":
        copies += (np.arange(scale, dtype=np.int64) * period_ns(times_ns) // scale)[:, None]
    else:
        width_ns = max(1, offset_ns or mean_gap_ns(times_ns))
        copies[1:] += np.random.default_rng(seed).integers(0, width_ns, (scale - 1, len(times_ns)))
    return np.sort(copies.ravel(), kind="stable")


def five_cases(
    times_ns: Integers, repeat: int, scale: int, start: Start = "together", seed: int = 1, offset_ns: int = 0
) -> Iterator[Case]:
    """The four cases of figure 5.7, and scaling with random offsets. A factor of 1 omits its cases.

    They are generated one after the other, because each can fill the memory.
    """
    yield Case("as it is", times_ns)
    if scale > 1:
        yield Case(f"scaled {scale}, {start}", scaled(times_ns, scale, start, seed, offset_ns))
    if repeat > 1:
        yield Case(f"repeated {repeat}", repeated(times_ns, repeat), repeat)
    if repeat > 1 and scale > 1:
        both = scaled(repeated(times_ns, repeat), scale, start, seed, offset_ns)
        yield Case(f"repeated {repeat}, scaled {scale}, {start}", both, repeat)
    if scale > 1 and start != "random_offset":
        offset = scaled(times_ns, scale, "random_offset", seed, offset_ns)
        yield Case(f"scaled {scale}, random_offset", offset)
