"""The lab's UPF between a gNB and a server, with packets on the wire: counts, faults, waiting users, handover."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.contrib import pfcp
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, fragment
from scapy.packet import Packet

from pktswarm import lab
from pktswarm.lab.upf_host import ORDERS
from pktswarm.traffic.errors import BadInput
from upf_ends import (
    SMF_SEID,
    TEID_DOWN,
    Ends,
    cause,
    faulty,
    g_pdu,
    number_of,
    qer,
    update_far,
    user4,
    user6,
)

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
]

FORWARD, BUFFER, NOTIFY = 2, 4, 8


@pytest.fixture
def ends(lab_ends: Ends) -> Iterator[Ends]:
    """With an association and no session, and nothing on the way from the test before."""
    lab_ends.associate()
    lab_ends.drain()
    yield lab_ends


def establish(ends: Ends, **how: object) -> int:
    answer = ends.establish(*ends.session(**how))
    assert cause(answer) == 1
    return int(answer[pfcp.IE_FSEID].seid)


def user_packet(frame: Packet) -> bytes:
    """What a GTP-U packet carries. By hand: scapy takes the padding of its container for the user's."""
    udp = bytes(frame.payload)
    gtp = udp[8:]
    return gtp[8 if not gtp[0] & 7 else 16 :]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_thousand_packets_each_way_are_counted_alike_by_all(ends: Ends) -> None:
    establish(ends, qers=[qer(qfi=9)])
    before = ends.totals()
    up = [user4(200, number) if number % 3 else user6(200, number) for number in range(1000)]
    down = [user4(300, number, down=True) if number % 3 else user6(300, number, down=True) for number in range(1000)]
    for one, other in zip([ends.n3_frame(each, container=9) for each in up], map(ends.n6_frame, down), strict=True):
        ends.n3.send(one)
        ends.n6.send(other)
    assert ends.at_server(1000) == up
    assert [user_packet(each) for each in ends.at_gnb(1000)] == down
    for direction, size in (("uplink", 200), ("downlink", 300)):
        counts = ends.counts(direction)
        assert (counts["packets"], counts["bytes"]) == (1000, 1000 * size)
        assert not any(counts["dropped"].values())
        assert ends.totals()[f"forwarded_{direction}"] - before[f"forwarded_{direction}"] == 1000


def test_listed_packets_are_lost_delayed_swapped_and_misled(ends: Ends) -> None:
    establish(ends)
    with faulty(ends, uplink={"drop": [1, 3], "hold": {"4": 2}}, downlink={"wrong_teid": [2], "delay_ms": {"0": 200}}):
        for number in range(8):
            ends.up(user4(number=number))
            ends.down(user4(number=number, down=True))
            time.sleep(0.002)
        assert [number_of(packet) for packet in ends.at_server(6)] == [0, 2, 5, 6, 4, 7]
        frames = ends.at_gnb(8)
    assert [number_of(user_packet(each)) for each in frames] == [1, 2, 3, 4, 5, 6, 7, 0]
    teids = {number_of(user_packet(each)): each[GTP_U_Header].teid for each in frames}
    assert [number for number, teid in teids.items() if teid != TEID_DOWN] == [2]
    assert ends.counts("uplink")["dropped"]["fault"] == 2
    assert ends.counts("uplink")["packets"] == 6
    assert ends.counts("downlink")["packets"] == 8


def test_a_held_packet_goes_on_when_the_faults_end(ends: Ends) -> None:
    establish(ends)
    with faulty(ends, uplink={"hold": {"0": 5}}):
        ends.up(user4())
        assert ends.at_server() == []
    assert ends.at_server(1) == [user4()]


def test_packets_wait_for_an_idle_user_and_the_smf_is_told_once(ends: Ends) -> None:
    seid = establish(ends, action=BUFFER | NOTIFY, qers=[qer(qfi=9)])
    packets = [user4(number=number, down=True) for number in range(5)]
    for packet in packets:
        ends.down(packet)
    report, _ = ends.next_message()
    assert (report.message_type, report.seid) == (56, SMF_SEID)
    assert report[pfcp.IE_ReportType].DLDR == 1
    assert report[pfcp.IE_PDR_Id].id == 2
    assert ends.at_gnb() == []
    assert ends.tell({"status": {}})["waiting"]["users"] == 5
    assert cause(ends.modify(seid, update_far(FORWARD, ends.gnb.ipv4, 0x3003))) == 1
    frames = ends.at_gnb(5)
    assert [user_packet(each) for each in frames] == packets
    assert {each[GTP_U_Header].teid for each in frames} == {0x3003}
    counts = ends.counts("downlink")
    assert (counts["packets"], counts["bytes"], counts["dropped"]["buffered"]) == (5, 500, 5)
    assert ends.tell({"status": {}})["waiting"]["users"] == 0


def test_a_handover_sends_an_end_marker_on_the_old_path(ends: Ends) -> None:
    seid = establish(ends)
    ends.down(user4(number=1, down=True))
    ends.at_gnb(1)
    assert cause(ends.modify(seid, update_far(FORWARD, ends.gnb.ipv4, 0x4004, end_marker=True))) == 1
    ends.down(user4(number=2, down=True))
    marker, packet = ends.at_gnb(2)
    assert (marker[GTP_U_Header].gtp_type, marker[GTP_U_Header].teid) == (254, TEID_DOWN)
    assert packet[GTP_U_Header].teid == 0x4004


def test_the_rate_of_a_user_is_held_to_its_mbr(ends: Ends) -> None:
    """At most the bucket (5 ms and a packet) more than the rate allows in the time it took; and most of what a bucket
    lets through of packets sent at these times: one that stood still meanwhile lets no more through for it."""
    kbps, size = 8_000, 1000
    establish(ends, qers=[qer(mbr_kbps=(kbps, kbps))])
    times = [time.monotonic()]
    while times[-1] - times[0] < 0.5:
        ends.up(user4(size))
        times.append(time.monotonic())
    counts, sent = ends.counts("uplink"), len(times) - 1
    assert counts["packets"] <= (kbps * 125 * (times[-1] - times[0] + 0.005) + size) / size
    assert counts["packets"] >= 0.8 * through_a_bucket(times[:-1], size / (kbps * 125), 0.005)
    assert counts["packets"] + counts["dropped"]["rate"] == sent
    assert len(ends.at_server()) == counts["packets"]


def through_a_bucket(times: list[float], packet_s: float, bucket_s: float) -> int:
    """Packets that are no more than so far ahead of their rate."""
    due, passed = times[0], 0
    for now in times:
        due = max(due, now)
        if due - now <= bucket_s:
            due, passed = due + packet_s, passed + 1
    return passed


def test_sessions_do_not_share_counts_or_packets(ends: Ends) -> None:
    seids = []
    for number in range(20):
        teid = pfcp.IE_FTEID(V4=1, TEID=100 + number, ipv4=ends.upf.n3_ipv4)
        ue = pfcp.IE_UE_IP_Address(V4=1, SD=1, ipv4=f"10.45.1.{number}")
        seids.append(establish(ends, teid=teid, ue=ue, down_teid=500 + number))
    for number in range(20):
        for _ in range(number):
            ends.up(user4(), teid=100 + number)
    assert len(ends.at_server(190)) == 190
    for number, seid in enumerate(seids):
        assert ends.counts("uplink", seid)["packets"] == number
    packet = IP(user4(down=True))
    packet.dst = "10.45.1.7"
    ends.down(bytes(packet))
    assert ends.at_gnb(1)[0][GTP_U_Header].teid == 507
    assert ends.counts("downlink", seids[7])["packets"] == 1


def test_packets_behind_a_deletion_are_carried_no_more(ends: Ends) -> None:
    seid = establish(ends)
    ends.delete(seid)
    before = ends.totals()
    ends.down(user4(down=True))
    ends.up(user4())
    assert ends.at_server() == []
    (answer,) = ends.at_gnb(1)
    assert answer[GTP_U_Header].gtp_type == 26
    after = ends.totals()
    assert after["unknown_ue"] - before["unknown_ue"] == 1
    assert after["unknown_teid"] - before["unknown_teid"] == 1


def test_a_gnb_that_is_no_neighbour_yet_is_asked_for(ends: Ends) -> None:
    """Its kernel answers: for this test it has the address."""
    address = ends.gnb.ipv4.rpartition(".")[0] + ".99"
    lab.run_in(ends.name, "tx1", ["ip", "address", "add", f"{address}/24", "dev", "eth1"], ends.folder)
    try:
        seid = establish(ends)
        assert cause(ends.modify(seid, update_far(FORWARD, address, 0x9))) == 1
        ends.down(user4(down=True))
        assert ends.at_gnb() == []
        assert ends.counts("downlink")["dropped"]["no_neighbour"] == 1

        def arrives() -> bool:
            ends.down(user4(down=True))
            return bool(ends.at_gnb())

        assert within(5, arrives)
    finally:
        lab.run_in(ends.name, "tx1", ["ip", "address", "del", f"{address}/24", "dev", "eth1"], ends.folder)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"explode": {}}, "order = 'explode'.*status, sessions, faults, restart"),
        ({"faults": {"uplink": {"drop": [-1]}}}, "uplink.drop = -1"),
        ({"restart": {"silent_s": "long"}}, "restart.silent_s = 'long'.*0 to 3600"),
        ([], "order = .*status"),
    ],
)
def test_a_wrong_order_is_refused_and_changes_nothing(ends: Ends, order: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ends.tell(order)
    establish(ends)


def test_g_pdus_of_the_wrong_size_do_not_stop_it(ends: Ends) -> None:
    establish(ends)
    for cut in range(1, 60):
        frame = ends.n3_frame(b"")[:42] + g_pdu(user4(), 0x1001)[:cut]
        ends.n3.send(frame)
    ends.up(user4())
    assert ends.at_server(1) == [user4()]


def test_outer_fragments_are_put_together(ends: Ends) -> None:
    establish(ends)
    packets = [user4(1480, number) for number in range(20)]
    frames = [ends.n3_frame(packet, container=9) for packet in packets]
    pieces = [fragment(IP(frame[14:]), 1200) for frame in frames]
    assert {len(each) for each in pieces} == {2}
    for frame, (first, second) in zip(frames, pieces, strict=True):
        for piece in (second, first):
            ends.n3.send(frame[:14] + bytes(piece))
    assert ends.at_server(20) == packets
    assert ends.counts("uplink")["packets"] == 20


def test_fragments_wait_while_the_upf_is_at_something_else(ends: Ends) -> None:
    """At an order that says nothing, for which it waits a second."""
    establish(ends)
    packets = [user4(1480, number) for number in range(200)]
    frames: list[bytes] = []
    for number, frame in enumerate(map(ends.n3_frame, packets)):
        whole = IP(frame[14:])
        whole.id = number + 1
        frames += [frame[:14] + bytes(piece) for piece in fragment(whole, 1200)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as order:
        order.connect(f"/proc/{ends.state.keeper.pids['dut']}/root{ORDERS}")
        for frame in frames:
            ends.n3.send(frame)
    assert ends.at_server(200) == packets


def test_frames_of_nine_thousand_bytes_are_carried(tmp_path: Path) -> None:
    with Ends(tmp_path, mtu=9000) as ends:
        ends.associate()
        establish(ends, qers=[qer(qfi=9)])
        for size in (1500, 3500, 5000, 8956):
            ends.up(user4(size), container=9)
            ends.down(user4(size, down=True))
            assert ends.at_server(1) == [user4(size)]
            assert [user_packet(each) for each in ends.at_gnb(1)] == [user4(size, down=True)]
        ends.down(user4(8957, down=True))
        assert ends.at_gnb() == []
        assert ends.counts("downlink")["dropped"]["too_big"] == 1


def test_the_kernel_answers_a_ping_to_n3(ends: Ends) -> None:
    """What is not GTP-U is passed on to the UPF's host; its eth1 has an address for this test."""
    address = ends.gnb.ipv4
    assert lab.run_in(ends.name, "tx1", ["ip", "address", "add", f"{address}/24", "dev", "eth1"], ends.folder) == 0
    try:
        assert lab.run_in(ends.name, "tx1", ["ping", "-c1", "-W2", ends.upf.n3_ipv4], ends.folder) == 0
    finally:
        lab.run_in(ends.name, "tx1", ["ip", "address", "del", f"{address}/24", "dev", "eth1"], ends.folder)
