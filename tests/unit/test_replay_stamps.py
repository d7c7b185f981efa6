"""Stamps in the frames of a trace: where there is room for one, and that nothing else changes."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.master.scenario import scenario
from pktswarm.nodes.senders.xdp_shares import share
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.counting import expect
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.leg import Leg, MatchData, Timing
from pktswarm.traffic.replay import stamps
from pktswarm.traffic.replay.frames import STAMP_BYTES, Frames
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Settings, prepare
from pktswarm.traffic.replay.table import pool
from pktswarm.traffic.schedule import capabilities
from recordings import MACS, T0_NS, checksums_right, ipv4, ipv6, listed, made, prepared, reference_checksum, tcp, udp

STREAM = 259
HOST6 = bytes.fromhex("fd00000000000000000000000000000a"), bytes.fromhex("fd00000000000000000000000000000b")


def udp6(payload: bytes, extension: bytes = b"") -> bytes:
    """`extension`: one that UDP follows."""
    datagram = struct.pack(">HHHH", 5000, 6000, 8 + len(payload), 0) + payload
    pseudo = HOST6[0] + HOST6[1] + struct.pack(">HH", 17, len(datagram))
    datagram = datagram[:6] + reference_checksum(pseudo + datagram).to_bytes(2, "big") + datagram[8:]
    return ipv6(*HOST6, 0 if extension else 17, extension + datagram)


def echo(kind: int, data: bytes) -> bytes:
    message = struct.pack(">BBHHH", kind, 0, 0, 7, 1) + data
    return ipv4("1.1.1.1", "2.2.2.2", message[:2] + reference_checksum(message).to_bytes(2, "big") + message[4:], 1)


def gtpu(user: bytes, kind: int = 255) -> bytes:
    return udp("1.1.1.1", 2152, "2.2.2.2", 2152, struct.pack(">BBHI", 0x30, kind, len(user), 9) + user)


def tagged(frame: bytes, kind: int = 0x8100) -> bytes:
    return frame[:12] + struct.pack(">HH", kind, 5) + frame[12:]


def fragment(frame: bytes) -> bytes:
    head = frame[14:20] + b"\x20\x00" + frame[22:24] + b"\0\0" + frame[26:34]
    return frame[:14] + head[:10] + reference_checksum(head).to_bytes(2, "big") + head[12:] + frame[34:]


HOP_BY_HOP = bytes([17, 0, 1, 4, 0, 0, 0, 0])
DATA = bytes(range(1, 101))
WITH_ROOM = {
    "udp": (udp("1.1.1.1", 9, "2.2.2.2", 53, DATA), 42),
    "just enough": (udp("1.1.1.1", 9, "2.2.2.2", 53, DATA[:STAMP_BYTES]), 42),
    "an odd byte": (udp("1.1.1.1", 9, "2.2.2.2", 53, DATA[:53]), 42),
    "tcp": (tcp("1.1.1.1", 9, "2.2.2.2", 80, DATA), 54),
    "tcp with options": (tcp("1.1.1.1", 9, "2.2.2.2", 80, bytes(12) + DATA, off=8), 66),
    "echo": (echo(8, DATA), 42),
    "padded": (udp("1.1.1.1", 9, "2.2.2.2", 53, DATA) + bytes(9), 42),
    "ipv6": (udp6(DATA), 62),
    "behind an extension": (udp6(DATA, HOP_BY_HOP), 70),
    "tagged": (tagged(udp("1.1.1.1", 9, "2.2.2.2", 53, DATA)), 46),
    "in a recorded tunnel": (gtpu(tcp("10.0.0.1", 9, "10.0.0.2", 80, DATA)[14:]), 90),
    "ip in ip": (ipv4("1.1.1.1", "2.2.2.2", udp("10.0.0.1", 9, "10.0.0.2", 80, DATA)[14:], 4), 62),
}
WITHOUT = {
    "too short": udp("1.1.1.1", 9, "2.2.2.2", 53, DATA[: STAMP_BYTES - 1]),
    "padding is no room": tcp("1.1.1.1", 9, "2.2.2.2", 80) + bytes(60),
    "a fragment": fragment(udp("1.1.1.1", 9, "2.2.2.2", 53, DATA)),
    "not the first fragment": ipv4("1.1.1.1", "2.2.2.2", DATA, 17, 7, 0x0004),
    "an error": echo(3, DATA),
    "ESP": ipv4("1.1.1.1", "2.2.2.2", DATA, 50),
    "a UDP length that is wrong": ipv4("1.1.1.1", "2.2.2.2", struct.pack(">HHHH", 5, 6, 70, 0) + DATA, 17),
    "GTP-U's own": gtpu(DATA, kind=1),
    "a small one in a tunnel": gtpu(tcp("10.0.0.1", 9, "10.0.0.2", 80)[14:]),
    "a tag that receivers do not know": tagged(udp("1.1.1.1", 9, "2.2.2.2", 53, DATA), 0x9100),
}
SETTINGS = Settings(stamped=True)


def both(folder: Path, frames: list[bytes], settings: Settings = SETTINGS) -> tuple[Frames, list[bytes], list[bytes]]:
    """(with stamps, their bytes, those of the same trace without)."""
    found = made(prepared(folder, frames, settings))
    stamps.put(found, STREAM)
    return found, listed(found), listed(made(prepared(folder, frames, replace(settings, stamped=False))))


def words(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    return total % 0xFFFF


def check_stamp(frame: bytes, before: bytes, at: int) -> stamp.Stamp:
    """It is where a receiver looks, tells the rest of the payload, and no sum over it has changed."""
    found = layout(frame)
    assert found.payload == at and found.payload_bytes >= STAMP_BYTES
    one = stamp.read_stamp(frame[at:])
    assert one is not None and one[:3] == (STREAM, 0, 0)
    assert one.checksum == stamp.payload_sum(frame[at + stamp.CHECKED_BYTES : at + found.payload_bytes])
    assert words(frame[at : at + STAMP_BYTES]) == words(before[at : at + STAMP_BYTES])
    assert (frame[:at], frame[at + STAMP_BYTES :]) == (before[:at], before[at + STAMP_BYTES :])
    return one


@pytest.mark.parametrize("name", WITH_ROOM)
def test_a_packet_with_room(tmp_path: Path, name: str) -> None:
    recorded, at = WITH_ROOM[name]
    frames, [frame], [before] = both(tmp_path, [recorded])
    assert frames.stamp_at.tolist() == [at]
    found = check_stamp(frame, before, at)
    assert stamps.blanked(frame, STREAM) == frame[: at + 4] + bytes(14) + frame[at + 18 :]
    assert found.summed == (name not in ("echo", "behind an extension", "in a recorded tunnel", "ip in ip"))
    if frame[12:14] != b"\x81\x00" and "extension" not in name and "ip in ip" not in name and "echo" not in name:
        assert checksums_right(frame)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_packet_without(tmp_path: Path, name: str) -> None:
    """It is left as it is, beside one that is stamped."""
    frames, [first, frame], [_, before] = both(tmp_path, [WITH_ROOM["udp"][0], WITHOUT[name]])
    assert frames.stamp_at.tolist() == [42, 0] and frame == before
    assert stamp.read_stamp(first[42:]) is not None


def test_in_a_tunnel_and_behind_a_tag_of_ours(tmp_path: Path) -> None:
    settings = Settings(
        stamped=True, users=pool("10.60.0.1"), direction="up", gtpu=Gtpu(sequence=True, qfi=9), tag=b"\x81\x00\x00\x07"
    )
    names = ["udp", "tcp", "tagged", "in a recorded tunnel"]
    frames, found, before = both(tmp_path, [WITH_ROOM[name][0] for name in names], settings)
    assert frames.stamp_at.tolist() == [42 + 48, 54 + 48, 42 + 48, 90 + 48]
    for row in range(3):
        check_stamp(found[row], before[row], int(frames.stamp_at[row]))


def test_payloads_that_are_left_out(tmp_path: Path) -> None:
    """Zeros stand for them: the stamp is stored, the zeros behind it are not."""
    frames, found, before = both(
        tmp_path, [udp("1.1.1.1", 9, "2.2.2.2", 53, DATA)], Settings(stamped=True, headers_only=True)
    )
    assert frames.stored.tolist() == [42 + STAMP_BYTES] and len(found[0]) == len(before[0]) == 42 + 100
    check_stamp(found[0], before[0], 42)
    assert checksums_right(found[0])


def test_segments_that_are_cut_have_room_of_their_own(tmp_path: Path) -> None:
    merged = tcp("1.1.1.1", 9, "2.2.2.2", 80, bytes(range(250)) * 12)
    settings = Settings(stamped=True, oversize="cut", mtu_bytes=1500)
    frames, found, before = both(tmp_path, [merged], settings)
    assert len(found) == 3 and frames.stamp_at.tolist() == [54, 54, 54]
    for row in range(3):
        check_stamp(found[row], before[row], 54)
        assert checksums_right(found[row])


def test_a_port_that_an_instance_makes_a_tunnel(tmp_path: Path) -> None:
    """Behind port 2152 a receiver looks for GTP-U, and not for a stamp."""
    frames = [udp("1.1.1.1", 9, "2.2.2.2", 2100, DATA), udp("1.1.1.1", 9, "2.2.2.2", 2000, DATA)]
    settings = Settings(stamped=True, instances=Instances(3, ports=26))
    assert prepared(tmp_path, frames, settings).stamp.tolist() == [0, 28]


def test_no_room_anywhere_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    path.write_bytes(write_pcap([Packet(T0_NS + n, WITHOUT["too short"]) for n in range(3)]))
    with pytest.raises(BadInput, match="has room for a stamp") as error:
        prepare(path, Settings(where="s.yaml", key="traces.0", stamped=True))
    assert (
        "traces.0.options.stamp" in str(error.value)
        and "24 bytes" in str(error.value)
        and str(path) in str(error.value)
    )


def test_how_many_are_stamped_is_told(tmp_path: Path) -> None:
    frames = [WITH_ROOM["udp"][0], WITH_ROOM["tcp"][0], WITHOUT["too short"]]
    notes = prepared(tmp_path, frames, Settings(stamped=True, name="web")).notes
    assert "web: 2 of 3 packets of a pass are stamped, 1 have no room for a stamp and are counted separately" in notes
    assert prepared(tmp_path, frames).notes == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("engine: tcpreplay, options: {stamp: true}", "tcpreplay cannot stamp a trace; xdp and tc can"),
        ("engine: trafgen, options: {stamp: true}", "trafgen cannot stamp a trace; xdp and tc can"),
        ("options: {stamp: maybe}", "options.stamp must be true or false, not 'maybe'"),
        ("interactive: true, options: {stamp: true}", "an interactive trace cannot be combined with options"),
    ],
)
def test_what_cannot_be_stamped_is_one_message(tmp_path: Path, keys: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\ntraces: [{{name: t, file: t.pcap, {keys}}}]\n")
    with pytest.raises(BadInput, match=message) as error:
        scenario.load(path)
    assert "s.yaml" in str(error.value) and "traces.0" in str(error.value)


def a_leg(number: int = 0, **more: Any) -> Leg:
    options = {"stamp": True}
    return Leg(number, "t", "a", "b", "trace", options=options, **more)


def test_auto_takes_no_engine_that_does_not_stamp() -> None:
    name, reasons = capabilities.choose(a_leg(), {"xdp": "not here", "tcpreplay": "", "trafgen": "", "pktgen": ""})
    assert name == "" and "tcpreplay: cannot stamp frames" in reasons
    assert capabilities.choose(a_leg(), {"xdp": ""}) == ("xdp", [])
    assert capabilities.choose(replace(a_leg(), options={}), {"xdp": "not here", "tcpreplay": ""})[0] == "tcpreplay"


def test_frames_that_differ_in_number_and_time_are_one_content(tmp_path: Path) -> None:
    _, [frame], [before] = both(tmp_path, [WITH_ROOM["udp"][0]])
    later = bytearray(frame)
    later[42 : 42 + 18] = stamp.Stamp(STREAM, 9, 10**12, 0, True).pack()[:18]
    assert stamps.blanked(bytes(later), STREAM) == stamps.blanked(frame, STREAM) != frame
    assert stamps.blanked(frame, STREAM + 1) == frame and stamps.blanked(before, STREAM) == before
    later[42 + 30] ^= 1
    assert stamps.blanked(bytes(later), STREAM) != stamps.blanked(frame, STREAM)
    assert stamps.blanked(frame[:60], STREAM) == frame[:60]


def test_a_receiver_keeps_frames_without_a_stamp_apart() -> None:
    match = MatchData("rest", mask="ff" * 12, value=MACS.hex())
    plain = replace(a_leg(2, engine="xdp", match=match), options={})
    legs = [a_leg(0, engine="xdp", match=match), a_leg(1, engine="tcpreplay", match=match), plain]
    assert expect.slots_of_unstamped(legs) == {0: 3}
    assert [slot for slot, _ in expect.matched_by_bytes(legs)] == [3, 1, 2]
    made = expect.expectation_of_trace(legs[0])
    assert bytes(made.mask)[:12] == b"\xff" * 12 and bytes(made.value)[:12] == MACS
    assert not any(bytes(made.mask)[12:])


def test_instances_share_a_processor_and_their_numbers() -> None:
    timing = Timing(mode="original")
    group = [a_leg(n, merged_into=0 if n else None, timing=timing) for n in range(3)]
    others = [replace(a_leg(n, timing=timing), options={}) for n in range(3, 6)]
    found = share([*group, *others], 2)
    assert [leg.id for leg in found[0] + found[1] if leg.id < 3] == [0, 1, 2]
    assert any({0, 1, 2} <= {leg.id for leg in one} for one in found)


def test_a_recorded_checksum_that_is_wrong_is_not_claimed_to_be_right(tmp_path: Path) -> None:
    """Inside a recorded tunnel nothing is mended."""
    wrong = bytearray(udp("1.1.1.1", 9, "2.2.2.2", 53, DATA))
    wrong[24] ^= 1
    for frames in ([bytes(wrong)], [WITH_ROOM["udp"][0]]):
        _, [frame], _ = both(tmp_path, frames)
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found.summed == checksums_right(frame)


def test_any_number_and_time_leave_all_sums_right(tmp_path: Path) -> None:
    """What the kernel does (send_packets.h, stamp_trace), here in numbers of any size."""
    rng = np.random.default_rng(5)
    _, [frame], _ = both(tmp_path, [WITH_ROOM["an odd byte"][0]])
    at = 42
    for sequence, time_ns in [(0, 0), (1, 0), (2**48 - 1, 2**64 - 1), *rng.integers(0, 2**48, (200, 2)).tolist()]:
        data = bytearray(frame)
        data[at : at + 18] = stamp.Stamp(STREAM, sequence, time_ns, 0, True).pack()[:18]
        assert checksums_right(bytes(data))
        found = stamp.read_stamp(bytes(data[at:]))
        assert found is not None and found.checksum == stamp.payload_sum(bytes(data[at + 22 :]))
