"""pktgen for real: counts to the packet, frames as asked for, its legs and threads, its limits."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from pktswarm.lab.vm import pair_macs
from pktswarm.nodes.senders import pktgen_proc
from pktswarm.traffic.errors import BadInput, EngineError
from wires import Wire, headers, inside, leg

SIZES = [64, 512, 1500]
UNPACED_PACKETS = 900
"""What waits for a receiver that has no processor (net.core.netdev_max_backlog: 1000): of more, some may be refused."""


@pytest.mark.parametrize("size_bytes", SIZES)
def test_as_many_arrive_as_were_asked_for(wire: Wire, tmp_path: Path, size_bytes: int) -> None:
    before = wire.settled()
    (count,) = wire.send(tmp_path, leg(size_bytes=size_bytes, count_packets=UNPACED_PACKETS))
    assert count.sent_packets == UNPACED_PACKETS
    assert count.sent_bytes == UNPACED_PACKETS * (size_bytes - 4)
    assert count.failed_packets == 0
    assert wire.arrived(before, UNPACED_PACKETS) == UNPACED_PACKETS
    assert wire.devices() == []


def test_legs_and_threads_are_counted_apart_and_in_full(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    counts = wire.send(
        tmp_path,
        leg(1, count_packets=1001, options={"threads": 2}),
        leg(2, count_packets=300, size_bytes=1500),
        leg(3, count_packets=7, rate_pps=100.0),
    )
    assert [(count.leg, count.sent_packets) for count in counts] == [(1, 1001), (2, 300), (3, 7)]
    assert wire.arrived(before, 1308) == 1308


@pytest.mark.parametrize("count_packets", [None, 1001])
def test_a_rate_for_a_time_is_a_count_at_that_pace(wire: Wire, tmp_path: Path, count_packets: int | None) -> None:
    """A run says the count besides, and the clock's end is then the same moment: it must not get in the way."""
    one = leg(count_packets=count_packets, rate_pps=500.5, duration_s=2.0, options={"threads": 2})
    before = wire.settled()
    (count,) = wire.send(tmp_path, one)
    assert count.sent_packets == 1001 == wire.arrived(before, 1001)
    assert count.seconds is not None and count.seconds > 1.9


def test_a_clock_that_runs_out_after_the_count_leaves_the_result(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    counts = wire.send(tmp_path, leg(1, count_packets=100, duration_s=0.5), leg(2, count_packets=None, duration_s=1.5))
    sent = sum(count.sent_packets for count in counts)
    assert counts[0].sent_packets == 100 and wire.arrived(before, sent) == sent


def test_as_fast_as_it_can_for_a_time(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    (short, long) = wire.send(
        tmp_path, leg(1, count_packets=None, duration_s=0.5), leg(2, count_packets=None, duration_s=1.5)
    )
    assert short.seconds is not None and long.seconds is not None
    assert 0.5 <= short.seconds < long.seconds and long.seconds >= 1.5
    assert short.sent_packets > 100
    sent = short.sent_packets + long.sent_packets
    assert wire.arrived(before, sent) == sent


def test_it_starts_at_its_instant_or_shortly_after(wire: Wire, tmp_path: Path) -> None:
    """Its threads look for work every 100 ms; the emulated processor adds some, and now and then stands still."""
    late_ns = [how_late(wire, tmp_path / str(turn)) for turn in range(3)]
    assert min(late_ns) < 400_000_000 and all(late >= 0 for late in late_ns)


def how_late(wire: Wire, folder: Path) -> int:
    """ns from the instant to pktgen's first frame."""
    folder.mkdir()
    with inside(wire.tx):
        sender = wire.sender(folder, leg(count_packets=10))
        try:
            sender.prepare()
            at_ns = time.monotonic_ns() + 1_000_000_000
            sender.start(at_ns)
            time.sleep(0.2)
            sampled = sender.sample()
            assert sampled == {0: {"sent_packets": 0}} or time.monotonic_ns() > at_ns
            while not sender.done():
                time.sleep(0.02)
            (count,) = sender.counts()
        finally:
            sender.stop()
            sender.restore()
    assert count.started_ns is not None
    return count.started_ns - at_ns


def test_imix_is_counted_by_size(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    weights = [[64, 7], [572, 4], [1500, 1]]
    (count,) = wire.send(tmp_path, leg(count_packets=UNPACED_PACKETS, options={"imix_weights": weights}))
    assert count.sent_packets == UNPACED_PACKETS == wire.arrived(before, UNPACED_PACKETS)
    assert count.sent_bytes is not None and UNPACED_PACKETS * 60 < count.sent_bytes < UNPACED_PACKETS * 1496


def test_flows_are_taken(wire: Wire, tmp_path: Path) -> None:
    destinations = {"ipv4": {"src": "10.9.0.1", "dst": {"increment": ["10.9.1.0", "10.9.1.9"]}}}
    options = {"flows": 10, "flowlen": 5, "flags": ["FLOW_SEQ"]}
    (count,) = wire.send(tmp_path, leg(frame={"headers": headers(ip_header=destinations)}, options=options))
    assert count.sent_packets == 1000


def test_clones_are_refused_on_veth_before_anything_is_sent(wire: Wire, tmp_path: Path) -> None:
    before = wire.settled()
    for option, value in (("clone_skb", 100), ("burst", 4)):
        with pytest.raises(BadInput, match=rf"t0: options.{option} = {value}: this interface's driver"):
            wire.send(tmp_path, leg(options={option: value}))
    assert wire.settled() == before
    assert wire.devices() == []


def test_an_interface_that_is_not_there(wire: Wire, tmp_path: Path) -> None:
    missing = Wire(wire.tx, wire.rx, "nothere0", wire.rx_interface)
    with pytest.raises(EngineError, match="refused 'add_device nothere0@0': No such device"):
        missing.send(tmp_path, leg())


def test_someone_elses_devices_are_left_alone(wire: Wire, tmp_path: Path) -> None:
    with inside(wire.tx):
        pktgen_proc.command("kpktgend_0", "add_device t0@other")
        try:
            with pytest.raises(EngineError, match=r"someone else uses pktgen.*t0@other on kpktgend_0"):
                wire.send(tmp_path, leg())
            assert wire.devices() == ["t0@other"]
        finally:
            pktgen_proc.command("kpktgend_0", "rem_device_all")


def test_a_refused_command_is_told_with_its_answer(wire: Wire) -> None:
    with inside(wire.tx):
        pktgen_proc.command("kpktgend_0", "add_device t0@0")
        try:
            with pytest.raises(EngineError, match=r"answered 'OK: pkt_size=42' to 'pkt_size 20'"):
                pktgen_proc.command("t0@0", "pkt_size 20")
            with pytest.raises(EngineError, match="refused 'no_such 1': Invalid argument"):
                pktgen_proc.command("t0@0", "no_such 1")
            with pytest.raises(EngineError, match="answered 'ERROR: vlan_p must be 0-7'"):
                pktgen_proc.command("t0@0", "vlan_p 9")
            with pytest.raises(EngineError, match="took only"):
                pktgen_proc.command("t0@0", "ratep 0")
        finally:
            pktgen_proc.command("kpktgend_0", "rem_device_all")


def test_the_module_is_unloaded_by_whoever_loaded_it_once_nobody_uses_it(wire: Wire, tmp_path: Path) -> None:
    subprocess.run(["modprobe", "--remove", "pktgen"], check=True, timeout=60)
    loaded = Path("/sys/module/pktgen")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    try:
        with inside(wire.tx):
            first, second = wire.sender(tmp_path / "a", leg()), wire.sender(tmp_path / "b", leg())
            first.prepare()
            second.module.load()
            first.restore()
            assert loaded.exists(), "another sender still uses it"
            second.restore()
            assert not loaded.exists()
            assert not Path("/run/pktswarm-pktgen.lock").exists()
    finally:
        subprocess.run(["modprobe", "pktgen"], check=True, timeout=60)
    with inside(wire.tx):
        third = wire.sender(tmp_path, leg())
        third.prepare()
        third.restore()
    assert loaded.exists(), "it was there before us"


def test_the_references_own_configuration(virtio: Wire, tmp_path: Path) -> None:
    """Listing A.3 of the reference: pkt_size 64 (without FCS), count 100000, clone_skb 100000, ratep 50000."""
    before = virtio.settled()
    address = {"ipv4": {"src": "192.168.0.2", "dst": "192.168.0.1"}}
    listing = leg(
        frame={"headers": [{"ethernet": {"dst": pair_macs("virtio-net-pci")[1]}}, address, {"udp": {}}]},
        size_bytes=68,
        count_packets=100_000,
        rate_pps=50_000.0,
        options={"clone_skb": 100_000},
    )
    (count,) = virtio.send(tmp_path, listing, within_s=300.0)
    assert count.sent_packets == 100_000
    assert count.sent_bytes == 6_400_000
    assert virtio.arrived(before, 100_000) == 100_000


def test_bursts_over_virtio(virtio: Wire, tmp_path: Path) -> None:
    before = virtio.settled()
    stack = headers()
    stack[0]["ethernet"]["dst"] = pair_macs("virtio-net-pci")[1]
    copies = {"burst": 10, "clone_skb": 10}
    (count,) = virtio.send(tmp_path, leg(frame={"headers": stack}, count_packets=2000, options=copies))
    # A full queue cuts a burst short, and then the last one may go over the count.
    assert 2000 <= count.sent_packets < 2010
    assert virtio.arrived(before, count.sent_packets) == count.sent_packets
