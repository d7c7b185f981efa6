"""Recording refuses what would not be a true trace, and says what it needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pktswarm.lab import record, record_large, rtp, video
from pktswarm.master.cli import lab
from pktswarm.traffic.capture.trace import Packet, read_trace, write_pcap
from pktswarm.traffic.errors import BadInput, PktswarmError

SHIPPED = Path(__file__).parents[2] / "configs" / "traces" / "lab.pcapng"


def test_missing_programs_are_named_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in ("dig", "iperf3") else f"/usr/bin/{tool}")
    with pytest.raises(PktswarmError, match=r"needs dig, iperf3: apt install .* bind9-dnsutils iperf3$"):
        record.need_tools()


def test_a_lab_that_is_not_up(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"lab-none.yml: lab none is not up .bring it up with: pktswarm lab up"):
        record.record("none", tmp_path / "out.pcapng", tmp_path)


def test_frames_from_before_an_offload_are_refused(tmp_path: Path) -> None:
    record.check(SHIPPED)
    tcp = next(packet for packet in read_trace(SHIPPED).packets if packet.data[23] == 6)
    wrong, capture = bytearray(tcp.data), tmp_path / "capture.pcap"
    wrong[50] ^= 1
    capture.write_bytes(write_pcap([Packet(0, bytes(wrong))]))
    with pytest.raises(PktswarmError, match="1 frames were recorded before their checksums were made"):
        record.check(capture)
    capture.write_bytes(write_pcap([Packet(0, tcp.data.ljust(1515, b"x"))]))
    with pytest.raises(BadInput, match="packet 1 is longer than the MTU"):
        record.check(capture)


@pytest.mark.parametrize(("sample", "code"), [(0, 0xFF), (1, 0xFE), (8158, 0x80), (-8158, 0x00), (-1, 0x7E)])
def test_mu_law_as_in_the_table_of_g711(sample: int, code: int) -> None:
    assert rtp.mu_law(sample) == code


def test_an_rtp_packet() -> None:
    packet = rtp.rtp_packet(2, 440)
    assert len(packet) == 12 + 160
    assert packet[:12].hex() == "800003ea00000140000001b8"


def test_the_large_traces_need_less() -> None:
    assert set(record_large.TOOLS) < set(record.TOOLS)


def test_a_video_is_the_same_bursty_one_each_time() -> None:
    found = video.chunks(26.0)
    assert found == video.chunks(26.0)
    times, packets = zip(*found, strict=True)
    assert times[0] == 0 and list(times) == sorted(times) and times[-1] < 26
    assert sum(packets) == pytest.approx(26 * video.PACKETS_PER_S, rel=0.01)
    assert max(packets) > 4 * min(packets)


def test_a_packet_of_the_video() -> None:
    packet = video.message(video.DATA, 3, 5, video.DATA_BYTES)
    assert len(packet) == 1250 - 14 - 20 - 8
    assert video.HEAD.unpack_from(packet) == (video.DATA, 3, 5)


def test_a_video_that_nobody_serves() -> None:
    with pytest.raises(ConnectionRefusedError):
        video.watch("127.0.0.1", "127.0.0.1", 9, 0.1)


def test_the_large_traces_names_without_asking_for_them() -> None:
    with pytest.raises(BadInput, match=r"requires --large; --out names the small trace"):
        lab.record(udp=Path("mine.pcapng"))


def test_the_small_traces_names_with_the_large_ones() -> None:
    for given in ({"name": "mine"}, {"out": Path("mine.pcapng")}):
        with pytest.raises(BadInput, match=r"--name, --out = 'mine.*': excluded by --large"):
            lab.record(large=True, **given)
