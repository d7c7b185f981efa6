"""The socket engine by itself, between two throwaway namespaces: what both ends count, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.traffic.connections.counts import EndCount
from pktswarm.traffic.leg import ConnectionShape, Leg
from pktswarm.traffic.protocol.task import ReceiveTask, SendTask, to_json
from running import wait_until_sent

ROOT = Path(__file__).parents[2]
MS = 1_000_000
START_IN_NS = 50 * MS
A, B = "02:00:00:00:0c:01", "02:00:00:00:0c:02"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
    pytest.mark.skipif(bool(availability.sockets()), reason=availability.sockets()),
]

END = """
import json, sys, time
from pathlib import Path
from pktswarm.nodes.engines import receiver_class, sender_class
from pktswarm.traffic.errors import PktswarmError
from pktswarm.traffic.protocol.task import receive_task_from_json, send_task_from_json
role, task, spool = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
if role == "transmit":
    engine = sender_class("socket")(send_task_from_json(task), spool)
else:
    engine = receiver_class("socket")(receive_task_from_json(task), spool)
def wait(seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()
try:
    engine.prepare()
    assert wait(10, engine.ready)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "start\\n":
            engine.start(time.monotonic_ns() + int(sys.argv[4]))
        elif line == "wait\\n":
            print("done" if wait(30, engine.done) else "never", flush=True)
        elif line == "stop\\n":
            engine.stop()
            print(json.dumps([one.connections for one in engine.counts()]), flush=True)
except PktswarmError as error:
    print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
finally:
    engine.stop()
    engine.restore()
"""


class Wire:
    """Two unnamed namespaces, `v0` in each; they end with the two processes that hold them."""

    def __init__(self) -> None:
        self.begun_ns = 0
        """The start of a whole run is no earlier."""
        self.pids = [self._namespace(), self._namespace()]
        self.on(0, "ip", "link", "add", "v0", "address", A, "type", "veth", "peer", "name", "v0", "address", B, "netns",
                str(self.pids[1]))  # fmt: skip
        for side in (0, 1):
            self.on(side, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            self.on(side, "ethtool", "-K", "v0", "tso", "off", "gso", "off", "gro", "off")
            self.on(side, "ip", "link", "set", "v0", "up")

    def _namespace(self) -> int:
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec sleep 300"], stdout=PIPE, text=True)
        assert holder.stdout is not None and holder.stdout.readline() == "up\n"
        self.holders = [*getattr(self, "holders", []), holder]
        return holder.pid

    def command(self, side: int, *words: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.pids[side]}/ns/net", *words]

    def with_sys(self, side: int, *words: str) -> list[str]:
        """With a /sys that shows the namespace's interfaces."""
        return self.command(side, "unshare", "--mount", "sh", "-c", 'mount -t sysfs s /sys && exec "$@"', "sh", *words)

    def on(self, side: int, *words: str) -> str:
        return subprocess.run(self.command(side, *words), check=True, capture_output=True, text=True).stdout

    def addresses(self, side: int) -> list[dict[str, Any]]:
        return [one for link in json.loads(self.on(side, "ip", "-json", "-4", "addr", "show", "v0")) if link
                for one in link["addr_info"]]  # fmt: skip

    def until_sending(self, source: End) -> None:
        """From its start on: until several blocks have gone."""
        source.tell("start")
        wait_until_sent(self.pids[:1], 50, "v0")

    def end(self) -> None:
        for holder in self.holders:
            holder.kill()
            holder.wait()


@pytest.fixture
def wire() -> Iterator[Wire]:
    this = Wire()
    try:
        yield this
    finally:
        this.end()


class End:
    """One engine's whole life in a process of its own, as in a node's guard."""

    def __init__(self, wire: Wire, role: str, legs: list[Leg], folder: Path, limit_s: float = 30.0) -> None:
        spool = folder / role
        spool.mkdir(exist_ok=True)
        task: Any = SendTask("v0", legs, limit_s) if role == "transmit" else ReceiveTask("v0", B, legs, limit_s)
        words = [sys.executable, "-c", END, role, json.dumps(to_json(task)), str(spool), str(START_IN_NS)]
        command = wire.with_sys(0 if role == "transmit" else 1, *words)
        self.process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT)
        self.first = self.hear()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(20)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()

    def hear(self) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        return self.process.stdout.readline().strip() or self.process.stderr.read()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.hear()

    def counts(self) -> list[EndCount]:
        answer = self.ask("stop")
        assert answer.startswith("["), answer
        return [EndCount.from_json(one) for one in json.loads(answer)]


def a_leg(number: int = 0, **changes: Any) -> Leg:
    connection = {
        "protocol": "tcp",
        "connections": 1,
        "direction": "up",
        "block_bytes": 9140,
        "period_ns": 14 * MS,
        "blocks": 20,
        "duration_ns": None,
        "pace_bps": None,
        "congestion": None,
        "nodelay": True,
        "send_buffer_bytes": None,
        "background": False,
        "source_ipv4": "198.19.0.1/16",
        "target_ipv4": "198.19.0.2/16",
        "port": 20000 + number,
        "datagram_bytes": 1472,
        "drain_s": 0.2,
    }
    return Leg(
        number,
        f"leg{number}",
        "a",
        "b",
        "connections",
        "socket",
        connection=ConnectionShape(**{**connection, **changes}),
    )


def run(wire: Wire, legs: list[Leg], folder: Path) -> list[tuple[EndCount, EndCount]]:
    """Each leg's two ends, after a whole run."""
    with End(wire, "receive", legs, folder) as target:
        assert target.first == "ready"
        with End(wire, "transmit", legs, folder) as source:
            assert source.first == "ready"
            wire.begun_ns = time.monotonic_ns() + START_IN_NS
            source.tell("start")
            assert source.ask("wait") == "done"
            time.sleep(0.2)
            counts = list(zip(source.counts(), target.counts(), strict=True))
    assert wire.addresses(0) == wire.addresses(1) == []
    return counts


# --- what is counted ----------------------------------------------------------------------------------------------


def test_tcp_both_ways_over_many_connections_is_counted_alike_at_both_ends(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(connections=5, direction="both")
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.failures == target.failures == []
    for sender, receiver in ((source, target), (target, source)):
        assert sender.sent is not None and receiver.received is not None
        assert sender.sent.intended_blocks == sender.sent.sent_blocks == receiver.received.blocks == 5 * 20
        assert sender.sent.sent_bytes == receiver.received.bytes == 5 * 20 * 9140
        assert receiver.received.delay_blocks == 100
        # Both ends have one clock here: no delay is negative.
        assert receiver.received.delay_min_ns is not None and receiver.received.delay_min_ns > 0
        assert receiver.received.jitter_sd_ns is not None
        assert sender.sent.data_segments is not None and sender.sent.data_segments >= 100 * 9140 // 1448
        assert sender.sent.rtt_min_ns is not None and sender.sent.rtt_min_ns > 0
        # 20 blocks, the first of which goes at the start: 19 periods. All are of one clock.
        assert receiver.received.last_ns is not None
        assert receiver.received.last_ns >= wire.begun_ns + 19 * 14 * MS


def test_items_of_a_source_arrive_whatever_their_sizes(wire: Wire, tmp_path: Path) -> None:
    items = [[(0, 1), (MS, 23), (2 * MS, 24), (3 * MS, 300_000), (4 * MS, 7)], [(0, 5000)]]
    leg = a_leg(connections=2, block_bytes=None, period_ns=None, blocks=None, items=items)
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.sent is not None and target.received is not None
    assert (source.sent.intended_blocks, source.sent.sent_blocks, target.received.blocks) == (6, 6, 6)
    assert source.sent.sent_bytes == target.received.bytes == 1 + 23 + 24 + 300_000 + 7 + 5000
    assert target.received.delay_blocks == 3  # those that have room for a time


@pytest.mark.alone
def test_items_of_a_source_go_over_udp_too(wire: Wire, tmp_path: Path) -> None:
    items = [[(0, 1), (MS, 32), (2 * MS, 33), (3 * MS, 60_000)]]
    leg = a_leg(protocol="udp", block_bytes=None, period_ns=None, blocks=None, items=items)
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.sent is not None and target.received is not None
    assert (source.sent.sent_blocks, target.received.blocks) == (4, 4)
    assert source.sent.sent_bytes == target.received.bytes == 32 + 32 + 33 + 60_000


@pytest.mark.alone
def test_as_fast_as_it_goes_fills_the_duration_and_is_whole(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(block_bytes=65536, period_ns=None, blocks=None, duration_ns=300 * MS, send_buffer_bytes=65536)
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.sent is not None and target.received is not None
    assert source.sent.intended_blocks is None and source.sent.late_blocks is None
    assert source.sent.sent_blocks == target.received.blocks > 1
    assert source.sent.sent_bytes == target.received.bytes == 65536 * source.sent.sent_blocks


@pytest.mark.alone
def test_udp_both_ways_counts_every_datagram(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(protocol="udp", connections=3, direction="both", block_bytes=18280)
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.failures == target.failures == []
    for sender, receiver in ((source, target), (target, source)):
        assert sender.sent is not None and receiver.received is not None
        assert sender.sent.datagrams == receiver.received.datagrams == 3 * 20 * 13
        assert (receiver.received.duplicated, receiver.received.dropped, receiver.received.foreign) == (0, 0, 0)
        assert receiver.received.blocks == sender.sent.sent_blocks == 60
        assert receiver.received.bytes == sender.sent.sent_bytes == 60 * 18280


@pytest.mark.alone
def test_udp_losses_are_the_ones_that_a_policing_queue_counts(wire: Wire, tmp_path: Path) -> None:
    wire.on(0, *"tc qdisc add dev v0 root handle 1: tbf rate 3mbit burst 3000 limit 9000".split())
    ((source, target),) = run(wire, [a_leg(protocol="udp", block_bytes=18280)], tmp_path)
    (qdisc,) = json.loads(wire.on(0, "tc", "-s", "-json", "qdisc", "show", "dev", "v0"))
    assert source.sent is not None and target.received is not None
    assert source.sent.datagrams is not None and target.received.datagrams is not None
    assert source.sent.datagrams == 20 * 13
    assert source.sent.datagrams - target.received.datagrams == qdisc["drops"] > 0
    assert target.received.blocks < 20


@pytest.mark.alone
def test_tcp_through_a_narrow_queue_is_whole_and_no_faster_than_it(wire: Wire, tmp_path: Path) -> None:
    wire.on(0, *"tc qdisc add dev v0 root handle 1: tbf rate 8mbit burst 3000 limit 9000".split())
    leg = a_leg(block_bytes=54840, period_ns=None, blocks=10, congestion="reno")
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.sent is not None and target.received is not None
    assert source.sent.sent_bytes == target.received.bytes == 548_400
    assert source.sent.congestion == "reno"
    assert target.received.goodput_bps is not None and target.received.goodput_bps < 8e6


@pytest.mark.alone
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_paced_block_is_spread_over_its_time(wire: Wire, tmp_path: Path, protocol: str) -> None:
    """400 kB at 8 Mbit/s take 0.4 s; by itself this wire takes them in a few milliseconds."""
    leg = a_leg(protocol=protocol, block_bytes=400_000, blocks=1, pace_bps=8e6)
    ((source, target),) = run(wire, [leg], tmp_path)
    assert source.sent is not None and target.received is not None
    assert target.received.bytes == 400_000
    assert target.received.last_ns is not None
    # What may go ahead of the rate: TCP's first ten segments, a late UDP sender's 5 ms.
    assert target.received.last_ns >= wire.begun_ns + 350 * MS


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_refused_connection_is_told_before_anything_is_sent(wire: Wire, tmp_path: Path) -> None:
    wire.on(1, "ip", "addr", "add", "198.19.0.2/16", "dev", "v0")
    with End(wire, "transmit", [a_leg()], tmp_path) as source:
        assert source.first.startswith("EngineError") and "Connection refused" in source.first
    assert wire.addresses(0) == []


def test_a_receiver_that_dies_is_told_with_the_counts(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(blocks=2000)]
    with End(wire, "receive", legs, tmp_path) as target, End(wire, "transmit", legs, tmp_path) as source:
        wire.until_sending(source)
        target.process.kill()
        target.process.wait()
        assert source.ask("wait") == "done"
        (count,) = source.counts()
        assert count.sent is not None and 0 < count.sent.sent_blocks < 2000
        assert any("control connection" in why or "connection 1 of 1" in why for why in count.failures)


def test_an_unknown_congestion_control_names_those_there_are(wire: Wire, tmp_path: Path) -> None:
    with End(wire, "transmit", [a_leg(congestion="nosuch")], tmp_path) as source:
        assert source.first.startswith("BadInput") and "congestion = 'nosuch'" in source.first
        assert "reno" in source.first
    assert wire.addresses(0) == []


def test_an_address_that_the_node_has_is_refused(wire: Wire, tmp_path: Path) -> None:
    wire.on(0, "ip", "addr", "add", "198.19.7.7/24", "dev", "lo")
    with End(wire, "transmit", [a_leg()], tmp_path) as source:
        assert source.first.startswith("BadInput") and "198.19.7.7/24 on lo" in source.first
    assert wire.addresses(0) == []


# --- what is left behind ------------------------------------------------------------------------------------------


def test_interrupted_it_counts_what_both_ends_have(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(blocks=2000, direction="both")]
    with End(wire, "receive", legs, tmp_path) as target, End(wire, "transmit", legs, tmp_path) as source:
        wire.until_sending(source)
        (mine,), (theirs,) = source.counts(), target.counts()
    assert mine.interrupted and mine.sent is not None and theirs.received is not None
    assert 0 < mine.sent.sent_bytes == theirs.received.bytes
    assert wire.addresses(0) == wire.addresses(1) == []


def test_the_kernel_takes_the_address_of_a_killed_guard_away(wire: Wire, tmp_path: Path) -> None:
    with End(wire, "receive", [a_leg()], tmp_path, limit_s=0.5) as target:
        assert target.first == "ready"
        (address,) = wire.addresses(1)
        assert address["local"] == "198.19.0.2" and address["prefixlen"] == 16
        os.kill(target.process.pid, signal.SIGKILL)
        target.process.wait()
        assert wire.addresses(1), "nobody was there to remove it"
        deadline = time.monotonic() + 12
        while wire.addresses(1) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert wire.addresses(1) == []


def test_the_address_of_a_killed_guard_is_no_obstacle(wire: Wire, tmp_path: Path) -> None:
    with End(wire, "receive", [a_leg()], tmp_path) as killed:
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait()
    assert len(wire.addresses(1)) == 1
    (tmp_path / "again").mkdir()
    ((source, target),) = run(wire, [a_leg(1)], tmp_path / "again")
    assert source.sent is not None and target.received is not None and target.received.blocks == 20
