"""How long it takes to make the packets of many users of each application source, and how much memory.

    .venv/bin/python bench/sources.py --users 500 --seconds 60 --rounds 5

Each round is a process of its own, so that its memory is one source's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm.traffic.sources import SOURCES

LONGEST_S = 3.0
ONE = """
import json, resource, sys, time
from pktswarm.traffic.sources import SOURCES
source, users, seconds, seed = SOURCES[sys.argv[1]](), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begun = time.perf_counter()
packets = source.generate(users, seconds, seed)
took = time.perf_counter() - begun
added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
sent = int(packets.size_bytes.sum(dtype=int))
print(json.dumps({"s": took, "packets": len(packets), "bytes": sent, "added_bytes": added * 1024}))
"""


def one_round(name: str, users: int, seconds: float, seed: int) -> dict[str, float]:
    command = [sys.executable, "-c", ONE, name, str(users), str(seconds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = report.parser("Time and memory to make the packets of application sources.")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for name in SOURCES:
        seen = [one_round(name, arguments.users, arguments.seconds, seed) for seed in range(arguments.rounds)]
        packets = statistics.median(one["packets"] for one in seen)
        work = f"{name}: {arguments.users} users x {arguments.seconds:g} s, {packets:,.0f} packets, s"
        rows.append(report.measured(work, [one["s"] for one in seen], LONGEST_S))
        shares = [one["added_bytes"] / max(1, one["bytes"]) for one in seen]
        if packets > 100_000:  # below that it is the interpreter's own coming and going
            rows.append(report.measured(f"{name}: memory by bytes to be sent", shares, 2.0))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
