"""The traces of the benchmark: one like a busy link's, made from a fixed seed, and the project's recorded one."""

from __future__ import annotations

import random
from pathlib import Path

from bench.engines.ours import UDP_HEADERS
from pktswarm.traffic.capture.constants import NS_PER_S
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.capture.trace import read_trace
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.protocol.task import FCS_BYTES

RECORDED = Path(__file__).resolve().parents[2] / "configs" / "traces" / "lab.pcapng"
PACKETS = 60_000
DURATION_NS = 2 * NS_PER_S
FULL_BYTES, FULL_SHARE, SMALL_BYTES = 1514, 0.68, (60, 600)
SEED = 3


def made() -> list[Packet]:
    """60,000 UDP packets in 2 s with exponential gaps; 68 % are 1514 bytes long, the others 60 to 600."""
    draw = random.Random(SEED)  # noqa: S311 - a seed makes it repeatable
    times_ns = [0.0]
    for _ in range(PACKETS - 1):
        times_ns.append(times_ns[-1] + draw.expovariate(PACKETS / DURATION_NS))
    packets = []
    for time_ns in times_ns:
        size_bytes = FULL_BYTES if draw.random() < FULL_SHARE else draw.randint(*SMALL_BYTES)
        packets.append(Packet(NS_PER_S + round(time_ns), _frame(size_bytes, draw)))
    return packets


def _frame(size_bytes: int, draw: random.Random) -> bytes:
    """Payload that no one could compress or cache away."""
    if size_bytes not in _HEADERS:
        template = build_frame({"headers": UDP_HEADERS}, size_bytes + FCS_BYTES)
        _HEADERS[size_bytes] = template.data[:40] + bytes(2)  # RFC 768: no checksum
    return _HEADERS[size_bytes] + draw.randbytes(size_bytes - 42)


_HEADERS: dict[int, bytes] = {}


def recorded() -> list[Packet]:
    """configs/traces/lab.pcapng from second 1 on: tcpreplay takes time 0 for "no time"."""
    packets = sorted(read_trace(RECORDED).packets, key=lambda packet: packet.time_ns)
    return [Packet(packet.time_ns - packets[0].time_ns + NS_PER_S, packet.data) for packet in packets]


def write(packets: list[Packet], file: Path) -> Path:
    file.write_bytes(write_pcap(packets))
    return file
