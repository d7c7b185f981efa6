"""How long the analysis of ten million arrivals takes, from the file to the last estimate.

    .venv/bin/python bench/dependence.py --rounds 3

The arrivals are a doubly random process: Poisson, with a rate that is fractional Gaussian noise of H = 0.8.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.dependence.arrivals import Integers
from pktswarm.traffic.dependence.noise import one_series

HURST = 0.8
RATE_BINS = 1 << 16
FRAME_BYTES = 60
ESTIMATE = """
import sys, time
import numpy as np
from pktswarm.traffic.dependence import analyse
times_ns = np.load(sys.argv[1])
begun = time.perf_counter()
analyse(times_ns)
print(time.perf_counter() - begun)
"""


def arrivals(packets: int) -> Integers:
    rate = np.maximum(1 + 0.3 * one_series(HURST, RATE_BINS, 1), 0.05)
    counts = np.random.default_rng(2).poisson(rate * packets / rate.sum())
    starts = np.repeat(np.arange(RATE_BINS, dtype=np.int64) * 1_000_000, counts)
    return np.sort(starts + np.random.default_rng(3).integers(0, 1_000_000, len(starts)))


def write_capture(path: Path, times_ns: Integers) -> None:
    """A pcap of frames of zeros."""
    record = np.dtype(
        [("seconds", "<u4"), ("ns", "<u4"), ("kept", "<u4"), ("wire", "<u4"), ("frame", f"V{FRAME_BYTES}")]
    )
    records = np.zeros(len(times_ns), record)
    records["seconds"], records["ns"] = times_ns // 10**9, times_ns % 10**9
    records["kept"] = records["wire"] = FRAME_BYTES
    header = np.array([0xA1B23C4D, 0x0004_0002, 0, 0, 262_144, 1], "<u4")
    path.write_bytes(header.tobytes() + records.tobytes())


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def estimating_s(path: Path) -> float:
    """In a process of its own: the calibration is kept between calls, and would be measured once only."""
    command = [sys.executable, "-c", ESTIMATE, path]
    return float(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)


def main() -> None:
    parser = report.parser("The analysis of arrivals.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--packets", type=int, default=10_000_000)
    arguments = parser.parse_args()
    times_ns = arrivals(arguments.packets)
    with tempfile.TemporaryDirectory() as name:
        capture, array = Path(name) / "arrivals.pcap", Path(name) / "arrivals.npy"
        write_capture(capture, times_ns)
        np.save(array, times_ns)
        millions = f"{len(times_ns) / 1e6:.1f} M"
        reading = [seconds(lambda: index_capture(capture)) for _ in range(arguments.rounds)]
        estimating = [estimating_s(array) for _ in range(arguments.rounds)]
    rows = [
        report.measured(f"{millions} arrivals read from pcap, s", reading, None),
        report.measured(f"{millions} arrivals: gaps, correlation, four estimators, s", estimating, 10.0),
    ]
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
