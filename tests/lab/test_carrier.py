"""Senders and receivers are ready only when the link is back that an XDP program or an offload restarted.

The far end of a veth pair that goes down takes the carrier along, as a driver does that restarts its link.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from subprocess import PIPE

import pytest

import forked
from pktswarm.nodes import availability
from pktswarm.traffic.protocol.task import ReceiveTask, SendTask, to_json
from wire import B, Wire, ip
from xdp_frames import a_leg

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_receiver()), reason=availability.xdp_receiver() or "-"),
]

ENGINE = """
import json, sys, tempfile, time
from pathlib import Path
from pktswarm.nodes import carrier
from pktswarm.nodes.engines import receiver_class, sender_class
from pktswarm.traffic.errors import PktswarmError
from pktswarm.traffic.protocol.task import receive_task_from_json, send_task_from_json
carrier.BACK_S = carrier.RESTORED_S = float(sys.argv[2])
with tempfile.TemporaryDirectory() as spool:
    task, receives = json.loads(sys.argv[1]), sys.argv[3] == "receives"
    if receives:
        engine = receiver_class("xdp")(receive_task_from_json(task), Path(spool))
    else:
        engine = sender_class("tc")(send_task_from_json(task), Path(spool))
    try:
        engine.prepare()
        print("prepared", flush=True)
        sys.stdin.readline()
        if receives:
            engine.start(time.monotonic_ns())
        print(engine.ready(), flush=True)
        while not engine.ready():
            time.sleep(0.01)
        print("ready", flush=True)
    except PktswarmError as error:
        print(error)
    finally:
        engine.restore()
"""


def prepared(wire: Wire, back_s: float, does: str = "receives") -> subprocess.Popen[str]:
    legs = [replace(a_leg("udp4", number=0, count_packets=1), engine="tc")]
    receive, send = ReceiveTask("rx0", B, legs, 60, mode="count", offsets_ns={}), SendTask("tx0", legs, 60)
    task = json.dumps(to_json(receive if does == "receives" else send))
    inside = ["ip", "netns", "exec", wire.receiver if does == "receives" else wire.sender]
    command = [*inside, sys.executable, "-c", ENGINE, task, str(back_s), does]
    process = forked.popen(command, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None and process.stdout.readline() == "prepared\n"
    return process


def start(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.parametrize("does", ["receives", "sends"])
def test_it_is_ready_when_the_link_is_back(wire: Wire, does: str) -> None:
    far = [wire.sender, "tx0"] if does == "receives" else [wire.receiver, "rx0"]
    process = prepared(wire, 30.0, does)
    try:
        ip("-n", far[0], "link", "set", far[1], "down")
        assert start(process) == "False\n"
        ip("-n", far[0], "link", "set", far[1], "up")
        out, _ = process.communicate(timeout=60)
        assert out == "ready\n"
    finally:
        process.kill()
        process.wait()


def test_a_link_that_does_not_come_back_is_the_reason(wire: Wire) -> None:
    process = prepared(wire, back_s=0.2)
    try:
        ip("-n", wire.sender, "link", "set", "tx0", "down")
        assert start(process) == "False\n"
        out, _ = process.communicate(timeout=60)
        assert "rx0 has had no carrier for" in out
    finally:
        process.kill()
        process.wait()


def test_an_interface_without_a_carrier_is_not_waited_for(wire: Wire) -> None:
    ip("-n", wire.sender, "link", "set", "tx0", "down")
    process = prepared(wire, back_s=30.0)
    try:
        assert start(process) == "True\n"
    finally:
        process.kill()
        process.wait()
