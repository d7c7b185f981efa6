"""Zeros in place of what a snap length cut, packet by packet; the packets are cut by Wireshark's editcap."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay import filled
from pktswarm.traffic.replay.parse import parse
from pktswarm.traffic.replay.prepare import Settings, prepare
from recordings import MACS, a_capture, checksums_right, listed, made, tcp, udp

SNAP_BYTES = 60
FRAMES = [
    udp("1.1.1.1", 1000, "2.2.2.2", 53, b"short"),
    udp("2.2.2.2", 53, "1.1.1.1", 1000, bytes(range(1, 200))),
    tcp("1.1.1.1", 1001, "2.2.2.2", 80, bytes(range(1, 100))),
    tcp("1.1.1.1", 1001, "2.2.2.2", 80, b"end"),
]
CUT = [1, 2]


def cut(path: Path, snap_bytes: int = SNAP_BYTES) -> Path:
    """As recorded with this snap length."""
    if shutil.which("editcap") is None:
        pytest.skip("needs editcap (apt install wireshark-common)")
    shorter = path.with_name("cut.pcap")
    subprocess.run(["editcap", "-F", "nsecpcap", "-s", str(snap_bytes), path, shorter], check=True)
    return shorter


def test_what_was_recorded_is_sent_and_zeros_for_the_rest(tmp_path: Path) -> None:
    path = a_capture(tmp_path, FRAMES)
    whole, found = listed(made(prepare(path, Settings()))), prepare(cut(path), Settings(fill=True))
    frames = made(found)
    for number, (frame, as_it_was) in enumerate(zip(listed(frames), whole, strict=True)):
        assert len(frame) == len(as_it_was) and checksums_right(frame)
        if number in CUT:
            assert frame[54:SNAP_BYTES] == as_it_was[54:SNAP_BYTES]
            assert frame[SNAP_BYTES:] == bytes(len(frame) - SNAP_BYTES)
        else:
            assert frame == as_it_was
    assert frames.mended == 0, "no recorded checksum was wrong"
    assert "2 packets were cut when they were recorded: zeros stand for what is missing of them" in found.parsed.notes


def test_a_capture_that_is_whole_is_as_without(tmp_path: Path) -> None:
    path = a_capture(tmp_path, FRAMES)
    plain, again = prepare(path, Settings()), prepare(path, Settings(fill=True))
    assert listed(made(plain)) == listed(made(again)) and plain.parsed.notes == again.parsed.notes


def test_a_filter_sees_what_was_recorded(tmp_path: Path) -> None:
    """As in tcpdump: of the bytes that are not there it knows nothing."""
    path = cut(a_capture(tmp_path, FRAMES))
    found = prepare(path, Settings(fill=True, filter="src port 1001 or ether[100] = 0"))
    assert found.pieces.columns.number.tolist() == [3, 4]


def test_a_packet_cut_within_its_headers_is_left_out(tmp_path: Path) -> None:
    path = a_capture(tmp_path, [FRAMES[0], MACS + b"\x08\x00\x45" + FRAMES[1][15:]])
    data = bytearray(path.read_bytes())
    at = 24 + 16 + len(FRAMES[0])
    short = data[: at + 8] + (24).to_bytes(4, "little") + data[at + 12 : at + 16 + 24]
    path.write_bytes(short)
    found = parse(path, fill=True)
    assert (found.total, len(found.columns), sum(found.left_out.values())) == (2, 1, 1)


def test_zeros_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "MOST_BYTES", 300)
    problem = r"394 bytes.* too long together to be filled with zeros \(allowed: up to 300\)"
    with pytest.raises(BadInput, match=problem):
        parse(cut(a_capture(tmp_path, FRAMES)), fill=True)
