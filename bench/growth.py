"""What runs leave in a cluster that stays up: memory, open files, and files in /tmp and /var/tmp.

    sudo .venv/bin/python bench/growth.py --runs 50

After some runs, by which each process has loaded its modules and filled its buffers, and again after --runs more: the
private memory (USS) and the open descriptors of each process of the cluster, on all nodes, and what is in /tmp and
/var/tmp, of the nodes too. Printed for the process that grew most. A leak grows with each run: memory may not grow by
more than a page for each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench import report
from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
TEXT = """name: growth
streams: [{name: s, rate_pps: 3000, count_packets: 300}]
expect: {loss: 0}
"""
WARM_RUNS = 10
NAMED = ("transmit", "receive", *(f"{side}{number}" for side in ("tx", "rx") for number in (1, 2, 3)))
"""Words of a command line that name its process."""
PAGE_KB = os.sysconf("SC_PAGE_SIZE") / 1024


class Process(NamedTuple):
    name: str
    private_kb: int
    files: int


def processes(networks: set[int], loaded: str) -> dict[int, Process]:
    """The processes of Python in the network namespaces of a lab, and the loaded process beside it, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (
                (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if entry.name.isdigit() else []
            )
            inside = bool(words) and (entry / "ns/net").stat().st_ino in networks
            if ("pktswarm." in " ".join(words) and inside and "keeper" not in " ".join(words)) or loaded in words:
                found[int(entry.name)] = _process(entry, words)
        except OSError:
            continue
    return found


def _process(entry: Path, words: list[str]) -> Process:
    rollup = dict(line.split(":", 1) for line in (entry / "smaps_rollup").read_text().splitlines()[1:])
    private = sum(int(rollup[key].split()[0]) for key in ("Private_Clean", "Private_Dirty"))
    name = " ".join(
        word for word in words if word.startswith(("pktswarm.", "from pktswarm", "--host")) or word in NAMED
    )
    return Process(name or words[0], private, len(list((entry / "fd").iterdir())))


def temporary(pids: list[int]) -> set[str]:
    """Names in /tmp and /var/tmp here, and in the nodes' own."""
    roots = ["/", *(f"/proc/{pid}/root" for pid in pids)]
    return {str(path) for root in roots for folder in ("tmp", "var/tmp") for path in Path(root, folder).glob("*")}


def main() -> None:
    parser = report.parser("Growth of a cluster that stays up, by run.")
    parser.add_argument("--runs", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "growth.yaml").write_text(TEXT)
        state = lab.up(f"g{os.getpid()}", 3, 3, folder)
        try:
            rows = measure(state, folder, arguments.runs)
        finally:
            lab.down(state.name, folder)
    report.finish(rows, arguments.json)


def measure(state: lab.LabState, folder: Path, runs: int) -> list[report.Row]:
    pids = list(state.keeper.pids.values())
    networks = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in pids}
    command = [PKTSWARM, "run", folder / "growth.yaml", "--hosts", state.inventory, "--results", folder / "results"]
    subprocess.run([PKTSWARM, "cluster", "up", "--hosts", state.inventory], check=True, timeout=120)
    looks = []
    for number in (WARM_RUNS, runs):
        for _ in range(number):
            subprocess.run(command, check=True, timeout=60, capture_output=True)
        looks.append((processes(networks, str(state.inventory.resolve())), temporary(pids)))
    (before, files_before), (after, files_after) = looks
    gone = before.keys() ^ after.keys()
    assert not gone, f"processes came or went: {[(before | after)[pid] for pid in gone]}"
    for pid, process in sorted(after.items(), key=lambda item: before[item[0]].private_kb - item[1].private_kb)[:5]:
        grown = process.private_kb - before[pid].private_kb
        print(f"{process.name}: {process.private_kb} kB, {grown:+} kB in {runs} runs", file=sys.stderr)
    for path in sorted(files_after - files_before):
        print(f"left: {path}", file=sys.stderr)
    memory = max(after[pid].private_kb - before[pid].private_kb for pid in after) / runs
    opened = max(after[pid].files - before[pid].files for pid in after)
    return [
        report.measured("private memory of a process, most, kB a run", [memory], PAGE_KB),
        report.measured(f"open files of a process, most, in {runs} runs", [float(opened)], 0.0),
        report.measured(f"files in /tmp and /var/tmp, in {runs} runs", [float(len(files_after - files_before))], 0.0),
    ]


if __name__ == "__main__":
    main()
