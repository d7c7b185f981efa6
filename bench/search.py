"""How long a zero-loss search takes in the lab: six frame sizes, precision 0.5 %; how near the device's rate it is.

    sudo .venv/bin/python bench/search.py

The device is the kernel's token bucket at 40 Mbit/s with a queue of 20 ms; the search is that of `pktswarm rfc2544
--tests throughput`, with a long trial that confirms each rate, from the command to its end. Some minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm import lab

SIZES = (256, 512, 768, 1024, 1280, 1518)
"""A machine of two processors, which are those of the device too, cannot pace the shorter frames of a Gigabit."""
RATE_BPS, QUEUE_BYTES, FCS_BYTES = 40_000_000, 100_000, 4
LONGEST_S = 150.0
PKTSWARM = Path(sys.executable).with_name("pktswarm")


def main() -> None:
    parser = report.parser("A zero-loss search of six frame sizes in the lab.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        name = f"searchbench{os.getpid()}"
        hosts = lab.up(name, 1, 1, Path(folder), bottleneck_bps=RATE_BPS, queue_bytes=QUEUE_BYTES).inventory
        try:
            took_s, found = search(Path(folder), hosts, arguments.sizes)
        finally:
            lab.down(name, Path(folder))
    rows = [report.measured(f"zero-loss search of {len(found['sizes'])} frame sizes, s", [took_s], LONGEST_S)]
    rows.append(report.measured("trials in it", [float(len(found["trials"]))]))
    for of in found["sizes"]:
        ratios = [] if of["throughput"]["rate_pps"] is None else [of["throughput"]["rate_pps"] / forwards_pps(of)]
        work = f"{of['size_bytes']} bytes: found / what the device forwards"
        rows.append(report.measured(work, ratios, 1.002, 0.99) if ratios else _missing(work, of["problem"]))
    report.finish(rows, arguments.json)


def search(folder: Path, hosts: Path, sizes: str) -> tuple[float, dict[str, Any]]:
    words = [PKTSWARM, "rfc2544", "--hosts", hosts, "--results", folder / "results", "--sizes", sizes]
    words += ["--tests", "throughput", "--precision", "0.5%", "--json"]
    begun = time.perf_counter()
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True, timeout=3600, check=False)
    return time.perf_counter() - begun, dict(json.loads(done.stdout))


def forwards_pps(of: dict[str, Any]) -> float:
    """Of frames whose bytes the device counts without FCS."""
    return float(RATE_BPS / 8 / (of["size_bytes"] - FCS_BYTES))


def _missing(work: str, problem: str) -> report.Row:
    print(f"{work}: {problem}", file=sys.stderr)
    return report.Row(work, None, None, "", None, None, at_least=0.99)


if __name__ == "__main__":
    main()
