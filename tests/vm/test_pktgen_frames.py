"""The frames that pktgen really puts on the wire, as Wireshark reads them."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from wires import RX_MAC, TX_MAC, Wire, headers, leg

FIELDS = [
    "frame.len",
    "frame.protocols",
    "eth.src",
    "eth.dst",
    "vlan.id",
    "vlan.priority",
    "vlan.dei",
    "mpls.label",
    "mpls.exp",
]
FIELDS += ["mpls.ttl", "ip.src", "ip.dst", "ip.dsfield", "ip.ttl", "ipv6.src", "ipv6.dst", "ipv6.tclass", "ipv6.hlim"]
FIELDS += ["udp.srcport", "udp.dstport", "udp.checksum.status", "pktgen.magic", "pktgen.seqnum", "ip.checksum.status"]
COUNT, SIZE_BYTES = 40, 256
V6 = {"src": "fd00:9::1", "dst": "fd00:9::2"}
V4 = {"src": "10.9.0.1", "dst": "10.9.0.2"}
# Each shape is told from the others by its destination port.
SHAPES: dict[int, dict[str, Any]] = {
    6001: {"ip_header": {"ipv4": {**V4, "dscp": 46}}},
    6002: {"ip_header": {"ipv6": {**V6, "traffic_class": 0x1C}}, "size_bytes": 82},
    6003: {"tags": [{"vlan": {"id": 100, "priority": 5, "dei": 1}}], "size_bytes": 68},
    6004: {"tags": [{"vlan": {"id": 200, "priority": 3}}, {"vlan": {"id": 7, "priority": 1}}], "size_bytes": 128},
    6005: {"tags": [{"mpls": {"label": 16, "tc": 3, "ttl": 9}}, {"mpls": {"label": 1048575, "ttl": 255}}]},
    6006: {"udp": {"src": {"increment": [5000, 5009]}}},
    6007: {"udp": {"src": {"random": [5000, 5002]}}},
    6008: {"ip_header": {"ipv4": {"src": {"increment": ["10.9.1.0", "10.9.1.7"]}, "dst": "10.9.0.2"}}},
    6009: {"ip_header": {"ipv4": {"src": "10.9.0.1", "dst": {"random": ["10.9.2.0", "10.9.2.1"]}}}},
    6010: {"ip_header": {"ipv6": {"src": "fd00:9::1", "dst": {"random": ["fd00:9::10", "fd00:9::13"]}}}},
    6011: {"tags": [{"vlan": {"id": 9}}], "ip_header": {"ipv6": V6}},
    6012: {"options": {"flags": ["UDPCSUM"]}},
    6013: {"macs": {"src": {"increment": ["02:00:00:00:02:fe", "02:00:00:00:03:01"]}}},
}
CAPTURE_BYTES = 24 + COUNT * sum(16 + shape.get("size_bytes", SIZE_BYTES) - 4 for shape in SHAPES.values())


def shaped(port: int, shape: dict[str, Any]) -> Any:
    stack = headers(*shape.get("tags", []), ip_header=shape.get("ip_header"), **{**shape.get("udp", {}), "dst": port})
    stack[0]["ethernet"].update(shape.get("macs", {}))
    size_bytes = shape.get("size_bytes", SIZE_BYTES)
    return leg(frame={"headers": stack}, size_bytes=size_bytes, count_packets=COUNT, options=shape.get("options", {}))


@pytest.fixture(scope="module")
def captured(wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, list[str]]]]:
    """Destination port → its frames: field → values, outermost first. One capture and one Wireshark for all shapes."""
    folder = tmp_path_factory.mktemp("capture")
    command = ["ip", "netns", "exec", wire.rx, "tcpdump", "-i", "r0", "-n", "-U", "-Z", "root", "-w", "all.pcap"]
    words = folder / "tcpdump.log"
    with words.open("wb") as log:
        tcpdump = subprocess.Popen(command, cwd=folder, stderr=log)
    try:
        while b"listening on" not in words.read_bytes():
            assert tcpdump.poll() is None, words.read_text()
            time.sleep(0.05)
        for port, shape in SHAPES.items():
            (count,) = wire.send(folder, shaped(port, shape))
            assert count.sent_packets == COUNT
        deadline = time.monotonic() + 30  # the kernel hands a block over when it is full, or after a second
        while (folder / "all.pcap").stat().st_size < CAPTURE_BYTES and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait(timeout=20)
    assert "0 packets dropped by kernel" in words.read_text()
    return dissected(folder / "all.pcap")


def dissected(capture: Path) -> dict[int, list[dict[str, list[str]]]]:
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;"]
    command += ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    command += [word for field in FIELDS for word in ("-e", field)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout.splitlines()
    found: dict[int, list[dict[str, list[str]]]] = {}
    for line in lines:
        frame = {field: value.split(";") for field, value in zip(FIELDS, line.split("\t"), strict=True)}
        found.setdefault(int(frame["udp.dstport"][0]), []).append(frame)
    return found


Frames = dict[int, list[dict[str, list[str]]]]


@pytest.mark.parametrize("port", SHAPES)
def test_every_frame_is_there_with_pktgens_own_header(captured: Frames, port: int) -> None:
    frames = captured[port]
    assert len(frames) == COUNT
    assert {frame["frame.len"][0] for frame in frames} == {str(SHAPES[port].get("size_bytes", 256) - 4)}
    assert {frame["eth.dst"][0] for frame in frames} == {RX_MAC}
    assert {frame["pktgen.magic"][0] for frame in frames} == {"0xbe9be955"}
    assert [int(frame["pktgen.seqnum"][0]) for frame in frames] == list(range(1, COUNT + 1))


@pytest.mark.parametrize(
    ("port", "field", "values"),
    [
        (6001, "ip.dsfield", ["0xb8"]),
        (6001, "ip.ttl", ["32"]),
        (6001, "ip.checksum.status", ["1"]),
        (6002, "ipv6.tclass", ["0x0000001c"]),
        (6002, "ipv6.hlim", ["32"]),
        (6002, "udp.checksum.status", ["1"]),
        (6003, "vlan.id", ["100"]),
        (6003, "vlan.priority", ["5"]),
        (6003, "vlan.dei", ["1"]),
        (6004, "vlan.id", ["200", "7"]),
        (6004, "vlan.priority", ["3", "1"]),
        (6005, "mpls.label", ["16", "1048575"]),
        (6005, "mpls.exp", ["3", "0"]),
        (6005, "mpls.ttl", ["9", "255"]),
        (6011, "ipv6.dst", ["fd00:9::2"]),
        (6012, "udp.checksum.status", ["1"]),
    ],
)
def test_a_field_is_what_was_asked_for(captured: Frames, port: int, field: str, values: list[str]) -> None:
    assert {tuple(frame[field]) for frame in captured[port]} == {tuple(values)}


@pytest.mark.parametrize(
    ("port", "field", "values"),
    [
        (6006, "udp.srcport", {str(number) for number in range(5000, 5010)}),
        (6007, "udp.srcport", {"5000", "5001", "5002"}),
        (6008, "ip.src", {f"10.9.1.{last}" for last in range(8)}),
        (6009, "ip.dst", {"10.9.2.0", "10.9.2.1"}),
        (6010, "ipv6.dst", {f"fd00:9::{last}" for last in ("10", "11", "12", "13")}),
        (6013, "eth.src", {f"02:00:00:00:{end}" for end in ("02:fe", "02:ff", "03:00", "03:01")}),
    ],
)
def test_a_range_is_covered_from_first_to_last(captured: Frames, port: int, field: str, values: set[str]) -> None:
    seen = [frame[field][0] for frame in captured[port]]
    assert set(seen) == values
    if port not in (6007, 6009, 6010):
        assert all(seen.count(value) == COUNT // len(values) for value in values)


def test_frames_that_do_not_vary_come_from_the_sender(captured: Frames) -> None:
    assert {frame["eth.src"][0] for port in captured if port != 6013 for frame in captured[port]} == {TX_MAC}
