"""What a run costs an engine: the same engine bare and through a run, in turn, on the same interface of a lab; and what
samples and the live view cost one that sends as fast as it can.

    sudo .venv/bin/python bench/overhead.py --rounds 7

Both send as fast as they can to the same receiver (netsniff-ng, counting), which shares this machine's cores with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))
import report
from pktswarm import lab
from pktswarm.nodes.receivers.netsniff import NetsniffReceiver
from pktswarm.nodes.senders import tcpreplay, trafgen
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, leg_from_json

PKTSWARM = Path(sys.executable).with_name("pktswarm")
TRACE = Path(__file__).resolve().parent.parent / "configs" / "traces" / "lab.pcapng"
WORK = {
    "trafgen": "streams: [{name: s, engine: trafgen, count_packets: PACKETS}]",
    "tcpreplay": f"traces: [{{name: s, file: {TRACE}, timing: top, repeat: PASSES}}]",
    "xdp": "streams: [{name: s, engine: xdp, duration_s: SECONDS}]",
}

BARE = ("trafgen", "tcpreplay")
"""Those that can be called by hand."""


class Bench:
    """A lab of one transmitter and one receiver, and a scenario for each engine."""

    def __init__(self, folder: Path, packets: int, passes: int, seconds: float) -> None:
        self.folder, self.packets, self.passes, self.seconds = folder, packets, passes, seconds
        self.state = lab.up(f"b{os.getpid()}", 1, 1, folder)

    def inside(self, node: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.state.keeper.pids[node]}/ns/net"]

    def through_a_run(self, engine: str) -> tuple[float, dict[str, Any]]:
        """Packets a second by the engine's own words, and the leg as it was sent."""
        document = self._run(WORK[engine], "netsniff-ng")  # as beside the bare engine
        return document["rows"][0]["sent_pps"], {**document["legs"][0], "results": document["results"]}

    def watched(self, samples_per_s: float) -> float:
        """Packets a second of the engine xdp in a run that a terminal shows."""
        document = self._run(f"samples_per_s: {samples_per_s}\n{WORK['xdp']}")
        return float(document["rows"][0]["sent_pps"])

    def _run(self, text: str, receiver: str = "auto") -> dict[str, Any]:
        values = {"PACKETS": self.packets, "PASSES": self.passes, "SECONDS": self.seconds}
        for name, value in values.items():
            text = text.replace(name, str(value))
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(f"name: overhead\n{text}\nreceive: {{mode: count, engine: {receiver}}}\n")
        command = [PKTSWARM, "run", scenario, "--hosts", self.state.inventory, "--results", self.folder, "--json"]
        command += ["--no-report"]
        with terminal() as stderr:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=300, check=False)
        document = json.loads(done.stdout)
        assert document["status"] == 0, document["reason"]
        return dict(document)

    def bare(self, engine: str, leg_data: dict[str, Any]) -> float:
        results = Path(leg_data.pop("results"))
        leg = leg_from_json(leg_data)
        with self.receiver(leg):
            if engine == "trafgen":
                return self._bare_trafgen(leg)
            return self._bare_tcpreplay(leg, results / "sent" / str(leg.trace_file))

    def _bare_trafgen(self, leg: Leg) -> float:
        config = self.folder / "bare.cfg"
        config.write_text(trafgen.frame_list(build_frame(leg.frame, leg.size_bytes), leg.id))
        command = [*self.inside("tx1"), *trafgen.command(leg, "eth1", config, leg.count_packets)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        packets, _, seconds = trafgen.parse(done.stdout + done.stderr)
        return packets / seconds

    def _bare_tcpreplay(self, leg: Leg, file: Path) -> float:
        command = [*self.inside("tx1"), "tcpreplay", "--intf1=eth1", "--topspeed", "--preload-pcap"]
        command += [f"--loop={leg.repeat}", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        closing = tcpreplay.parse_closing(done.stdout + done.stderr)
        return closing.packets / closing.seconds

    @contextmanager
    def receiver(self, leg: Leg) -> Iterator[None]:
        """The very receiver of a run, by itself: its filter is work that on a veth pair the sender's core does."""
        ready, stop = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            self._be_receiver(leg, ready[1], stop)
        os.close(ready[1])
        os.close(stop[0])
        try:
            assert os.read(ready[0], 1), "the receiver did not come up"
            yield
        finally:
            os.close(stop[1])
            os.close(ready[0])
            os.waitpid(child, 0)

    def _be_receiver(self, leg: Leg, ready: int, stop: tuple[int, int]) -> NoReturn:
        status = 1
        try:
            os.close(stop[1])
            lab.enter(self.state.inventory, "rx1")
            mac = Match.from_data(leg.match).value[:6].hex(":")
            task = ReceiveTask("eth1", mac, [leg], limit_s=120.0, mode="count", ring_mib=16)
            with tempfile.TemporaryDirectory() as spool:
                receiver = NetsniffReceiver(task, Path(spool))
                receiver.prepare()
                receiver.start(time.monotonic_ns())
                while not receiver.ready():
                    time.sleep(0.01)
                os.write(ready, b"!")
                os.read(stop[0], 1)
                receiver.stop()
                receiver.restore()
            status = 0
        finally:
            os._exit(status)


@contextmanager
def terminal() -> Iterator[int]:
    """One that shows what a person would see, and that nobody looks at."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 160, 0, 0))

    def drain() -> None:
        with contextlib.suppress(OSError):
            while os.read(ours, 1 << 16):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def main() -> None:
    parser = report.parser("The sending rate of an engine bare and through a run.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=8.0, help="of the engine xdp")
    arguments = parser.parse_args()
    rates: dict[str, tuple[list[float], list[float]]] = {engine: ([], []) for engine in BARE}
    sampled, unsampled = [], []
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), arguments.packets, arguments.passes, arguments.seconds)
        try:
            for _ in range(arguments.rounds):
                for engine, (ours, bare) in rates.items():
                    rate, leg = bench.through_a_run(engine)
                    ours.append(rate)
                    bare.append(bench.bare(engine, leg))
                sampled.append(bench.watched(10))
                unsampled.append(bench.watched(0.001))
        finally:
            lab.down(bench.state.name, bench.folder)
    rows = [
        report.compared(f"{engine} at top speed, packets/s", ours, bare, f"{engine} bare", 0.98)
        for engine, (ours, bare) in rates.items()
    ]
    work = "xdp, 10 samples/s shown and written, packets/s"
    rows.append(report.compared(work, sampled, unsampled, "no samples", 0.99))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
