"""How long the report of a long run takes, how large it is, and how much memory its making needs.

    .venv/bin/python bench/report_speed.py --rounds 5

The folder is made by the code that writes a run's: an hour at 10 samples a second, 16 nodes, 64 streams, 65,536 users
(some 5 million lines of samples, 350 MB in a temporary folder). Each round is a process of its own, from the command to
its end.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit"))
import report
from pktswarm.traffic.leg import FlowUsers, Leg
from result_folders import Made

NODES, STREAMS, USERS, PPS = 16, 64, 65_536, 1_000.0
LONGEST_S, LARGEST_BYTES = 10.0, 2_000_000
PKTSWARM = Path(sys.executable).with_name("pktswarm")


def leg(number: int, seconds: float) -> Leg:
    each = USERS // STREAMS
    users = FlowUsers(field="ipv4.src", by="src_ip", first=0x0A3C0000 + number * each, step=1, count=each)
    ends = (f"tx{number % (NODES // 2) + 1}", f"rx{number % (NODES // 2) + 1}")
    packets = int(PPS * seconds)
    return Leg(number, f"s{number}", *ends, "stream", "xdp", rate_pps=PPS, intended_packets=packets, users=users)


def main() -> None:
    parser = report.parser("Time, size and memory of the report of a long run.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        legs = [leg(number, arguments.seconds) for number in range(STREAMS)]
        lost = {number: number * 10 for number in range(STREAMS)}
        made = Made(legs, lost, seconds=arguments.seconds, lost_users=20, name="long").write(Path(folder))
        for _ in range(arguments.rounds):
            begun = time.perf_counter()
            subprocess.run([PKTSWARM, "report", made], check=True, timeout=300, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - begun)
        page_bytes = (made / "report.html").stat().st_size
        sample_bytes = (made / "samples.csv").stat().st_size
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    work = f"{arguments.seconds:g} s, {sample_bytes / 1e6:,.0f} MB of samples: the report"
    rows = [
        report.measured(f"{work}, s", took, LONGEST_S),
        report.measured("its page, bytes", [page_bytes], LARGEST_BYTES),
        report.measured("memory, MiB", [peak_mib]),
    ]
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
