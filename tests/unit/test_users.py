"""What tells a stream's users apart, how their figures travel, and what the master makes of them."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.results import users
from pktswarm.master.results.folder import Folder, Outcome
from pktswarm.master.results.row import Row
from pktswarm.master.results.users import Users, line
from pktswarm.master.scenario import scenario
from pktswarm.traffic.counting import users as common
from pktswarm.traffic.counting.expect import FIELD_PLACES
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import FlowUsers, Leg

ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
IPV4 = {"ipv4": {"src": {"increment": ["10.60.0.1", "10.60.1.0"]}, "dst": "10.0.0.2"}}
UDP = {"udp": {"src": {"increment": [1000, 1090], "step": 10}, "dst": {"random": [1, 9]}}}
LEG = Leg(0, "up", "tx1", "rx1", "stream", users=FlowUsers(field="ipv4.src", by="src_ip", first=10, step=2, count=3))


def template(*headers: dict[str, Any], size_bytes: int = 128) -> Template:
    return build_frame({"headers": list(headers)}, size_bytes)


def test_an_address_has_the_same_rule_in_a_trace_as_in_a_stream() -> None:
    for field, by in (("src", "src_ip"), ("dst", "dst_ip")):
        ends = {"src": "10.0.0.1", "dst": "10.0.0.2", field: {"increment": ["10.60.0.1", "10.60.1.0"]}}
        made = template(ETHERNET, {"ipv4": ends}, UDP)
        of_stream = common.of_template("x", "users", made, f"ipv4.{field}")
        of_trace = common.of_addresses(by, of_stream.first, of_stream.count)
        assert of_trace == of_stream
        assert bytes(common.address_rule(of_trace, 7)) == bytes(common.rule(made, of_stream, 7))


def test_users_are_told_apart_by_their_ipv6_prefixes() -> None:
    ends = {"src": {"increment": ["2001:db8:0:a::7", "2001:db8:0:e::7"], "step": 2 << 64}, "dst": "fd00::2"}
    made = template(ETHERNET, {"ipv6": ends}, UDP)
    found = common.of_template("x", "users", made, "ipv6.src")
    assert common.values(found) == ["2001:db8:0:a::7", "2001:db8:0:c::7", "2001:db8:0:e::7"]
    assert [made.frame(n, random.Random(1))[22:38] for n in range(4)] == [
        IPv6Address(f"2001:db8:0:{one}::7").packed for one in "acea"
    ]
    rule = common.rule(made, found, 0)
    assert (rule.first, rule.step, rule.mask, rule.shift) == (0x20010DB80000000A, 2, 2**64 - 1, 0)
    assert rule.word == FIELD_PLACES["src_ip"][0] // 8


def test_what_is_due_to_a_traces_users_was_sent_where_all_was() -> None:
    made = Users(LEG)
    made.take_due([1, 2, 3], [100, 300, 200], 5)
    assert made.sent is None
    made.take_due([1, 2, 3], [100, 300, 200], 6)
    assert [(row["sent_packets"], row["sent_bytes"]) for row in made.rows()] == [(1, 100), (2, 300), (3, 200)]


def test_a_counter_of_the_headers_tells_users_apart() -> None:
    made = template(ETHERNET, IPV4, UDP)
    first = int.from_bytes(bytes([10, 60, 0, 1]), "big")
    assert common.of_template("x", "users", made, "ipv4.src") == FlowUsers("ipv4.src", "src_ip", first, 1, 256)
    found = common.of_template("x", "users", made, "udp.src")
    assert (found.by, found.first, found.step, found.count) == ("src_port", 1000, 10, 10)


@pytest.mark.parametrize("name", ["udp.dst", "ipv4.dst", "nothing", "ipv4.id"])
def test_another_field_is_refused_with_those_that_are_left(name: str) -> None:
    with pytest.raises(BadInput, match=rf"users = '{name}': users cannot be .*allowed: ipv4.src, udp.src"):
        common.of_template("x", "streams.0.users", template(ETHERNET, IPV4, UDP), name)


def test_a_stream_without_counters_has_no_users() -> None:
    plain = template(ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}})
    with pytest.raises(BadInput, match=r"allowed: a field with \{increment"):
        common.of_template("x", "users", plain, "ipv4.src")


def test_too_many_users_are_refused() -> None:
    wide = {"ipv4": {"src": {"increment": ["10.0.0.0", "10.255.255.255"]}, "dst": "10.0.0.2"}}
    with pytest.raises(BadInput, match="too many users"):
        common.of_template("x", "users", template(ETHERNET, wide), "ipv4.src")


def test_of_two_addresses_the_inner_one_is_the_users() -> None:
    outer = {"ipv4": {"src": {"increment": ["192.0.2.1", "192.0.2.9"]}, "dst": "192.0.2.10"}}
    inner = {"ipv4": {"src": {"increment": ["10.60.0.1", "10.60.0.7"]}, "dst": "10.0.0.2"}}
    found = common.of_template("x", "users", template(ETHERNET, outer, inner), "2.ipv4.src")
    assert (common.notation("2.ipv4.src", found.first), found.count) == ("10.60.0.1", 7)


def test_a_scenarios_users_are_checked_before_a_host_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nstreams:\n  - {name: up, count_packets: 9, users: ipv4.src}\n")
    with pytest.raises(BadInput, match=r"streams.0.users = 'ipv4.src': a stream without headers"):
        scenario.load(path)
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [1, 9]}, dst: 7}}]"
    path.write_text(f"name: s\nstreams:\n  - {{name: up, count_packets: 9, users: udp.dst, headers: {headers}}}\n")
    with pytest.raises(BadInput, match=r"streams.0.users = 'udp.dst'.*allowed: udp.src"):
        scenario.load(path)
    path.write_text(path.read_text().replace("users: udp.dst", "users: udp.src"))
    assert scenario.load(path).streams[0].users == "udp.src"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("ipv4.src", 0x0A3C0007, "10.60.0.7"),
        ("ipv6.dst", 0xFD << 120 | 7, "fd00::7"),
        ("ethernet.src", 0x02000000000A, "02:00:00:00:00:0a"),
        ("udp.src", 4096, "4096"),
    ],
)
def test_a_user_is_written_as_in_a_scenario(field: str, value: int, text: str) -> None:
    assert common.notation(field, value) == text


def test_columns_of_many_users_travel_whole_and_small() -> None:
    column = [(n * 2654435761) % 1000 - 3 for n in range(65_536)]
    packed = common.pack(column)
    assert common.unpack(packed) == column == common.unpack(column)
    assert len(packed) < 200_000


def received(**columns: list[int]) -> dict[str, str]:
    assert LEG.users is not None
    zeros = [0] * (LEG.users.count + 1)
    return {name: common.pack(columns.get(name, zeros)) for name in common.COLUMNS}


def counted(stamped: bool = True, sent: list[int] | None = None, **columns: list[int]) -> Users:
    made = Users(LEG)
    made.take_sent(sent)
    made.take_received(received(**columns), stamped)
    return made


def test_a_users_loss_is_by_numbers_where_there_are_any() -> None:
    columns = {"packets": [5, 6, 4, 0], "distinct": [5, 3, 4, 0]}
    assert counted(True, [5, 5, 5], **columns).lost() == [0, 2, 1]
    assert counted(False, [5, 5, 5], **columns).lost() == [0, -1, 1]
    assert counted(True, None, **columns).lost() is None


def test_a_row_says_only_what_was_measured() -> None:
    columns = {
        "packets": [5, 6, 0, 2],
        "bytes": [300, 360, 0, 120],
        "distinct": [5, 6, 0, 0],
        "latencies": [2, 0, 0, 0],
    }
    times = {"latency_sum_ns": [30, 0, 0, 0], "latency_min_ns": [10, 0, 0, 0], "latency_max_ns": [20, 0, 0, 0]}
    one, two, three, nobody = counted(True, [5, 7, 0], **columns, **times).rows()
    assert one["user"] == "0.0.0.10" and two["user"] == "0.0.0.12"
    assert (one["latency_min_ns"], one["latency_mean_ns"], one["latency_max_ns"]) == (10, 15, 20)
    assert (one["sent_packets"], one["received_packets"], one["lost_packets"]) == (5, 5, 0)
    assert (one["sent_bytes"], one["received_bytes"]) == (5 * 64, 320)
    assert "latency_min_ns" not in two and two["lost_packets"] == 1 and three["received_packets"] == 0
    assert nobody["user"] == "other" and nobody["received_packets"] == 2 and "lost_packets" not in nobody


def test_users_that_do_not_add_up_to_their_stream_are_a_doubt() -> None:
    made = counted(True, [5, 5, 5], packets=[5, 5, 3, 1])
    assert made.doubts(15, 14) == []
    assert made.doubts(16, 14) == ["up from tx1: sent packets of its users add up to 15, the stream has 16"]
    assert made.doubts(15, 15) == ["up from tx1: received packets of its users add up to 14, the stream has 15"]
    assert Users(LEG).doubts(15, 15) == []
    short = counted(True, [5, 5])
    assert short.sent is None and short.doubts(10, 0) == [
        "up from tx1: the sender reported no count of sent packets for each of its 3 users"
    ]


def test_the_terminals_line_names_the_worst() -> None:
    columns = {"packets": [5, 2, 0, 3], "distinct": [5, 2, 0, 0]}
    text = line([counted(True, [5, 5, 4], **columns)])
    rest = "; 3 packets of no user"
    assert text == f"up: 2 of 3 users received traffic, 2 lost packets, the worst 0.0.0.14: 4 of 4 lost{rest}"
    assert line([counted(True, None, **columns)]).endswith(f"packets sent per user were not counted{rest}")
    assert line([Users(LEG)]) == "up: its users were not counted"
    assert line([counted(True, [5, 2, 0], **columns, bytes=[0] * 4)]).count("none lost packets") == 1


def test_users_have_a_file_of_their_own_where_a_stream_has_any(tmp_path: Path) -> None:
    for row, there in ((Row(LEG, users=counted(packets=[1, 2, 3, 0])), True), (Row(replace(LEG, users=None)), False)):
        folder = Folder(tmp_path, "s")
        folder.write(Outcome(0, "", [row]))
        folder.close()
        assert (folder.path / "users.csv").exists() is there
    with next(tmp_path.glob("*/users.csv")).open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == users.COLUMNS
    assert [row["received_packets"] for row in rows] == ["1", "2", "3"] and rows[0]["sent_packets"] == ""
