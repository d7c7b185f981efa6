"""Arrival times of a capture, of a run's captures, or of a table, and packet counts in bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.capture.constants import NS_PER_S
from pktswarm.traffic.capture.index import LATEST_NS, index_capture
from pktswarm.traffic.errors import BadInput

Integers = NDArray[np.int64]
MIN_PACKETS = 256
MIN_BINS, MAX_BINS = 64, 1 << 16
PACKETS_PER_BIN = 4
"""Minimum mean packets per bin of the automatic bin width: with fewer most counts are 0 or 1."""
CAPTURE_OF = "-capture-"
"""Separator of host and interface (and VLAN tag) in the name of a run's capture."""
COLUMNS_NS = {"time_ns": 1, "time_us": 1000, "time_ms": 1_000_000, "time_s": NS_PER_S}


@dataclass(frozen=True)
class Arrivals:
    times_ns: Integers
    """Times in ascending order."""
    notes: list[str] = field(default_factory=list)


def read_arrivals(path: Path, host: str = "") -> Arrivals:
    """Reads arrivals from a capture, a CSV of times, or a results folder (captures of `host`, or all). Raises
    BadInput."""
    if path.is_dir():
        return _of_run(path, host)
    if host:
        raise BadInput(path, "is a file; a host can be chosen only in a results folder", key="--host", value=host)
    times_ns = _from_table(path) if path.suffix.lower() == ".csv" else index_capture(path).time_ns
    return Arrivals(_checked(path, times_ns))


def _of_run(folder: Path, host: str) -> Arrivals:
    captures = sorted(path for path in (folder / "captures").glob(f"*{CAPTURE_OF}*") if path.is_file())
    hosts = sorted({path.name.partition(CAPTURE_OF)[0] for path in captures})
    if not captures:
        raise BadInput(folder, "no captures", allowed="a capture, a CSV of times, or a results folder")
    if host and host not in hosts:
        raise BadInput(folder / "captures", "no capture of this host", key="--host", value=host, allowed=str(hosts))
    chosen = [path for path in captures if not host or path.name.partition(CAPTURE_OF)[0] == host]
    parts = [_in_order(path, index_capture(path).time_ns) for path in chosen]
    notes = []
    if not host and len(hosts) > 1:
        notes.append(f"captures of {', '.join(hosts)} are merged by the clocks of their hosts: see --host")
    return Arrivals(_enough(folder, np.sort(np.concatenate(parts), kind="stable")), notes)


def _from_table(path: Path) -> Integers:
    """The column of times: the one named in the header, or without a header the first one, in seconds."""
    try:
        with path.open(encoding="utf-8") as file:
            first = [name.strip().lower() for name in file.readline().split(",")]
        named = [name for name in first if name in COLUMNS_NS]
        at, unit_ns = (first.index(named[0]), COLUMNS_NS[named[0]]) if named else (0, NS_PER_S)
        exact = np.int64 if unit_ns == 1 else np.float64
        column = np.loadtxt(path, exact, delimiter=",", skiprows=1 if named else 0, usecols=at, ndmin=1)
    except FileNotFoundError:
        raise BadInput(path, "there is no such file") from None
    except (OSError, ValueError) as error:
        names = ", ".join(COLUMNS_NS)
        raise BadInput(path, f"cannot be read as a table of times: {error}", allowed=f"a column {names}") from None
    # NaN is neither below nor above.
    if not ((column >= 0) & (column <= LATEST_NS / unit_ns)).all():
        raise BadInput(path, "a time is invalid (allowed: 1970 to 2106)")
    return np.asarray(np.rint(column * unit_ns) if unit_ns > 1 else column).astype(np.int64)


def _checked(path: Path, times_ns: Integers) -> Integers:
    return _enough(path, _in_order(path, times_ns))


def _in_order(path: Path, times_ns: Integers) -> Integers:
    back = np.flatnonzero(np.diff(times_ns) < 0)
    if len(back):
        by_ns = int(times_ns[back[0]] - times_ns[back[0] + 1])
        problem = f"time goes backwards at packet {back[0] + 2}, by {by_ns:,} ns ({len(back):,} times in all): "
        raise BadInput(path, problem + "put it in order first, for example with reordercap")
    return times_ns


def _enough(path: Path, times_ns: Integers) -> Integers:
    if len(times_ns) < MIN_PACKETS:
        problem = "too few packets"
        raise BadInput(path, problem, value=len(times_ns), allowed=f"{MIN_PACKETS} or more")
    if times_ns[0] == times_ns[-1]:
        raise BadInput(path, "all packets have the same time", value=int(times_ns[0]))
    return times_ns


def chosen_bin_ns(times_ns: Integers) -> int:
    """A bin width with a power of two of bins and a mean of at least PACKETS_PER_BIN packets."""
    bins = min(MAX_BINS, max(MIN_BINS, 1 << (len(times_ns) // PACKETS_PER_BIN).bit_length() - 1))
    return max(1, -(-int(times_ns[-1] - times_ns[0] + 1) // bins))


def counts(times_ns: Integers, bin_ns: int) -> NDArray[np.float64]:
    """Packets in each whole bin from the first packet; a last, partial bin is left out."""
    span_ns = int(times_ns[-1] - times_ns[0]) + 1
    # The last bin is whole but for rounding where the width was chosen to fit.
    bins = max(1, int(span_ns / bin_ns + 0.01))
    edges = times_ns[0] + np.arange(bins + 1, dtype=np.int64) * bin_ns
    return np.asarray(np.diff(np.searchsorted(times_ns, edges)), np.float64)
