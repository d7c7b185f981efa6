"""A capture beside the counter holds the last frames too: a part-filled block of its ring is handed over late."""

from __future__ import annotations

import json
import os
import sys
import time
from subprocess import PIPE

import pytest

import forked
from pktswarm.nodes import libbpf
from pktswarm.nodes.process import missing_tool
from pktswarm.nodes.receivers.netsniff import BLOCK_RETIRE_S
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, to_json
from wire import Wire
from xdp_ends import ROOT, finish, send_raw
from xdp_frames import B, a_leg, stamped

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
    pytest.mark.skipif(bool(missing_tool("netsniff-ng", "netsniff-ng")), reason="netsniff-ng is not installed"),
]

RECEIVERS = """
import json, sys, tempfile, time
from pathlib import Path
from pktswarm.nodes.guard_engines import Engines
from pktswarm.nodes.receivers import netsniff
from pktswarm.traffic.protocol.task import receive_task_from_json
spool = tempfile.TemporaryDirectory()
engines = Engines(Path(spool.name))
waits = []
netsniff.time.sleep = lambda seconds, sleep=time.sleep: (waits.append((seconds, time.monotonic_ns())), sleep(seconds))
try:
    engines.prepare(receive_task_from_json(json.loads(sys.argv[1])))
    engines.start(time.monotonic_ns())
    while not engines.ready():
        time.sleep(0.01)
    print("ready", flush=True)
    sys.stdin.readline()
    del waits[:]
    engines.stop()
    wait_s, at_ns = waits[0]
    counts, problems = engines.counts()
    counts = {one.engine: [one.received_packets, one.dropped_packets] for one in counts}
    capture = next(engine for engine in engines._all if engine.name == "netsniff-ng")
    age_s = (at_ns - capture.last_arrival_ns) / 1e9
    print(json.dumps([wait_s, age_s, counts, vars(capture._runs[None].closing()), problems]))
finally:
    engines.stop()
    engines.restore()
"""


def stranger(number: int) -> bytes:
    """A frame for this node that belongs to no leg."""
    return bytes.fromhex(B.replace(":", "")) + bytes.fromhex("0200000000aa88b5") + number.to_bytes(46, "big")


@pytest.mark.parametrize("quiet_s", [0.0, 2 * BLOCK_RETIRE_S])
@pytest.mark.parametrize("last", ["of a leg", "of no leg", "none"])
def test_a_capture_waits_for_the_last_frame_only_where_it_is_young(wire: Wire, last: str, quiet_s: float) -> None:
    leg: Leg = a_leg()
    task = ReceiveTask("rx0", B, [leg], 60, engine="xdp+netsniff-ng", ring_mib=16, offsets_ns={"a": 0})
    command = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", RECEIVERS, json.dumps(to_json(task))]
    process = forked.popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        frames = {"of a leg": [stamped(leg, n) for n in range(50)], "of no leg": [stranger(n) for n in range(50)]}
        finish(send_raw(wire, frames.get(last, [])))
        time.sleep(quiet_s)  # the time without frames is what is tested
        out, err = process.communicate("stop\n", timeout=60)
    finally:
        process.kill()
        process.wait()
    wait_s, age_s, counts, closing, problems = json.loads(out)
    assert problems == [] and err == ""
    counted = 50 if last == "of a leg" else 0
    assert counts == {"xdp": [counted, 0], "netsniff-ng": [counted, 0]}
    assert closing["incoming"] == (0 if last == "none" else 50) and closing["unread"] == 0
    # By the age of the last frame then, not by the time that was planned: the machine may be busy.
    assert BLOCK_RETIRE_S - age_s <= wait_s <= BLOCK_RETIRE_S
    assert (wait_s == 0) == (age_s >= BLOCK_RETIRE_S)
    assert age_s >= BLOCK_RETIRE_S or not (quiet_s > 0 or last == "none")
