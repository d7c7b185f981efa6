"""One leg's figures, made from what the counting program in the kernel keeps (traffic.counting.kernel_structs).

Lost: sent − distinct − damaged. Reordered: type-P-reordered (RFC 4737, section 3). Delay is of the first arrival of
each number with a whole payload (RFC 7679). Jitter is of J(n) = [R(n) − R(n−1)] − [T(n) − T(n−1)] over those arrivals
in their order: its standard deviation, and the running estimate of RFC 3550, section 6.4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pktswarm.traffic.counting.kernel_structs import CAUSES, HISTOGRAM_BITS, HISTOGRAM_BUCKETS, WINDOW_WORDS, RawTally
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.typed_json import decode_fields

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
LARGEST_ERROR = 0.5 / (1 << HISTOGRAM_BITS)
"""Of a percentile, relative: half a bucket, which is at most 1/64 of its values wide."""
REMEMBERED = 64 * (WINDOW_WORDS - 1)
"""A frame is told from a duplicate exactly unless one so many numbers ahead has come before."""


@dataclass(frozen=True)
class Latency:
    """Nanoseconds; percentiles to LARGEST_ERROR, the others exact. `negative`: frames whose clocks were apart."""

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
        """The same latencies, each longer by so much: the clocks stood otherwise than they were taken to."""
        return replace(
            self,
            min_ns=self.min_ns + by_ns,
            mean_ns=self.mean_ns + by_ns,
            **{f"{name}_ns": getattr(self, f"{name}_ns") + by_ns for name in PERCENTILES},
            max_ns=self.max_ns + by_ns,
        )


@dataclass(frozen=True)
class Jitter:
    """Nanoseconds. `clipped`: differences of over 4.29 s, taken as that."""

    pairs: int
    sd_ns: float
    rfc3550_ns: float
    clipped: int = 0


@dataclass(frozen=True)
class Tally:
    """What a receiver counted of one leg. Stamped: packets = distinct + duplicated + too_late + astray + damaged.

    Of an unstamped leg only the packets, bytes and times are known. `bytes` are without FCS; times are the
    receiver's clock. `too_late`: came so far behind that nobody knows whether they are duplicates (they count as
    lost). `astray`: the stamp's number cannot be. `damaged`: the stamp does not verify; altered packets whose number is
    not known. `impossible`: times outside the clocks' bound. `highest`: the highest sequence number that came.
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

        None where frames have no number.
        """
        return None if self.distinct is None else not_received(sent, self.distinct, self.damaged)

    @property
    def missing(self) -> int | None:
        """Numbers up to the highest that have not come (yet): for samples, when the sender's count is not known."""
        if self.distinct is None:
            return None
        return 0 if self.highest is None else self.highest + 1 - self.distinct - self.damaged

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object, where: object = "tally", key: str = "") -> Tally:
        return decode_fields(cls, data, where, key)


def not_received(sent: int, distinct: int, damaged: int) -> int:
    """Packets sent and not received. A packet with a damaged number is received; damaged packets beyond the missing
    numbers are duplicates. Negative where more distinct numbers came than were sent."""
    missing = sent - distinct
    return missing - min(damaged, max(0, missing))


def unstamped(raw: RawTally) -> Tally:
    first_ns, last_ns = _times(raw)
    return Tally(raw.packets, raw.bytes, first_ns, last_ns)


def stamped(raw: RawTally, buckets: Sequence[int] | None, bias_ns: int = 0) -> Tally:
    """`buckets` None: latencies were not counted, or are not asked for. EngineError if the figures contradict."""
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
    """For samples, many times a second: what needs no more than reading (traffic.counting.samples). EngineError as
    above."""
    told: dict[str, int | None] = {"packets": raw.packets, "bytes": raw.bytes}
    if not numbered:
        return told
    _check(raw)
    told |= {name: getattr(raw, name) for name in ("distinct", "duplicated", "reordered", "altered")}
    told["missing"] = raw.next - raw.distinct - raw.damaged
    if timed and raw.latencies:
        told["latency_packets"] = raw.latencies
        told |= {f"latency_{name}_ns": getattr(raw, f"latency_{name}_ns") for name in ("sum", "min", "max")}
    return told


def _check(raw: RawTally) -> None:
    if not adds_up(raw):
        raise EngineError("xdp", f"counts do not add up: {_figures(raw)}")


def adds_up(raw: RawTally) -> bool:
    """Not so when a figure is wrong."""
    return bool(raw.packets == raw.distinct + raw.duplicated + raw.too_late + raw.invalid_sequence + raw.damaged)


def torn(raw: RawTally, stamped: bool) -> bool:
    """Whether it was read while a frame was being counted, as far as its figures tell."""
    return bool(raw.packets != raw.done) or (stamped and not adds_up(raw))


def _times(raw: RawTally) -> tuple[int, int] | tuple[None, None]:
    return (raw.first_ns, raw.last_ns) if raw.packets else (None, None)


def _figures(raw: RawTally) -> str:
    names = ("packets", "distinct", "duplicated", "too_late", "invalid_sequence", "damaged")
    return ", ".join(f"{name} {getattr(raw, name)}" for name in names)


def latency(raw: RawTally, buckets: Sequence[int], bias_ns: int = 0) -> Latency | None:
    """None when nothing was timed. The buckets may be some frames ahead of `raw` while frames arrive.

    `bias_ns`: by how much what stands in the buckets is larger than the latencies.
    """
    frames = sum(buckets)
    if not frames or not raw.latencies:
        return None
    points = {
        f"{name}_ns": min(max(percentile(buckets, part) - bias_ns, raw.latency_min_ns), raw.latency_max_ns)
        for name, part in PERCENTILES.items()
    }
    mean = raw.latency_sum_ns / raw.latencies
    return Latency(raw.latencies, raw.latency_min_ns, mean, **points, max_ns=raw.latency_max_ns, negative=raw.negative)


def jitter(raw: RawTally) -> Jitter | None:
    """None for fewer than two frames. The standard deviation is the population's."""
    pairs = raw.jitter_pairs
    if not pairs:
        return None
    squares = raw.jitter_squares_high << 64 | raw.jitter_squares_low
    # Whole numbers until the end: two large sums that are nearly the same are taken from one another.
    scaled_variance = pairs * squares - raw.jitter_sum_ns**2
    return Jitter(pairs, math.sqrt(scaled_variance) / pairs, raw.jitter_rfc3550_16 / 16, raw.jitter_clipped)


def delays(raw: RawTally, buckets: Sequence[int], bias_ns: int = 0) -> list[list[int]]:
    """[latency in ns, frames]: what latency() makes its percentiles of."""
    low, high = raw.latency_min_ns, raw.latency_max_ns
    return [[min(max(middle(n) - bias_ns, low), high), frames] for n, frames in enumerate(buckets) if frames]


def bucket(value_ns: int) -> int:
    """Where the program counts a latency: exact below 128 ns, then 64 buckets for each power of two."""
    shift = max(0, max(value_ns, 0).bit_length() - 1 - HISTOGRAM_BITS)
    return min((shift << HISTOGRAM_BITS) + (max(value_ns, 0) >> shift), HISTOGRAM_BUCKETS - 1)


def middle(index: int) -> int:
    """The value that stands for a bucket: at most LARGEST_ERROR from any value in it."""
    shift = max(0, (index >> HISTOGRAM_BITS) - 1)
    low = (index - (shift << HISTOGRAM_BITS)) << shift
    return low + ((1 << shift) >> 1)


def percentile(buckets: Sequence[int], part: float) -> int:
    """The least value that at least `part` of all do not exceed (nearest rank). ValueError if there are none."""
    wanted = max(1, math.ceil(part * sum(buckets)))
    seen = 0
    for index, count in enumerate(buckets):
        seen += count
        if seen >= wanted:
            return middle(index)
    raise ValueError("an empty histogram has no percentiles")
