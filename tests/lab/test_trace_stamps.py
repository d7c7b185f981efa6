"""A trace with stamps: made in the kernel, carried by a device of known faults, counted by number; and a whole run."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forked
from device import NO_STREAM, Done, XdpDevice
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import run_once
from pktswarm.traffic.capture.files import read_capture
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.trace_verify import digest
from pktswarm.traffic.leg import Leg, TraceMode
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.replay import files, stamps
from pktswarm.traffic.replay.prepare import Instances, Settings
from pktswarm.traffic.replay.table import pool
from recordings import NODES, ipv4, tcp, udp
from running import cluster_of
from stamped_traces import legs_of, macs, made_by_the_program
from wire import Line
from xdp_ends import Node, send
from xdp_frames import armed

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender() or "-"),
    pytest.mark.skipif(bool(availability.xdp_receiver()), reason=availability.xdp_receiver() or "-"),
]
CONFIGS = Path("configs").resolve()
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def a_trace(draw: random.Random, packets: int) -> list[bytes]:
    """UDP, TCP, a tunnel, fragments: some with room for a stamp, some without."""
    made = []
    for number in range(packets):
        data = draw.randbytes(draw.choice((0, 10, 23, 24, 25, 90, 1001)))
        port = 5000 + number % 7
        inner = tcp("10.0.0.1", port, "10.0.0.2", 80, data)[14:]
        made.append(
            draw.choice(
                (
                    udp("1.1.1.1", port, "2.2.2.2", 53, data),
                    tcp("1.1.1.1", port, "2.2.2.2", 80, data),
                    ipv4("1.1.1.1", "2.2.2.2", inner, 4),
                    ipv4("1.1.1.1", "2.2.2.2", data, 17, number, 0x0010),
                )
            )
        )
    return made


@pytest.mark.parametrize(
    ("settings", "repeat"),
    [
        (Settings(stamped=True), 3),
        (Settings(stamped=True, users=pool("10.60.0.1"), instances=Instances(3)), 2),
        (Settings(stamped=True, headers_only=True), 1),
        (Settings(stamped=True, tag=b"\x81\x00\x00\x07"), 1),
    ],
)
def test_frames_are_those_of_the_file_but_for_number_and_time(
    tmp_path: Path, settings: Settings, repeat: int, engine: str
) -> None:
    """And a receiver takes them as whole, numbered through over all instances, until a bit is changed."""
    recorded = a_trace(random.Random(1), 120)
    legs = [
        replace(leg, engine=engine)
        for leg in legs_of(tmp_path, recorded, settings, repeat=repeat, match=Match.rest(*macs()).to_data())
    ]
    whole = [files.frames_to_send(leg, tmp_path)[0] for leg in legs]
    wanted = [frames.frame(row) for _ in range(repeat) for row in range(len(whole[0])) for frames in whole]
    made = made_by_the_program(legs, tmp_path, len(wanted))
    for one, other in ((made, wanted), (wanted, made)):
        assert sorted(digest(frame, 0) for frame in one) == sorted(digest(frame, 0) for frame in other)
    checksums_are_as_in(made, wanted)
    count_them(legs, made, tmp_path)


def checksums_are_as_in(made: list[bytes], wanted: list[bytes]) -> None:
    """The 16-bit words of each add up to the same, so what covers them is as right as it was."""

    def sums(frames: list[bytes]) -> list[int]:
        padded = (frame + bytes(len(frame) % 2) for frame in frames)
        return sorted(int.from_bytes(frame, "big") % 0xFFFF for frame in padded)

    assert sums(made) == sums(wanted)


def count_them(legs: list[Leg], made: list[bytes], folder: Path) -> None:
    receiver = armed()(ReceiveTask("lo", B, legs[:1], 60, mode="count", offsets_ns={"a": 0}), folder)
    receiver.prepare()
    try:
        program = receiver.program.counter_fd
        for frame in made:
            run_once(program, frame)
        total = legs[0].stamped_packets or 0
        one, [count] = receiver.figures.tallies()[0], receiver.counts()
        assert (one.packets, one.distinct, one.duplicated, one.reordered) == (total, total, 0, 0)
        assert (one.altered, one.highest) == (0, total - 1), one.altered_by
        assert (count.received_packets, count.unstamped_packets) == (len(made), len(made) - total)
        assert receiver.sample()[0]["packets"] == len(made)
        assert one.latency is not None and one.latency.frames == total
        longest = max((frame for frame in made if stamps.blanked(frame, 0) != frame), key=len)
        for altered, place in enumerate(random.Random(3).sample(range(len(longest) - 400, len(longest)), 5), 1):
            bits = bytes([longest[place] ^ 1])
            run_once(program, longest[:place] + bits + longest[place + 1 :])
            assert receiver.figures.tallies()[0].altered_by == {"payload": altered}
    finally:
        receiver.restore()


@pytest.mark.alone
def test_137_dropped_are_137_lost_of_a_trace(line: Line, tmp_path: Path) -> None:
    """Of a trace in two instances and two passes; 11 more without a stamp are lost by count, 41 are altered."""
    draw = random.Random(137)
    one_mac, other_mac = (bytes.fromhex(mac.replace(":", "")) for mac in (A, B))
    nodes = replace(NODES, user_mac=one_mac, server_mac=other_mac)
    settings = Settings(stamped=True, users=pool("10.60.0.1"), instances=Instances(2))
    match = Match.rest(A, B).to_data()
    recorded = [udp("1.1.1.1", 9, "2.2.2.2", 53, draw.randbytes(size)) for size in draw.choices((10, 60, 300), k=3000)]
    legs = legs_of(tmp_path, recorded, settings, nodes, 2, match=match)
    stamped, total = legs[0].stamped_packets or 0, 12_000
    plain = total - stamped
    device = XdpDevice(line, [42])
    chosen = draw.sample(range(stamped - 1), 137 + 41)
    for number in chosen[:137]:
        device.drop(0, number)
    for number in chosen[137:]:
        device.flip(0, number, 42 + 24 + draw.randrange(28), bytes([1 << draw.randrange(8)]))
    for number in draw.sample(range(plain), 11):
        device.drop(NO_STREAM, number)
    with Node(line, None, legs[:1]) as node, device:
        counts = send(line, tmp_path, legs)
        tallies, unmatched, [received] = node.stop()
        assert device.stop() == Done(total, 137 + 11, 41, 0)
    assert line.lost_on_the_way() == {"tx0": 0, "out0": 0}
    assert sum(one["sent_packets"] for one in counts) == total
    assert sum(one["stamped_packets"] for one in counts) == stamped
    one = tallies["0"]
    assert stamped - one["distinct"] == 137
    assert (one["duplicated"], one["reordered"], one["invalid_sequence"], one["too_late"]) == (0, 0, 0, 0)
    assert (one["altered"], one["altered_by"]) == (41, {"payload": 41})
    assert one["latency"]["frames"] == stamped - 137 - 41 and one["jitter"]["pairs"] == stamped - 137 - 41 - 1
    assert received["unstamped_packets"] == plain - 11
    assert received["received_packets"] == total - 137 - 11
    assert unmatched == {"other": 0, "unknown_stream": 0, "fragment": 0, "malformed": 0, "damaged": 0}


@pytest.mark.alone
@pytest.mark.parametrize("timing", ["original", "top"])
def test_frames_that_the_kernel_refuses_are_neither_sent_nor_lost(
    line: Line, tmp_path: Path, timing: TraceMode
) -> None:
    """The MTU shrinks before the start: of a third of the frames the numbers are used up, and nothing else."""
    one_mac, other_mac = (bytes.fromhex(mac.replace(":", "")) for mac in (A, B))
    nodes = replace(NODES, user_mac=one_mac, server_mac=other_mac)
    recorded = [udp("1.1.1.1", 9, "2.2.2.2", 53, bytes((10, 100, 1000)[n % 3])) for n in range(900)]
    legs = legs_of(tmp_path, recorded, Settings(stamped=True), nodes, match=Match.rest(A, B).to_data())
    legs = [replace(leg, timing=replace(leg.timing, mode=timing)) for leg in legs]
    with Node(line, None, legs) as node, XdpDevice(line, [42]) as device:
        [sent] = send(line, tmp_path, legs, before_start=["ip", "link", "set", "tx0", "mtu", "600"])
        tallies, _, [received] = node.stop()
        assert device.stop().seen == 600
    assert (sent["sent_packets"], sent["stamped_packets"], sent["failed_packets"]) == (600, 300, 300)
    assert (received["received_packets"], received["unstamped_packets"]) == (600, 300)
    assert (tallies["0"]["distinct"], tallies["0"]["altered"], tallies["0"]["reordered"]) == (300, 0, 0)


class Cluster:
    """A transmitter and a receiver."""

    def __init__(self, folder: Path, name: str = "st", **more: Any) -> None:
        self.folder, self.name = folder, f"{name}{os.getpid()}"
        self.hosts = lab.up(self.name, 1, 1, folder, **more).inventory

    def pktswarm(self, command: str, text: str, *more: str | Path) -> subprocess.CompletedProcess[str]:
        path = self.folder / "scenario.yaml"
        path.write_text(text)
        words = [PKTSWARM, command, path, "--hosts", self.hosts, *more]
        return forked.run(words, timeout=90)

    def run(self, text: str) -> tuple[dict[str, Any], str]:
        """What it amounts to, and the words that a user reads."""
        done = self.pktswarm("run", text, "--no-report", "--results", self.folder / "results")
        assert done.returncode == 0, done.stdout + done.stderr
        folder = max((self.folder / "results").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return dict(json.loads((folder / "run.json").read_text()), results=str(folder)), done.stdout


cluster = cluster_of(Cluster)


EXPECT = "receive: {MORE}\nexpect: {loss: 0, sent: intended}\n"
TRACE = f"file: {CONFIGS}/traces/lab.pcapng, speed: 4"
TOLD = "t: 702 of 895 packets of a pass are stamped, 193 have no room for a stamp and are counted separately"


@pytest.mark.parametrize("more", ["mode: count", "mode: capture, capture_every: 10"])
def test_a_run_with_a_stamped_trace_in_instances(cluster: Cluster, more: str) -> None:
    keys = f"{TRACE}, scale: 2, users: {{first: 10.60.0.1}}, options: {{stamp: true}}"
    text = f"name: stamped\ntraces: [{{name: t, {keys}}}]\n" + EXPECT.replace("MORE", more)
    assert TOLD in cluster.pktswarm("check", text).stdout
    document, words = cluster.run(text)
    assert TOLD in document["notes"] and TOLD in " ".join(words.split())
    [row] = document["rows"]
    assert (row["sent_packets"], row["received_packets"], row["lost_by"]) == (1790, 1790, "stamps+difference")
    assert (row["unstamped_sent_packets"], row["unstamped_received_packets"]) == (386, 386)
    assert (row["duplicated_packets"], row["reordered_packets"], row["altered_packets"]) == (0, 0, 0)
    assert row["latency_p50_ns"] > row["latency_bound_ns"] == 0 and row["jitter_sd_ns"] > 0  # one kernel's clock
    assert "frames without room for a stamp: 386 sent, 386 received, 0 lost, by count" in " ".join(words.split())
    if "capture" in more:
        again = forked.run([PKTSWARM, "recount", document["results"]])
        assert again.returncode == 0, again.stdout


def test_a_stamped_trace_is_verified_packet_by_packet(cluster: Cluster) -> None:
    keys = f"{TRACE}, gtpu: {{sequence: true}}, oversize: cut, users: {{first: 10.60.0.1}}"
    keys += ", options: {stamp: true}, verify: true"
    document, _ = cluster.run(f"name: v\ntraces: [{{name: t, {keys}}}]\n" + EXPECT.replace("MORE", "mode: capture"))
    [result] = document["verified"]
    assert result["as_intended"] == result["intended"] == result["captured"] > 895
    assert (result["altered"], result["duplicated"], result["reordered"]) == (0, 0, 0)


def test_no_room_and_no_engine_are_one_message_and_nothing_is_left(cluster: Cluster) -> None:
    before = sorted((cluster.folder / "results").iterdir())
    small = cluster.folder / "small.pcap"
    small.write_bytes(write_pcap([Packet(n, tcp("1.1.1.1", 9, "2.2.2.2", 80)) for n in range(5)]))
    for keys, message in (
        (f"file: {small}", "traces.0.options.stamp"),
        (f"{TRACE}, engine: tcpreplay", "tcpreplay cannot stamp a trace; xdp and tc can"),
    ):
        text = f"name: bad\ntraces: [{{name: t, {keys}, options: {{stamp: true}}}}]\n"
        for command in ("check", "run"):
            done = cluster.pktswarm(command, text)
            assert done.returncode == 2 and message in " ".join(done.stderr.split()), done.stdout + done.stderr
    assert sorted((cluster.folder / "results").iterdir()) == before


# --- without stamps --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """2 Mbit/s and a queue of 30 kB: a third of a second's traffic is lost, and what is not comes late."""
    made = Cluster(tmp_path_factory.mktemp("narrow"), "sn", bottleneck_bps=2_000_000, queue_bytes=30_000)
    try:
        yield made
    finally:
        lab.down(made.name, made.folder)


def ports_of(folder: Path) -> Counter[tuple[int, int]]:
    """Ports of the captured or sent frames, all of which are plain IPv4 with UDP or TCP."""
    frames = [packet.data for path in sorted(folder.glob("*.pcap")) for packet in read_capture(path)]
    return Counter((int.from_bytes(one[34:36], "big"), int.from_bytes(one[36:38], "big")) for one in frames)


def counted_by_flow(results: Path) -> dict[tuple[int, int], tuple[int, int, int]]:
    with (results / "flow_counts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(row["lost_by"] == "difference" for row in rows)
    names = ("sent_packets", "received_packets", "lost_packets")
    ports = [(int(row["source_port"]), int(row["target_port"])) for row in rows]
    counts = [(int(row[names[0]]), int(row[names[1]]), int(row[names[2]])) for row in rows]
    assert len(set(ports)) == len(rows), "a row for each flow"
    return dict(zip(ports, counts, strict=True))


@pytest.mark.alone
@pytest.mark.parametrize(("stamp", "packets"), [("false", "udp or tcp"), ("true", "udp and greater 120")])
def test_loss_by_flow_and_latency_by_captures(narrow: Cluster, stamp: str, packets: str) -> None:
    """Flows against the files themselves; latency by captures against that by stamps, which all frames of one have."""
    keys = f"file: {CONFIGS}/traces/lab.pcapng, speed: 80, filter: {packets}, options: {{stamp: {stamp}}}"
    document, words = narrow.run(f"name: narrow\ntraces: [{{name: t, {keys}}}]\nexpect: {{sent: intended}}\n")
    results, [row], [matched] = Path(document["results"]), document["rows"], document["latency_by_captures"]
    sent, came = ports_of(results / "sent"), ports_of(results / "captures")
    assert counted_by_flow(results) == {ports: (sent[ports], came[ports], sent[ports] - came[ports]) for ports in sent}
    lost = sum(sent.values()) - sum(came.values())
    assert lost > 50 and row["lost_packets"] == lost, "the bottleneck is one"
    assert "flows of traces lost packets, by count; the worst" in " ".join(words.split())
    assert matched["bound_ns"] > matched["latest_ns"] > 0 and -matched["bound_ns"] < matched["min_ns"]
    if stamp == "true":
        assert (row["latency_by"], row["lost_by"]) == ("stamps", "stamps")
        assert matched["frames"] == row["received_packets"]
        for point in ("min", "p50", "p99", "max"):
            theirs, ours = row[f"latency_{point}_ns"], matched[f"{point}_ns"]
            # A percentile by stamps is the middle of a bucket, at most 0.8 % off.
            assert abs(ours - theirs) <= matched["bound_ns"] + row["latency_bound_ns"] + 0.008 * theirs
    else:
        assert (row["latency_by"], row["lost_by"]) == ("captures", "difference")
        assert (row["latency_p50_ns"], row["latency_bound_ns"]) == (matched["p50_ns"], matched["bound_ns"])
        assert "from due times to captures" in " ".join(words.split()) and "lost by count" in words
        assert row["latency_max_ns"] > 50_000_000, "what is queued waits for what is before it: 30 kB take 120 ms"
