"""How fast a trace is compiled (reference table, addresses, checksums, GTP-U), beside tcprewrite at a lesser job.

    .venv/bin/python bench/replay.py --rounds 5

The trace is made here: users and servers that talk TCP, sizes as on the Internet (a third small, a third full).
tcprewrite maps one network to another and mends checksums; it knows no users, makes no tunnels. Processor time, one
core. Each round of ours is a process of its own, so that its memory can be read: at its peak, less what it was before,
without the pages of the recording, which is mapped. As root also the memory of a node's sender, its maps in the kernel
included, with one instance of the trace and with many.
"""

from __future__ import annotations

import ipaddress
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm.nodes import availability
from pktswarm.nodes.senders.xdp_program import Program
from pktswarm.traffic.leg import Leg, Shift, Timing
from pktswarm.traffic.replay.files import mapped_frames, pcap_bytes, row_bytes, rows_name, trace_path
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Nodes, Settings, frames_of, prepare
from pktswarm.traffic.replay.shift import shifted
from pktswarm.traffic.replay.table import pool
from pktswarm.traffic.schedule.assemble import compile_schedule
from pktswarm.traffic.schedule.sequence import Records

SIZES, SHARES = (54, 120, 594, 1300, 1514), (0.35, 0.15, 0.1, 0.1, 0.3)
NODES = Nodes(bytes(6), bytes(6), bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))
RECORD_BYTES = 16
NODE_FILE = "leg-0.pcap"
INSTANCES = (1, 16, 255)


def write_trace(path: Path, packets: int, users: int = 1000) -> None:
    """One size after another: frames of one size are rows of one array; the times mix them."""
    draw = np.random.default_rng(1)
    sizes = draw.choice(SIZES, packets, p=SHARES)
    lengths = sizes + RECORD_BYTES
    at = 24 + np.cumsum(lengths) - lengths
    out = np.zeros(24 + int(lengths.sum()), np.uint8)
    out[:24] = np.array([0xA1B23C4D, 0x0004_0002, 0, 0, 262_144, 1], "<u4").view(np.uint8)
    user = draw.integers(0, users, packets)
    server = user * 7 % 61
    up = (sizes < 200) | (draw.random(packets) < 0.1)
    times = np.cumsum(draw.exponential(20_000, packets)).astype(np.int64)
    for size in SIZES:
        rows = np.flatnonzero(sizes == size)
        block = np.zeros((len(rows), RECORD_BYTES + size), np.uint8)
        block[:, :8] = np.stack([times[rows] // 10**9, times[rows] % 10**9], 1).astype("<u4").view(np.uint8)
        block[:, 8:16] = np.array([size, size], "<u4").view(np.uint8)
        block[:, RECORD_BYTES:] = _frames(size, user[rows], server[rows], up[rows], draw)
        for part in range(0, len(rows), 4096):
            some = slice(part, part + 4096)
            out[at[rows[some]][:, None] + np.arange(RECORD_BYTES + size)] = block[some]
    path.write_bytes(out.tobytes())


def _frames(size: int, user: np.ndarray, server: np.ndarray, up: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    frames = np.zeros((len(user), size), np.uint8)
    frames[:, 12:14] = (8, 0)
    total = size - 14
    frames[:, 14:24] = (0x45, 0, total >> 8, total & 255, 0, 0, 0x40, 0, 64, 6)
    here = (0x0A000001 + user).astype(">u4").view(np.uint8).reshape(-1, 4)
    there = (0x5DB80001 + server).astype(">u4").view(np.uint8).reshape(-1, 4)
    frames[:, 26:30], frames[:, 30:34] = np.where(up[:, None], here, there), np.where(up[:, None], there, here)
    client = (20_000 + user % 40_000).astype(">u2").view(np.uint8).reshape(-1, 2)
    https = np.broadcast_to(np.array([1, 187], np.uint8), client.shape)
    frames[:, 34:36], frames[:, 36:38] = np.where(up[:, None], client, https), np.where(up[:, None], https, client)
    frames[:, 46] = 0x50
    frames[:, 54:] = draw.integers(0, 256, (len(user), size - 54), np.uint8)
    return frames


def compile_once(path: Path) -> dict[str, float]:
    """In this process: seconds of each step, and the memory when all is built."""
    settings = Settings(
        users=pool("10.60.0.1"), servers=pool("10.70.0.1"), direction="all", gtpu=Gtpu(teid=1, sequence=True),
        oversize="cut", mtu_bytes=1600, instances=Instances(10),
    )  # fmt: skip
    warm(2 * path.stat().st_size)
    with Peak() as peak:
        begun = time.process_time()
        found = prepare(path, settings)
        ready = time.process_time()
        frames = frames_of(found, np.arange(len(found.flow)), NODES)
        built = time.process_time()
    told = {
        "packets": len(frames), "prepare": ready - begun, "build": built - ready, "memory": peak.bytes,
        "sent": int(frames.length.sum()),
    }  # fmt: skip
    begun = time.process_time()
    shifted(frames, found.shift(7))
    told["shift"] = time.process_time() - begun
    begun = time.process_time()
    data = pcap_bytes(frames)
    told["file"] = time.process_time() - begun
    path.with_name(NODE_FILE).write_bytes(data)
    path.with_name(rows_name(NODE_FILE)).write_bytes(row_bytes(frames))
    return told


def warm(size: int) -> None:
    """A virtual machine's host gives memory as it is first touched, which would take longer than all the rest."""
    np.zeros(size, np.uint8)[::4096] = 1


class Peak:
    """The most memory of this process alone within a block, beyond what it had before."""

    def __enter__(self) -> Peak:
        self._bare = self._most = memory_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self._most = max(self._most, memory_bytes())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.bytes = max(self._most, memory_bytes()) - self._bare


def memory_bytes() -> int:
    """Without the pages of mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024


def map_bytes() -> int:
    """Of the BPF maps that this process holds."""
    found: dict[str, int] = {}
    for file in Path("/proc/self/fdinfo").iterdir():
        lines = file.read_text().splitlines() if file.exists() else []
        told = dict(line.split(":", 1) for line in lines if ":" in line)
        if "map_id" in told:
            found[told["map_id"]] = int(told["memlock"])
    return sum(found.values())


def node_once(folder: Path, instances: int) -> dict[str, float]:
    """In this process: the sender's program loaded and filled, as in a node's guard."""
    legs = [
        Leg(
            n,
            "t",
            "a",
            "b",
            "trace",
            trace_file=NODE_FILE,
            timing=Timing(lead_ns=n),
            shift=Shift(user=9 * n),
        )
        for n in range(instances)
    ]

    def read(leg: Leg) -> Frames:
        return mapped_frames(trace_path(leg, folder))

    def none(leg: Leg) -> Records:
        raise ValueError(leg.stream)

    with Peak() as peak:
        program = Program(compile_schedule(legs, read, none), interface_index=1, batch=64)
    told = {"memory": peak.bytes + map_bytes()}
    program.close()
    return told


def apart(*words: object) -> dict[str, float]:
    """This program with these words, in a process of its own."""
    command = [sys.executable, __file__, *map(str, words)]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=600, check=True).stdout))


def tcprewrite_s(path: Path) -> float:
    network = ipaddress.ip_network("10.0.0.0/16")
    command = ["tcprewrite", f"--pnat={network}:10.60.0.0/16", "--fixcsum", f"--infile={path}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, f"--outfile={path.with_name('peer.pcap')}"], capture_output=True, timeout=600, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def can_load() -> bool:
    why_not = availability.xdp_sender() or ("" if os.geteuid() == 0 else "it needs root")
    if why_not:
        print(f"not measured on a node: {why_not}", file=sys.stderr)
    return not why_not


def main() -> None:
    parser = report.parser("Compiling a trace.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--compile", type=Path, help="compile this file once and print the figures (for the rounds)")
    parser.add_argument("--node", nargs=2, help="a folder and a number: memory of a node with so many instances")
    arguments = parser.parse_args()
    if arguments.compile:
        print(json.dumps(compile_once(arguments.compile)))
        return
    if arguments.node:
        folder, instances = arguments.node
        print(json.dumps(node_once(Path(folder), int(instances))))
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "trace.pcap"
        write_trace(path, arguments.packets)
        rounds, peer = [], []
        for _ in range(arguments.rounds):
            rounds.append(apart("--compile", path))
            peer.append(arguments.packets / tcprewrite_s(path))
        nodes = {n: [apart("--node", name, n) for _ in range(2)] for n in INSTANCES} if can_load() else {}
    rates = [one["packets"] / (one["prepare"] + one["build"]) for one in rounds]
    memory = [one["memory"] / one["sent"] for one in rounds]
    shift = [one["packets"] / one["shift"] for one in rounds]
    file = [one["packets"] / one["file"] for one in rounds]
    millions = f"{arguments.packets / 1e6:g} M packets"
    rows = [
        report.compared(f"{millions} compiled with GTP-U, packets/s", rates, peer, "tcprewrite", None),
        report.measured("seconds for each million", [1e6 / rate for rate in rates], 2.0),
        report.measured("most memory, a multiple of the bytes to be sent", memory, 2.0),
        report.measured("another instance by the reference, packets/s", shift, None),
        report.measured("written as a file for a node, packets/s", file, None),
    ]
    for number, found in nodes.items():
        many = [one["memory"] / rounds[0]["sent"] for one in found]
        rows.append(report.measured(f"a node with {number} instances: memory, by one's bytes", many, 2.0))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
