"""Trace replay: who is who, what is left out and told, when each packet is due, and every byte of what is sent."""

from __future__ import annotations

import json
import random
import shutil
import socket
import struct
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest

from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg, RandomStart, Shift, Timing
from pktswarm.traffic.replay import files, timing
from pktswarm.traffic.replay.parse import parse
from pktswarm.traffic.replay.ports import FIRST_FREE_PORT, step
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Settings, frames_of, prepare, share_rows
from pktswarm.traffic.replay.shift import shifted
from pktswarm.traffic.replay.table import Rule, make_table, pool
from recordings import (
    MACS,
    NODES,
    T0_NS,
    a_capture,
    checksums_right,
    ipv4,
    ipv6,
    listed,
    made,
    prepared,
    reference_checksum,
    replayed,
    tcp,
    udp,
)

HERE = Path(__file__).resolve()
TRACES = next((p for up in HERE.parents if (p := up / "shared" / "traces").is_dir()), HERE.parents[3] / "shared")
SHIPPED = Path(__file__).parents[2] / "configs" / "traces" / "lab.pcapng"
REAL = sorted(TRACES.glob("*.pcap*"))
FRAMES = [udp("1.1.1.1", 1000, "2.2.2.2", 53), udp("2.2.2.2", 53, "1.1.1.1", 1000, b"a longer answer")]
POOLS = Settings(users=pool("10.60.0.1"), servers=pool("10.70.0.1"))
GTPU = replace(POOLS, gtpu=Gtpu(teid=100, sequence=True, qfi=9))


def addresses(frame: bytes, at: int = 26) -> tuple[str, str]:
    return str(IPv4Address(frame[at : at + 4])), str(IPv4Address(frame[at + 4 : at + 8]))


# --- What is replayed at all -----------------------------------------------------------------------------------------


def test_what_cannot_be_replayed_is_counted_by_reason(tmp_path: Path) -> None:
    arp = MACS + b"\x08\x06" + bytes(28)
    broken = FRAMES[0][:14] + b"\x4f" + FRAMES[0][15:]
    broken6 = ipv6(bytes(16), bytes(16), 17, bytes(8))[:-1]
    odd = [arp, arp, broken, broken6, MACS + b"\x88\xcc" + bytes(46), MACS + b"\x00\x26" + bytes(46)]
    found = prepared(tmp_path, [FRAMES[0], *odd, FRAMES[1]])
    assert found.parsed.left_out == {
        "ARP": 2,
        "with a broken IPv4 header": 1,
        "with a broken IPv6 header": 1,
        "not IP (EtherType 0x88cc)": 1,
        "not IP (IEEE 802.3)": 1,
    }
    assert [int(number) for number in found.pieces.columns.number] == [1, 8]
    assert "6 of 8 packets are not replayed: 2 ARP, 1 with a broken IPv4 header" in " ".join(found.notes)


def test_a_trace_with_nothing_to_replay(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'2 ARP': contains no packet that can be replayed .*IPv4 and IPv6"):
        prepared(tmp_path, [MACS + b"\x08\x06" + bytes(28)] * 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(filter="udp prot 53"), r"test.yaml: traces.0.filter = 'udp prot 53': invalid filter: .*syntax error"),
        (Settings(filter="icmp"), r"traces.0.filter = 'icmp': no packet of .* passes the filter"),
        (Settings(window=(5.0, 6.0)), r"traces.0.window = '5 to 6 s': no packet in this window .*0 to 0.001000 s"),
        (Settings(rule=Rule("prefix", ("9.0.0.0/8",))), r"2 with neither address in client_prefix': no packet"),
        (
            replace(POOLS, users=pool("10.60.0.1", 1), instances=Instances(3)),
            r"traces.0.users.count = 1: the pool is too small: the trace needs 3 users .allowed: 3 or more",
        ),
        (replace(POOLS, servers=pool("255.255.255.255"), instances=Instances(2)), r"exceed 255.255.255.255"),
        (replace(POOLS, servers=pool("10.60.0.3"), instances=Instances(3)), r"servers.first.*the pools overlap"),
        (replace(GTPU, gtpu=Gtpu(teid=2**32 - 1), instances=Instances(2)), r"gtpu.teid = 4294967295: 2 users need"),
        (Settings(instances=Instances(65536)), r"traces.0.scale = 65536: .*more than 65,535 ports"),
        (replace(Settings(), oversize="skip", mtu_bytes=20), r"no packet of .* is left"),
    ],
)
def test_bad_input_is_told_once_with_its_place(tmp_path: Path, settings: Settings, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        prepared(tmp_path, FRAMES, settings)


def test_a_filter_and_a_window_count_what_they_leave(tmp_path: Path) -> None:
    frames = [udp("1.1.1.1", 1000 + n, "2.2.2.2", 53 + n % 2) for n in range(10)]
    found = prepared(tmp_path, frames, Settings(filter="dst port 53", window=(0.002, 0.007)))
    assert found.pieces.columns.number.tolist() == [3, 5, 7]
    assert found.parsed.left_out == {"that the filter does not pass": 2, "outside the window": 5}
    assert len(found.parsed.channels) == 3 and found.due.time_ns.tolist() == [0, 2_000_000, 4_000_000]


def test_frames_cut_by_a_snap_length_are_replayed_as_sizes_only(tmp_path: Path) -> None:
    data = write_pcap([Packet(0, FRAMES[1][:42])])
    path = tmp_path / "cut.pcap"
    path.write_bytes(data[:36] + struct.pack("<I", len(FRAMES[1])) + data[40:])
    with pytest.raises(BadInput, match=r"packet 1 was cut .*payload: sizes"):
        prepare(path, Settings())
    (frame,) = listed(made(prepare(path, Settings(headers_only=True))))
    assert len(frame) == len(FRAMES[1]) and frame[42:] == bytes(15) and checksums_right(frame)


@pytest.mark.skipif(not REAL, reason=f"{TRACES} is not here")
@pytest.mark.parametrize("settings", [Settings(), replace(GTPU, direction="both"), Settings(headers_only=True)])
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_every_packet_of_a_real_trace_is_accounted_for(path: Path, settings: Settings) -> None:
    settings = replace(settings, oversize="cut")
    found = prepare(path, settings)
    pieces = found.pieces
    sent = np.unique(pieces.columns.number)
    assert len(sent) + sum(found.parsed.left_out.values()) == found.parsed.total
    parts = share_rows(found, 3)
    assert sum(len(rows) for part in parts for rows in part.values()) == len(pieces.columns)
    frames = made(found)
    assert int(frames.length.max()) <= 1514
    for frame in listed(frames)[:300]:
        if frame[12:14] == b"\x08\x00" and frame[23] in (6, 17) and frame[40:42] != b"\0\0" and not settings.gtpu:
            assert checksums_right(frame)


# --- Who is who ------------------------------------------------------------------------------------------------------


def roles(folder: Path, frames: list[bytes], rule: Rule) -> dict[str, tuple[str, int]]:
    table = make_table(parse(a_capture(folder, frames)), rule)
    return {str(IPv4Address(address)): place for address, place in table.roles.items()}


def test_users_by_a_prefix(tmp_path: Path) -> None:
    frames = [udp("2.2.2.2", 53, "10.0.0.1", 9), udp("10.0.0.2", 9, "3.3.3.3", 53)]
    found = roles(tmp_path, frames, Rule("prefix", ("10.0.0.0/8",)))
    assert found["10.0.0.1"] == ("user", 0) and found["10.0.0.2"] == ("user", 1)
    assert found["2.2.2.2"] == ("server", 0) and found["3.3.3.3"] == ("server", 1)


def test_packets_that_a_prefix_cannot_place_are_counted(tmp_path: Path) -> None:
    frames = [udp("10.0.0.1", 9, "2.2.2.2", 53), udp("10.0.0.1", 9, "10.0.0.2", 9), udp("2.2.2.2", 9, "3.3.3.3", 9)]
    found = prepared(tmp_path, frames, replace(POOLS, rule=Rule("prefix", ("10.0.0.0/8",))))
    assert found.parsed.left_out == {
        "with both addresses in client_prefix": 1,
        "with neither address in client_prefix": 1,
    }


def test_users_by_syn_though_the_recording_began_with_an_answer(tmp_path: Path) -> None:
    frames = [tcp("2.2.2.2", 443, "1.1.1.1", 5000), tcp("1.1.1.1", 5001, "2.2.2.2", 443, flags=2)]
    assert roles(tmp_path, frames, Rule("first"))["2.2.2.2"] == ("user", 0)
    assert roles(tmp_path, frames, Rule("syn")) == {"2.2.2.2": ("server", 0), "1.1.1.1": ("user", 0)}
    answered = [frames[0], tcp("2.2.2.2", 443, "1.1.1.1", 5001, flags=0x12)]
    assert roles(tmp_path, answered, Rule("syn"))["1.1.1.1"] == ("user", 0)


def test_as_many_users_as_the_trace_has(tmp_path: Path) -> None:
    frames = [udp(f"1.1.1.{n % 5}", 9, f"2.2.{n % 3}.2", 53, bytes([n])) for n in range(30)]
    after = replayed(tmp_path, frames, POOLS)
    assert {addresses(frame)[0] for frame in after} == {f"10.60.0.{n}" for n in range(1, 6)}
    assert {addresses(frame)[1] for frame in after} == {f"10.70.0.{n}" for n in range(1, 4)}
    assert all(checksums_right(frame) for frame in after)


def test_without_pools_the_nodes_stand_for_users_and_servers(tmp_path: Path) -> None:
    up, down = replayed(tmp_path, FRAMES, Settings(direction="both"))
    assert (addresses(up), addresses(down)) == (("10.9.0.1", "10.9.0.2"), ("10.9.0.2", "10.9.0.1"))
    found = prepared(tmp_path, FRAMES, Settings(direction="both"))
    assert listed(made(found, downlink=True))[1][:12] == NODES.user_mac + NODES.server_mac


def test_two_users_who_talk_need_a_pool(tmp_path: Path) -> None:
    frames = [udp("1.1.1.1", 9, "3.3.3.3", 9), udp("2.2.2.2", 9, "3.3.3.3", 9), udp("1.1.1.1", 9, "2.2.2.2", 9)]
    found = prepared(tmp_path, frames, Settings(direction="both"))
    assert found.parsed.left_out == {"between two users, which share one address without a pool": 1}
    assert addresses(replayed(tmp_path, frames, POOLS)[2]) == ("10.60.0.1", "10.60.0.2")


@pytest.mark.parametrize(("direction", "numbers"), [("up", [1]), ("down", [2]), ("both", [1, 2])])
def test_directions(tmp_path: Path, direction: Any, numbers: list[int]) -> None:
    found = prepared(tmp_path, FRAMES, replace(POOLS, direction=direction))
    assert found.pieces.columns.number.tolist() == numbers
    assert sum(found.parsed.left_out.values()) == 2 - len(numbers)


def test_all_of_a_users_flows_are_on_one_node(tmp_path: Path) -> None:
    draw = random.Random(7)
    frames = [
        udp(f"1.1.1.{draw.randrange(20)}", draw.randrange(1000, 9999), "2.2.2.2", 53, bytes(draw.randrange(900)))
        for _ in range(600)
    ]
    found = prepared(tmp_path, frames, replace(POOLS, split="user"))
    parts = [part["all"] for part in share_rows(found, 3)]
    user = found.table.user[found.pieces.columns.pair]
    homes = [set(user[rows].tolist()) for rows in parts]
    assert sum(map(len, homes)) == 20 and sorted(np.concatenate(parts).tolist()) == list(range(600))
    loads = [int(found.frame_bytes[rows].sum()) for rows in parts]
    assert max(loads) < 1.25 * min(loads)


def test_each_flow_is_whole_and_in_order_in_one_share(tmp_path: Path) -> None:
    draw, frames = random.Random(7), []
    for _ in range(400):
        client = draw.randrange(23)
        ends = [(f"10.1.0.{client}", 40000 + client), ("10.2.0.1", 443)]
        (a, a_port), (b, b_port) = ends if draw.random() < 0.5 else ends[::-1]
        frames.append(udp(a, a_port, b, b_port, bytes(draw.randrange(1000))))
    found = prepared(tmp_path, frames)
    parts = [part["all"] for part in share_rows(found, 7)]
    assert sum(len(set(found.flow[rows].tolist())) for rows in parts) == 23
    assert all((np.diff(rows) > 0).all() for rows in parts)
    again = share_rows(prepared(tmp_path, frames), 7)
    assert all((one == two["all"]).all() for one, two in zip(parts, again, strict=True))


# --- When ------------------------------------------------------------------------------------------------------------

TIMES = np.array([5000, 9000, 6000], np.int64) * 1_000_000
SIZES = np.array([60, 100, 60])


def test_packets_are_sent_in_order_of_time() -> None:
    due = timing.due(TIMES, SIZES, timing.ReplayTiming())
    assert due.order.tolist() == [0, 2, 1] and due.time_ns.tolist() == [0, 10**9, 4 * 10**9]
    assert due.period_ns == 6 * 10**9


def test_long_gaps_are_shortened_and_counted() -> None:
    due = timing.due(TIMES, SIZES, timing.ReplayTiming(longest_gap_ns=1_500_000_000))
    assert (due.time_ns.tolist(), due.shortened) == ([0, 10**9, 2_500_000_000], 1)


@pytest.mark.parametrize(
    ("mode", "value", "speed"), [("mean_pps", 1.0, 2.0), ("mean_bps", 8 * 232 / 3, 2.0), ("multiplier", 4.0, 4.0)]
)
def test_a_mean_rate_is_a_speed(mode: Any, value: float, speed: float) -> None:
    due = timing.due(TIMES, SIZES, timing.ReplayTiming(mode, value))
    assert due.mode == "multiplier" and due.value == pytest.approx(speed)
    assert due.period_ns == pytest.approx(6e9 / speed)


def test_a_trace_without_a_duration_goes_at_the_rate_itself() -> None:
    due = timing.due(np.array([7, 7]), np.array([60, 60]), timing.ReplayTiming("mean_pps", 100.0))
    assert (due.mode, due.value) == ("pps", 100.0)


def test_instances_spread_evenly_over_the_period() -> None:
    assert [timing.lead_ns(number, 4, 1000, "spread") for number in range(4)] == [0, 250, 500, 750]
    assert timing.lead_ns(3, 4, 1000, "together") == 0


def test_random_offsets_are_seeded_bounded_and_keep_each_flow_in_order() -> None:
    times, flow = np.arange(1000) * 1000, np.arange(1000) % 7
    order, moved = timing.random_times(times, flow, 2, 50_000, 5)
    assert (np.diff(moved) >= 0).all() and sorted(order.tolist()) == list(range(1000))
    late = moved - times[order]
    assert late.min() >= 0 and late.max() < 50_000 and late.std() > 5_000
    for number in range(7):
        assert (np.diff(order[flow[order] == number]) > 0).all()
    again = timing.random_times(times, flow, 2, 50_000, 5)[1]
    other = timing.random_times(times, flow, 3, 50_000, 5)[1]
    assert (again == moved).all() and (other != moved).any()
    assert (timing.random_times(times, flow, 0, 50_000, 5)[1] == times).all()


# --- Bytes -----------------------------------------------------------------------------------------------------------


def test_both_directions_go_from_the_source_to_the_target(tmp_path: Path) -> None:
    for frame, before in zip(replayed(tmp_path, FRAMES), FRAMES, strict=True):
        assert frame[:12] == NODES.server_mac + NODES.user_mac
        assert addresses(frame) == ("10.9.0.1", "10.9.0.2")
        assert frame[34:40] == before[34:40], "ports and length are kept"
        assert frame[42:] == before[42:], "the payload is kept"
        assert checksums_right(frame)


def test_tcp_with_options_padding_and_an_odd_length(tmp_path: Path) -> None:
    segment = dpkt.tcp.TCP(sport=50000, dport=443, seq=9, flags=24, opts=b"\x01\x01\x01\x00", data=b"odd")
    segment.off = 6
    frame = ipv4("1.1.1.1", "2.2.2.2", bytes(segment), 6)
    (after,) = replayed(tmp_path, [frame + b"pad"])
    assert checksums_right(after) and after[-3:] == b"pad"


def test_a_long_trailer_is_kept(tmp_path: Path) -> None:
    frames = [FRAMES[0] + bytes(range(size)) for size in (1, 2, 46, 47, 200)]
    for after, before in zip(replayed(tmp_path, frames), frames, strict=True):
        assert len(after) == len(before) and after[len(FRAMES[0]) :] == before[len(FRAMES[0]) :]
        assert checksums_right(after)


def test_a_checksum_that_the_card_should_have_made_is_mended_and_counted(tmp_path: Path) -> None:
    wrong = bytearray(FRAMES[0])
    wrong[40:42] = b"\x12\x34"
    wrong_ip = bytearray(FRAMES[1])
    wrong_ip[24] ^= 1
    frames = made(prepared(tmp_path, [bytes(wrong), FRAMES[1], bytes(wrong_ip)]))
    assert frames.mended == 2
    assert all(checksums_right(frame) for frame in listed(frames))


def test_udp_without_a_checksum_stays_so(tmp_path: Path) -> None:
    without = bytearray(FRAMES[0])
    without[40:42] = b"\0\0"
    frames = made(prepared(tmp_path, [bytes(without)]))
    assert (frames.frame(0)[40:42], frames.mended, int(frames.sum_at[0])) == (b"\0\0", 0, 0)


def test_a_udp_checksum_of_zero_is_written_as_all_ones(tmp_path: Path) -> None:
    """RFC 768: 0 would mean that there is none."""
    (frame,) = replayed(tmp_path, [udp("1.1.1.1", 1, "2.2.2.2", 2, b"\0\0")])
    # A payload equal to the checksum makes the sum over everything zero.
    (after,) = replayed(tmp_path, [udp("1.1.1.1", 1, "2.2.2.2", 2, frame[40:42])])
    assert after[40:42] == b"\xff\xff"


def fragments(identification: int, size: int = 100) -> list[bytes]:
    whole = udp("1.1.1.1", 7, "2.2.2.2", 8, bytes(size))[34:]
    first = ipv4("1.1.1.1", "2.2.2.2", whole[:64], 17, identification, 0x2000)
    rest = ipv4("1.1.1.1", "2.2.2.2", whole[64:], 17, identification, 8)
    return [first, rest]


def test_a_fragmented_datagram_still_sums_up(tmp_path: Path) -> None:
    first, rest = replayed(tmp_path, fragments(77))
    ends, datagram = first[26:34], first[34:] + rest[34:]
    assert ends == rest[26:34] == bytes([10, 9, 0, 1, 10, 9, 0, 2])
    assert reference_checksum(ends + struct.pack(">HH", 17, len(datagram)) + datagram) == 0
    assert reference_checksum(first[14:34]) == reference_checksum(rest[14:34]) == 0


@pytest.mark.parametrize("turned", [False, True])
def test_fragments_stay_with_the_one_that_has_the_ports(tmp_path: Path, turned: bool) -> None:
    frames = fragments(77)[:: -1 if turned else 1]
    frames += [udp("1.1.1.1", 7, "2.2.2.2", 8), udp("1.1.1.1", 9, "2.2.2.2", 8)]
    flow = prepared(tmp_path, frames).flow.tolist()
    assert flow[0] == flow[1] == flow[2] != flow[3]


@pytest.mark.parametrize("tags", [b"\x81\x00\x00\x05", b"\x88\xa8\x00\x06\x81\x00\x00\x05"])
def test_vlan_tags_are_kept_or_replaced(tmp_path: Path, tags: bytes) -> None:
    tagged = FRAMES[0][:12] + tags + FRAMES[0][12:]
    (after,) = replayed(tmp_path, [tagged])
    assert after[12 : 12 + len(tags)] == tags
    assert checksums_right(after[:12] + after[12 + len(tags) :])
    (after,) = replayed(tmp_path, [tagged], Settings(tag=b"\x81\x00\x00\x64"))
    assert after[12:18] == b"\x81\x00\x00\x64\x08\x00" and checksums_right(after[:12] + after[16:])


def test_ipv6_gets_addresses_made_from_ipv4_ones(tmp_path: Path) -> None:
    group = bytes.fromhex("ff020000000000000000000000000001")
    echo = b"\x80\0\0\0" + b"echo"
    frame = bytearray(ipv6(bytes(15) + b"\x01", group, 58, echo))
    pseudo = bytes(frame[22:54]) + struct.pack(">II", len(echo), 58)
    frame[56:58] = reference_checksum(pseudo + echo).to_bytes(2, "big")
    (after,) = replayed(tmp_path, [bytes(frame)])
    assert after[22:38] == socket.inet_pton(socket.AF_INET6, "fd00::10.9.0.1")
    assert checksums_right(after)
    settings = Settings(users=pool("10.60.0.1", prefix6="2001:db8::"), servers=pool("10.70.0.1"))
    (after,) = replayed(tmp_path, [bytes(frame)], settings)
    assert after[22:38] == socket.inet_pton(socket.AF_INET6, "2001:db8::10.60.0.1")
    assert after[38:54] == socket.inet_pton(socket.AF_INET6, "fd00::10.70.0.1") and checksums_right(after)


def test_ipv6_behind_extension_headers(tmp_path: Path) -> None:
    datagram = struct.pack(">HHHH", 7, 8, 12, 0) + b"data"
    hop_by_hop = b"\x11\0\x01\x04\0\0\0\0"
    frame = bytearray(ipv6(bytes(15) + b"\x01", bytes(15) + b"\x02", 0, hop_by_hop + datagram))
    pseudo = bytes(frame[22:54]) + struct.pack(">II", 12, 17)
    frame[68:70] = reference_checksum(pseudo + datagram).to_bytes(2, "big")
    frames = made(prepared(tmp_path, [bytes(frame)]))
    after = frames.frame(0)
    assert frames.mended == 0
    assert reference_checksum(after[22:54] + struct.pack(">II", 12, 17) + after[62:]) == 0


def test_what_is_tunnelled_already_is_told_and_rewritten_outside(tmp_path: Path) -> None:
    inside = udp("9.9.9.9", 1, "8.8.8.8", 2)[14:]
    frames = [ipv4("1.1.1.1", "2.2.2.2", inside, 4), udp("1.1.1.1", 2152, "2.2.2.2", 2152, inside)]
    found = prepared(tmp_path, frames)
    told = " ".join(found.notes)
    assert "1 packets are in IP in IP: only" in told and "1 packets are in GTP-U: only" in told
    assert listed(made(found))[0][34:] == inside


def test_flows_that_would_become_one_get_another_port(tmp_path: Path) -> None:
    one, two = udp("1.1.1.1", 50000, "9.9.9.1", 3478), udp("1.1.1.1", 50000, "9.9.9.2", 3478)
    back = udp("9.9.9.2", 3478, "1.1.1.1", 50000)
    found = prepared(tmp_path, [one, two, back, one])
    after = listed(made(found))
    ports = [struct.unpack(">HH", frame[34:38]) for frame in after]
    assert ports == [(50000, 3478), (FIRST_FREE_PORT, 3478), (3478, FIRST_FREE_PORT), (50000, 3478)]
    assert "1 flows have another port" in " ".join(found.notes)
    assert all(checksums_right(frame) for frame in after)


def test_of_two_equal_ports_the_receiver_still_sees_its_own(tmp_path: Path) -> None:
    after = replayed(tmp_path, [udp("1.1.1.1", 2152, f"9.9.9.{n}", 2152) for n in (1, 2)])
    assert [struct.unpack(">HH", frame[34:38]) for frame in after] == [(2152, 2152), (FIRST_FREE_PORT, 2152)]


def test_as_many_flows_after_as_before(tmp_path: Path) -> None:
    frames = [udp(f"10.0.{n % 7}.1", 5000 + n % 3, f"10.1.{n % 5}.1", 443, bytes([n])) for n in range(210)]
    after = replayed(tmp_path, frames)
    assert len({(frame[26:34], frame[34:38]) for frame in after}) == 105


# --- GTP-U -----------------------------------------------------------------------------------------------------------


def test_gtpu_around_the_uplink_alone(tmp_path: Path) -> None:
    up, down = replayed(tmp_path, FRAMES, GTPU)
    assert addresses(up) == ("10.9.0.1", "10.9.0.2") and up[34:38] == b"\x08\x68\x08\x68"
    assert int.from_bytes(up[38:40], "big") == len(up) - 34 and up[40:42] == b"\0\0"
    gtp = up[42:58]
    assert gtp == struct.pack(">BBHIHBB", 0x36, 255, len(up) - 50, 100, 0, 0, 0x85) + bytes([1, 0x10, 9, 0])
    assert addresses(up, 58 + 12) == ("10.60.0.1", "10.70.0.1")
    assert checksums_right(up[:14] + up[58:]) and reference_checksum(up[14:34]) == 0
    assert addresses(down) == ("10.70.0.1", "10.60.0.1") and len(down) == len(FRAMES[1])


def test_ipv6_inside_a_tunnel(tmp_path: Path) -> None:
    inner = ipv6(bytes(15) + b"\x01", bytes(15) + b"\x02", 17, struct.pack(">HHHH", 7, 8, 12, 0) + b"data")
    (frame,) = replayed(tmp_path, [inner], GTPU)
    assert frame[12:15] == b"\x08\x00\x45" and frame[58] >> 4 == 6 and reference_checksum(frame[14:34]) == 0


def test_gtpu_sequence_numbers_and_outer_addresses(tmp_path: Path) -> None:
    settings = replace(POOLS, gtpu=Gtpu(teid=5, sequence=True, source="192.0.2.1", target="192.0.2.2"))
    frames = [udp(f"1.1.1.{n % 3}", 9, "2.2.2.2", 9, bytes([n])) for n in range(9)]
    after = replayed(tmp_path, frames, settings)
    assert [int.from_bytes(frame[50:52], "big") for frame in after] == list(range(9))
    assert [int.from_bytes(frame[46:50], "big") for frame in after] == [5, 6, 7] * 3
    assert {addresses(frame) for frame in after} == {("192.0.2.1", "192.0.2.2")}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("path", [SHIPPED, *REAL], ids=lambda path: path.name)
def test_tshark_finds_every_checksum_and_length_right(tmp_path: Path, path: Path) -> None:
    settings = replace(GTPU, oversize="cut", tag=b"\x81\x00\x00\x64")
    found = prepare(path, settings)
    frames = shifted(made(found), Shift(3, 5, 1, 7))
    out = tmp_path / "out.pcap"
    out.write_bytes(files.pcap_bytes(frames))
    checks = [f"-o{name}.check_checksum:TRUE" for name in ("ip", "tcp", "udp")]
    fields = "frame.number", "_ws.malformed", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"
    command = ["tshark", "-r", str(out), "-Tjson", *checks, *(f"-e{name}" for name in fields)]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert len(shown) == len(frames)
    # 0 is bad, 1 good, 2 unverified (fragments), 3 not present (UDP without).
    for packet in shown:
        layers = packet["_source"]["layers"]
        for name in fields[2:]:
            assert "0" not in layers.get(name, []), packet


# --- Oversize --------------------------------------------------------------------------------------------------------


def merged(payload: bytes, flags: int = 0x18, **more: int) -> list[bytes]:
    """A full segment by itself, then a merged one."""
    return [
        tcp("1.1.1.1", 5000, "2.2.2.2", 443, bytes(1400), seq=1000, identification=9),
        tcp("1.1.1.1", 5000, "2.2.2.2", 443, payload, flags, seq=2**32 - 100, identification=65535, **more),
    ]


def test_merged_segments_are_cut_as_they_were_on_the_wire(tmp_path: Path) -> None:
    payload = random.Random(1).randbytes(3000)
    found = prepared(tmp_path, merged(payload, 0x99), replace(Settings(), oversize="cut"))
    _, *segments = listed(made(found))
    assert found.pieces.cut == 1 and [len(frame) - 54 for frame in segments] == [1400, 1400, 200]
    assert b"".join(frame[54:] for frame in segments) == payload
    assert [struct.unpack(">I", frame[38:42])[0] for frame in segments] == [2**32 - 100, 1300, 2700]
    assert [struct.unpack(">H", frame[18:20])[0] for frame in segments] == [65535, 0, 1]
    assert [struct.unpack(">H", frame[16:18])[0] for frame in segments] == [1440, 1440, 240]
    assert [frame[47] for frame in segments] == [0x90, 0x10, 0x19], "CWR on the first, FIN and PSH on the last"
    assert all(checksums_right(frame) for frame in segments)
    assert found.due.time_ns.tolist() == [0, 1_000_000, 1_000_000, 1_000_000]


def test_without_a_full_segment_to_go_by_the_mtu_does(tmp_path: Path) -> None:
    found = prepared(tmp_path, merged(bytes(3000))[1:], replace(Settings(), oversize="cut"))
    assert (found.frame_bytes - 54).tolist() == [1460, 1460, 80]


def test_a_tunnel_takes_its_part_of_the_mtu(tmp_path: Path) -> None:
    found = prepared(tmp_path, merged(bytes(3000))[1:], replace(GTPU, oversize="cut"))
    assert found.frame_bytes.tolist() == [1514, 1514, 54 + 44 + 3000 - 2 * 1416]
    assert made(found).length.tolist() == found.frame_bytes.tolist()


def test_what_cannot_be_cut_and_what_is_skipped_is_counted(tmp_path: Path) -> None:
    frames = [FRAMES[0], udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(2000)), *merged(bytes(3000))]
    found = prepared(tmp_path, frames, replace(Settings(), oversize="cut"))
    assert found.parsed.left_out == {"longer than the MTU, which cannot be cut": 1}
    found = prepared(tmp_path, frames, replace(Settings(), oversize="skip"))
    assert found.parsed.left_out == {"longer than the MTU": 2} and len(found.due.order) == 2


# --- Instances -------------------------------------------------------------------------------------------------------


def mixed(seed: int = 3) -> list[bytes]:
    draw, frames = random.Random(seed), []
    for number in range(300):
        user, server = f"1.1.0.{draw.randrange(9)}", f"2.2.0.{draw.randrange(4)}"
        ends = (user, 4000 + number % 50, server, 443)
        ends = ends if draw.random() < 0.6 else (ends[2], ends[3], ends[0], ends[1])
        frames.append(draw.choice((udp, tcp))(*ends, draw.randbytes(draw.randrange(600))))
    six = ipv6(bytes(15) + b"\x01", bytes(15) + b"\x02", 17, struct.pack(">HHHH", 7, 8, 12, 0x1234) + b"data")
    return [*frames, *fragments(5), six, ipv4("1.1.0.1", "2.2.0.1", b"\x08\0\xf7\xff\0\0\0\0", 1)]


@pytest.mark.parametrize("settings", [POOLS, GTPU, replace(GTPU, tag=b"\x81\x00\x00\x64")])
def test_an_instance_is_byte_for_byte_what_other_pools_would_have_given(tmp_path: Path, settings: Settings) -> None:
    frames = made(prepared(tmp_path, mixed(), settings))
    before = frames.store.copy()
    other = replace(settings, users=pool("10.60.1.8"), servers=pool("10.70.255.9"))
    if settings.gtpu:
        other = replace(other, gtpu=replace(settings.gtpu, teid=100 + 70_000))
    expected = listed(made(prepared(tmp_path, mixed(), other)))
    shift = Shift(user=263, server=65_288, teid=70_000)
    assert listed(shifted(frames, shift)) == expected
    assert (frames.store == before).all(), "the stored frames are shared"


def test_an_instance_behind_a_routing_header(tmp_path: Path) -> None:
    """The checksum is about the last stop, which stands in the routing header (RFC 8200, section 8.1)."""
    ends, last = (bytes(15) + b"\x01", bytes(15) + b"\x02"), bytes(15) + b"\x09"
    routing = struct.pack(">BBBBI", 17, 2, 0, 1, 0) + last
    datagram = bytearray(struct.pack(">HHHH", 7, 8, 12, 0) + b"data")
    pseudo = ends[0] + last + struct.pack(">II", 12, 17)
    datagram[6:8] = reference_checksum(pseudo + datagram).to_bytes(2, "big")
    frames = made(prepared(tmp_path, [ipv6(*ends, 43, routing + datagram)], POOLS))
    (moved,) = listed(shifted(frames, Shift(user=3, server=5, port=9)))
    assert moved[22:38].endswith(bytes([10, 60, 0, 4])) and moved[38:54].endswith(bytes([10, 70, 0, 6]))
    assert reference_checksum(moved[22:38] + last + struct.pack(">II", 12, 17) + moved[78:]) == 0


def test_ports_go_with_an_instance(tmp_path: Path) -> None:
    frames = made(prepared(tmp_path, FRAMES, POOLS))
    up, down = listed(shifted(frames, Shift(port=65_000)))
    assert struct.unpack(">H", up[34:36])[0] == struct.unpack(">H", down[36:38])[0] == (1000 + 65_000) % 65_536
    assert checksums_right(up) and checksums_right(down)


def test_each_instance_has_users_servers_and_teids_of_its_own(tmp_path: Path) -> None:
    found = prepared(tmp_path, mixed(), replace(GTPU, instances=Instances(3)))
    users, servers = len(found.table.users), len(found.table.servers)
    assert found.shift(2) == Shift(2 * users, 2 * servers, 0, 2 * users)
    assert {name: need for name, _, need in found.pools} == {"users": 3 * users, "servers": 3 * servers}


def test_without_pools_ports_tell_instances_apart(tmp_path: Path) -> None:
    found = prepared(tmp_path, mixed(), Settings(instances=Instances(5)))
    frames = made(found)
    flows: set[bytes] = set()
    for number in range(5):
        own = {f[23:24] + f[26:38] for f in listed(shifted(frames, found.shift(number)))[:300]}
        assert not own & flows
        flows |= own


def test_a_step_between_ports() -> None:
    assert step(np.array([10, 11, 13]), 2) == 4
    assert step(np.array([10, -1]), 3) == 1 and step(np.array([-1]), 3) == 0
    assert step(np.arange(1, 40_000), 2) is None


# --- Files -----------------------------------------------------------------------------------------------------------


def a_leg(folder: Path, found: Any, **more: Any) -> Leg:
    frames = made(found)
    (folder / "leg-0.pcap").write_bytes(files.pcap_bytes(frames))
    (folder / "leg-0.rows.npy").write_bytes(files.row_bytes(frames))
    return Leg(0, "t", "a", "b", "trace", trace_file="leg-0.pcap", count_packets=len(frames), **more)


@pytest.mark.parametrize("headers_only", [False, True])
def test_what_nodes_read_is_what_was_built(tmp_path: Path, headers_only: bool) -> None:
    found = prepared(tmp_path, mixed(), replace(GTPU, headers_only=headers_only))
    frames = made(found)
    read, order = files.frames_to_send(a_leg(tmp_path, found), tmp_path)
    assert listed(read) == listed(frames) and order.tolist() == list(range(len(frames)))
    for name in (
        "time_ns",
        "length",
        "stored",
        "ip_at",
        "l4_at",
        "sum_at",
        "teid_at",
        "down",
        "ends",
        "flow",
        "number",
    ):
        assert (getattr(read, name) == getattr(frames, name)).all(), name
    moved, _ = files.frames_to_send(a_leg(tmp_path, found, shift=Shift(user=7, teid=9)), tmp_path)
    assert listed(moved) == listed(shifted(frames, Shift(user=7, teid=9)))


def test_an_instance_at_random_has_its_own_times(tmp_path: Path) -> None:
    found = prepared(tmp_path, mixed(), POOLS)
    random_start = Timing(random=RandomStart(1, 5_000_000, 3))
    frames, order = files.frames_to_send(a_leg(tmp_path, found, timing=random_start), tmp_path)
    times = frames.time_ns[order]
    assert (np.diff(times) >= 0).all() and (order != np.arange(len(order))).any()
    expected = timing.random_times(found.due.time_ns, found.channel, 1, 5_000_000, 3)
    assert (times == expected[1]).all() and (order == expected[0]).all()


def test_rows_that_do_not_fit_the_trace(tmp_path: Path) -> None:
    leg = a_leg(tmp_path, prepared(tmp_path, FRAMES, POOLS), shift=Shift(user=1))
    (tmp_path / "leg-0.rows.npy").write_bytes(files.row_bytes(made(prepared(tmp_path, FRAMES[:1], POOLS))))
    with pytest.raises(BadInput, match="has 1 rows for 2 packets"):
        files.frames_to_send(leg, tmp_path)
    (tmp_path / "leg-0.rows.npy").write_bytes(b"no rows")
    with pytest.raises(BadInput, match=r"leg-0.rows.npy: cannot be read"):
        files.frames_to_send(leg, tmp_path)
    (tmp_path / "leg-0.rows.npy").unlink()
    with pytest.raises(BadInput, match="has no file of rows, which an instance needs"):
        files.frames_to_send(leg, tmp_path)


def test_frames_longer_than_an_interface_takes(tmp_path: Path) -> None:
    tagged = FRAMES[0][:12] + b"\x81\x00\x00\x05" + udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(1472))[12:]
    frames = made(prepared(tmp_path, [udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(1472)), tagged]))
    files.check_mtu(frames, 1500, "eth1", tmp_path)
    with pytest.raises(BadInput, match=r"'1518 bytes': packet 2 is longer than the MTU of eth1.*1499"):
        files.check_mtu(made(prepared(tmp_path, [FRAMES[0], tagged])), 1499, "eth1", tmp_path)


def test_broken_captures_are_refused_or_read_never_a_crash(tmp_path: Path) -> None:
    """Flipped bits in frames and headers: every packet stays accounted for."""
    draw, good = random.Random(11), bytearray(a_capture(tmp_path, mixed()).read_bytes())
    path = tmp_path / "fuzzed.pcap"
    for _ in range(300):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 30)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data[: draw.randrange(len(data))] if draw.random() < 0.2 else data)
        try:
            found = prepare(path, replace(GTPU, oversize="cut", headers_only=draw.random() < 0.5))
        except BadInput:
            continue
        frames = made(found)
        assert len(np.unique(found.pieces.columns.number)) + sum(found.parsed.left_out.values()) == found.parsed.total
        shifted(frames, Shift(1, 2, 3, 4))


def test_times_of_the_trace_start_at_zero(tmp_path: Path) -> None:
    frames = made(prepared(tmp_path, FRAMES))
    assert frames.time_ns.tolist() == [0, 1_000_000] and T0_NS > 0
    rows = np.array([1])
    found = prepared(tmp_path, FRAMES)
    assert frames_of(found, rows, NODES).time_ns.tolist() == [1_000_000], "a later share starts later"
