"""Rates over time from samples.csv: into the device and out of it, by interface and by stream.

Counts in samples are cumulative: between two samples only the mean rate is known, a constant. Nothing is sent before
the start instant, so the count at 0 is that of the last sample before it. Edges are the sample times of one node, or
the limits of bins of one length; the nodes take a sample within milliseconds of each other, and the counts of the
others are interpolated at these edges. No packet is counted twice or left out.

Bytes in and out are those that the engines count, with the FCS, of the streams' frames. The counters of interfaces do
not have one convention: a veth counts received frames without their Ethernet headers, except those of XDP.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.report import latency_series
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.random.rates import ETHERNET_OVERHEAD_BYTES

Floats = NDArray[np.float64]
MOST_STREAMS = 8
"""Lines in one plot; more cannot be distinguished."""
CHUNK_BYTES = 1 << 24
INTERFACE = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")
INTERFACE_SAMPLE = ("time_ns", *INTERFACE, "cpu_busy_s")
SENT, RECEIVED, MISSING = 1, 2, 3
SENT_BYTES, RECEIVED_BYTES = 5, 4
LATENCY = 6
"""Columns of a leg's table; the packets and the sum of the latency are the last two."""
STREAM = (
    *("sent_packets", "received_packets", "missing_packets", "received_bytes", "sent_bytes"),
    *("latency_packets", "latency_sum_ns"),
)
"""Older folders lack the last columns."""
MOST_READ_BYTES = 200_000_000
"""Size of the file up to which the lines of all streams are read for the bits in and out: some seconds."""
PEAK_S = 0.1
"""The bin of peaks, as in the reference (Hrustic 2022, table 5.2)."""


@dataclass
class Counts:
    """Cumulative counts of one interface, or of one leg at one node. `values`: time_ns and the counts of each sample,
    one sample after another, NaN where not reported."""

    figures: int
    values: array[float] = field(default_factory=lambda: array("d"))

    @cached_property
    def samples(self) -> Floats:
        """A row a sample, in the order of time."""
        table = np.frombuffer(self.values).reshape(-1, self.figures)
        return table[np.argsort(table[:, 0], kind="stable")]

    @cached_property
    def table(self) -> Floats:
        """The samples, and a row of the start instant with the counts of the last sample before it."""
        before = int(np.searchsorted(self.times_ns, 0.0, side="right"))
        if not 0 < before < len(self.samples):
            return self.samples
        return np.insert(self.samples, before, [0.0, *self.samples[before - 1, 1:]], axis=0)

    @property
    def times_ns(self) -> Floats:
        return self.samples[:, 0]

    def at(self, edges_ns: Floats) -> Floats:
        """One row a count, at each edge."""
        return np.array([np.interp(edges_ns, self.table[:, 0], column) for column in self.table[:, 1:].T])

    def reports(self, column: int, all_samples: bool = True) -> bool:
        """Whether all samples, or any, have the count."""
        if column >= self.figures:
            return False
        unknown = np.isnan(self.samples[:, column])
        return not (unknown.any() if all_samples else unknown.all())


@dataclass
class Node:
    """Peaks of one node's interface between two edges, in its role's direction; bits with FCS, or as on layer 1."""

    node: str
    role: str
    peak_pps: float
    peak_bps: float
    peak_l1_bps: float
    cpus: float | None = None
    """Busy processors of the node, of all that ran there, on average; None: not reported."""
    peak_cpus: float | None = None

    def load(self, speed_mbps: float | None) -> float | None:
        """Peak utilisation of the link, as a fraction of its speed; None: the speed is not known."""
        return self.peak_l1_bps / (speed_mbps * 1e6) if speed_mbps else None


@dataclass
class OverTime:
    """Mean rates between the edges, which are `bin_s` apart; those at samples, about so.

    In: from all transmitters; out: to all receivers; packets of the interfaces, bits of the streams' frames with FCS.
    By stream: received packets/s, and how many are missing at the second edge and each later one."""

    bin_s: float
    edges_s: Floats
    in_pps: Floats
    out_pps: Floats
    in_bps: Floats | None
    out_bps: Floats | None
    """None: an engine does not report its part, or not all streams were read."""
    nodes: list[Node]
    received_pps: dict[str, Floats]
    missing: dict[str, Floats]
    latency_ns: dict[str, Floats]
    """Mean of what came between two edges, NaN where nothing did."""
    last: dict[tuple[str, str, str], dict[str, int]]
    """(stream, from, to) → its counts in its last samples; of all streams that were read."""

    too_large: bool = False
    """The lines of all streams were not read, as they are too many."""

    @property
    def begins_s(self) -> Floats:
        return self.edges_s[:-1]

    @property
    def ends_s(self) -> Floats:
        return self.edges_s[1:]


def read(
    path: Path,
    wanted: Iterable[str] | None,
    bin_s: float | None = None,
    means_ns: Mapping[latency_series.Leg, float] | None = None,
    sums: Iterable[latency_series.Leg] | None = (),
) -> OverTime | None:
    """Returns None if there are no samples. `wanted`: the streams to read, None for all; `bin_s` None: edges at the
    samples; `means_ns`: the mean latency of each leg as in streams.csv, needed for latency over time; `sums`: all legs
    of streams.csv, if the bits in and out are needed; None: as many as the samples have.

    If a crash truncated the file, its complete lines are read."""
    if not path.is_file():
        return None
    names = None if wanted is None else {name.encode() for name in wanted}
    legs = None if sums is None else list(sums)
    summed = legs != [] and (names is None or path.stat().st_size <= MOST_READ_BYTES)
    interfaces, streams = _scan(path, None if summed else names)
    if not interfaces:
        return None
    edges_ns = _edges_at_samples(interfaces.values()) if bin_s is None else _bins(interfaces.values(), bin_s * 1e9)
    found = _rates(edges_ns, interfaces, bin_s or float(f"{_distance_ns(interfaces.values()) / 1e9:.2g}"))
    found.too_large = legs != [] and not summed
    if summed:
        found.in_bps, found.out_bps = _bits(edges_ns, streams, legs)
    shown = {key: counts for key, counts in streams.items() if names is None or key[0] in names}
    found.received_pps, found.missing = _by_stream(edges_ns, shown)
    found.latency_ns, found.last = _latency(edges_ns, shown, means_ns or {}), _last(shown)
    return found


# --- edges -----------------------------------------------------------------------------------------------------------


def _range_ns(interfaces: Iterable[Counts]) -> tuple[float, float]:
    """The first and the last time, from the start instant on if there are samples on both sides of it."""
    firsts, lasts = zip(*((one.times_ns[0], one.times_ns[-1]) for one in interfaces), strict=True)
    first, last = float(min(firsts)), float(max(lasts))
    return (0.0 if first < 0 < last else first), last


def _bins(interfaces: Iterable[Counts], bin_ns: float) -> Floats:
    first, last = _range_ns(interfaces)
    begin = np.floor(first / bin_ns)
    edges: Floats = np.arange(begin, max(np.ceil(last / bin_ns), begin + 1) + 1) * bin_ns
    return edges


def _edges_at_samples(interfaces: Collection[Counts]) -> Floats:
    """The sample times of the interface with the most samples. None is closer to the one before than half the distance
    of samples: of a short time a rate is uncertain by a packet."""
    first, last = _range_ns(interfaces)
    apart_ns = _distance_ns(interfaces) / 2
    edges = [first]
    for time_ns in max(interfaces, key=lambda one: len(one.samples)).times_ns.tolist():
        if time_ns >= edges[-1] + apart_ns:
            edges.append(time_ns)
    if len(edges) == 1 or last >= edges[-1] + apart_ns:
        edges.append(max(last, edges[-1] + apart_ns))
    edges[-1] = max(last, edges[-1])
    return np.array(edges)


def _distance_ns(interfaces: Iterable[Counts]) -> float:
    distances = [np.diff(one.times_ns) for one in interfaces if len(one.samples) > 1]
    return float(np.median(np.concatenate(distances))) if distances else 1e9


# --- reading ---------------------------------------------------------------------------------------------------------

Key = tuple[bytes, ...]
"""(node, role) of an interface; (stream, from, to, node) of a leg: each end of a leg reports its own counts."""


class _Header:
    """Where the columns are, whatever else a version has, and what only the lines of an interface or a leg have."""

    def __init__(self, line: bytes) -> None:
        names = line.decode(errors="replace").strip().split(",")
        self.place = {name: number for number, name in enumerate(names)}
        self.known = {"time_ns", "node", "role", "stream", "from", "to", *INTERFACE} <= set(names)
        if self.known:
            self.between = self.place["stream"] - self.place["role"]
            self.interface = re.compile(b"," * (len(names) - self.place["stream"]) + rb"\r?\n")

    def legs(self, wanted: set[bytes] | None) -> re.Pattern[bytes]:
        """Pattern of the lines of legs. `wanted` None: all; else the receivers' lines of these streams."""
        if wanted is None:
            return re.compile(rb"(?<=[^,]),{%d}(?=[^,\r\n])" % self.between)
        return re.compile(b",receive" + b"," * self.between + b"(?:" + b"|".join(map(re.escape, wanted)) + b"),")

    def picker(self, *names: str) -> Callable[[list[bytes]], Key]:
        return itemgetter(*(self.place[name] for name in names if name in self.place))


def _scan(path: Path, wanted: set[bytes] | None) -> tuple[dict[Key, Counts], dict[Key, Counts]]:
    """Counts of interfaces and of legs. An hour of many streams is millions of lines: only needed ones are split."""
    interfaces: dict[Key, Counts] = {}
    legs: dict[Key, Counts] = {}
    with path.open("rb") as file:
        header = _Header(file.readline())
        for chunk in _chunks(file) if header.known else ():
            _take(
                interfaces,
                _lines(chunk, header.interface),
                header.picker("node", "role"),
                header.picker(*INTERFACE_SAMPLE),
            )
            if wanted is None or wanted:
                who = header.picker("stream", "from", "to", "node")
                _take(legs, _lines(chunk, header.legs(wanted)), who, header.picker("time_ns", *STREAM))
    return interfaces, legs


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Chunks of complete lines; a truncated last line is left out."""
    rest = b""
    while read := file.read(CHUNK_BYTES):
        whole, newline, rest = (rest + read).rpartition(b"\n")
        yield whole + newline


def _lines(chunk: bytes, known_by: re.Pattern[bytes]) -> Iterator[bytes]:
    for found in known_by.finditer(chunk):
        at = found.start()
        yield chunk[chunk.rfind(b"\n", 0, at) + 1 : chunk.index(b"\n", at)]


def _take(
    into: dict[Key, Counts],
    lines: Iterable[bytes],
    key: Callable[[list[bytes]], Key],
    figures: Callable[[list[bytes]], Key],
) -> None:
    """Nothing of a line that has no such cells."""
    for line in lines:
        cells = line.rstrip(b"\r").split(b",")
        try:
            who, row = key(cells), [float(cell or b"nan") for cell in figures(cells)]
        except (IndexError, ValueError):
            continue
        (into.get(who) or into.setdefault(who, Counts(len(row)))).values.extend(row)


# --- rates -----------------------------------------------------------------------------------------------------------


def _rates(edges_ns: Floats, interfaces: dict[Key, Counts], bin_s: float) -> OverTime:
    """The packets and the peaks of the interfaces."""
    lengths_s = np.diff(edges_ns) / 1e9
    ways: dict[str, list[Floats]] = {"transmit": [], "receive": []}
    nodes = []
    for (name, role), counts in interfaces.items():
        packets, of_bytes = counts.at(edges_ns)[0 if role == b"transmit" else 2 :][:2]
        pps = np.diff(packets) / lengths_s
        bps = 8 * (np.diff(of_bytes) / lengths_s + FCS_BYTES * pps)  # Linux' counters are without the FCS
        ways.setdefault(_word(role), []).append(pps)
        peaks = (float(pps.max()), float(bps.max()), float((bps + 8 * ETHERNET_OVERHEAD_BYTES * pps).max()))
        nodes.append(Node(_word(name), _word(role), *peaks, *_busy(counts, edges_ns)))
    none = np.zeros(len(lengths_s))
    into, out = (np.sum([none, *ways[role]], axis=0) for role in ("transmit", "receive"))
    return OverTime(bin_s, edges_ns / 1e9, into, out, None, None, nodes, {}, {}, {}, {})


def _bits(
    edges_ns: Floats, streams: dict[Key, Counts], legs: Iterable[latency_series.Leg] | None
) -> tuple[Floats | None, Floats | None]:
    """Bits/s sent and received by the engines. None: a leg does not report it. A leg whose users move has several
    receivers. `legs` None: those of either end. Folders without sent bytes have received ones without the FCS."""
    sent, received = (
        {_leg(key): counts for key, counts in streams.items() if counts.reports(column) and counts.figures > SENT_BYTES}
        for column in (SENT_BYTES, RECEIVED_BYTES)
    )
    known = {*sent, *received} if legs is None else set(legs)
    ends = {(stream, source, to) for stream, source, target in known for to in target.split("+")}
    lengths_s = np.diff(edges_ns) / 1e9

    def rate(found: dict[latency_series.Leg, Counts], needed: set[latency_series.Leg], column: int) -> Floats | None:
        if not needed or not needed <= set(found):
            return None
        total: Floats = np.sum([np.diff(found[leg].at(edges_ns)[column - 1]) for leg in needed], axis=0)
        return 8 * total / lengths_s

    return rate(sent, known, SENT_BYTES), rate(received, ends, RECEIVED_BYTES)


def _busy(counts: Counts, edges_ns: Floats) -> tuple[float | None, float | None]:
    """Processors on average over the run, and in the bin with the most."""
    column = len(INTERFACE_SAMPLE) - 1
    busy_s = counts.samples[:, column] if counts.figures == len(INTERFACE_SAMPLE) else np.array([np.nan])
    times_s = counts.times_ns / 1e9
    if np.isnan(busy_s).any() or times_s[-1] <= times_s[0]:
        return None, None
    each = np.diff(np.interp(edges_ns, counts.times_ns, busy_s)) / (np.diff(edges_ns) / 1e9)
    return float((busy_s[-1] - busy_s[0]) / (times_s[-1] - times_s[0])), float(each.max())


def _by_stream(edges_ns: Floats, streams: dict[Key, Counts]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Received packets/s and missing packets by stream. A sum is left out where one leg does not report its part."""
    received: dict[str, Floats] = {}
    missing: dict[str, Floats] = {}
    unreported: set[tuple[str, int]] = set()
    for (stream, *_), counts in streams.items():
        if not counts.reports(RECEIVED, all_samples=False):
            continue
        name, found = _word(stream), counts.at(edges_ns)
        unreported |= {(name, column) for column in (RECEIVED, MISSING) if not counts.reports(column)}
        received[name] = received.get(name, 0.0) + np.diff(found[RECEIVED - 1]) / (np.diff(edges_ns) / 1e9)
        missing[name] = missing.get(name, 0.0) + found[min(MISSING, len(found)) - 1][1:]
    return _complete(received, unreported, RECEIVED), _complete(missing, unreported, MISSING)


def _complete(series: dict[str, Floats], unreported: set[tuple[str, int]], column: int) -> dict[str, Floats]:
    return {name: values for name, values in series.items() if (name, column) not in unreported}


def _latency(
    edges_ns: Floats, streams: dict[Key, Counts], means_ns: Mapping[latency_series.Leg, float]
) -> dict[str, Floats]:
    """Mean latency by stream; empty where the samples have no latency."""
    samples = [
        (_leg(key), counts.table[:, [0, LATENCY, LATENCY + 1]])
        for key, counts in streams.items()
        if counts.figures > len(STREAM) and counts.reports(RECEIVED, all_samples=False)
    ]
    return latency_series.over_time(edges_ns, samples, means_ns)


def _leg(key: Key) -> latency_series.Leg:
    stream, source, target, _ = map(_word, key)
    return stream, source, target


def _word(name: bytes) -> str:
    return name.decode(errors="replace")


def _last(streams: dict[Key, Counts]) -> dict[tuple[str, str, str], dict[str, int]]:
    counted_by_leg: dict[tuple[str, str, str], dict[str, int]] = {}
    for key, counts in streams.items():
        leg = counted_by_leg.setdefault(_leg(key), {})
        counted = zip(STREAM, counts.samples[-1, 1:].tolist(), strict=False)
        leg.update({name: int(count) for name, count in counted if not np.isnan(count)})
    return counted_by_leg


# --- thinning out ----------------------------------------------------------------------------------------------------


def thin(times: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """At most about `most` points: of each of most/2 parts its least and its greatest value, so that no peak and no gap
    is lost."""
    if len(values) <= most:
        return times, values
    parts = np.array_split(np.arange(len(values)), max(1, most // 2))
    kept = sorted({int(part[pick(values[part])]) for part in parts for pick in (np.argmin, np.argmax)})
    return times[kept], values[kept]
