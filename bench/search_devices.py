"""A rate that a search reports, sent for 60 s: it must not lose, whatever queue the device has.

    sudo .venv/bin/python bench/search_devices.py --times 5

Each time, on each device: `pktswarm search` as a user calls it, then a run of 60 s at the rate found. The devices are
the kernel's own, at 20 Mbit/s: a token bucket, and fq_codel, pfifo of 20 ms and of 1 s as the queue of a token bucket.
A run whose sender was held up decides nothing, and is repeated. It takes more than an hour on a machine that is quiet.
Where the kernel has no fq_codel, or the machine is not quiet, with clocks that count instructions. The one processor
there is that of the ranks, too: without --senders-first they hold the sender up ten times a second.

    sudo pktswarm lab vm --icount -- .venv/bin/python bench/search_devices.py --patience 20 --senders-first
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
PORT = "to-b"
RATE_BPS, SIZE_BYTES, FCS_BYTES = 20_000_000, 512, 4
FORWARDS_PPS = RATE_BPS / 8 / (SIZE_BYTES - FCS_BYTES)
BURST_BYTES, HELD_S = 5_000, 60.0
SENDER = "pktswarm-xdp"
LOOK_EVERY_S = 0.05
LOW = 15
TRIES = 3
"""Of a search or a run that this machine held up."""


@dataclass(frozen=True)
class Device:
    name: str
    queue_s: float
    """Delay that a standing queue has in it."""
    child: str = ""
    """The queueing discipline in the token bucket; empty: its own queue."""

    def commands(self) -> list[str]:
        limit_bytes = max(10_000, round(RATE_BPS / 8 * self.queue_s)) if not self.child else 10_000_000
        bucket = f"tc qdisc add dev {PORT} root handle 1: tbf rate {RATE_BPS} burst {BURST_BYTES} limit {limit_bytes}"
        return [bucket, *([f"tc qdisc add dev {PORT} parent 1:1 handle 10: {self.child}"] if self.child else [])]


def pfifo(queue_s: float) -> str:
    return f"pfifo limit {round(FORWARDS_PPS * queue_s)}"


DEVICES = (
    Device("token bucket, 20 ms", 0.02),
    Device("fq_codel", 0.005, "fq_codel"),
    Device("pfifo of 20 ms", 0.02, pfifo(0.02)),
    Device("pfifo of 1 s", 1.0, pfifo(1.0)),
)


@dataclass
class Outcome:
    rates_pps: list[float] = field(default_factory=list)
    kept: int = 0
    lost: int = 0
    undecided: int = 0


class Bench:
    def __init__(self, folder: Path, patience: float) -> None:
        self.folder, self.name, self.patience = folder, f"searchdev{os.getpid()}", patience
        # Its bottleneck is replaced on the port towards the receiver.
        state = lab.up(self.name, 1, 1, folder, bottleneck_bps=RATE_BPS)
        self.hosts, self.pid = state.inventory, state.keeper.pids["dut"]

    def shape(self, device: Device) -> None:
        for command in (f"tc qdisc del dev {PORT} root", *device.commands()):
            enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net"]
            subprocess.run([*enter, *command.split()], check=True)

    def scenario(self, rate_pps: float, seconds: float) -> Path:
        path = self.folder / "scenario.yaml"
        stream = {"name": "load", "size_bytes": SIZE_BYTES, "rate_pps": rate_pps, "duration_s": seconds}
        receive = {"mode": "count", "drain_s": 1.5}
        path.write_text(json.dumps({"name": "t", "streams": [stream], "receive": receive}))
        return path

    def pktswarm(self, *words: object) -> dict[str, Any]:
        command = [PKTSWARM, *words, "--hosts", self.hosts, "--results", self.folder / "results", "--json"]
        command += ["--patience", self.patience]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(done.stderr)
        return dict(json.loads(done.stdout))

    def once(self, device: Device, outcome: Outcome) -> None:
        self.shape(device)
        for _ in range(TRIES):
            (goal,) = self.pktswarm("search", self.scenario(8_000, 2))["goals"]
            if goal["rate_pps"] is not None:
                break
        else:
            outcome.undecided += 1
            return
        outcome.rates_pps.append(goal["rate_pps"])
        for _ in range(TRIES):
            document = self.pktswarm("run", self.scenario(goal["rate_pps"], HELD_S), "--no-report")
            (row,) = document["rows"]
            latest_s = lateness_s(Path(document["results"]))
            print(said(device, goal, row, latest_s), file=sys.stderr)
            if not row["lost_packets"]:
                outcome.kept += 1
                return
            if not held_up(device, row):
                outcome.lost += 1
                return
        outcome.undecided += 1


class SendersFirst(threading.Thread):
    """From now on, this process and all that it starts have a low priority, and each sender that appears the usual one.

    Not one above that: the kernel's own threads would wait for a sender that polls.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        os.nice(LOW)
        self._end = threading.Event()
        self.found = 0

    def run(self) -> None:
        before: set[str] = set()
        earlier: set[str] = set()
        while not self._end.wait(LOOK_EVERY_S):
            running = {name for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
            # Twice: a fork is seen before it has its name.
            for pid in running - (before & earlier):
                self._look_at(int(pid))
            before, earlier = running, before

    def _look_at(self, pid: int) -> None:
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == SENDER:
                os.setpriority(os.PRIO_PROCESS, pid, 0)
                self.found += 1
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended

    def end(self) -> None:
        self._end.set()
        self.join()
        print(f"{self.found} senders went first", file=sys.stderr)


def held_up(device: Device, row: dict[str, Any]) -> bool:
    """A loss of no more packets than the sender sent late in a burst, while the device's queue was mostly short: the
    device would have forwarded the load that was asked for."""
    return row["lost_packets"] <= row["late_packets"] and row["latency_p50_ns"] < device.queue_s * 1e9 / 2


def lateness_s(results: Path) -> float:
    """The largest lateness of a frame, as the sender reported it with its counts."""
    events = [json.loads(line) for line in (results / "log.jsonl").read_text().splitlines()]
    counts = [count for event in events if event["event"] == "counts" for count in event["counts"]]
    return max(count["latest_ns"] for count in counts if "latest_ns" in count) / 1e9


def said(device: Device, goal: dict[str, Any], row: dict[str, Any], latest_s: float) -> str:
    found = f"{device.name}: {goal['rate_pps']:,.0f} packets/s (confirmed for {goal['confirmed_s']} s)"
    lost = f"lost {row['lost_packets']:,} of {row['sent_packets']:,} in {HELD_S:.0f} s"
    sent = f"{lost}, {row['late_packets']:,} sent late by {latest_s * 1e3:.2f} ms at most"
    p50_ms, maximum_ms = row["latency_p50_ns"] / 1e6, row["latency_max_ns"] / 1e6
    return f"{found}: {sent}, latency p50 {p50_ms:.2f} ms, maximum {maximum_ms:.2f} ms"


def main() -> None:
    parser = report.parser("A rate that a search reports, sent for 60 s.")
    parser.add_argument("--times", type=int, default=5)
    names = [device.name for device in DEVICES]
    parser.add_argument("--devices", nargs="+", choices=names, default=names, metavar="NAME", help="of: %(choices)s")
    parser.add_argument("--patience", type=float, default=1.0, help="of the commands: an emulated processor is slow")
    parser.add_argument("--senders-first", action="store_true", help="all else has a low priority")
    arguments = parser.parse_args()
    first = SendersFirst() if arguments.senders_first else None
    if first:
        first.start()
    outcomes = {device: Outcome() for device in DEVICES if device.name in arguments.devices}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), arguments.patience)
        try:
            for _ in range(arguments.times):
                for device, outcome in outcomes.items():
                    bench.once(device, outcome)
        finally:
            lab.down(bench.name, Path(folder))
            if first:
                first.end()
    rows = []
    for device, outcome in outcomes.items():
        ratios = [rate_pps / FORWARDS_PPS for rate_pps in outcome.rates_pps]
        if ratios:
            rows.append(report.measured(f"{device.name}: found / forwarded", ratios))
        rows.append(report.measured(f"{device.name}: 60 s without loss, of {arguments.times}", [outcome.kept],
                                    at_least=arguments.times))  # fmt: skip
        print(
            f"{device.name}: {outcome.kept} kept, {outcome.lost} lost, {outcome.undecided} undecided", file=sys.stderr
        )
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
