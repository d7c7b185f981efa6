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
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import pktswarm
from bench import report
from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
OURS = """name: start
streams: [{name: s, engine: xdp, rate_pps: 600, count_packets: 60}]
"""
OTHERS = """name: others
streams: [{name: s, engine: trafgen, rate_pps: 600, count_packets: 60}]
traces: [{name: t, engine: tcpreplay, file: TRACE, timing: top}]
"""
ENGINES = {"xdp": 100.0, "trafgen": None, "tcpreplay": None}
"""The most microseconds by which the nodes' first frames may be apart."""
CONFIGS = Path(__file__).resolve().parent.parent / "configs"
TRACE, DEMO = CONFIGS / "traces" / "lab.pcapng", CONFIGS / "demo.yaml"
DEMO_MOST_US = 100.0


def one_start(scenario: Path, hosts: Path, folder: Path) -> dict[str, float]:
    begun = time.time()
    command = [PKTSWARM, "run", scenario, "--hosts", hosts, "--results", folder, "--json", "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return figures(begun, json.loads(done.stdout))


def one_call(cluster: pktswarm.Cluster, scenario: Path) -> dict[str, float]:
    begun = time.time()
    return figures(begun, cluster.run(scenario, report=False).document)


def figures(begun: float, document: Any) -> dict[str, float]:
    """Seconds to the first packet, those beyond sending and drain, and the skews in nanoseconds where there are several
    transmitters; of a run that began at `begun`, and has just ended."""
    taken_s = time.time() - begun
    sending_s = next(one["at_ns"] for one in document["phases"] if one["phase"] == "drain") / 1e9
    started = datetime.fromisoformat(document["start_utc"][:26] + "+00:00").timestamp()
    first_ns = min(row["first_ns"] for row in document["rows"])
    skews = {f"first {name}": skew["skew"] for name, skew in document["first_frame_skew_ns"].items()}
    late = {f"late {name}": skew["median_after_start"] for name, skew in document["first_frame_skew_ns"].items()}
    return {
        "first_s": started + first_ns / 1e9 - begun,
        "beyond_s": taken_s - sending_s - document["scenario"]["receive"]["drain_s"],
        **({"release": skew} if (skew := document["release_skew_ns"].get("start")) is not None else {}),
        **skews,
        **late,
    }


def main() -> None:
    parser = report.parser("Time to the first packet, and the skew of the start.")
    parser.add_argument(
        "--starts", type=int, default=25, help="of our engine, as many of the others, and of the demo, in turn"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenarios = [folder / "ours.yaml", folder / "others.yaml"]
        for scenario, text in zip(scenarios, (OURS, OTHERS), strict=True):
            scenario.write_text(text.replace("TRACE", str(TRACE)))
        state = lab.up(f"b{os.getpid()}", 3, 3, folder)
        seen, demo, standing, called = [], [], [], []
        try:
            for _ in range(arguments.starts):
                seen += [one_start(scenario, state.inventory, folder / "results") for scenario in scenarios]
                demo.append(one_start(DEMO, state.inventory, folder / "results"))
            subprocess.run([PKTSWARM, "cluster", "up", "--hosts", state.inventory], check=True, timeout=120)
            standing = [one_start(scenarios[0], state.inventory, folder / "results") for _ in range(arguments.starts)]
            with pktswarm.Cluster(state.inventory, folder / "results") as cluster:
                cluster.run(scenarios[0], report=False)  # loads the modules
                called = [one_call(cluster, scenarios[0]) for _ in range(arguments.starts)]
        finally:
            lab.down(state.name, folder)
    rows = [
        report.measured("from the command to the first packet, s", [one["first_s"] for one in seen], 1.5),
        report.measured("a run's time beyond sending and drain, s", [one["beyond_s"] for one in seen]),
        report.measured("in a cluster that is up: to the first packet, s", [one["first_s"] for one in standing], 0.3),
        report.measured("the same: beyond sending and drain, s", [one["beyond_s"] for one in standing], 0.6),
        report.measured("from Python: to the first packet, s", [one["first_s"] for one in called], 0.3),
        report.measured("from Python: beyond sending and drain, s", [one["beyond_s"] for one in called], 0.6),
        report.measured(
            "release from the start barrier, skew of 3 nodes, us", [o["release"] / 1e3 for o in seen], 50.0
        ),
    ]
    skews_us = [one["first xdp"] / 1e3 for one in demo]
    rows.append(report.measured("the demo: skew of the first frames, us", skews_us, DEMO_MOST_US))
    for engine, most_us in ENGINES.items():
        for kind, words in (("late", "first frame after the start instant"), ("first", "skew of the first frames")):
            values = [one[f"{kind} {engine}"] / 1e3 for one in seen if f"{kind} {engine}" in one]
            limit_us = most_us if kind == "first" else None
            rows.append(report.measured(f"{engine}: {words}, us", values, limit_us))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
