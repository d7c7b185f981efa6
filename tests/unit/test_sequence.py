"""Sequences: the file of what a source sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.schedule import capabilities, sequence, xdp_limits
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule.records import TraceRecord


def some() -> sequence.Records:
    return sequence.make([0, 10, 10, 2**40], [0, 2, 1, 2], [64, 1518, 594, 64])


def test_a_sequence_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "leg-1.sequence"
    path.write_bytes(sequence.pack(some()))
    read = sequence.read_sequence(path)
    assert read["due_ns"].tolist() == [0, 10, 10, 2**40]
    assert read["user"].tolist() == [0, 2, 1, 2]
    assert read["frame_bytes"].tolist() == [60, 1514, 590, 60]
    assert sequence.sizes_bytes(read) == [[64, 1], [1518, 1]]


def test_one_size_is_one_size() -> None:
    assert sequence.sizes_bytes(sequence.make([0, 1], [0, 0], [100, 100])) == [[100, 1]]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a sequence"),
        (sequence.pack(some())[:-1], "truncated"),
        (sequence.MAGIC, "without frames"),
        (sequence.pack(some()[::-1]), "order of time"),
    ],
)
def test_what_is_no_sequence_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        sequence.unpack(data, "leg-1.sequence")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        sequence.read_sequence(tmp_path / "none.sequence")


def test_records_are_laid_out_as_the_kernels() -> None:
    one = TraceRecord.from_buffer_copy(some()[1:2].tobytes())
    assert (one.due_ns, one.place, one.frame_bytes) == (10, 2, 1514)


UDP: list[dict[str, dict[str, Any]]] = [
    {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}},
    {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
    {"udp": {"src": {"increment": [5000, 5002]}, "dst": 9}},
]


def a_leg(**more: Any) -> Leg:
    given: dict[str, Any] = {
        "frame": {"headers": UDP, "payload": {}},
        "size_bytes": 1518,
        "sizes": [[64, 1], [1518, 1]],
        "sequence_file": "leg-1.sequence",
        "user_field": "udp.src",
        "count_packets": 4,
        "users": FlowUsers("udp.src", "src_port", 5000, 1, 3),
    }
    return Leg(1, "www", "a", "b", "stream", "xdp", **{**given, **more})


def test_a_source_is_xdps_or_tcpreplays_and_the_others_say_why() -> None:
    assert capabilities.unable("xdp", a_leg()) == ""
    for engine in ("pktgen", "trafgen"):
        assert capabilities.unable(engine, a_leg()) == "cannot send frames with times, users and sizes of their own"


def with_udp(**fields: Any) -> dict[str, Any]:
    return {"headers": [*UDP[:2], {"udp": {**UDP[2]["udp"], **fields}}], "payload": {}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frame": {"headers": UDP, "payload": {"random": True}}}, "must be zeros"),
        ({"frame": {"headers": UDP, "payload": {"fill": 7}}}, "must be zeros"),
        ({"frame": with_udp(length=20)}, "udp.length must not be given"),
        ({"user_field": "udp.dst", "users": None}, "udp.dst must be a counter"),
        ({"frame": with_udp(src={"random": [1, 3]}), "users": None}, "udp.src must be a counter"),
        (
            {"frame": with_udp(dst={"increment": [1, 3]}), "user_field": "udp.dst"},
            "must be counted by udp.dst",
        ),
        ({"options": {"burst": 3}}, "the source sets the times"),
        ({"rate_pps": 3.0}, "the source sets the times"),
    ],
)
def test_why_a_leg_cannot_be_a_sequence(change: dict[str, Any], words: str) -> None:
    assert words in xdp_limits.unable(a_leg(**change))


def test_lengths_take_their_part_of_the_rules() -> None:
    varying = {"increment": [0, 1]}
    tcp = {"src": varying, "dst": varying, "seq": varying, "ack": varying, "flags": varying, "window": varying}
    inner = [{"ipv4": {"src": varying | {"increment": ["10.0.0.1", "10.0.0.2"]}, "dst": "10.0.0.9"}}, {"tcp": tcp}]
    outer = [UDP[0], {"ipv4": {**UDP[1]["ipv4"], "ttl": varying, "dscp": varying, "id": varying}}]
    tunnel = [{"udp": {"src": varying, "dst": 2152}}, {"gtpu": {"teid": varying}}]
    headers = [*outer, *tunnel, *inner]
    leg = a_leg(
        frame={"headers": headers, "payload": {}}, user_field="gtpu.teid", users=None, sizes=[[200, 1], [900, 1]]
    )
    assert xdp_limits.unable(leg) == ""
    tcp["urgent"] = varying
    assert xdp_limits.unable(leg) == "13 varying fields and 4 lengths: the maximum is 16"


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (sequence.make([0, 1, 2, 3], [0, 1, 2, 0], [64, 64, 64, 64]), "frame sizes differ"),
        (sequence.make([0, 1, 2, 3], [0, 1, 2, 0], [63, 64, 64, 1518]), "frame sizes differ"),
        (sequence.make([0, 1, 2], [0, 1, 2], [64, 64, 1518]), "number of frames differs"),
        (sequence.make([0, 1, 2, 3], [0, 1, 3, 0], [64, 64, 64, 1518]), "user out of range"),
    ],
)
def test_records_of_another_leg_are_refused(records: sequence.Records, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        schedule.compile_leg(a_leg(), 1, sequence=records)
