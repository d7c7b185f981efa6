"""How a run grows with its nodes: 8, 16, 32, 64, 128 of them as namespaces on this machine.

    sudo .venv/bin/python bench/scale.py --nodes 8,16,32

Half of the nodes transmit, half receive. Of each run: the time from the command to the ranks' first words (SSH, Python,
MPI), to read their clocks, to scatter the tasks and prepare, to the first packet; the skew of the start barrier; the
time to gather the counts and to restore; and the resident memory of the master's rank and command line, and of the
largest node's rank and guard. Then a straight line through each, by least squares, and what it says of 1,000 nodes.
All nodes share this machine's processors: on machines of their own, what every node does for itself takes no longer
with more of them. docs/scale.md says which is which.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
TEXT = """name: scale
receive: {mode: count}
streams: [{name: s, size_bytes: 128, rate_pps: 200, count_packets: 400}]
"""
FAR = 1000
BETWEEN = (("clocks", "reading the clocks, s"), ("prepare receivers", "tasks to the receivers, s"))
"""Phase → what is printed for the time until the next one."""
MORE = (("prepare transmitters", "tasks to the transmitters, s"), ("restore", "restore, s"))


def measure(nodes: int, patience: float) -> dict[str, float]:
    """One run; by what is printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scale.yaml").write_text(TEXT)
        begun = time.monotonic()
        state = lab.up(f"z{os.getpid()}", nodes // 2, nodes - nodes // 2, folder)
        up_s = time.monotonic() - begun
        try:
            return {"lab up, s": up_s, **_run(folder, state, patience)}
        finally:
            lab.down(state.name, folder)


def _run(folder: Path, state: lab.LabState, patience: float) -> dict[str, float]:
    networks = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in state.keeper.pids.values()}
    begun_utc, begun = time.time(), time.monotonic()
    command = [str(PKTSWARM), "run", "scale.yaml", "--hosts", str(state.inventory), "--results", "results", "--json"]
    command += ["--no-report", "--patience", str(patience)]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        run = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder)
        memory: dict[str, float] = {}
        while run.poll() is None:
            _look_at_memory(networks, run.pid, memory)
            time.sleep(0.5)
    if run.returncode:
        raise SystemExit((folder / "out").read_text()[-2000:] + (folder / "err").read_text()[-2000:])
    document = json.loads((folder / "out").read_text())
    phases = {one["phase"]: one["monotonic_ns"] / 1e9 for one in document["phases"]}
    start = datetime.fromisoformat(document["start_utc"][:26] + "+00:00").timestamp()
    lost = [total["lost_packets"] for total in document["totals"]]
    assert not any(lost), f"lost: {lost}"
    return {
        "ranks heard, s": phases["clocks"] - begun,
        **{words: _until_next(phases, phase) for phase, words in (*BETWEEN, *MORE)},
        **_at_the_end(folder / document["results"] / "log.jsonl"),
        "first packet, s": start + min(row["first_ns"] for row in document["rows"]) / 1e9 - begun_utc,
        "start barrier's skew, ms": document["release_skew_ns"]["start"] / 1e6,
        "command to end, s": time.monotonic() - begun,
        **memory,
    }


def _at_the_end(log: Path) -> dict[str, float]:
    """From the word to stop until the last node's counts are here; and from then until the clocks are read again."""
    at_s: dict[str, float] = {}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        name = event["name"] if event["event"] == "phase" else event["event"]
        at_s[name] = datetime.fromisoformat(event["utc"][:26] + "+00:00").timestamp()
    return {
        "gather the counts, s": at_s["counts"] - at_s["gather"],
        "reading the clocks again, s": at_s["clock"] - at_s["counts"],
    }


def _until_next(phases: dict[str, float], phase: str) -> float:
    return min(at for at in phases.values() if at > phases[phase]) - phases[phase]


def _look_at_memory(networks: set[int], command: int, memory: dict[str, float]) -> None:
    """The largest of each kind so far."""
    kinds = {"-m pktswarm.master.run.rank0": "rank 0, MiB", "-m pktswarm.nodes": "a node's rank or guard, MiB"}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            label = "command line, MiB" if int(entry.name) == command else ""
            if (
                not label
                and (entry / "ns/net").stat().st_ino in networks
                and "python" in (entry / "exe").readlink().name
            ):
                label = next((label for part, label in kinds.items() if part in words), "")
            if label:
                memory[label] = max(memory.get(label, 0.0), _resident_mib(entry))
        except OSError:
            continue


def _resident_mib(entry: Path) -> float:
    """Of its own or shared: what a machine of its own would hold. One that is ending has none."""
    lines = [line for line in (entry / "status").read_text().splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) for line in lines) / 1024


def fitted(nodes: list[int], values: list[float]) -> tuple[float, float]:
    """Least squares: (at no nodes, for each node)."""
    slope, base = np.polyfit(nodes, values, 1)
    return float(base), float(slope)


def table(found: dict[int, dict[str, float]]) -> str:
    nodes = list(found)
    lines = [f"{'':<32}" + "".join(f"{n:>9}" for n in nodes) + f"{'each':>10}{FAR:>9}"]
    for label in found[nodes[0]]:
        values = [found[n].get(label, float("nan")) for n in nodes]
        line = f"{label:<32}" + "".join(f"{value:>9.3g}" for value in values)
        if len(nodes) > 1:
            base, slope = fitted(nodes, values)
            line += f"{slope:>10.2g}{base + slope * FAR:>9.3g}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Start, barrier, gather and memory of a run by the number of nodes.")
    parser.add_argument("--nodes", default="8,16,32,64,128", help="how many, one run each")
    parser.add_argument("--patience", type=float, default=4.0, help="of the runs: many nodes share these processors")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without bringing the lab down
    found: dict[int, dict[str, Any]] = {}
    for nodes in map(int, arguments.nodes.split(",")):
        found[nodes] = measure(nodes, arguments.patience)
        print(table(found), flush=True)
        # A larger one may not come to an end: what is known by then is kept.
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
