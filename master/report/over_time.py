"""Rates over time from samples.csv: into the device and out of it, by interface and by stream.

Counts in samples are cumulative, and each node takes samples at its own times. Each count is interpolated at the edges
of common bins and summed over the nodes; a rate is the difference between two edges. No packet is counted twice or left
out.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
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
STREAM = ("sent_packets", "received_packets", "missing_packets", "latency_packets", "latency_sum_ns")
"""Older folders lack the last columns."""
PEAK_S = 0.1
"""The bin of peaks, as in the reference (Hrustic 2022, table 5.2)."""


@dataclass
class Counts:
    """Cumulative counts of one interface, or of one leg at one node. `values`: time_ns and the counts of each sample,
    one sample after another, NaN where not reported."""

    figures: int
    values: array[float] = field(default_factory=lambda: array("d"))

    @cached_property
    def table(self) -> Floats:
        """A row a sample, in the order of time."""
        table = np.frombuffer(self.values).reshape(-1, self.figures)
        return table[np.argsort(table[:, 0], kind="stable")]

    @property
    def times_ns(self) -> Floats:
        return self.table[:, 0]

    def at(self, edges_ns: Floats) -> Floats:
        """One row a count, at each edge."""
        return np.array([np.interp(edges_ns, self.times_ns, column) for column in self.table[:, 1:].T])


@dataclass
class Node:
    """Peaks of one node's interface in one bin, in its role's direction; bits with FCS, or as on layer 1."""

    node: str
    role: str
    peak_pps: float
    peak_bps: float
    peak_l1_bps: float
    cpus: float | None = None
    """Busy processors of the node, of all that ran there, on average; None: not reported."""
    peak_cpus: float | None = None

    def load(self, speed_mbps: float | None) -> float | None:
        """Peak utilization of the link, as a fraction of its speed; None: the speed is not known."""
        return self.peak_l1_bps / (speed_mbps * 1e6) if speed_mbps else None


@dataclass
class OverTime:
    """Rates in bins of `bin_s`, from `begins_s` on. In: from all transmitters; out: to all receivers; bits count the
    FCS. By stream: received packets/s, and how many are missing so far."""

    bin_s: float
    begins_s: Floats
    in_pps: Floats
    out_pps: Floats
    in_bps: Floats
    out_bps: Floats
    nodes: list[Node]
    received_pps: dict[str, Floats]
    missing: dict[str, Floats]
    latency_ns: dict[str, Floats]
    """Mean of what came in each bin, NaN where nothing did."""
    last: dict[tuple[str, str, str], dict[str, int]]
    """(stream, from, to) → its counts in its last samples; of all streams that were read."""


def read(
    path: Path,
    wanted: Iterable[str] | None,
    bin_s: float | None = None,
    means_ns: Mapping[latency_series.Leg, float] | None = None,
) -> OverTime | None:
    """Returns None if there are no samples. `wanted`: the streams to read, None for all; `bin_s` None: the interval of
    the samples; `means_ns`: the mean latency of each leg as in streams.csv, needed for latency over time.

    If a crash truncated the file, its complete lines are read."""
    if not path.is_file():
        return None
    interfaces, streams = _scan(path, None if wanted is None else {name.encode() for name in wanted})
    if not interfaces:
        return None
    bin_ns = (bin_s or _distance_s(interfaces.values())) * 1e9
    first = min(one.times_ns[0] for one in interfaces.values())
    last = max(one.times_ns[-1] for one in interfaces.values())
    begin = np.floor(first / bin_ns)
    edges_ns = np.arange(begin, max(np.ceil(last / bin_ns), begin + 1) + 1) * bin_ns
    return _rates(bin_ns / 1e9, edges_ns, interfaces, streams, means_ns or {})


# --- reading ---------------------------------------------------------------------------------------------------------

Key = tuple[bytes, ...]
"""(node, role) of an interface; (stream, from, to, role) of a leg: each end of a leg reports its own counts."""


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
                who = header.picker("stream", "from", "to", "role")
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


def _distance_s(interfaces: Iterable[Counts]) -> float:
    distances = [np.diff(one.times_ns) for one in interfaces if len(one.table) > 1]
    return float(np.median(np.concatenate(distances))) / 1e9 if distances else 1.0


# --- rates -----------------------------------------------------------------------------------------------------------


def _rates(
    bin_s: float,
    edges_ns: Floats,
    interfaces: dict[Key, Counts],
    streams: dict[Key, Counts],
    means_ns: Mapping[latency_series.Leg, float],
) -> OverTime:
    ways: dict[str, list[Floats]] = {"transmit": [], "receive": []}
    nodes = []
    for (name, role), counts in interfaces.items():
        packets, of_bytes = counts.at(edges_ns)[0 if role == b"transmit" else 2 :][:2]
        pps = np.diff(packets) / bin_s
        bps = 8 * (np.diff(of_bytes) / bin_s + FCS_BYTES * pps)  # Linux' counters are without the FCS
        ways.setdefault(role.decode(errors="replace"), []).append(np.array([pps, bps]))
        peaks = (float(pps.max()), float(bps.max()), float((bps + 8 * ETHERNET_OVERHEAD_BYTES * pps).max()))
        nodes.append(Node(_word(name), _word(role), *peaks, *_busy(counts, edges_ns)))
    none = np.zeros((2, len(edges_ns) - 1))
    into, out = (np.sum([none, *ways[role]], axis=0) for role in ("transmit", "receive"))
    received, missing = _by_stream(bin_s, edges_ns, streams)
    rates = (into[0], out[0], into[1], out[1])
    by_stream = (received, missing, _latency(edges_ns, streams, means_ns), _last(streams))
    return OverTime(bin_s, edges_ns[:-1] / 1e9, *rates, nodes, *by_stream)


def _busy(counts: Counts, edges_ns: Floats) -> tuple[float | None, float | None]:
    """Processors on average over the run, and in the bin with the most."""
    column = len(INTERFACE_SAMPLE) - 1
    busy_s = counts.table[:, column] if counts.figures == len(INTERFACE_SAMPLE) else np.array([np.nan])
    times_s = counts.times_ns / 1e9
    if np.isnan(busy_s).any() or times_s[-1] <= times_s[0]:
        return None, None
    each = np.diff(np.interp(edges_ns, counts.times_ns, busy_s)) / (np.diff(edges_ns) / 1e9)
    return float((busy_s[-1] - busy_s[0]) / (times_s[-1] - times_s[0])), float(each.max())


def _by_stream(
    bin_s: float, edges_ns: Floats, streams: dict[Key, Counts]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Received packets/s and missing packets by stream. A sum is left out where one leg does not report its part."""
    received: dict[str, Floats] = {}
    missing: dict[str, Floats] = {}
    unreported: set[tuple[str, int]] = set()
    for (stream, _, _, role), counts in streams.items():
        if role != b"receive":
            continue
        name, found = stream.decode(errors="replace"), counts.at(edges_ns)
        unreported |= {(name, column) for column in (1, 2) if column >= len(found) or np.isnan(found[column]).any()}
        received[name] = received.get(name, 0.0) + np.diff(found[1]) / bin_s
        missing[name] = missing.get(name, 0.0) + found[min(2, len(found) - 1)][1:]
    return _complete(received, unreported, 1), _complete(missing, unreported, 2)


def _latency(
    edges_ns: Floats, streams: dict[Key, Counts], means_ns: Mapping[latency_series.Leg, float]
) -> dict[str, Floats]:
    """Mean latency by stream; empty where the samples have no latency."""
    samples = [
        ((_word(stream), _word(source), _word(target)), counts.table[:, [0, 4, 5]])
        for (stream, source, target, role), counts in streams.items()
        if role == b"receive" and counts.figures > len(STREAM)
    ]
    return latency_series.over_time(edges_ns, samples, means_ns)


def _word(name: bytes) -> str:
    return name.decode(errors="replace")


def _complete(series: dict[str, Floats], unreported: set[tuple[str, int]], column: int) -> dict[str, Floats]:
    return {name: values for name, values in series.items() if (name, column) not in unreported}


def _last(streams: dict[Key, Counts]) -> dict[tuple[str, str, str], dict[str, int]]:
    counted_by_leg: dict[tuple[str, str, str], dict[str, int]] = {}
    for key, counts in streams.items():
        stream, source, target, _ = (name.decode(errors="replace") for name in key)
        leg = counted_by_leg.setdefault((stream, source, target), {})
        counted = zip(STREAM, counts.table[-1, 1:].tolist(), strict=False)
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
