"""netsniff-ng's closing figures, and its capture files."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pktswarm.nodes.interface import Interface
from pktswarm.nodes.receivers.netsniff import Closing, capture_filters, count_file, fits_ring, parse
from pktswarm.traffic.capture import cbpf
from pktswarm.traffic.capture.netsniff import CaptureFile
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask

SAMPLES = Path(__file__).parent / "samples"
FRAME = bytes.fromhex("02000000000b02000000000a0800") + bytes(50)


def write(path: Path, frames: list[bytes], cut: int = 0) -> CaptureFile:
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    for index, frame in enumerate(frames):
        data += struct.pack("<IIII", 5, index, len(frame), len(frame)) + frame
    path.write_bytes(data[: len(data) - cut])
    return CaptureFile(path)


def test_closing_figures() -> None:
    assert parse((SAMPLES / "netsniff-normal.txt").read_text()) == Closing(500, 0, 500, 0)
    full = parse((SAMPLES / "netsniff-overflow.txt").read_text())
    assert full == Closing(4672, 45328, 4672, 45328)
    assert full.incoming + full.unread == full.passed + full.failed
    with pytest.raises(EngineError, match="Cannot open file nope0"):
        parse((SAMPLES / "netsniff-error.txt").read_text())


def test_frames_are_counted_for_the_leg_they_fit(tmp_path: Path) -> None:
    file = write(tmp_path / "a.pcap", [FRAME, b"\xff" * 60, FRAME])
    count = ReceiveCount(1, "netsniff-ng", 0, 0)
    assert count_file(file, [(count, Match.rest("02:00:00:00:00:0a", "02:00:00:00:00:0b"))]) == 3
    assert (count.received_packets, count.received_bytes) == (2, 2 * len(FRAME))
    assert (count.first_ns, count.last_ns) == (5_000_000_000, 5_000_000_002)


@pytest.mark.parametrize("cut", [1, 64, 70])
def test_a_cut_record_is_an_error_and_not_a_smaller_count(tmp_path: Path, cut: int) -> None:
    with pytest.raises(EngineError, match="cut off"):
        count_file(write(tmp_path / "a.pcap", [FRAME, FRAME], cut), [])


def test_a_tag_is_put_back_where_the_kernel_took_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.pcap", [FRAME])
    file.put_tag_back(0x88A8, 0x6014)
    ((time_ns, wire, frame),) = file.frames()
    assert (time_ns, wire) == (5_000_000_000, len(FRAME) + 4)
    assert frame == FRAME[:12] + bytes.fromhex("88a86014") + FRAME[12:]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"hello")
    with pytest.raises(BadInput, match="is not a capture file"):
        list(CaptureFile(tmp_path / "a.pcap").frames())


@pytest.mark.parametrize(
    ("packets", "ring_mib", "fits"),
    [([4900], 16, True), ([5000], 16, False), ([2000, 2900], 16, True), ([100, None], 16, False), ([], 16, False)],
)
def test_a_capture_whose_ring_can_hold_it_twice_is_written_frame_by_frame(
    monkeypatch: pytest.MonkeyPatch, packets: list[int | None], ring_mib: int, fits: bool
) -> None:
    monkeypatch.setattr(Interface, "mtu", 1500)
    legs = [Leg(n, "s", "tx1", "rx1", "stream", intended_packets=number) for n, number in enumerate(packets)]
    assert fits_ring(ReceiveTask("eth1", "", legs, 1.0), ring_mib) is fits


def test_a_stream_whose_rate_a_program_can_raise_has_no_known_number_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interface, "mtu", 1500)
    leg = Leg(0, "s", "tx1", "rx1", "stream", intended_packets=10)
    assert fits_ring(ReceiveTask("eth1", "", [leg], 1.0), 16)
    assert not fits_ring(ReceiveTask("eth1", "", [replace(leg, steered=True)], 1.0), 16)


def test_the_counts_of_a_trace_with_several_tags_are_of_all_its_captures(tmp_path: Path) -> None:
    """The times too, whichever file is read first."""
    match = replace(Match.rest("02:00:00:00:00:0a", "02:00:00:00:00:0b"), tags=(None, (0x8100, 7)))
    tagged = FRAME[:12] + bytes.fromhex("81000007") + FRAME[12:]
    count = ReceiveCount(1, "netsniff-ng", 0, 0)
    count_file(write(tmp_path / "late.pcap", [b"\xff" * 60, tagged, tagged]), [(count, match)])
    count_file(write(tmp_path / "early.pcap", [FRAME]), [(count, match)])
    assert (count.received_packets, count.received_bytes) == (3, 2 * len(tagged) + len(FRAME))
    assert (count.first_ns, count.last_ns) == (5_000_000_000, 5_000_000_002)
    assert set(capture_filters({1: match}, "02:00:00:00:00:0b", cbpf.ACCEPT)) == {None, (0x8100, 7)}


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.pcap: cannot be read: No such file or directory"):
        list(CaptureFile(tmp_path / "none.pcap").frames())


@pytest.mark.parametrize(
    ("word", "value", "shown"),
    [
        (1, 1_000_000_000, "64 of 64 bytes at 5 s and 1000000000 ns"),
        (2, 300_000, "300000 of 64 bytes at 5 s and 1 ns"),
        (3, 0xFFFFFFFF, "64 of 4294967295 bytes at 5 s and 1 ns"),
        (3, 63, "64 of 63 bytes at 5 s and 1 ns"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, word: int, value: int, shown: str) -> None:
    file = write(tmp_path / "a.pcap", [FRAME, FRAME])
    data = bytearray(file.path.read_bytes())
    struct.pack_into("<I", data, 24 + 16 + len(FRAME) + 4 * word, value)
    file.path.write_bytes(data)
    with pytest.raises(BadInput, match=f"packet 2 has {shown}: the file is damaged"):
        list(file.frames())


def test_a_node_loads_no_numpy_for_its_captures() -> None:
    program = "import sys, pktswarm.nodes.receivers.netsniff; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
