"""The whole lab inside the virtual machine: a run over MPI and SSH whose senders are the kernel's pktgen."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpkt
import pytest

from pktswarm import lab
from xdp_frames import CHECKED, PLAIN, reordered

PKTSWARM = Path(sys.executable).with_name("pktswarm")
PATIENCE = "20"
"""The machine is emulated: everything takes several times as long."""
PKTGEN_MAGIC = bytes.fromhex("be9be955")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hosts")
    state = lab.up("vm", 2, 2, folder)
    yield state.inventory
    lab.down("vm", folder)


def run(hosts: Path, tmp_path: Path, text: str, status: int = 0) -> dict[str, Any]:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(f"name: vm\n{text}\n")
    command: list[str | Path] = [PKTSWARM, "run", scenario, "--hosts", hosts, "--json", "--no-report"]
    command += ["--results", tmp_path, "--patience", PATIENCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def numbers(capture: Path, size_bytes: int) -> list[int]:
    """The sequence numbers of a stream, which its size tells, as they stand in the capture: pktgen's or a stamp's."""
    found = []
    with capture.open("rb") as file:
        for _, frame in dpkt.pcap.Reader(file):
            if len(frame) == size_bytes - 4:
                payload = bytes(dpkt.ethernet.Ethernet(frame).data.data.data)
                by_pktgen = payload[:4] == PKTGEN_MAGIC
                assert by_pktgen or int.from_bytes(payload[:2], "big") in (PLAIN, CHECKED), payload.hex()
                found.append(int.from_bytes(payload[4 : 8 if by_pktgen else 10], "big"))
    return found


@pytest.mark.parametrize(("asked", "taken"), [("pktgen", "pktgen"), ("auto", "xdp")])
def test_every_packet_arrives(hosts: Path, tmp_path: Path, asked: str, taken: str) -> None:
    # Of all three no more than the ring of a receiver's veth end holds (256), whichever processor stands still.
    sizes = "".join(
        f"  - {{name: s{size}, engine: {asked}, size_bytes: {size}, rate_pps: 1000, count_packets: 160}}\n"
        for size in (64, 512, 1500)
    )
    document = run(hosts, tmp_path, f"streams:\n{sizes}receive: {{drain_s: 3}}\nexpect: {{loss: 0, sent: intended}}")
    assert {row["engine"] for row in document["rows"]} == {taken}
    assert [total["received_packets"] for total in document["totals"]] == [160, 160, 160, 480]
    assert document["doubts"] == []
    assert document["first_frame_skew_ns"][taken]["nodes"] == 2
    for row in document["rows"]:
        order = numbers(Path(document["results"]) / f"captures/{row['to']}-capture-eth1.pcap", int(row["stream"][1:]))
        assert len(order) == len(set(order)) == row["received_packets"]
        # Frames may overtake each other on a busy machine (26 of 500 once), so it is the capture that says how many.
        # It cannot have another order than the counter: a veth end with an XDP program takes frames out of one ring,
        # in one softirq at a time, which counts them and hands them up to the packet socket in the ring's order.
        # Where a card has several queues the two could differ: a CPU may be overtaken between the one and the other.
        figures = [row[f"{name}_packets"] for name in ("duplicated", "reordered", "altered")]
        assert (row["lost_by"], figures) == ("stamps", [0, reordered(order), 0])
        # pktgen's times are from before it waits for its turn.
        assert (row.get("latency_min_ns") is None) == (taken == "pktgen")
    again = subprocess.run([PKTSWARM, "recount", document["results"]], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout
    if taken == "pktgen":
        none_has_a_device_of_pktgen(hosts)


def test_pktgens_times_give_latency_where_it_does_not_wait(hosts: Path, tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [5000, 5049]}, dst: 9}}]"
    # No more for one receiver than the ring of its veth end holds (256): nothing makes pktgen wait for it.
    stream = f"{{name: s, engine: pktgen, size_bytes: 128, count_packets: 400, users: udp.src, headers: {headers}}}"
    document = run(hosts, tmp_path, f"streams: [{stream}]\nreceive: {{filter: udp, drain_s: 3}}\nexpect: {{loss: 0}}")
    results = Path(document["results"])
    for row in document["rows"]:
        assert (row["received_packets"], row["lost_by"], row["lost_packets"]) == (200, "stamps", 0)
        assert -row["latency_bound_ns"] < row["latency_p50_ns"] < 1_000_000_000 and row["jitter_sd_ns"] > 0
    with (results / "users.csv").open() as file:
        users = list(csv.DictReader(file))
    # A frame that the full ring of the wire refuses is not sent again: the next one has the next port. So the capture
    # says how many frames each port has.
    ports = {row["to"]: source_ports(results / f"captures/{row['to']}-capture-eth1.pcap") for row in document["rows"]}
    counted = {(row["to"], int(row["user"])): int(row["received_packets"]) for row in users}
    assert counted == {(node, port): came[port] for node, came in ports.items() for port in range(5000, 5050)}
    assert len(counted) == 100 and sum(counted.values()) == 400
    assert all(int(row["latency_min_ns"]) <= int(row["latency_max_ns"]) for row in users)


def source_ports(capture: Path) -> Counter[int]:
    with capture.open("rb") as file:
        return Counter(dpkt.ethernet.Ethernet(frame).data.data.sport for _, frame in dpkt.pcap.Reader(file))


def none_has_a_device_of_pktgen(hosts: Path) -> None:
    for node in ("tx1", "tx2"):
        pid = lab.status("vm", hosts.parent)["pids"][node]
        command = ["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-c", "cat /proc/net/pktgen/kpktgend_*"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Stopped:" in shown and "eth1" not in shown


def test_what_a_stream_asks_of_pktgen_is_told_at_the_receiver(hosts: Path, tmp_path: Path) -> None:
    vlan, ipv4 = "{vlan: {id: 7, priority: 3}}", "{ipv4: {dscp: 46}}"
    headers = f"[{{ethernet: {{}}}}, {vlan}, {ipv4}, {{udp: {{src: {{random: [2000, 2063]}}, dst: 9}}}}]"
    amount = "size_bytes: 200, count_packets: 400, rate_pps: 800"
    text = f"streams: [{{name: s, engine: pktgen, {amount}, headers: {headers}}}]"
    document = run(hosts, tmp_path, f"{text}\nreceive: {{drain_s: 3}}\nexpect: {{loss: 0, sent: intended}}")
    assert document["totals"][-1]["received_packets"] == 400
    shown = []
    for capture in (Path(document["results"]) / "captures").glob("rx*"):
        with capture.open("rb") as file:
            frames = [dpkt.ethernet.Ethernet(frame) for _, frame in dpkt.pcap.Reader(file)]
        for frame in frames:
            [tag], packet = frame.vlan_tags, frame.data
            shown.append((tag.id, tag.pri, packet.tos >> 2, packet.data.dport))
    assert shown == [(7, 3, 46, 9)] * 400
