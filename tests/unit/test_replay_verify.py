"""Captured against intended: every way in which a packet of a trace can go wrong is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from pktswarm.traffic.capture.trace import Packet
from pktswarm.traffic.counting.trace_verify import Intended, Verified, intended, verified, verify
from pktswarm.traffic.counting.trace_verify import arrivals as captures
from pktswarm.traffic.leg import Leg, Shift, Timing
from pktswarm.traffic.replay import files
from pktswarm.traffic.replay.prepare import Instances, Settings
from pktswarm.traffic.replay.table import pool
from recordings import made, prepared, udp

DELAY_NS = 77_000
FRAMES = [udp("1.1.1.1", 9 + n % 2, "2.2.2.2", 53, bytes([n])) for n in range(10)]


def legs(folder: Path, instances: int = 1, repeat: int = 1) -> list[Leg]:
    settings = Settings(users=pool("10.60.0.1"), instances=Instances(instances))
    found = prepared(folder, FRAMES, settings)
    frames = made(found)
    (folder / "leg-0.pcap").write_bytes(files.pcap_bytes(frames))
    (folder / "leg-0.rows.npy").write_bytes(files.row_bytes(frames))
    shifts = [Shift(user=number) for number in range(instances)]
    timing = Timing(mode="original", value=1.0, lead_ns=0, period_ns=found.due.period_ns)
    return [
        Leg(
            number, "t", "a", "b", "trace", trace_file="leg-0.pcap", count_packets=10 * repeat, repeat=repeat,
            shift=shift, timing=timing,
        )
        for number, shift in enumerate(shifts)
    ]  # fmt: skip


def arrivals(folder: Path, wanted: Intended, group: list[Leg]) -> list[Packet]:
    """All of it, as intended, later by the path's delay."""
    contents: dict[int, bytes] = {}
    for leg in group:
        for packet in files.packets(*files.frames_to_send(leg, folder)):
            contents.setdefault(len(contents), packet.data)
    rows = zip(wanted.due_ns.tolist(), wanted.content.tolist(), strict=True)
    return [Packet(10**18 + due + DELAY_NS, contents[number]) for due, number in rows]


def case(folder: Path, instances: int = 1, repeat: int = 1) -> tuple[Intended, list[Packet]]:
    group = legs(folder, instances, repeat)
    wanted = intended(group, folder)
    return wanted, arrivals(folder, wanted, group)


def told(result: Verified) -> tuple[int, int, int, int, int]:
    assert result.captured == result.as_intended + result.altered + result.duplicated
    assert result.intended == result.as_intended + result.lost
    return result.as_intended, result.altered, result.lost, result.duplicated, result.reordered


@pytest.mark.parametrize(("instances", "repeat"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_all_as_intended(tmp_path: Path, instances: int, repeat: int) -> None:
    wanted, packets = case(tmp_path, instances, repeat)
    result = verify(wanted, packets)
    assert told(result) == (10 * instances * repeat, 0, 0, 0, 0)
    assert result.holds and (result.error_p50_ns, result.error_max_ns) == (0, 0)
    assert result.describe().startswith(
        f"{10 * instances * repeat} of {10 * instances * repeat} packets arrived as intended;"
    )


def test_a_bit_a_loss_and_a_copy(tmp_path: Path) -> None:
    wanted, packets = case(tmp_path)
    flipped = bytearray(packets[3].data)
    flipped[-1] ^= 1
    packets[3] = packets[3]._replace(data=bytes(flipped))
    result = verify(wanted, [*packets[:6], packets[5], *packets[7:]])
    assert told(result) == (8, 1, 2, 1, 0)
    assert not result.holds and "1 altered, 2 lost, 1 duplicated" in result.describe()


def test_order_is_of_a_flow(tmp_path: Path) -> None:
    wanted, packets = case(tmp_path)
    swapped = [packets[1], packets[0], *packets[2:]]
    assert told(verify(wanted, swapped)) == (10, 0, 0, 0, 0), "two flows"
    swapped = [packets[2], packets[1], packets[0], *packets[3:]]
    assert told(verify(wanted, swapped)) == (10, 0, 0, 0, 1)


def test_how_far_off_their_times(tmp_path: Path) -> None:
    wanted, packets = case(tmp_path)
    packets[4] = packets[4]._replace(time_ns=packets[4].time_ns + 300_000)
    result = verify(wanted, packets)
    assert (result.error_p50_ns, result.error_p99_ns, result.error_max_ns) == (0, 300_000, 300_000)
    assert verify(wanted, packets, timed=False).error_max_ns is None


def test_a_loss_in_one_pass_does_not_shift_the_others(tmp_path: Path) -> None:
    wanted, packets = case(tmp_path, repeat=3)
    result = verify(wanted, packets[:12] + packets[13:])
    assert told(result) == (29, 0, 1, 0, 0) and result.error_max_ns == 0


def test_nothing_captured(tmp_path: Path) -> None:
    wanted, _ = case(tmp_path)
    assert told(verify(wanted, [])) == (0, 0, 10, 0, 0)
    assert verify(wanted, []).error_p50_ns is None


def test_frames_that_a_card_padded(tmp_path: Path) -> None:
    wanted, packets = case(tmp_path)
    padded = [packet._replace(data=packet.data.ljust(60, b"\0")) for packet in packets]
    assert told(verify(wanted, padded)) == (10, 0, 0, 0, 0)


@pytest.mark.parametrize(("by_passes", "seem_reordered"), [(-1, 4), (1, 0)])
def test_equal_frames_are_told_apart_without_a_clock_that_was_set(
    tmp_path: Path, by_passes: int, seem_reordered: int
) -> None:
    wanted, packets = case(tmp_path, repeat=3)
    set_ns = by_passes * int(wanted.due_ns[10] - wanted.due_ns[0])
    # UTC is set, by a whole pass, in the middle of the second one, of which then a frame is lost.
    captured = packets[:14] + [packet._replace(time_ns=packet.time_ns + set_ns) for packet in packets[15:]]
    assert told(verify(wanted, captured)) == (29, 0, 1, 0, seem_reordered)
    assert told(verified(wanted, captures(wanted, captured, clocked=False), timed=False)) == (29, 0, 1, 0, 0)
