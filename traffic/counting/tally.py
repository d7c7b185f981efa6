"""The figures of one leg, from the counters of the kernel program (traffic.counting.kernel_structs).

Lost: sent − distinct − damaged. Reordered: type-P-reordered (RFC 4737, section 3). Delay: that of the first arrival of
each number with a whole payload (RFC 7679). Jitter: J(n) = [R(n) − R(n−1)] − [T(n) − T(n−1)] over those arrivals in
their order, as its standard deviation and as the running estimate of RFC 3550, section 6.4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pktswarm.traffic.counting.kernel_structs import CAUSES, WINDOW_WORDS, RawTally
from pktswarm.traffic.counting.latency_histogram import middle, percentiles
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.typed_json import decode_fields

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
REMEMBERED = 64 * (WINDOW_WORDS - 1)
"""Duplicates are detected exactly unless a frame this many numbers ahead has been received."""


@dataclass(frozen=True)
class Latency:
    """Latency in nanoseconds; percentiles to LARGEST_ERROR, the others exact. `negative`: frames with a negative
    one."""

    frames: int
    min_ns: int
    mean_ns: float
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    negative: int = 0

    def shifted(self, by_ns: int) -> Latency:
        """The same latencies with a corrected clock offset: each longer by `by_ns`."""
        return replace(
            self,
            min_ns=self.min_ns + by_ns,
            mean_ns=self.mean_ns + by_ns,
            **{f"{name}_ns": getattr(self, f"{name}_ns") + by_ns for name in PERCENTILES},
            max_ns=self.max_ns + by_ns,
        )


@dataclass(frozen=True)
class Jitter:
    """Jitter in nanoseconds. `clipped`: differences above 4.29 s, counted as 4.29 s."""

    pairs: int
    sd_ns: float
    rfc3550_ns: float
    clipped: int = 0


@dataclass(frozen=True)
class Tally:
    """The counts of one leg at a receiver. Stamped: packets = distinct + duplicated + too_late + invalid_sequence +
    damaged.

    An unstamped leg has packets, bytes and times only. `bytes` are without FCS; times are the receiver's clock.
    `too_late`: too far behind to be distinguished from duplicates (they count as lost). `invalid_sequence`: an
    impossible sequence number. `damaged`: altered packets whose stamp does not verify, so their number is unknown.
    `impossible`: times outside the bound of the clocks. `highest`: the highest received sequence number.
    """

    packets: int
    bytes: int
    first_ns: int | None = None
    last_ns: int | None = None
    distinct: int | None = None
    duplicated: int | None = None
    reordered: int | None = None
    too_late: int | None = None
    invalid_sequence: int | None = None
    altered: int | None = None
    altered_by: dict[str, int] | None = None
    highest: int | None = None
    latency: Latency | None = None
    jitter: Jitter | None = None
    damaged: int = 0
    impossible: int = 0

    def lost(self, sent: int) -> int | None:
        """Distinct sequence numbers sent and never received, less the received packets whose number cannot be read.

        None for frames without numbers.
        """
        return None if self.distinct is None else not_received(sent, self.distinct, self.damaged)

    @property
    def missing(self) -> int | None:
        """Numbers up to the highest that have not been received yet, for samples without the sender's count."""
        if self.distinct is None:
            return None
        return 0 if self.highest is None else self.highest + 1 - self.distinct - self.damaged

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object, where: object = "tally", key: str = "") -> Tally:
        return decode_fields(cls, data, where, key)


def not_received(sent: int, distinct: int, damaged: int) -> int:
    """Packets sent and not received. A packet with a damaged number is received; damaged packets in excess of the
    missing numbers are duplicates. Negative if more distinct numbers were received than sent."""
    missing = sent - distinct
    return missing - min(damaged, max(0, missing))


def unstamped(raw: RawTally) -> Tally:
    first_ns, last_ns = _times(raw)
    return Tally(raw.packets, raw.bytes, first_ns, last_ns)


def stamped(raw: RawTally, buckets: Sequence[int] | None, bias_ns: int = 0) -> Tally:
    """The tally of a stamped leg. `buckets` None: without latencies. EngineError if the figures contradict each
    other."""
    _check(raw)
    first_ns, last_ns = _times(raw)
    return Tally(
        raw.packets,
        raw.bytes,
        first_ns,
        last_ns,
        distinct=raw.distinct,
        duplicated=raw.duplicated,
        reordered=raw.reordered,
        too_late=raw.too_late,
        invalid_sequence=raw.invalid_sequence,
        altered=raw.altered,
        altered_by={name: count for name, count in zip(CAUSES, raw.altered_by, strict=False) if count},
        highest=raw.next - 1 if raw.next else None,
        latency=None if buckets is None else latency(raw, buckets, bias_ns),
        jitter=jitter(raw),
        damaged=raw.damaged,
        impossible=raw.impossible,
    )


def so_far(raw: RawTally, numbered: bool, timed: bool) -> dict[str, int | None]:
    """The figures of a sample, made without computation (traffic.counting.samples). EngineError as for stamped()."""
    figures: dict[str, int | None] = {"packets": raw.packets, "bytes": raw.bytes}
    if not numbered:
        return figures
    _check(raw)
    figures |= {name: getattr(raw, name) for name in ("distinct", "duplicated", "reordered", "altered")}
    figures["missing"] = raw.next - raw.distinct - raw.damaged
    if timed and raw.latencies:
        figures["latency_packets"] = raw.latencies
        figures |= {f"latency_{name}_ns": getattr(raw, f"latency_{name}_ns") for name in ("sum", "min", "max")}
    return figures


def _check(raw: RawTally) -> None:
    if not adds_up(raw):
        raise EngineError("xdp", f"counts do not add up: {_figures(raw)}")


def adds_up(raw: RawTally) -> bool:
    """Whether the packets are the sum of their kinds."""
    return bool(raw.packets == raw.distinct + raw.duplicated + raw.too_late + raw.invalid_sequence + raw.damaged)


def torn(raw: RawTally, stamped: bool) -> bool:
    """Whether the figures show that the struct was read while a frame was being counted."""
    return bool(raw.packets != raw.done) or (stamped and not adds_up(raw))


def _times(raw: RawTally) -> tuple[int, int] | tuple[None, None]:
    return (raw.first_ns, raw.last_ns) if raw.packets else (None, None)


def _figures(raw: RawTally) -> str:
    names = ("packets", "distinct", "duplicated", "too_late", "invalid_sequence", "damaged")
    return ", ".join(f"{name} {getattr(raw, name)}" for name in names)


def latency(raw: RawTally, buckets: Sequence[int], bias_ns: int = 0) -> Latency | None:
    """The latency of a leg; None without timed frames. The buckets can be some frames ahead of `raw` during a run.

    `bias_ns`: the excess of the values in the buckets over the latencies.
    """
    frames = sum(buckets)
    if not frames or not raw.latencies:
        return None
    points = {
        f"{name}_ns": min(max(found_ns - bias_ns, raw.latency_min_ns), raw.latency_max_ns)
        for name, found_ns in zip(PERCENTILES, percentiles(buckets, PERCENTILES.values()), strict=True)
    }
    mean = raw.latency_sum_ns / raw.latencies
    return Latency(raw.latencies, raw.latency_min_ns, mean, **points, max_ns=raw.latency_max_ns, negative=raw.negative)


def jitter(raw: RawTally) -> Jitter | None:
    """The jitter of a leg; None for fewer than two frames. The standard deviation is the population's."""
    pairs = raw.jitter_pairs
    if not pairs:
        return None
    squares = raw.jitter_squares_high << 64 | raw.jitter_squares_low
    # Integers until the end: the difference of two large, nearly equal sums.
    scaled_variance = pairs * squares - raw.jitter_sum_ns**2
    return Jitter(pairs, math.sqrt(scaled_variance) / pairs, raw.jitter_rfc3550_16 / 16, raw.jitter_clipped)


def delays(raw: RawTally, buckets: Sequence[int], bias_ns: int = 0) -> list[list[int]]:
    """[latency in ns, frames] of each bucket, from which latency() makes its percentiles."""
    low, high = raw.latency_min_ns, raw.latency_max_ns
    return [[min(max(middle(n) - bias_ns, low), high), frames] for n, frames in enumerate(buckets) if frames]
