"""The engines that `auto` finds on real drivers, over emulated cards: nothing is lost, and every figure is exact.

The figures are those that tests/lab has for a veth pair; the cards have rings, offloads, interrupts and no native XDP.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forked
from cards import Cards
from pktswarm.nodes import libbpf, live_frames, qdisc
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.schedule import sequence
from wire import A, B, ethtool, ip
from xdp_ends import Node, send, start
from xdp_frames import a_leg
from xdp_sender_ends import a_recording, a_trace_leg, send_and_listen

MODELS = ("virtio-net-pci", "e1000e", "e1000")
"""Of the others, QEMU loses frames that the card has received (rtl8139), or delivers none to an address that was set
later (vmxnet3)."""
WITH_SEVERAL_QUEUES = "vmxnet3"
DRIVERS = {"virtio-net-pci": "virtio_net"}
"""Where the driver has another name than the card."""
FRAMES_ARE_KEPT = libbpf.kernel() >= live_frames.KEPT_KERNEL
USERS, LEAST_BYTES = 1000, 60
ETHERNET = {"ethernet": {"src": A, "dst": B}}
TUNNEL: list[dict[str, Any]] = [
    ETHERNET,
    {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
    {"udp": {"src": 2152, "dst": 2152}},
    {"gtpu": {"teid": {"increment": [1, USERS]}}},
    {"ipv4": {"src": {"with": "gtpu.teid", "increment": ["10.45.0.1", "10.45.3.232"]}, "dst": "10.60.0.1"}},
    {"udp": {"src": 5000, "dst": 6000}},
]
SOURCE: list[dict[str, Any]] = [
    ETHERNET,
    {"ipv4": {"src": "10.0.0.3", "dst": "10.0.0.4"}},
    {"udp": {"src": {"increment": [7000, 7006]}, "dst": 9}},
]
PROBE = """
import json
from pktswarm.nodes.engines import on_request, unfit
from pktswarm.nodes.interface import Interface
found = unfit(Interface("tx0"))
print(json.dumps([found, on_request(Interface("tx0"), found)]))
"""


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest) -> Iterator[Cards]:
    made = Cards(request.param)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def cards(pair: Cards) -> Cards:
    pair.begin()
    return pair


def stream(number: int, headers: list[dict[str, Any]], size_bytes: int, **more: Any) -> Leg:
    frame: FrameDescription = {"headers": headers, "payload": {}}
    match = Match.from_template(build_frame(frame, size_bytes)).to_data()
    return Leg(number, f"s{number}", "a", "b", "stream", "tc", frame=frame, size_bytes=size_bytes, match=match, **more)


def a_source(spool: Path, number: int) -> Leg:
    """600 frames of any size, of seven users, at any time."""
    sizes = [64 + 37 * step % 1400 for step in range(600)]
    records = sequence.make([500_000 * step for step in range(600)], [step * step % 7 for step in range(600)], sizes)
    (spool / f"leg-{number}.sequence").write_bytes(sequence.pack(records))
    mixed = {"sizes": sequence.sizes_bytes(records), "sequence_file": f"leg-{number}.sequence", "user_field": "udp.src"}
    return stream(number, SOURCE, max(sizes), count_packets=600, intended_packets=600, **mixed)


def test_the_probe_finds_the_engine_for_any_driver(cards: Cards) -> None:
    assert cards.driver() == DRIVERS.get(cards.model, cards.model)
    command = ["ip", "netns", "exec", cards.sender, sys.executable, "-c", PROBE]
    done = forked.run(command, check=True)
    unfit, on_request = json.loads(done.stdout)
    assert "xdp" in unfit and "tc" not in unfit, unfit
    assert on_request == (["xdp"] if cards.model == "virtio-net-pci" and FRAMES_ARE_KEPT else [])


def test_users_a_trace_and_a_source_arrive_to_the_packet(cards: Cards, tmp_path: Path) -> None:
    by_teid = FlowUsers("gtpu.teid", "teid", 1, 1, USERS)
    # A card pads shorter ones.
    whole = [packet for packet in a_recording(320) if len(packet.data) >= LEAST_BYTES][:300]
    recording = a_trace_leg(tmp_path, whole, number=2, match=Match.rest(A, B).to_data())
    legs = [
        stream(0, TUNNEL, 180, count_packets=3000, rate_pps=5000.0, users=by_teid),
        a_source(tmp_path, 1),
        replace(recording, engine="tc"),
    ]
    with Node(cards, None, legs) as node:
        counts = send(cards, tmp_path, legs, engine="tc")
        tallies, unmatched, received = node.stop()
    assert node.attached.startswith("native" if cards.model == "virtio-net-pci" else "generic"), node.attached
    assert [(one["sent_packets"], one["failed_packets"]) for one in counts] == [(3000, 0), (600, 0), (300, 0)]
    assert [one["received_packets"] for one in received] == [3000, 600, 300]
    assert [one["received_bytes"] for one in received] == [one["sent_bytes"] for one in counts]
    assert not sum(unmatched.values()), unmatched
    for number in ("0", "1"):
        counted = {name: tallies[number][name] for name in ("distinct", "duplicated", "reordered", "altered")}
        assert counted == {
            "distinct": counts[int(number)]["sent_packets"],
            "duplicated": 0,
            "reordered": 0,
            "altered": 0,
        }
    assert users.unpack(received[0]["users"]["distinct"])[:USERS] == counts[0]["users"] == [3] * USERS


@pytest.mark.skipif(not FRAMES_ARE_KEPT, reason="Linux before 6.4 damages live frames for virtio_net")
@pytest.mark.parametrize("pair", ["virtio-net-pci"], indirect=True)
def test_live_frames_leave_where_a_program_is_attached_for_them(cards: Cards, tmp_path: Path) -> None:
    """virtio_net takes them only so; the program passes on what arrives, and is gone behind the run."""
    by_teid = FlowUsers("gtpu.teid", "teid", 1, 1, USERS)
    legs = [
        stream(0, TUNNEL, 180, count_packets=3000, rate_pps=5000.0, users=by_teid),
        stream(1, SOURCE, 1400, count_packets=500, rate_pps=1000.0),
    ]
    meanwhile = ["sh", "-c", f"ip link show dev tx0 > {tmp_path}/meanwhile"]
    with Node(cards, None, legs) as node:
        counts = send(cards, tmp_path, legs, engine="xdp", before_start=meanwhile)
        assert cards.settled(3503)
        tallies, unmatched, _ = node.stop()
    assert "prog/xdp" in (tmp_path / "meanwhile").read_text()
    assert "xdp" not in ip("-n", cards.sender, "link", "show", "dev", "tx0")
    assert [one["sent_packets"] for one in counts] == [tallies[leg]["distinct"] for leg in ("0", "1")] == [3000, 500]
    assert [tallies[leg]["altered"] for leg in ("0", "1")] == [0, 0]
    assert {cause: count for cause, count in unmatched.items() if count} == {"other": live_frames.TRIES}


@pytest.mark.parametrize("pair", ["e1000e" if FRAMES_ARE_KEPT else "virtio-net-pci"], indirect=True)
def test_a_driver_without_live_frames_is_refused_before_anything_is_sent(cards: Cards, tmp_path: Path) -> None:
    """On older kernels, which do not report it, only the trial of the probe finds that e1000e has none."""
    process = start(cards, tmp_path, [stream(0, TUNNEL, 180, count_packets=1)], engine="xdp")
    text, _ = process.communicate(timeout=60)
    reason = "has no native XDP" if FRAMES_ARE_KEPT else "damages live frames"
    assert process.returncode == 9 and reason in text, text
    assert cards.counter("tx") == 0


@pytest.mark.parametrize("shape", ["vlan", "qinq"])
def test_a_tag_that_the_card_would_take_out_is_counted(cards: Cards, tmp_path: Path, shape: str) -> None:
    legs = [replace(a_leg(shape, number=0, count_packets=500, rate_pps=2000.0), engine="tc")]
    if cards.model == "virtio-net-pci" and shape == "vlan":
        pytest.skip("its filter of VLANs takes no tag that is not registered")
    with Node(cards, None, legs) as node:
        send(cards, tmp_path, legs, engine="tc")
        tallies, unmatched, _ = node.stop()
    assert (tallies["0"]["distinct"], tallies["0"]["altered"]) == (500, 0) and not sum(unmatched.values())


@contextmanager
def large_ring(cards: Cards) -> Iterator[None]:
    """The receiver's ring as large as it goes, as `pktswarm provision` sets it: where it is full QEMU's e1000e drops
    frames, and counts none of them."""
    largest, usual = map(int, re.findall(r"^RX:\s+(\d+)", ethtool(cards.receiver, "-g", "rx0"), re.M))
    if largest == usual:
        yield
        return
    try:
        ethtool(cards.receiver, "-G", "rx0", "rx", str(largest))
        cards.begin()
        yield
    finally:
        ethtool(cards.receiver, "-G", "rx0", "rx", str(usual))


def test_of_a_full_ring_what_was_sent_is_what_arrives(cards: Cards, tmp_path: Path) -> None:
    """More than the sender's ring holds, as fast as it goes; frames that it does not take are sent again."""
    legs = [stream(0, TUNNEL, 180, count_packets=20_000)]
    with large_ring(cards), Node(cards, None, legs) as node:
        [count] = send(cards, tmp_path, legs, engine="tc")
        settled, counters = cards.settled(20_000), (cards.counter("tx"), cards.counter("rx"))
        tallies, _, _ = node.stop()
    assert settled, (counters, count, tallies["0"])
    assert count["sent_packets"] == tallies["0"]["distinct"] == counters[0] == 20_000


def test_frames_of_nine_thousand_bytes(cards: Cards, tmp_path: Path) -> None:
    ends = ((cards.sender, "tx0"), (cards.receiver, "rx0"))
    try:
        for name, interface in ends:
            ip("-n", name, "link", "set", interface, "mtu", "9000")
        cards.begin()
        leg = replace(a_leg("udp4", number=0, size_bytes=9018, count_packets=200, rate_pps=500.0), engine="tc")
        [count], arrived = send_and_listen(cards, tmp_path, [leg], engine="tc")
        assert count["sent_packets"] == len(arrived) == 200 and {len(frame) for frame in arrived} == {9014}
    finally:
        for name, interface in ends:
            ip("-n", name, "link", "set", interface, "mtu", "1500")


def test_an_interface_that_is_down_is_refused(cards: Cards, tmp_path: Path) -> None:
    ip("-n", cards.sender, "link", "set", "tx0", "down")
    try:
        with pytest.raises(AssertionError, match="tx0 is down"):
            send(cards, tmp_path, [stream(0, TUNNEL, 180, count_packets=1)], engine="tc")
    finally:
        ip("-n", cards.sender, "link", "set", "tx0", "up")


@pytest.mark.parametrize("pair", [*MODELS, WITH_SEVERAL_QUEUES], indirect=True)
def test_the_default_queue_is_back_after_a_run(cards: Cards, tmp_path: Path) -> None:
    """fq_codel, which Debian's kernel gives a card, would drop frames that it has taken."""
    before = disciplines(cards)
    meanwhile = ["sh", "-c", f"tc qdisc show dev tx0 > {tmp_path}/meanwhile"]
    send(cards, tmp_path, [stream(0, TUNNEL, 180, count_packets=1)], engine="tc", before_start=meanwhile)
    assert "pfifo" in (tmp_path / "meanwhile").read_text() and "fq_codel" not in (tmp_path / "meanwhile").read_text()
    assert disciplines(cards) == before and "fq_codel" in str(before)


def test_a_queue_that_somebody_sets_meanwhile_stays(cards: Cards, tmp_path: Path) -> None:
    other = "tc qdisc replace dev tx0 root handle 1: tbf rate 100mbit burst 20000 limit 100000"
    send(cards, tmp_path, [stream(0, TUNNEL, 180, count_packets=1)], engine="tc", before_start=other.split())
    try:
        assert str(disciplines(cards)[0]) == "tbf 1:"
    finally:
        ip("netns", "exec", cards.sender, "tc", "qdisc", "del", "dev", "tx0", "root")


def disciplines(cards: Cards) -> list[qdisc.Qdisc]:
    return qdisc.parse(ip("netns", "exec", cards.sender, "tc", "-j", "qdisc", "show", "dev", "tx0"))


def test_offloads_are_as_they_were(cards: Cards, tmp_path: Path) -> None:
    before = ethtool(cards.receiver, "-k", "rx0")
    with Node(cards, None, [a_leg("vlan", number=0, count_packets=1)]) as node:
        node.stop()
    assert ethtool(cards.receiver, "-k", "rx0") == before
