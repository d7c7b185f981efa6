"""How long a run takes to its first packet, and how close together its nodes leave the start barrier.

    sudo .venv/bin/python bench/start.py --starts 50

The lab has seven nodes: a master, three transmitters, three receivers, all on this machine's cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import report

import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
SCENARIO = """name: start
streams: [{name: s, rate_pps: 600, count_packets: 60}]
traces: [{name: t, file: TRACE, timing: top}]
"""
TRACE = Path(__file__).resolve().parent.parent / "configs" / "traces" / "lab.pcapng"


def one_start(scenario: Path, hosts: Path, folder: Path) -> dict[str, float]:
    """Seconds to the first packet, and the skews in nanoseconds."""
    begun = time.time()
    command = [PKTSWARM, "run", scenario, "--hosts", hosts, "--results", folder, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    document = json.loads(done.stdout)
    started = datetime.fromisoformat(document["start_utc"][:26] + "+00:00").timestamp()
    first_ns = min(row["first_ns"] for row in document["rows"])
    skews = {f"first {name}": skew["skew"] for name, skew in document["first_frame_skew_ns"].items()}
    late = {f"late {name}": skew["median_after_start"] for name, skew in document["first_frame_skew_ns"].items()}
    return {
        "first_s": started + first_ns / 1e9 - begun,
        "release": document["release_skew_ns"]["start"],
        **skews,
        **late,
    }


def main() -> None:
    parser = report.parser("Time to the first packet, and the skew of the start.")
    parser.add_argument("--starts", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = folder / "start.yaml"
        scenario.write_text(SCENARIO.replace("TRACE", str(TRACE)))
        state = lab.up(f"b{os.getpid()}", 3, 3, folder)
        try:
            seen = [one_start(scenario, state.inventory, folder / "results") for _ in range(arguments.starts)]
        finally:
            lab.down(state.name, folder)
    rows = [
        report.measured("from the command to the first packet, s", [one["first_s"] for one in seen], 3.0),
        report.measured(
            "release from the start barrier, skew of 3 nodes, us", [o["release"] / 1e3 for o in seen], 200.0
        ),
    ]
    for engine in ("trafgen", "tcpreplay"):
        for kind, words in (("late", "first frame after the start instant"), ("first", "skew of the first frames")):
            values = [one[f"{kind} {engine}"] / 1e3 for one in seen if f"{kind} {engine}" in one]
            rows.append(report.measured(f"{engine}: {words}, us", values, None))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
