"""Schedules: the structures against the compiled object's, pacing, rules, and checksums as linear sums."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.nodes import libbpf
from pktswarm.nodes.senders import ways_out, xdp, xdp_shares
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.frames.template import Checksum, mending_order, put_bits
from pktswarm.traffic.leg import FlowUsers, Leg, RandomStart, Shift, Timing
from pktswarm.traffic.replay.files import mapped_frames
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import leg_frames, pace, xdp_limits
from pktswarm.traffic.schedule import records as schedule_records
from pktswarm.traffic.schedule import trace as schedule_trace
from pktswarm.traffic.schedule.assemble import Schedule, assemble, compile_schedule, tournament
from pktswarm.traffic.schedule.checksum_weights import weights

OBJECT = libbpf.OBJECTS / "send.o"
ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP = {"udp": {"src": 1, "dst": 2}}


def a_leg(*headers: dict[str, Any], **more: Any) -> Leg:
    frame: FrameDescription = {"headers": [ETHERNET, *(headers or (IPV4, UDP))], "payload": more.pop("payload", {})}
    return Leg(7, "s", "a", "b", "stream", frame=frame, **{"size_bytes": 100, **more})


@pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing() or "libbpf is there")
@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("send_settings", schedule_records.SettingsRecord),
        ("leg", schedule_records.LegRecord),
        ("step", schedule_records.StepRecord),
        ("rule", schedule_records.RuleRecord),
        ("noise", schedule_records.NoiseRecord),
        ("sum", schedule_records.SumRecord),
        ("slot", schedule_records.SlotRecord),
        ("record", schedule_records.TraceRecord),
        ("places", schedule_records.PlacesRecord),
        ("edit", schedule_records.EditRecord),
        ("part", schedule_records.PartRecord),
        ("pending", schedule_records.PendingRecord),
        ("state", schedule_records.StateRecord),
    ],
)
def test_the_two_tables_are_one(name: str, record: type[ctypes.Structure]) -> None:
    ours = {}
    for field, *_ in record._fields_:
        place = getattr(record, field)
        ours[field] = (place.offset, place.size)
    assert libbpf.struct_layout(OBJECT, name) == ours


@pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing() or "libbpf is there")
@pytest.mark.parametrize("name", ["send_tc.o", "send_tc_plain.o"])
def test_the_tables_of_the_other_way_out_differ_in_the_slot_alone(name: str) -> None:
    records = {"leg": schedule_records.LegRecord, "state": schedule_records.StateRecord}
    for struct_name, record in (records | {"slot": schedule_records.LargeSlotRecord}).items():
        ours = {field: (getattr(record, field).offset, getattr(record, field).size) for field, *_ in record._fields_}
        assert libbpf.struct_layout(libbpf.OBJECTS / name, struct_name) == ours


@pytest.mark.parametrize(
    ("array", "record"),
    [
        (schedule_trace.RECORD, schedule_records.TraceRecord),
        (schedule_trace.PLACES, schedule_records.PlacesRecord),
    ],
)
def test_arrays_are_laid_out_as_the_table_says(array: np.dtype[np.void], record: type[ctypes.Structure]) -> None:
    assert array.itemsize == ctypes.sizeof(record)
    for name, (kind, place, *_) in (array.fields or {}).items():
        assert (place, kind.itemsize) == (getattr(record, name).offset, getattr(record, name).size)


def test_a_clock_that_an_old_kernel_does_not_have() -> None:
    assert xdp.without_clock("monotonic", (5, 18)) == xdp.without_clock("ptp", (6, 1)) == ""
    why = "clock: ptp needs Linux 6.1, where BPF programs read TAI; this is 5.19"
    assert xdp.without_clock("ptp", (5, 19)) == why


def test_legs_are_shared_out_by_their_rates() -> None:
    rates = [100.0, None, 400.0, 300.0, 10.0, None]
    legs = [replace(a_leg(rate_pps=rate), id=number) for number, rate in enumerate(rates)]
    shares = xdp_shares.share(legs, 3)
    assert [[leg.id for leg in one] for one in shares] == [[1], [5], [2, 3, 0, 4]]
    assert [[leg.id for leg in one] for one in xdp_shares.share(legs[2:4], 5)] == [[2], [3]]
    assert xdp_shares.cores([a_leg(), a_leg(options={"cores": 3})]) == 3 and xdp_shares.cores([a_leg()]) == 1


@pytest.mark.parametrize("rate", [0.001, 1.0, 3.0, 1e6, 14_880_952.38])
def test_a_gap_adds_up_to_the_rate(rate: float) -> None:
    """The error of ten days' frames, in their due times."""
    frames = rate * 864_000
    seconds = pace.gap(rate) * frames / 2**24 / 1e9
    assert abs(seconds - 864_000) / 864_000 < 1e-9
    assert pace.gap(rate) < 2**64


def test_no_rate_is_no_gap_and_a_burst_has_one_for_all_its_frames() -> None:
    assert pace.gap(None) == 0
    assert pace.gap(1000.0, 10) == 10 * pace.gap(1000.0)


def test_when_a_leg_ends() -> None:
    timed = schedule.compile_leg(a_leg(duration_s=2.0), 1)
    paced = schedule.compile_leg(a_leg(duration_s=2.0, rate_pps=1000.0), 1)
    counted = schedule.compile_leg(a_leg(count_packets=5), 1)
    assert (timed.record.remaining, timed.stop_ns(10)) == (schedule_records.NEVER, 2_000_000_010)
    assert (paced.record.remaining, paced.stop_ns(10)) == (2000, 2_000_000_010)
    assert (timed.give_up_ns(10), paced.give_up_ns(10)) == (2_000_000_010, 3_000_000_010)
    assert (counted.record.remaining, counted.stop_ns(10)) == (5, schedule_records.NEVER)


def test_a_stamp_stands_in_the_first_payload_bytes() -> None:
    compiled = schedule.compile_leg(a_leg(), 1)
    assert compiled.record.stamp == 42
    assert bytes(compiled.slots[0].bytes)[42:64].hex() == "5043" + "0007" + "00" * 6 + "afb5" + "00" * 10
    assert build_frame(a_leg().frame, 100).data[:34] == bytes(compiled.slots[0].bytes)[:34]


@pytest.mark.parametrize(
    ("leg", "held"),
    [
        (a_leg(size_bytes=67), 18),
        (a_leg(size_bytes=68), 22),
        (a_leg(size_bytes=1518, sizes=[[64, 7], [1518, 1]]), 18),
        (a_leg(size_bytes=1518, sizes=[[68, 7], [1518, 1]]), 22),
        (a_leg(IPV4, {"udp": {"src": 1, "dst": 2, "length": 40}}), 18),
    ],
)
def test_a_stamp_has_a_checksum_where_it_fits_in_each_size(leg: Leg, held: int) -> None:
    """And where the receiver finds the payload's end: not where a length is wrong on purpose."""
    assert leg_frames.stamped(leg) and leg_frames.stamp_bytes(leg) == held
    compiled = schedule.compile_leg(leg, 1)
    for slot in compiled.slots:
        payload = bytes(slot.bytes)[42 : slot.frame_bytes]
        found = stamp.read_stamp(payload)
        assert found is not None
        assert found.checksum == (None if held == 18 else stamp.payload_sum(payload[22:]))


@pytest.mark.parametrize(
    "leg",
    [
        a_leg(IPV6, UDP, size_bytes=64 + 19),
        a_leg(payload={"hex": "00"}),
        a_leg({"arp": {"sender_mac": "02:00:00:00:00:0a", "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}),
        a_leg(options={"stamp": False}),
    ],
)
def test_frames_that_carry_no_stamp(leg: Leg) -> None:
    assert xdp_limits.unable(leg) == ""
    assert not leg_frames.stamped(leg) and schedule.compile_leg(leg, 1).record.stamp == 0


@pytest.mark.parametrize(
    ("leg", "why"),
    [
        (
            a_leg(options={"clone_skb": 1}),
            "unknown option 'clone_skb' for a stream (allowed: burst, late, stamp, cores, wait, batch)",
        ),
        (
            Leg(0, "t", "a", "b", "trace", options={"burst": 2}),
            "unknown option 'burst' for a trace (allowed: late, stamp, cores, wait, batch)",
        ),
        (
            a_leg(options={"imix_weights": [[64, 1]]}),
            "unknown option 'imix_weights' for a stream (allowed: burst, late, stamp, cores, wait, batch)",
        ),
        (a_leg(sizes=[[size, 1] for size in range(64, 320)]), "256 frame sizes: the maximum is 255"),
        (a_leg(sizes=[[64, 10**12], [128, 1]]), "the sum of the size weights is 1000000000001: the maximum is 65536"),
        (a_leg(size_bytes=3373), "frames of 3373 bytes: the maximum is 3372 bytes"),
        (a_leg(options={"burst": 0}), "option burst = 0: must be a whole number from 1 to 65536"),
        (a_leg(options={"batch": 2}), "option batch = 2: must be one of 1, 4, 8, 16, 32, 64, 128, 256"),
        (a_leg(options={"cores": 0}), "option cores = 0: must be a whole number from 1 to 64"),
        (a_leg(options={"cores": "2"}), "option cores = '2': must be a whole number from 1 to 64"),
        (a_leg(options={"late": "drop"}), "option late = 'drop': must be stretch, catch_up or skip"),
        (a_leg(options={"wait": "poll"}), "option wait = 'poll': must be asleep or awake"),
        (
            a_leg(IPV6, UDP, size_bytes=83, options={"stamp": True}),
            "a stamp needs 18 bytes of free payload, in a frame of at least 84 bytes",
        ),
        (
            a_leg({"ipv6": {"src": {"increment": ["fd00::", "fd01::"]}, "dst": "fd00::2"}}, UDP),
            "ipv6.src varies above its last 64 bits",
        ),
    ],
)
def test_what_it_cannot_send(leg: Leg, why: str) -> None:
    assert xdp_limits.unable(leg) == why


SOURCES = {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2}, "dst": "10.0.0.2"}}
USERS = FlowUsers("ipv4.src", "src_ip", 0x0A000001, 2, 5)


def test_users_have_a_place_each_behind_those_of_other_legs() -> None:
    legs = [a_leg(SOURCES, UDP, users=USERS), a_leg(SOURCES, UDP), a_leg(SOURCES, UDP, users=replace(USERS, count=7))]
    whole = assemble([schedule.compile_leg(leg, 1) for leg in legs])
    assert [leg.users for leg in whole.legs] == [[0, 1, 2, 3, 4], [], [0, 1, 2, 3, 4]]
    assert [leg.record.users for leg in whole.legs] == [0, 5, 5] and whole.users == 10
    assert [leg.record.user_rule for leg in whole.legs] == [1, 0, 1]


@pytest.mark.parametrize("users", [{"step": 4}, {"count": 4}, {"first": 0x0A000003}])
def test_a_value_that_is_no_users(users: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^s: users = \d+: ipv4.src takes a value that belongs to no user$"):
        schedule.compile_leg(a_leg(SOURCES, UDP, users=replace(USERS, **users)), 1)


def test_users_that_cannot_be_counted() -> None:
    leg = a_leg(SOURCES, UDP, users=replace(USERS, field="udp.src"))
    assert xdp_limits.unable(leg) == "users are counted by udp.src, which does not vary"
    many = {"ipv4": {"src": {"random": ["10.0.0.0", "10.255.255.255"]}, "dst": "10.0.0.2"}}
    why = "16777216 users by ipv4.src: the maximum is 1048576"
    assert xdp_limits.unable(a_leg(many, UDP, users=USERS)) == why


def test_weights_say_by_how_much_a_sum_grows() -> None:
    """Nested sums at odd places: each weight against sums of the whole data, with one byte changed."""
    outer, inner = Checksum(6, ((1, 41),), 99), Checksum(24, ((19, 40), (10, 14)))
    draw = random.Random(1)
    for at in [*range(1, 5), *range(8, 22), *range(27, 40)]:
        found = weights((outer, inner), at, at + 1, at + 1)
        data = bytearray(draw.randbytes(48))
        data[at] = 100
        for one in (inner, outer):
            one.mend(data)
        before = [int.from_bytes(data[one.offset_bytes : one.offset_bytes + 2], "big") for one in (outer, inner)]
        data[at] += 1
        for one in (inner, outer):
            one.mend(data)
        after = [int.from_bytes(data[one.offset_bytes : one.offset_bytes + 2], "big") for one in (outer, inner)]
        assert found[:2] == [(old - new) % 0xFFFF for old, new in zip(before, after, strict=True)]


def test_an_inner_checksum_is_mended_before_the_one_over_it() -> None:
    outer, inner = Checksum(0, ((0, 40),)), Checksum(20, ((18, 40),))
    assert mending_order((outer, inner)) == [inner, outer]


@pytest.mark.parametrize("headers", [(IPV4, {"udp": {"src": {"increment": [1, 9]}, "dst": 2}}), (IPV6, UDP)])
def test_a_rule_writes_its_field_and_nothing_else(headers: tuple[dict[str, Any], ...]) -> None:
    leg = a_leg(*headers)
    template, record = build_frame(leg.frame, 100), schedule.compile_leg(leg, 1).record
    for index, field in enumerate(template.fields):
        rule = record.rule[index]
        data = bytearray(96)
        put_bits(data, field.bit, field.width_bits, (1 << field.width_bits) - 1)
        window = int.from_bytes(data[rule.window : rule.window + 8], "big")
        assert window == rule.mask
        assert sum(data) == sum(data[rule.window : rule.window + 8])


@pytest.mark.parametrize("legs", [1, 2, 3, 5, 64, 200, 256])
def test_a_tournament_is_won_by_who_is_due_first(legs: int) -> None:
    due = random.Random(legs).sample(range(1000), legs)
    leaves, winner = tournament(due)
    assert leaves >= legs and leaves.bit_count() == 1 and len(winner) == 2 * leaves
    assert winner[leaves:] == list(range(leaves)) and due[winner[1]] == min(due)
    assert all(winner[node] in (winner[2 * node], winner[2 * node + 1]) for node in range(1, leaves))


def test_of_legs_due_together_the_first_wins() -> None:
    assert tournament([5, 5, 5])[1][1] == 0


def test_seeds_next_to_each_other_draw_differently() -> None:
    states = {schedule.compile_leg(a_leg(), seed).record.random for seed in range(100)}
    assert len(states) == 100 and 0 not in states


# --- traces --------------------------------------------------------------------------------------------------------


def a_trace(*packets: tuple[int, bytes], stored: int | None = None) -> Frames:
    """As a node reads it. `stored`: bytes of each frame that the file has."""
    with tempfile.TemporaryDirectory() as folder:
        data = bytearray(write_pcap([Packet(time_ns, frame[:stored]) for time_ns, frame in packets]))
        at = 24
        for _, frame in packets:
            data[at + 12 : at + 16] = struct.pack("<I", len(frame))
            at += 16 + len(frame[:stored])
        (Path(folder) / "t.pcap").write_bytes(data)
        return mapped_frames(Path(folder) / "t.pcap")


def a_trace_leg(mode: str = "original", value: float = 1.0, **more: Any) -> Leg:
    timing = replace(more.pop("timing", Timing()), mode=mode, value=value)
    return Leg(7, "t", "a", "b", "trace", **{"trace_file": "t.pcap", "timing": timing, **more})


def of_traces(frames: dict[str, Frames], *legs: Leg) -> Schedule:
    """`frames`: of each file."""
    return compile_schedule(list(legs), lambda leg: frames[str(leg.trace_file)], lambda leg: no_sequence())


def no_sequence() -> Any:
    raise AssertionError("there is none")


def stored(whole: Schedule) -> bytearray:
    memory = bytearray(whole.store_bytes)
    for at, store in whole.stores:
        store.write(memoryview(memory)[at : at + store.size_bytes])
    return memory


@pytest.mark.parametrize(
    ("mode", "value", "due_ns", "period_ns"),
    [
        ("original", 1.0, [0, 1000, 4000], 6000),
        ("multiplier", 4.0, [0, 250, 1000], 1500),
        ("pps", 1e6, [0, 1000, 2000], 3000),
        ("bps", 1e9, [0, 512, 1344], 1856),
        ("top", 1.0, [0, 0, 0], 0),
    ],
)
def test_when_the_packets_of_a_trace_are_due(mode: str, value: float, due_ns: list[int], period_ns: int) -> None:
    trace = a_trace((5000, bytes(60)), (9000, bytes(60)), (6000, bytes(100)))
    whole = of_traces({"t.pcap": trace}, a_trace_leg(mode, value))
    [records], [leg] = whole.records, whole.legs
    assert records["due_ns"].tolist() == due_ns
    assert (leg.record.period_ns, leg.record.timed) == (period_ns, mode != "top")
    assert records["frame_bytes"].tolist() == [60, 100, 60]


def test_frames_lie_whole_in_chunks_of_the_store() -> None:
    draw = random.Random(1)
    frames = [draw.randbytes(draw.randrange(14, 3369)) for _ in range(2000)]
    files = {"one": a_trace(*enumerate(frames[:900])), "two": a_trace(*enumerate(frames[900:]))}
    whole = of_traces(files, *(a_trace_leg(trace_file=name) for name in files))
    assert [leg.record.first_record for leg in whole.legs] == [0, 900]
    memory = stored(whole)
    for record, frame in zip(np.concatenate(whole.records), frames, strict=True):
        start = int(record["place"])
        assert memory[start : start + int(record["stored_bytes"])] == frame
        assert start % 2**20 <= 2**20 - 4096


def test_what_the_file_leaves_out_is_not_stored() -> None:
    whole = of_traces({"t.pcap": a_trace((0, b"x" * 99), (1, b"y" * 15), stored=20)}, a_trace_leg())
    [records] = whole.records
    assert records[["stored_bytes", "frame_bytes"]].tolist() == [(20, 99), (15, 15)]
    memory = stored(whole)
    assert (memory.count(b"x"), memory.count(b"y")) == (20, 15)


def test_instances_share_their_frames_and_where_times_are_alike_their_records() -> None:
    trace = replace(a_trace(*((n * 1000, bytes([n]) * 60) for n in range(100))), flow=np.arange(100))
    random_start = Timing(random=RandomStart(4, 10**6, 1))
    legs = [a_trace_leg(shift=Shift(user=n), timing=Timing(lead_ns=n)) for n in range(4)]
    whole = of_traces({"t.pcap": trace}, *legs, a_trace_leg(shift=Shift(port=1), timing=random_start))
    assert [leg.record.first_record for leg in whole.legs] == [0, 0, 0, 0, 100]
    assert [leg.lead_ns for leg in whole.legs] == [0, 1, 2, 3, 0]
    [(_, store)] = whole.stores
    assert store.size_bytes == 2**20 == len(stored(whole))
    assert sorted(whole.records[1]["place"].tolist()) == whole.records[0]["place"].tolist()
    assert whole.records[1]["place"].tolist() != whole.records[0]["place"].tolist()


def test_the_engine_tc_takes_longer_packets_and_no_batch() -> None:
    long = {"t.pcap": a_trace((0, bytes(60)), (1, bytes(9014)))}
    of_traces(long, a_trace_leg(engine="tc"))
    with pytest.raises(BadInput, match=r"t = '9601 bytes': packet 2 is too long for clones .* \(allowed: up to 9600"):
        of_traces({"t.pcap": a_trace((0, bytes(60)), (1, bytes(9601)))}, a_trace_leg(engine="tc"))
    leg = a_leg(size_bytes=9018, engine="tc")
    assert xdp_limits.unable(leg, "tc") == "" and "the maximum is 3372 bytes" in xdp_limits.unable(leg, "xdp")
    slot = schedule.compile_leg(leg, 1).slots[0]
    assert slot.frame_bytes == 9014 and ctypes.sizeof(slot) == ctypes.sizeof(schedule_records.LargeSlotRecord)
    batch = replace(leg, options={"batch": 8})
    assert xdp_limits.unable(batch, "tc").startswith("unknown option 'batch' for a stream (allowed: burst, late, ")
    assert xdp_shares.batch_size([replace(leg, rate_pps=None)]) == 1


def test_random_payload_by_clones_on_an_old_kernel_is_one_message() -> None:
    assert ways_out.CLONES.program_for((5, 10), noisy=False) == ways_out.CLONES.plain
    assert ways_out.CLONES.program_for((5, 17), noisy=True) == ways_out.CLONES.program
    assert ways_out.LIVE_FRAMES.program_for((5, 18), noisy=True) == ways_out.LIVE_FRAMES.program
    why = r"tc: random payload needs Linux 5\.17, this is 5\.16 \(allowed: fill or hex\)"
    with pytest.raises(EngineError, match=why):
        ways_out.CLONES.program_for((5, 16), noisy=True)


def test_a_packet_that_live_frames_have_no_room_for() -> None:
    with pytest.raises(BadInput, match=r"t = '3369 bytes': packet 2 is too long .* \(allowed: up to 3368 bytes\)"):
        of_traces({"t.pcap": a_trace((0, bytes(60)), (1, bytes(3369)))}, a_trace_leg())


def test_more_of_traces_than_a_place_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_trace, "MOST_BYTES", 2**20)
    files = {"one": a_trace((0, bytes(60))), "two": a_trace((0, bytes(60)))}
    of_traces(files, a_trace_leg(trace_file="one"), a_trace_leg(trace_file="one"))
    with pytest.raises(
        BadInput, match=r"t: bytes = 2097152: the traces .* too large for the kernel program \(allowed: up to 1048576\)"
    ):
        of_traces(files, *(a_trace_leg(trace_file=name) for name in files))


def test_sizes_are_drawn_by_their_weights() -> None:
    compiled = schedule.compile_leg(a_leg(sizes=[[64, 14], [594, 8], [1518, 2]], size_bytes=1518), 1)
    assert [slot.frame_bytes for slot in compiled.slots] == [60, 590, 1514]
    assert compiled.table == [0] * 7 + [1] * 4 + [2]
    assert (compiled.record.sizes, compiled.record.size.count, compiled.largest_bytes) == (3, 12, 1514)
    assert compiled.record.size.mode == schedule_records.RANDOM


def test_sizes_in_turn_begin_with_the_first() -> None:
    sizes = [[1518, 1], [64, 2], [1518, 1]]
    size = schedule.compile_leg(a_leg(sizes=sizes, sizes_in_turn=True, size_bytes=1518), 1).record.size
    assert (size.mode, size.count, size.position) == (schedule_records.COUNT, 4, 3)


def test_lists_share_the_table_with_the_sizes() -> None:
    ports = {"src": {"list": [700, 80]}, "dst": {"pick": [1, 2], "weights": [1, 2]}}
    leg = a_leg({"ipv4": {**IPV4["ipv4"], "ttl": {"increment": [5, 6]}}}, {"udp": ports}, sizes=[[64, 1], [100, 1]])
    compiled = schedule.compile_leg(leg, 1)
    assert compiled.table == [0, 1, 700, 80, 1, 2, 2]
    assert [(rule.table, rule.first, rule.count) for rule in compiled.record.rule[:3]] == [
        (0, 5, 2),
        (1, 2, 2),
        (1, 4, 3),
    ]
    whole = assemble([schedule.compile_leg(leg, 1), compiled])
    assert [whole.table[compiled.record.rule[index].first] for index in (1, 2)] == [700, 1]
    assert compiled.record.rule[1].first == 9


def test_a_linked_rule_follows_an_earlier_one() -> None:
    leg = a_leg(
        IPV4, {"udp": {"src": {"random": [1, 4]}, "dst": {"with": "udp.src", "decrement": [40, 10], "step": 10}}}
    )
    own, linked = schedule.compile_leg(leg, 1).record.rule[:2]
    assert (own.mode, linked.mode, linked.link) == (schedule_records.RANDOM, schedule_records.LINKED, 0)
    assert (linked.first, linked.step, linked.count) == (40, 2**64 - 10, 4)


def test_a_counter_that_stays_begins_with_the_whole_of_its_stay() -> None:
    leg = a_leg(
        IPV4, {"udp": {"src": {"increment": [1, 4], "every": 2**32}, "dst": {"with": "udp.src", "list": [1, 2, 3, 4]}}}
    )
    own, linked = schedule.compile_leg(leg, 1).record.rule[:2]
    assert (own.position, own.stay, own.stays, linked.stay) == (3, 2**32 - 1, 0, 0)


def settings_of(*legs: Leg) -> dict[str, int]:
    """Without what a schedule has none of."""
    settings = assemble([schedule.compile_leg(leg, 1) for leg in legs]).settings()
    return {name: value for name, *_ in settings._fields_ if (value := getattr(settings, name))}


def test_what_no_leg_has_is_left_out_of_the_program() -> None:
    assert settings_of(a_leg()) == {}
    counted, random = 1 << schedule_records.COUNT, 1 << schedule_records.RANDOM
    varied = a_leg(IPV4, {"udp": {"src": {"increment": [1, 4]}, "dst": {"random": [1, 4]}}})
    assert settings_of(a_leg(), varied) == {"rules": 2, "modes": counted | random}
    listed = a_leg(IPV4, {"udp": {"src": 1, "dst": {"list": [1, 2]}}})
    assert settings_of(listed, varied) == {"rules": 2, "modes": counted | random, "tables": 1}
    sizes = a_leg(sizes=[[64, 14], [594, 8]], size_bytes=594)
    assert settings_of(sizes) == {"modes": random, "tables": 1, "sizes": 1}


def test_what_a_trace_needs_stays_in_the_program() -> None:
    recorded = a_trace((0, bytes(60)), (1000, bytes(60)))
    settings = of_traces({"t.pcap": recorded}, a_trace_leg()).settings()
    assert (settings.traces, settings.sequences, settings.rules) == (1, 0, 0)


WITHOUT_NUMPY = """
import sys
from pktswarm.nodes.senders import tc, xdp
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.assemble import compile_schedule
headers = [{"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}]
leg = Leg(0, "s", "a", "b", "stream", "xdp", frame={"headers": headers}, size_bytes=64, rates=[[0, 9.0], [10**9, 4.0]])
assert len(compile_schedule([leg], None, None).steps) == 2
sys.exit("numpy" in sys.modules)
"""


def test_a_guard_that_sends_streams_loads_no_numpy() -> None:
    """A tenth of a second of its start, and 13 of 32 MB."""
    assert subprocess.run([sys.executable, "-P", "-c", WITHOUT_NUMPY], check=False).returncode == 0
