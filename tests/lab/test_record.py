"""`pktswarm lab record` for real: its programs talk across a lab, and what comes out can be replayed."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from pktswarm import lab
from pktswarm.lab import video
from pktswarm.lab.record import TOOLS, record
from pktswarm.lab.record_large import record_large

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(tool for tool in TOOLS if not shutil.which(tool))}"
    ),
]


def test_a_trace_between_real_programs(tmp_path: Path) -> None:
    name = f"rec{os.getpid()}"
    lab.up(name, 1, 1, tmp_path)
    try:
        trace = record(name, tmp_path / "new" / "lab.pcapng", tmp_path)
    finally:
        lab.down(name, tmp_path)
    assert max(len(packet.data) for packet in trace.packets) <= 1514
    ports = {port for packet in trace.packets for port in struct.unpack(">HH", packet.data[34:38])}
    assert {443, 53, 5201, 16384} <= ports
    assert 300_000 < trace.size_bytes < 700_000
    assert trace.notes == []


def test_a_download_and_a_video_in_a_lab_of_its_own(tmp_path: Path) -> None:
    tcp, udp = record_large(tmp_path / "tcp.pcapng", tmp_path / "udp.pcapng", tmp_path, 1_000_000, 1.0)
    assert not list(tmp_path.glob("lab-*.yml")), "the lab is gone"
    sizes = [len(packet.data) for packet in tcp.packets]
    assert sizes.count(1514) > len(sizes) / 2
    assert 1_000_000 < tcp.size_bytes < 1_200_000
    packets = sum(packets for _, packets in video.chunks(1.0))
    assert [len(packet.data) for packet in udp.packets].count(1250) == packets
    assert tcp.notes == udp.notes == []
