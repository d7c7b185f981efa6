"""The xdp sender and receiver, each a whole life in a process of its own inside a namespace, as in a node's guard; and
the sender's program by itself.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any, Literal

import forked
from pktswarm.nodes.libbpf import run_once
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.nodes.senders.ways_out import CLONES, LIVE_FRAMES, WayOut
from pktswarm.nodes.senders.xdp_program import Program
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Clock, ReceiveTask, SendTask, to_json
from pktswarm.traffic.schedule.assemble import Schedule
from pktswarm.traffic.schedule.records import NEVER
from wire import B, Wire

ROOT = Path(__file__).parents[2]
XDP_DROP, XDP_REDIRECT = 1, 4

RECEIVER = """
import json, sys, tempfile, time
from pathlib import Path
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.protocol.task import receive_task_from_json
from pktswarm.traffic.errors import PktswarmError
XdpReceiver.object_file = Path(sys.argv[2])
spool = tempfile.TemporaryDirectory()
engine = XdpReceiver(receive_task_from_json(json.loads(sys.argv[1])), Path(spool.name))
try:
    engine.prepare()
    engine.start(time.monotonic_ns())
    while not engine.ready():
        time.sleep(0.01)
    print(engine.attached, flush=True)
    for line in sys.stdin:
        if line == "stop\\n":
            break
        print(json.dumps(engine.sample()), flush=True)
    engine.stop()
    counts = [*engine.counts(), *engine.other_way()]
    tallies = {leg: one.to_json() for leg, one in engine.figures.tallies().items()}
    print(json.dumps([tallies, engine.figures.unmatched(), [vars(one) for one in counts]]))
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
finally:
    engine.stop()
    engine.restore()
"""
SENDER = """
import json, os, subprocess, sys, time
from pathlib import Path
from pktswarm.nodes.engines import sender_class
from pktswarm.traffic.protocol.task import send_task_from_json, to_json
from pktswarm.traffic.errors import PktswarmError
task, spool, extra = json.loads(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
engine = sender_class(extra.get("engine", "xdp"))(send_task_from_json(task), spool, extra.get("most_repeats", 1 << 20))
try:
    engine.prepare()
    while not engine.ready():
        time.sleep(0.01)
    if "before_start" in extra:
        subprocess.run(extra["before_start"], check=True)
    at_ns = time.monotonic_ns() + 20_000_000
    engine.start(at_ns)
    began = time.monotonic()
    changes, changed = extra.get("changes", []), []
    while not engine.done() and time.monotonic() < began + 100:
        if changes and time.monotonic_ns() > at_ns + changes[0][0] * 1e9:
            _, leg, rate_pps = changes.pop(0)
            before_ns = time.monotonic_ns()
            engine.set_rate(leg, rate_pps)
            changed.append([before_ns, time.monotonic_ns()])
        time.sleep(0.01)
    engine.stop()
    counts = [{**to_json(one), "delay_ns": one.started_ns - at_ns} for one in engine.counts()]
    print(json.dumps({"counts": counts, "sample": engine.sample(), "changed": changed, "at_ns": at_ns}))
except PktswarmError as error:
    print(type(error).__name__, error)
    sys.exit(9)
finally:
    engine.stop()
    engine.restore()
"""
WAYS = {"xdp": LIVE_FRAMES, "tc": CLONES}
RAW_SENDER = """
import errno, os, socket, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
channel.bind(("tx0", 0))
for number, line in enumerate([bytes.fromhex(line) for line in sys.stdin]):
    while True:
        try:
            channel.send(line)
            break
        except OSError as error:  # of the ring's 256 places none is free, as the other end's processor is away
            if error.errno != errno.ENOBUFS:
                raise
            time.sleep(0.001)
    if number % 64 == 0:
        time.sleep(0.0005)
"""


@contextlib.contextmanager
def loaded(
    whole: Schedule, clock: Clock = "monotonic", start_ns: int | None = None, way: WayOut = LIVE_FRAMES
) -> Iterator[Program]:
    """The sender's program with a schedule, attached to nothing; clones go to the loopback interface. Where nothing
    else is said it began so long ago that every frame is due, and no schedule is stretched.

    Its frames stay pending between two calls, which those of a sender never do. The tracepoints of the answers are the
    machine's, so it would take the answers to a sender of another test on the same processor for its own.
    """
    unanswered = replace(way, answers=())
    program = Program(whole, interface_index=1, batch=64 if way.live else 1, clock=clock, way=unanswered)
    try:
        if start_ns is None:
            for leg in program.legs:
                leg.stretch_ns = NEVER
        program.start(time.monotonic_ns() - 10**10 if start_ns is None else start_ns)
        yield program
    finally:
        program.close()


def made_by(program: Program, number: int) -> list[bytes]:
    """What it makes, one frame after the other, each into a page full of something else."""
    frames = []
    for _ in range(number):
        verdict, frame = run_once(program.fd, b"\xee" * 300)
        assert verdict == XDP_REDIRECT and not program.state.broken
        frames.append(frame)
    return frames


class Node:
    """A receiver; `program`: the object file, if it is not the one in the package."""

    def __init__(
        self,
        wire: Wire,
        program: Path | None,
        legs: list[Leg],
        interface: str = "rx0",
        mode: Literal["capture", "count"] = "count",
        namespace: str = "",
        **more: Any,
    ) -> None:
        made = ReceiveTask(interface, B, legs, 300, mode=mode, offsets_ns={"a": 0}, **more)
        task = json.dumps(to_json(made))
        program = program or XdpReceiver.object_file
        inside = ["ip", "netns", "exec", namespace or wire.receiver]
        command = [*inside, sys.executable, "-c", RECEIVER, task, str(program)]
        self.process = forked.popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.attached = self.process.stdout.readline().strip()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def sample(self) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("sample\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def stop(self) -> tuple[dict[str, Any], dict[str, int], list[dict[str, Any]]]:
        """Tallies by leg, strangers, counts."""
        out, err = self.process.communicate("stop\n", timeout=300)
        assert self.process.returncode == 0, out + err
        tallies, unmatched, counts = json.loads(out)
        return tallies, unmatched, counts


def start(wire: Wire, spool: Path, legs: list[Leg], limit_s: float = 120, **extra: Any) -> subprocess.Popen[str]:
    """The sender on tx0; `engine`: xdp, or tc for the same legs by its way out."""
    legs = [replace(leg, engine=str(extra.get("engine", leg.engine))) for leg in legs]
    task = json.dumps(to_json(SendTask("tx0", legs, limit_s)))
    command = [sys.executable, "-c", SENDER, task, str(spool), json.dumps(extra)]
    return forked.popen(["ip", "netns", "exec", wire.sender, *command], stdout=PIPE, cwd=ROOT)


def send(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> list[dict[str, Any]]:
    counts: list[dict[str, Any]] = all_of_sending(wire, spool, legs, **extra)["counts"]
    return counts


def all_of_sending(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> dict[str, Any]:
    """`changes`: [s from the start, leg, rate in packets/s or None] for Sender.set_rate(); `changed` has the times
    before and after each."""
    process = start(wire, spool, legs, **extra)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return dict(json.loads(text))


def send_raw(wire: Wire, frames: list[bytes], script: str = RAW_SENDER, argument: int = 0) -> subprocess.Popen[str]:
    """These frames, from Python."""
    command = ["ip", "netns", "exec", wire.sender, sys.executable, "-c", script, str(argument)]
    process = forked.popen(command, stdin=PIPE, stderr=PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(frame.hex() + "\n" for frame in frames))
    process.stdin.close()
    return process


def finish(sender: subprocess.Popen[str]) -> None:
    try:
        assert sender.wait(300) == 0, sender.stderr and sender.stderr.read()
    finally:
        sender.kill()
        sender.wait()
