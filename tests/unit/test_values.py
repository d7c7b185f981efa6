"""What a field may be beside a constant: lists, draws by weight, fields that move together, wrong on purpose."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import pytest

from pktswarm.traffic.counting.expect import expectation
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.template import Template, get_bits

ETHERNET: dict[str, Any] = {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}


def ipv4(**fields: Any) -> dict[str, Any]:
    return {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", **fields}}


def udp(**fields: Any) -> dict[str, Any]:
    return {"udp": {"src": 1000, "dst": 2000, **fields}}


def frame(*headers: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy({"headers": [ETHERNET, *headers]})


def built(*headers: dict[str, Any]) -> Template:
    return build_frame(frame(*headers), 128)


def read(template: Template, number: int, draw: random.Random | None = None) -> list[list[int]]:
    """Each varying field's value in each of the first frames, read out of the frames themselves."""
    draw = draw or random.Random(1)
    frames = [template.frame(index, draw) for index in range(number)]
    return [[get_bits(one, field.bit, field.width_bits) for field in template.fields] for one in frames]


def test_a_list_goes_round_in_its_order() -> None:
    template = built(ipv4(dst={"list": ["10.0.0.9", "10.0.0.3", "10.0.0.9"]}), udp())
    assert [one[0] & 255 for one in read(template, 7)] == [9, 3, 9, 9, 3, 9, 9]
    assert (template.period, template.is_random) == (3, False)
    assert template.data == template.frame(0, random.Random())


def test_a_pick_draws_by_its_weights() -> None:
    template = built(ipv4(dscp={"pick": [46, 0], "weights": [10, 30]}), udp(src={"pick": [7, 8, 9]}))
    values = read(template, 4000)
    dscp, port = Counter(one[0] for one in values), Counter(one[1] for one in values)
    assert set(dscp) == {46, 0} and 850 < dscp[46] < 1150
    assert set(port) == {7, 8, 9} and all(1150 < times < 1520 for times in port.values())
    assert template.is_random and template.period == 1
    assert template.fields[0].places == (0, 1, 1, 1)


@pytest.mark.parametrize(
    ("other", "own", "pairs"),
    [
        ({"increment": [5, 7]}, {"list": [70, 50, 60]}, {(5, 70), (6, 50), (7, 60)}),
        ({"decrement": [9, 5], "step": 2}, {"increment": [100, 102]}, {(9, 100), (7, 101), (5, 102)}),
        ({"list": [3, 1]}, {"decrement": [20, 10], "step": 10}, {(3, 20), (1, 10)}),
        ({"random": [5, 7]}, {"increment": [1000, 3000], "step": 1000}, {(5, 1000), (6, 2000), (7, 3000)}),
        ({"pick": [1, 2], "weights": [1, 5]}, {"increment": [10, 11]}, {(1, 10), (2, 11)}),
        ({"pick": [1, 2], "weights": [1, 5]}, {"list": [9, 8]}, {(1, 9), (2, 8)}),
    ],
)
def test_linked_fields_move_together(other: dict[str, Any], own: dict[str, Any], pairs: set[tuple[int, int]]) -> None:
    template = built(ipv4(ttl=other), udp(src={"with": "ipv4.ttl", **own}, dst={"with": "udp.src", **own}))
    values = read(template, 200)
    assert {(one[0], one[1]) for one in values} == pairs
    assert all(one[1] == one[2] for one in values)
    drawn = other.keys() & {"random", "pick"}
    assert template.period == (1 if drawn else len(pairs))


def test_a_counter_stays_for_so_many_frames() -> None:
    template = built(ipv4(ttl={"increment": [1, 3], "every": 2}), udp(src={"list": [9, 8], "every": 6}))
    assert read(template, 13) == [[ttl, port] for port in (9, 8) for ttl in (1, 1, 2, 2, 3, 3)] + [[1, 9]]
    assert template.period == 12


@pytest.mark.parametrize(
    ("leader", "positions"),
    [
        ({"increment": [11, 15]}, [0, 1, 2, 3, 4, 0, 1]),
        ({"list": [15, 14, 13, 12, 11], "every": 2}, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0]),
    ],
)
def test_a_field_goes_with_a_later_one_and_wraps(leader: dict[str, Any], positions: list[int]) -> None:
    """What goes with what goes with it takes that one's position, not the leader's."""
    own = {"with": "udp.src", "wrap": True, "increment": [1, 4]}
    third = {"with": "ipv4.ttl", "wrap": True, "list": [70, 60, 50]}
    template = built(ipv4(ttl=own), udp(src=leader, dst=third))
    assert [field.name for field in template.fields] == ["udp.src", "ipv4.ttl", "udp.dst"]
    values = [template.fields[0].at(one) for one in positions]
    assert read(template, len(positions)) == [
        [value, one % 4 + 1, [70, 60, 50][one % 4 % 3]] for value, one in zip(values, positions, strict=True)
    ]


def test_what_wraps_follows_weights_too() -> None:
    leader = {"pick": [5, 6, 7], "weights": [1, 1, 8]}
    template = built(ipv4(ttl=leader), udp(src={"with": "ipv4.ttl", "wrap": True, "list": [50, 60]}))
    assert {tuple(one) for one in read(template, 300)} == {(5, 50), (6, 60), (7, 50)}


def test_a_header_that_occurs_twice_is_called_by_its_number() -> None:
    inner = ipv4(src={"with": "1.ipv4.src", "list": ["10.9.0.7", "10.9.0.8"]})
    template = built(ipv4(src={"increment": ["10.0.0.1", "10.0.0.2"]}), inner, udp())
    assert [field.name for field in template.fields] == ["1.ipv4.src", "2.ipv4.src"]
    assert [[value & 255 for value in one] for one in read(template, 2)] == [[1, 7], [2, 8]]


@pytest.mark.parametrize(
    ("headers", "key", "words"),
    [
        ([ipv4(ttl={"list": []})], "1.ipv4.ttl.list", "0: not a list of values (allowed: [one, two, …] with 1 to"),
        ([ipv4(ttl={"list": 7})], "1.ipv4.ttl.list", "7: not a list of values"),
        ([ipv4(ttl={"list": [1, 256]})], "1.ipv4.ttl.list.1", "256: out of range (allowed: a whole"),
        ([ipv4(src={"pick": ["10.0.0.1", "x"]})], "1.ipv4.src.pick.1", "'x': not an IPv4 address"),
        ([ipv4(ttl={"pick": [1, 2], "weights": [1]})], "1.ipv4.ttl.weights", "[1]: invalid weights"),
        ([ipv4(ttl={"pick": [1, 2], "weights": [1, 0]})], "1.ipv4.ttl.weights", "a list of 2 whole numbers from 1"),
        ([ipv4(ttl={"pick": [1, 2], "weights": [1, 65536]})], "1.ipv4.ttl.weights", "the sum of the weights is 65537"),
        ([ipv4(ttl={"list": [1, 2], "weights": [1, 1]})], "1.ipv4.ttl", "invalid varying value"),
        ([ipv4(ttl={"list": [1, 2], "random": [1, 2]})], "1.ipv4.ttl", "invalid varying value"),
        ([ipv4(ttl={"random": [1, 2], "with": "ipv4.id"})], "1.ipv4.ttl", "invalid varying value"),
        ([ipv4(ttl={"list": [1], "with": "ipv4.nose"})], "1.ipv4.ttl.with",
         "'ipv4.nose': no such varying field (allowed: none)"),
        ([ipv4(id={"list": [1]}, ttl={"list": [1], "with": "ipv4.src"})], "1.ipv4.ttl.with",
         "no such varying field (allowed: ipv4.id, 1.ipv4.id)"),
        ([ipv4(ttl={"list": [1], "with": "udp.src"}), udp(src={"list": [1], "with": "ipv4.ttl"})], "1.ipv4.ttl.with",
         "'udp.src': no such varying field"),
        ([ipv4(ttl={"list": [1], "with": ["udp.src"]})], "1.ipv4.ttl.with", "['udp.src']: no such varying field"),
        ([ipv4(ttl={"list": [1, 2, 3], "with": "ipv4.id", "wrap": True}, id={"list": [1, 2]})], "1.ipv4.ttl",
         "'3 values': ipv4.id has 2 values (allowed: as many, or fewer with wrap: true)"),
        ([ipv4(ttl={"list": [1], "wrap": True})], "1.ipv4.ttl.wrap", "invalid value (allowed: true, beside with)"),
        ([ipv4(id={"list": [1]}, ttl={"list": [1], "with": "ipv4.id", "wrap": 2})], "1.ipv4.ttl.wrap",
         "2: invalid value"),
        ([ipv4(ttl={"list": [1, 2], "every": 0})], "1.ipv4.ttl.every", "0: out of range (allowed: 1 to 4294967296"),
        ([ipv4(id={"list": [1]}, ttl={"list": [1], "with": "ipv4.id", "every": 2})], "1.ipv4.ttl.every",
         "2: out of range"),
        ([ipv4(ttl={"random": [1, 2], "every": 2})], "1.ipv4.ttl", "invalid varying value"),
        ([ipv4(src={"list": ["10.0.0.1"]}), ipv4(src={"with": "ipv4.src", "list": ["10.0.0.1"]})], "2.ipv4.src.with",
         "no such varying field (allowed: 1.ipv4.src)"),
        ([ipv4(id={"list": [1, 2]}, ttl={"list": [1], "with": "ipv4.id"})], "1.ipv4.ttl",
         "'1 values': ipv4.id has 2 values (allowed: as many, or fewer with wrap: true)"),
        ([ipv4(ttl={"off_by": 1})], "1.ipv4.ttl", "off_by is not possible here (allowed: computed"),
        ([ipv4(checksum={"off_by": 0})], "1.ipv4.checksum", "invalid off_by (allowed: {off_by: N}, N from -65534"),
        ([ipv4(checksum={"off_by": 65535})], "1.ipv4.checksum", "invalid off_by"),
        ([ipv4(length={"off_by": True})], "1.ipv4.length", "invalid off_by"),
        ([ipv4(length={"off_by": -111})], "1.ipv4.length.off_by",
         "-111: the resulting length is out of range (allowed: -110 to 65425 in frames of 128 bytes)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(headers: list[dict[str, Any]], key: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_frame(frame(*headers), "a.yaml", "streams.0", 128)
    assert caught.value.key == f"streams.0.headers.{key}"
    assert words in str(caught.value)


def test_a_receiver_knows_a_list_by_the_range_it_lies_in() -> None:
    """No frame of its own is missed, and a stream within the range counts as one that cannot be distinguished."""
    listed = built(ipv4(), udp(src={"list": [1010, 1003, 1006]}))
    match = Match.from_template(listed)
    draw = random.Random(1)
    assert all(match.matches(listed.frame(index, draw)) for index in range(6))
    for port, apart in ((1002, True), (1011, True), (1006, False), (1004, False)):
        other = Match.from_template(built(ipv4(), udp(src=port)))
        assert match.overlaps(other) is not apart
    assert match.overlaps(Match.from_template(built(ipv4(), udp(src={"increment": [1009, 1020]}))))


def test_a_linked_field_is_known_by_its_own_range() -> None:
    linked = built(ipv4(ttl={"increment": [1, 3]}), udp(src={"with": "ipv4.ttl", "list": [700, 20, 9]}))
    match = Match.from_template(linked)
    assert all(match.matches(linked.frame(index, random.Random())) for index in range(3))
    assert not match.matches(built(ipv4(), udp(src=701)).data)


def test_the_receiver_expects_the_bits_that_all_values_share() -> None:
    """First and last of this list are alike; the one between is not."""
    made = expectation("s", built(ipv4(), udp(src={"list": [1024, 1031, 1024]})), {})
    assert bytes(made.mask)[24:26] == bytes([0xFF, 0xF8])


@pytest.mark.parametrize("by", [1, -1, 0x7FFF, 65534])
def test_a_checksum_is_always_wrong_by_the_same(by: int) -> None:
    ports = {"increment": [0, 2000]}
    right = built(ipv4(id=ports), udp(src=ports))
    wrong = built(ipv4(id=ports, checksum={"off_by": by}), udp(src=ports, checksum={"off_by": by}))
    draw = random.Random(1)
    for index in range(0, 2001, 3):
        one, two = right.frame(index, draw), wrong.frame(index, draw)
        for at in (24, 40):
            sums = [int.from_bytes(data[at : at + 2], "big") for data in (one, two)]
            assert (sums[1] - sums[0]) % 0xFFFF == by % 0xFFFF
        assert one[40:42] != b"\0\0" != two[40:42]
        assert one[:24] + one[26:40] + one[42:] == two[:24] + two[26:40] + two[42:]


@pytest.mark.parametrize(("at", "header"), [(16, ipv4), (38, udp)])
def test_a_length_is_wrong_by_so_much(at: int, header: Any) -> None:
    def stack(**fields: Any) -> bytes:
        return built(*(one(**(fields if one is header else {})) for one in (ipv4, udp))).data

    right, wrong = stack(), stack(length={"off_by": -4})
    assert int.from_bytes(wrong[at : at + 2], "big") == int.from_bytes(right[at : at + 2], "big") - 4
