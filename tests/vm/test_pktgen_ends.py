"""Whatever happens to the processes, pktgen's threads stop and its devices go: within 2 s, where no processor stands
still meanwhile, and long before what was asked of them (60 s) is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pktswarm.traffic.errors import EngineError
from wires import Wire, inside, leg

OWNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from wires import Wire, inside, leg
wire = Wire("pgtx", "pgrx", "t0", "r0")
with inside(wire.tx):
    sender = wire.sender(Path(sys.argv[2]), leg(count_packets=None, duration_s=60.0, rate_pps=2000.0), limit_s=60.0)
    sender.prepare()
    sender.start(time.monotonic_ns())
    while "started" not in sender.log.read_text():
        time.sleep(0.001)
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(wire: Wire, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sends without end, as the guard would."""
    command = [sys.executable, "-c", OWNER, str(Path(__file__).parent), str(tmp_path)]
    # What the tests import by pytest's pythonpath: wires, and the wire that it stands on.
    folders = os.pathsep.join(map(str, (Path.cwd(), Path(__file__).parents[1] / "lab")))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folders})
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    yield process
    process.kill()
    process.wait()


ENDS_S = 20.0


def devices_go(wire: Wire) -> None:
    deadline = time.monotonic() + ENDS_S
    while wire.devices():
        assert time.monotonic() < deadline, f"still there: {wire.devices()}"
        time.sleep(0.01)


def sending_ends(wire: Wire) -> None:
    now, deadline = wire.received(), time.monotonic() + ENDS_S
    while True:
        before = now
        time.sleep(0.5)
        if (now := wire.received()) == before:
            return
        assert time.monotonic() < deadline, f"it still sends: {before}, then {now}"


@pytest.mark.parametrize("after_s", [0.0, 0.05, 1.0])
def test_sending_ends_when_its_owner_is_killed(wire: Wire, owner: subprocess.Popen[bytes], after_s: float) -> None:
    """At once, too: a signal within 100 ms of the start may not stop the kernel's threads."""
    time.sleep(after_s)
    owner.kill()
    devices_go(wire)
    sending_ends(wire)


def keeper_of(owner: subprocess.Popen[bytes]) -> int:
    found = subprocess.run(["pgrep", "-P", str(owner.pid)], capture_output=True, text=True, check=True).stdout
    return int(found.split()[0])


def test_sending_ends_when_the_keeper_is_killed(wire: Wire, owner: subprocess.Popen[bytes]) -> None:
    before, deadline = wire.received(), time.monotonic() + ENDS_S
    while wire.received() == before and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(keeper_of(owner), signal.SIGKILL)
    sending_ends(wire)
    with inside(wire.tx):
        Path("/proc/net/pktgen/pgctrl").write_text("reset\n")


def test_sending_ends_at_the_limit_of_a_frozen_owner(wire: Wire, tmp_path: Path) -> None:
    """The keeper has its own clock: nobody needs to tell it."""
    with inside(wire.tx):
        sender = wire.sender(tmp_path, leg(count_packets=None, duration_s=60.0), limit_s=2.0)
        try:
            sender.prepare()
            sender.start(time.monotonic_ns())
            time.sleep(2.0)
            devices_go(wire)
            with pytest.raises(EngineError, match="stopped at its limit"):
                sender.counts()
        finally:
            sender.stop()
            sender.restore()


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.6])
def test_a_stop_stops_however_soon_it_comes(wire: Wire, tmp_path: Path, after_s: float) -> None:
    before = wire.settled()
    with inside(wire.tx):
        sender = wire.sender(tmp_path, leg(count_packets=None, duration_s=60.0))
        try:
            sender.prepare()
            sender.start(time.monotonic_ns())
            time.sleep(after_s)
            sender.stop()
            sender.stop()
            (count,) = sender.counts()
            assert sender.sample() == {0: {"sent_packets": count.sent_packets}}
        finally:
            sender.restore()
            sender.restore()
    assert wire.arrived(before, count.sent_packets) == count.sent_packets
    assert wire.devices() == []


def test_a_stop_before_the_start_sends_nothing(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    with inside(wire.tx):
        sender = wire.sender(tmp_path, leg())
        try:
            sender.prepare()
            sender.start(time.monotonic_ns() + 30_000_000_000)
            sender.stop()
            (count,) = sender.counts()
        finally:
            sender.restore()
    assert (count.sent_packets, count.started_ns, count.note) == (0, None, "1 of 1 threads never started")
    assert wire.settled() == before
