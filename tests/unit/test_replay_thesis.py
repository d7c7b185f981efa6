"""The two small traces of Hrustic 2022 (figures 4.1 and 4.2), replayed as its figures 5.1 and 5.3 show them."""

from __future__ import annotations

import heapq
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Prepared, Settings, prepare
from pktswarm.traffic.replay.shift import shifted
from pktswarm.traffic.replay.table import make_table, pool
from recordings import listed, made, tcp, udp

CLIENT, SERVER = "192.168.4.1", "119.235.235.110"
FIGURE_4_1 = [
    (0 if n == 0 else (1 if n % 2 else 3), *(("10.48.0.2", "60.0.0.1") if n % 2 == 0 else ("106.0.0.3", "10.48.0.2")))
    for n in range(10)
]
"""(microseconds since the packet before, source, target); 134 bytes each, ports 55001 and 80."""
FIGURE_4_2 = [
    (0, "up", 74), (321877, "down", 66), (8368, "up", 56), (15, "up", 134), (326269, "down", 54), (7078, "down", 140),
    (1590, "down", 1414), (6786, "up", 56), (2563, "up", 56), (316771, "down", 874), (28587107, "up", 56),
    (141542, "up", 135), (315115, "down", 54), (6169, "down", 264), (5298, "up", 56), (91501, "up", 135),
    (356405, "down", 54), (4934943, "up", 56), (322772, "down", 54), (5157, "up", 56),
]  # fmt: skip
UE, PDN = IPv4Address("16.0.0.1"), IPv4Address("194.0.0.0")
AS_IN_THE_THESIS = Settings(
    users=pool(str(UE)), servers=pool(str(PDN)), direction="both", gtpu=Gtpu(teid=839248, sequence=True),
    tag=b"\x81\x00\x00\x64",
)  # fmt: skip


class Shown(NamedTuple):
    """A line of the thesis's figures."""

    source: str
    sport: int
    target: str
    dport: int
    protocol: str
    length: int


def shown(frame: bytes) -> Shown:
    """As Wireshark showed it: the innermost addresses, and whether GTP is around them."""
    at, protocol = 18, ""
    if frame[at + 9] == 17 and frame[at + 20 : at + 24] == b"\x08\x68\x08\x68":
        at, protocol = at + 20 + 8 + 12, "GTP "
    inner = {6: "TCP", 17: "UDP"}[frame[at + 9]]
    source, target = (str(IPv4Address(frame[at + place : at + place + 4])) for place in (12, 16))
    ports = [int.from_bytes(frame[at + 20 + place : at + 22 + place], "big") for place in (0, 2)]
    return Shown(source, ports[0], target, ports[1], f"{protocol}<{inner}>" if protocol else inner, len(frame))


def udp_trace(folder: Path) -> Path:
    packets, time_ns = [], 10**18
    for gap_us, source, target in FIGURE_4_1:
        time_ns += gap_us * 1000
        ports = (55001, 80) if source == "10.48.0.2" else (80, 55001)
        packets.append(Packet(time_ns, udp(source, ports[0], target, ports[1], bytes(134 - 42))))
    path = folder / "udp.pcap"
    path.write_bytes(write_pcap(packets))
    return path


def tcp_trace(folder: Path) -> Path:
    packets, time_ns = [], 10**18
    for gap_us, way, length in FIGURE_4_2:
        time_ns += gap_us * 1000
        ends = (CLIENT, 62497, SERVER, 9418) if way == "up" else (SERVER, 9418, CLIENT, 62497)
        # Acknowledgements of 54 bytes were shown with 56: two bytes pad them.
        frame = tcp(*ends, bytes(max(0, length - 54) if length != 56 else 0))
        packets.append(Packet(time_ns, frame.ljust(length, b"\0")))
    path = folder / "tcp.pcap"
    path.write_bytes(write_pcap(packets))
    return path


def sent(found: Prepared, passes: int = 1) -> list[tuple[int, bytes]]:
    """(due, frame) of every pass and instance in the order of sending."""
    whole: list[list[tuple[int, int, int, bytes]]] = []
    frames = made(found)
    for number in range(found.settings.instances.count):
        own: Frames = shifted(frames, found.shift(number))
        times = [n * found.due.period_ns + int(time) for n in range(passes) for time in own.time_ns]
        whole.append(
            [(time, n, number, frame) for n, (time, frame) in enumerate(zip(times, listed(own) * passes, strict=True))]
        )
    return [(time, frame) for time, _, _, frame in heapq.merge(*whole)]


def test_the_reference_table_of_listing_3(tmp_path: Path) -> None:
    table = make_table(prepare(udp_trace(tmp_path), Settings()).parsed, Settings().rule)
    named = {str(IPv4Address(address)): place for address, place in table.roles.items()}
    assert named == {"10.48.0.2": ("user", 0), "60.0.0.1": ("server", 0), "106.0.0.3": ("server", 1)}


def test_figure_5_1_addresses_order_repetition_and_added_bytes(tmp_path: Path) -> None:
    found = prepare(udp_trace(tmp_path), AS_IN_THE_THESIS)
    up = Shown("16.0.0.1", 55001, "194.0.0.0", 80, "GTP <UDP>", 178)
    down = Shown("194.0.0.1", 80, "16.0.0.1", 55001, "UDP", 138)
    assert [shown(frame) for _, frame in sent(found, passes=2)] == [up, down] * 10


def test_figure_5_3_scaled_by_two(tmp_path: Path) -> None:
    """There the user stays one and only the server is another: `users: 0`."""
    settings = replace(AS_IN_THE_THESIS, instances=Instances(2, users=0))
    found = prepare(tcp_trace(tmp_path), settings)
    expected = []
    for _, way, length in FIGURE_4_2:
        for server in ("194.0.0.0", "194.0.0.1"):
            if way == "up":
                expected.append(Shown("16.0.0.1", 62497, server, 9418, "GTP <TCP>", length + 44))
            else:
                expected.append(Shown(server, 9418, "16.0.0.1", 62497, "TCP", length + 4))
    everything = sent(found)
    assert [shown(frame) for _, frame in everything] == expected
    gaps_us = [sum(gap for gap, *_ in FIGURE_4_2[: n + 1]) for n in range(20)]
    assert [time for time, _ in everything] == [gap * 1000 for gap in gaps_us for _ in range(2)]


def test_the_lengths_of_figure_5_3(tmp_path: Path) -> None:
    found = prepare(tcp_trace(tmp_path), AS_IN_THE_THESIS)
    assert [len(frame) for _, frame in sent(found)] == [
        118, 70, 100, 178, 58, 144, 1418, 100, 100, 878, 100, 179, 58, 268, 100, 179, 58, 100, 58, 100,
    ]  # fmt: skip


def test_the_traces_that_ship_are_these(tmp_path: Path) -> None:
    """Made again: copy what udp_trace and tcp_trace write."""
    shipped = Path(__file__).parents[2] / "configs" / "traces"
    assert (shipped / "ericload-udp.pcap").read_bytes() == udp_trace(tmp_path).read_bytes()
    assert (shipped / "ericload-tcp.pcap").read_bytes() == tcp_trace(tmp_path).read_bytes()
