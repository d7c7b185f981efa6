"""Traces through a whole lab: both directions, tunnels, instances, real captures; every packet verified."""

from __future__ import annotations

import contextlib
import csv
import gzip
import importlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.master.results.read_document import read_run
from pktswarm.traffic.capture.compressed import ZSTD
from pktswarm.traffic.capture.files import Packet, read_capture, write_pcap
from pktswarm.traffic.protocol.task import FCS_BYTES
from running import cluster_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()
HERE = Path(__file__).resolve()
REAL_TRACES = next((p for up in HERE.parents if (p := up / "shared" / "traces").is_dir()), HERE.parents[3] / "shared")
REAL = sorted(path.name for path in REAL_TRACES.glob("*.pcap*")) or ["none"]


class Cluster:
    """Two hosts that both send and receive."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"y{os.getpid()}"
        self.hosts = lab.up(self.name, 1, 1, folder, both_roles=True, switch="bridge").inventory

    def run(self, scenario: Path) -> dict[str, Any]:
        command: list[str | Path] = [PKTSWARM, "run", scenario, "--hosts", self.hosts, "--json", "--no-report"]
        command += ["--results", self.folder / "results"]
        done = forked.run(command, timeout=90)
        document = json.loads(done.stdout or "{}")
        words = [document.get(key) for key in ("reason", "verdicts", "doubts", "verified")]
        assert done.returncode == 0, f"{words}{done.stderr}"
        read_run(Path(document["results"]))
        return dict(document)

    def trace(self, keys: str) -> dict[str, Any]:
        path = self.folder / "scenario.yaml"
        expect = "expect: {loss: 0, sent: intended}"
        path.write_text(f"name: test\ntraces: [{{name: t, from: tx1, to: rx1, verify: true, {keys}}}]\n{expect}\n")
        return self.run(path)


cluster = cluster_of(Cluster)


def all_as_intended(document: dict[str, Any], packets: int) -> None:
    results = document["verified"]
    assert sum(one["intended"] for one in results) == packets
    for one in results:
        assert one["as_intended"] == one["intended"] == one["captured"]
        assert one["altered"] == one["lost"] == one["duplicated"] == one["reordered"] == 0
        assert one["error_p50_ns"] is not None
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout


@pytest.mark.parametrize(("name", "packets"), [("udp", 20), ("tcp", 40)])
def test_the_traces_of_the_thesis_both_ways(cluster: Cluster, name: str, packets: int) -> None:
    document = cluster.run(CONFIGS / f"ericload-{name}.yaml")
    all_as_intended(document, packets)
    assert {(row["from"], row["to"]) for row in document["rows"]} == {("tx1", "rx1"), ("rx1", "tx1")}


@pytest.mark.parametrize("engine", ["xdp", "tcpreplay"])
def test_instances_at_random_and_passes(cluster: Cluster, engine: str) -> None:
    pools = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}"
    keys = f"engine: {engine}, scale: {{instances: 3, start: random}}, repeat: 2, speed: 4, {pools}"
    document = cluster.trace(f"file: {CONFIGS}/traces/lab.pcapng, {keys}")
    all_as_intended(document, 895 * 6)
    assert [(row["intended_packets"], row["received_packets"]) for row in document["rows"]] == [(5370, 5370)]


UNSTAMPED = ("ipv6_in_gtp.pcap", "telegram_videocall.pcapng")
"""Sent without stamps as well."""


@pytest.mark.parametrize(
    ("name", "stamp"), [(name, "true") for name in REAL] + [(name, "false") for name in REAL if name in UNSTAMPED]
)
def test_every_packet_of_a_real_capture_is_accounted_for(cluster: Cluster, name: str, stamp: str) -> None:
    path = REAL_TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    pools = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}"
    keys = f"{pools}, direction: both, gtpu: {{teid: 1}}, oversize: cut, longest_gap_s: 0.05, speed: 5"
    keys += f", engine: xdp, options: {{stamp: {stamp}}}"
    document = cluster.trace(f"file: {path}, {keys}")
    all_as_intended(document, sum(row["sent_packets"] for row in document["rows"]))
    if stamp == "true":
        by_number(document["rows"])


def test_a_trace_of_several_files_one_of_them_compressed_and_not_made_on_ethernet(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As `tcpdump -i any -C` writes the first (LINUX_SLL)."""
    packets = [Packet(one.time_ns, one.data) for one in read_capture(CONFIGS / "traces" / "lab.pcapng")]
    first, second = tmp_path / "any.pcap.gz", tmp_path / "second.pcap"
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 113)
    for packet in packets[:400]:
        cooked = struct.pack(">HHH8s", 0, 1, 6, packet.data[6:12]) + packet.data[12:]
        seconds, rest = divmod(packet.time_ns, 10**9)
        data += struct.pack("<IIII", seconds, rest, len(cooked), len(cooked)) + cooked
    first.write_bytes(gzip.compress(data))
    second.write_bytes(write_pcap(packets[400:]))
    document = cluster.trace(f"file: [{first}, {second}], engine: xdp, speed: 4, options: {{stamp: true}}")
    all_as_intended(document, 895)
    by_number(document["rows"])
    note = f"{first}: 400 packets of link type LINUX_SLL get an Ethernet header"
    assert any(note in text for text in document["notes"])


@pytest.mark.skipif(shutil.which("editcap") is None, reason="needs editcap (apt install wireshark-common)")
@pytest.mark.parametrize("engine", ["xdp", "tcpreplay"])
def test_a_trace_with_a_snap_length_is_sent_with_zeros_for_the_rest(
    cluster: Cluster, tmp_path: Path, engine: str
) -> None:
    """As `tcpdump -s 96` records it, in a file of zstd; the receiver's capture is compared with what was intended."""
    cut, path = tmp_path / "cut.pcap", tmp_path / "cut.pcap.zst"
    subprocess.run(["editcap", "-F", "nsecpcap", "-s", "96", CONFIGS / "traces" / "lab.pcapng", cut], check=True)
    path.write_bytes(importlib.import_module(ZSTD).compress(cut.read_bytes()))
    document = cluster.trace(f"file: {path}, engine: {engine}, speed: 4, payload: fill")
    all_as_intended(document, 895)
    recorded = [one.data for one in read_capture(CONFIGS / "traces" / "lab.pcapng") if is_ip(one.data)]
    assert sum(row["received_bytes"] for row in document["rows"]) == sum(len(data) + FCS_BYTES for data in recorded)
    assert any("packets were cut when they were recorded: zeros stand" in text for text in document["notes"])


def is_ip(frame: bytes) -> bool:
    return frame[12:14] in (b"\x08\x00", b"\x86\xdd")


TAGS = ("", "81000007", "8100e007", "88a8006481000007", "81000007810000078100000a", "")


@pytest.mark.parametrize("engine", ["xdp", "tcpreplay"])
def test_the_packets_of_a_trace_are_captured_with_the_tags_that_they_had(
    cluster: Cluster, tmp_path: Path, engine: str
) -> None:
    """Each outermost tag has a capture of its own, with the tag put back; together they are in order."""
    recorded = [one.data for one in read_capture(CONFIGS / "traces" / "lab.pcapng")]
    short = [data for data in recorded if len(data) < 1400 and is_ip(data)]
    packets = [
        Packet(number * 100_000, data[:12] + bytes.fromhex(TAGS[number % len(TAGS)]) + data[12:])
        for number, data in enumerate(short[: len(short) // len(TAGS) * len(TAGS)])
    ]
    path = tmp_path / "tags.pcap"
    path.write_bytes(write_pcap(packets))
    document = cluster.trace(f"file: {path}, engine: {engine}, timing: original")
    all_as_intended(document, len(packets))
    captures = {file.name: list(read_capture(file)) for file in (Path(document["results"]) / "captures").iterdir()}
    outermost = {name: {packet.data[12:16].hex() for packet in found} for name, found in captures.items()}
    tagged = {f"rx1-capture-eth1-{tag[:4]}-{tag[4:]}.pcap": {tag} for tag in ("81000007", "8100e007", "88a80064")}
    assert outermost.items() > tagged.items() and len(captures) == 4
    assert [file for file in outermost if file not in tagged] == ["rx1-capture-eth1.pcap"]
    stacks = [packet.data[12:26].hex() for found in captures.values() for packet in found]
    for tags in TAGS:
        alike = sum(stack.startswith(tags + "0800") or stack.startswith(tags + "86dd") for stack in stacks)
        assert alike == sum(one == tags for one in TAGS) * len(packets) // len(TAGS)


def by_number(rows: list[dict[str, Any]]) -> None:
    """Nothing lost, doubled or changed, neither of the stamped frames nor of the others."""
    names = ("lost", "duplicated", "reordered", "altered")
    assert all([row[f"{name}_packets"] for name in names] == [0, 0, 0, 0] for row in rows)
    assert all(row["unstamped_sent_packets"] == row["unstamped_received_packets"] for row in rows)
    assert sum(row["unstamped_sent_packets"] for row in rows) < sum(row["sent_packets"] for row in rows)


def test_each_user_of_a_trace_has_its_own_counts(cluster: Cluster, tmp_path: Path) -> None:
    """Against the captures: uplink the source inside the tunnel, downlink the target."""
    keys = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}, direction: both, gtpu: {teid: 1}, oversize: cut"
    several = tmp_path / "several.pcap"
    several.write_bytes(write_pcap(of_several_users(CONFIGS / "traces" / "lab.pcapng")))
    document = cluster.trace(f"file: {several}, {keys}, engine: xdp, scale: 3, repeat: 2, speed: 8")
    assert document["doubts"] == [] and {row["lost_packets"] for row in document["rows"]} == {0}
    with (Path(document["results"]) / "users.csv").open() as file:
        told = {(row["to"], row["user"]): row for row in csv.DictReader(file)}
    seen: dict[tuple[str, str], list[int]] = {}
    for host, inner, place in (("rx1", 14 + 20 + 8 + 8, 12), ("tx1", 14, 16)):
        for packet in read_capture(Path(document["results"]) / f"captures/{host}-capture-eth1.pcap"):
            at = inner + place
            user = seen.setdefault((host, socket.inet_ntoa(packet.data[at : at + 4])), [0, 0])
            user[0], user[1] = user[0] + 1, user[1] + len(packet.data) + 4
    heard = {key: row for key, row in told.items() if row["received_packets"] != "0"}
    assert set(heard) == set(seen) and len(seen) > 12 and len({tuple(counts) for counts in seen.values()}) > 4
    for key, counts in seen.items():
        for what in ("sent", "received"):
            assert [int(told[key][f"{what}_{unit}"]) for unit in ("packets", "bytes")] == counts, (key, what)
        assert told[key]["lost_packets"] == "0"


def of_several_users(recorded: Path) -> list[Packet]:
    """The shipped trace's IPv4 packets, with another address of the client for some of its ports."""
    made = []
    for packet in (one for one in read_capture(recorded) if one.data[12:14] == b"\x08\x00"):
        frame = bytearray(packet.data)
        at, port_at = (26, 34) if frame[26:30] == bytes((10, 92, 0, 11)) else (30, 36)
        frame[at + 3] += frame[port_at + 1] % 4
        made.append(Packet(packet.time_ns, bytes(frame)))
    return made


@contextlib.contextmanager
def captured_at_the_switch(cluster: Cluster, file: Path) -> Iterator[None]:
    """At its port to the device: what a mirror of the transmitter's port would show."""
    switch = lab.status(cluster.name, cluster.folder)["pids"]["switch"]
    command = ["nsenter", f"--net=/proc/{switch}/ns/net", "netsniff-ng", "--in", "to-dut-a", "--out", str(file)]
    command += ["--silent", "--magic", "0xa1b23c4d", "-A", "-Q", "--ring-size", "8MiB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert any("Running!" in line for line in process.stdout)
        yield
        time.sleep(0.3)  # the kernel hands a part-filled block over after 0.1 s
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def verified(results: str, capture: Path) -> tuple[int, list[dict[str, Any]]]:
    command: list[str | Path] = [PKTSWARM, "verify", results, capture, "--json"]
    done = forked.run(command)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["verified"]


def test_a_capture_at_the_switch_is_compared_like_the_receivers(cluster: Cluster, tmp_path: Path) -> None:
    port = tmp_path / "port.pcap"
    with captured_at_the_switch(cluster, port):
        document = cluster.trace(f"file: {CONFIGS}/traces/lab.pcapng, engine: xdp, speed: 4")
    all_as_intended(document, 895)
    status, (there,) = verified(document["results"], port)
    figures = {"intended": 895, "as_intended": 895, "captured": 895, "altered": 0, "lost": 0, "reordered": 0}
    assert status == 0 and figures.items() <= there.items() and there["from"] == "tx1"
    packets = [Packet(one.time_ns, one.data) for one in read_capture(port)]
    ends = [bytes.fromhex(mac.replace(":", "")) for mac in macs_of(document, "rx1", "tx1")]
    mine = [at for at, packet in enumerate(packets) if packet.data[:12] == b"".join(ends)]
    assert len(mine) == 895
    flipped, gone = mine[100], mine[200]
    packets[flipped] = Packet(packets[flipped].time_ns, packets[flipped].data[:-1] + b"\xaa")
    del packets[gone]
    (tmp_path / "changed.pcap").write_bytes(write_pcap(packets))
    status, (there,) = verified(document["results"], tmp_path / "changed.pcap")
    figures |= {"as_intended": 893, "captured": 894, "altered": 1, "lost": 2}
    assert status == 1 and figures.items() <= there.items()
    command = [PKTSWARM, "verify", document["results"], CONFIGS / "traces" / "lab.pcapng"]
    done = forked.run(command)
    assert done.returncode == 2 and "has no packet of a trace of" in done.stderr


def macs_of(document: dict[str, Any], *names: str) -> list[str]:
    known = {host["name"]: host["mac"] for host in document["inventory"]}
    return [known[name] for name in names]
