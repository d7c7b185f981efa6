"""Scenarios: what ships loads, and each wrong input gets one message with file, key, value and what is allowed."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core._pydantic_core import list_all_errors

from pktswarm.master.scenario import problems, scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic.errors import BadInput, BadInputs
from pktswarm.traffic.frames.sizes import parse_sizes

GOOD = """
name: good
streams:
  - {name: one, size_bytes: 128, rate_pps: 1000, count_packets: 500}
  - name: two
    rate_bps: 1.0e6
    duration_s: 2
    headers: [{ethernet: {}}, {ipv4: {ttl: 9}}, {udp: {src: {increment: [1000, 1009]}, dst: 7}}]
receive: {mode: count, filter: udp}
expect: {loss: 0.5 %, sent: {one: 500}}
"""


def load(tmp_path: Path, text: str) -> scenario.Scenario:
    path = tmp_path / "test.yaml"
    path.write_text(text)
    return scenario.load(path)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert str(tmp_path / "test.yaml") in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", sorted(Path("configs").glob("*.yaml")), ids=str)
def test_every_scenario_that_ships_loads(path: Path) -> None:
    assert scenario.load(path).name


def test_rates_are_packets_a_second_whatever_they_are_given_in(tmp_path: Path) -> None:
    one, two = load(tmp_path, GOOD).streams
    assert one.pps() == 1000
    assert two.pps() == pytest.approx(1e6 / 8 / 64)
    l1 = load(tmp_path, GOOD.replace("rate_bps", "rate_l1_bps")).streams[1]
    assert l1.pps() == pytest.approx(1e6 / 8 / 84)


@pytest.mark.parametrize(
    ("given", "pairs", "in_turn", "mean"),
    [
        ("100", [(100, 1)], False, 100.0),
        ("[64, 512, 64]", [(64, 1), (512, 1), (64, 1)], True, 640 / 3),
        ("imix", [(64, 7), (594, 4), (1518, 1)], False, (64 * 7 + 594 * 4 + 1518) / 12),
        ("{64: 3, 128: 1}", [(64, 3), (128, 1)], False, 80.0),
        ("{uniform: [64, 66]}", [(64, 1), (65, 1), (66, 1)], False, 65.0),
        ("{uniform: [70, 70]}", [(70, 1)], False, 70.0),
    ],
)
def test_sizes_and_the_rate_that_follows_from_their_mean(
    tmp_path: Path, given: str, pairs: list[tuple[int, int]], in_turn: bool, mean: float
) -> None:
    text = f"name: s\nstreams: [{{name: s, size_bytes: {given}, RATE: 8.0e6, duration_s: 1}}]"
    stream = load(tmp_path, text.replace("RATE", "rate_bps")).streams[0]
    assert (list(stream.sizes().pairs), stream.sizes().in_turn) == (pairs, in_turn)
    assert stream.pps() == pytest.approx(1e6 / mean)
    assert load(tmp_path, text.replace("RATE", "rate_l1_bps")).streams[0].pps() == pytest.approx(1e6 / (mean + 20))
    assert type(stream).model_validate_json(stream.model_dump_json(by_alias=True)).sizes() == stream.sizes()


def test_a_wide_range_of_sizes_is_255_in_even_steps_with_both_ends() -> None:
    sizes = [size for size, _ in parse_sizes({"uniform": [64, 1518]}).pairs]
    assert (len(sizes), sizes[0], sizes[-1]) == (255, 64, 1518)
    assert {two - one for one, two in pairwise(sizes)} == {5, 6}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size_bytes: 128", "size: 128", ["streams.0.size", "unknown key", "size_bytes"]),
        ("receive: {mode: count", "recieve: {mode: count", ["recieve", "unknown key", "receive"]),
        ("mode: count", "mode: counting", ["receive.mode", "'counting'", "unknown choice", "allowed: capture, count"]),
        ("size_bytes: 128", "size_bytes: lots", ["streams.0.size_bytes", "'lots'", "a whole number from 64"]),
        ("size_bytes: 128", "size_bytes: 63", ["streams.0.size_bytes", "63", "64"]),
        ("size_bytes: 128", "size_bytes: 9619", ["streams.0.size_bytes", "9619", "9618"]),
        ("size_bytes: 128", "size_bytes: [64, 9619]", ["streams.0.size_bytes", "invalid size 9619"]),
        ("size_bytes: 128", "size_bytes: []", ["streams.0.size_bytes", "0 sizes; allowed: 1 to 255"]),
        ("size_bytes: 128", "size_bytes: true", ["streams.0.size_bytes", "invalid size True"]),
        ("size_bytes: 128", "size_bytes: {64: 7, x: 1}", ["streams.0.size_bytes", "invalid size 'x'"]),
        ("size_bytes: 128", "size_bytes: {64: 0}", ["streams.0.size_bytes", "invalid weight 0 of size 64"]),
        ("size_bytes: 128", "size_bytes: {uniform: 64}", ["streams.0.size_bytes", "invalid range 64"]),
        ("size_bytes: 128", "size_bytes: {uniform: [128, 64]}", ["streams.0.size_bytes", "the smaller size first"]),
        ("{ttl: 9}}", "{ttl: 9}}, {ipv4: {}}, {ipv4: {}}", ["streams.1.size_bytes", "64", "allowed: 86 to"]),
        ("rate_pps: 1000", "rate_pps: 0", ["streams.0.rate_pps", "0", "out of range (allowed: more than 0 packets/s)"]),
        ("rate_pps: 1000", "rate_pps: 10, rate_bps: 10", ["streams.0", "rate_pps and rate_bps contradict"]),
        ("count_packets: 500", "count_packets: 5, duration_s: 5", ["streams.0", "contradict"]),
        (", count_packets: 500", "", ["streams.0", "count_packets or duration_s is needed"]),
        ("[1000, 1009]", "[1009, 1000]", ["streams.1.headers.2.udp.src", "1009"]),
        ("{ttl: 9}", "{ttl: 256}", ["streams.1.headers.1.ipv4.ttl", "256", "255"]),
        ("{ttl: 9}", "{ttk: 9}", ["streams.1.headers.1.ipv4.ttk", "ttl"]),
        ("{ipv4: {ttl: 9}}, ", "", ["streams.1.headers.1", "udp"]),
        ("name: two", "name: one", ["two streams, sources, traces or connections are called 'one'"]),
        ("sent: {one: 500}", "sent: {three: 500}", ["expect names 'three'", "one, two"]),
        ("loss: 0.5 %", "loss: little", ["expect.loss", "'little'"]),
        ("loss: 0.5 %", "latency_p98_us: 3", ["expect.latency_p98_us", "unknown key", "latency_p99_us"]),
        ("loss: 0.5 %", "latency_p99_us: 0", ["expect.latency_p99_us", "0", "out of range (allowed: more than 0 us)"]),
        ("loss: 0.5 %", "altered: -1", ["expect.altered", "-1"]),
        ("loss: 0.5 %", "altered: 2.5", ["expect.altered", "2.5"]),
        ("loss: 0.5 %", "streams: {three: {altered: 0}}", ["expect names 'three'", "one, two"]),
        ("loss: 0.5 %", "streams: {one: {altred: 0}}", ["expect.streams.one.altred", "unknown key"]),
        ("loss: 0.5 %", "users: {jitter_sd_us: 3}", ["expect.users.jitter_sd_us", "latency_mean_us"]),
        ("loss: 0.5 %", "sessions_accepted: 100 %", ["expect.sessions_accepted", "a section upf"]),
        ("name: good", "name: ../../etc", ["name", "'../../etc'"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    for word in words:
        assert word in message


def test_every_error_of_a_file_is_reported_with_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    text = """name: t
streams:
  - {name: one, size: 128, rate_pps: 0, count_packets: 500}
  - name: two
    rate_bps: lots
    duration_s: 2s 3
receive: {mode: counting}
recieve: 3
"""
    with pytest.raises(BadInputs) as caught:
        load(tmp_path, text)
    lines = [line.removeprefix(f"{tmp_path}/test.yaml") for line in str(caught.value).splitlines()]
    starts = [
        ":3: streams.0.rate_pps = 0: out of range (allowed: more than 0 packets/s)",
        ":3: streams.0.size: unknown key; the nearest is 'size_bytes' (allowed: name, from",
        ":5: streams.1.rate_bps = 'lots': not a bit rate (allowed: a number of bit/s, or with bit, kbit",
        ":6: streams.1.duration_s = '2s 3': unknown unit 's 3' (allowed: a number of s, or with ns, us",
        ":7: receive.mode = 'counting': unknown choice; the nearest is 'count' (allowed: capture, count)",
        ":8: recieve: unknown key; the nearest is 'receive' (allowed: name",
    ]
    assert len(lines) == len(starts)
    for line, start in zip(sorted(lines), sorted(starts), strict=True):
        assert line.startswith(start)


def test_wrong_headers_of_two_streams_are_both_reported(tmp_path: Path) -> None:
    stream = "{name: NAME, rate_pps: 1, duration_s: 1, headers: [{ethernet: {}}, {ipv4: {ttl: 256}}, {udp: {}}]}"
    text = f"name: t\nstreams:\n- {stream.replace('NAME', 'a')}\n- {stream.replace('NAME', 'b')}\n"
    with pytest.raises(BadInputs) as caught:
        load(tmp_path, text)
    assert [problem.key for problem in caught.value.problems] == [
        "streams.0.headers.1.ipv4.ttl",
        "streams.1.headers.1.ipv4.ttl",
    ]
    assert [problem.where for problem in caught.value.problems] == [f"{tmp_path}/test.yaml:{line}" for line in (3, 4)]


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ("streams: 3", "streams = 3: cannot be used (allowed: a list)"),
        ("streams:", "streams: has no value (allowed: a list)"),
        ("streams: [{rate_pps: 1, duration_s: 1}]", "streams.0.name: missing key"),
        ("description: [1]", "description: cannot be used (allowed: a text)"),
        ("connections: [{name: c, block_bytes: 1, blocks: 1, nodelay: perhaps}]", "(allowed: true or false)"),
        ("connections: [{name: c, block_bytes: 1, blocks: 1.5}]", "blocks = 1.5: cannot be used (allowed: a whole"),
        ("seed: -1", "seed = -1: out of range (allowed: 0 or more)"),
        ("clock: sundial", "clock = 'sundial': unknown choice (allowed: measured, ptp)"),
        (
            "expect: {loss: lots}",
            "expect.loss = 'lots': not a number of packets (allowed: a number of packets, or with k, M, G: 64k, "
            "1.5M or a percentage: 0.1 %)",
        ),
    ],
)
def test_each_kind_of_error_has_one_wording(tmp_path: Path, sections: str, words: str) -> None:
    assert words in refused(tmp_path, f"name: t\n{sections}\n")


@pytest.mark.parametrize("kind", [error["type"] for error in list_all_errors() if error["type"] != "value_error"])
def test_no_wording_of_pydantic_reaches_the_user(kind: Any) -> None:
    example = next(error for error in list_all_errors() if error["type"] == kind)
    detail: Any = {"type": kind, "loc": ("seed",), "input": 3, "ctx": example.get("example_context") or {}}
    error = ValidationError.from_exception_data("t", [detail])
    words = str(problems.refuse(Path("s.yaml"), error, scenario.Scenario, {"seed": 3}))
    assert error.errors()[0]["msg"] not in words and "nput should" not in words


STREAM = "streams: [{name: s, KEY: VALUE, duration_s: 1}]"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("rate_pps", "1kpps", 1000.0),
        ("rate_pps", "1G", 1e9),
        ("rate", "2.5k", 2500.0),
        ("rate_bps", "10M", 1e7),
        ("rate_l1_bps", "1gbit", 1e9),
        ("mtu_bytes", "1.5k", 1500),
        ("size_bytes", "1kB", 1000),
        ("size_bytes", "[64, 1.5k]", [64, 1500]),
    ],
)
def test_a_key_of_a_stream_takes_units(tmp_path: Path, key: str, text: str, value: object) -> None:
    if key == "mtu_bytes":
        data = {"name": "s", "sessions": "g", "direction": "up", "oversize": "inner", key: text, "duration_s": "1s"}
        assert Stream.model_validate(data).mtu_bytes == value
        return
    stream = load(tmp_path, f"name: t\n{STREAM.replace('KEY', key).replace('VALUE', text)}\n").streams[0]
    assert getattr(stream, key) == value


def test_times_counts_and_percentages_take_units(tmp_path: Path) -> None:
    text = """name: t
stop_after_s: 2min
streams: [{name: s, rate: 1, count_packets: 64k}]
connections: [{name: c, block_bytes: 64KiB, period_s: 20us, duration_s: 500ms, connections: 1k, pace_bps: 10M}]
receive: {ring_mib: 16MiB, drain_s: 100 ms}
expect: {latency_p99_us: 5ms, received_pps: 1k, loss: 2k, altered: .5%, sent: {s: 64k}, received: {s: 0.06M}}
traces:
  - {name: t, file: x.pcap, timing: {pps: 1kpps}}
  - {name: u, file: x.pcap, timing: {bps: 1gbit}}
"""
    made = load(tmp_path, text)
    assert [trace.timing for trace in made.traces] == [{"pps": 1000}, {"bps": 1e9}]
    assert (made.expect.loss, made.expect.altered) == (2000, ".5%")
    assert (made.expect.sent, made.expect.received) == ({"s": 64_000}, {"s": 60_000})
    connection = made.connections[0]
    assert (made.stop_after_s, made.streams[0].count_packets) == (120, 64000)
    assert (connection.block_bytes, connection.period_s, connection.duration_s) == (65536, 2e-5, 0.5)
    assert (connection.connections, connection.pace_bps) == (1000, 1e7)
    assert (made.receive.ring_mib, made.receive.drain_s) == (16, 0.1)
    assert (made.expect.latency_p99_us, made.expect.received_pps) == (5000, 1000)
    echo = {"name": "s", "sessions": "g", "direction": "up", "echo": "50 %", "rate": 1, "duration_s": 1}
    assert Stream.model_validate(echo).echo == 50


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (
            "rate_bps",
            "20us",
            "rate_bps = '20us': wrong unit: 'us' is of a time, not of a bit rate (allowed: a number of",
        ),
        ("rate_bps", "10MB/s", "ambiguous unit 'MB/s'"),
        ("rate_pps", "1gbit", "wrong unit: 'gbit' is of a bit rate, not of a packet rate"),
        ("rate_pps", "0pps", "out of range (allowed: more than 0 packets/s)"),
        ("count_packets", "1.5", "count_packets = 1.5: cannot be used (allowed: a whole number)"),
    ],
)
def test_a_wrong_unit_is_named_with_those_allowed(tmp_path: Path, key: str, text: str, words: str) -> None:
    assert words in refused(tmp_path, f"name: t\n{STREAM.replace('KEY', key).replace('VALUE', text)}\n")


def test_the_schema_allows_units() -> None:
    rate = json.loads(scenario.schema())["$defs"]["Stream"]["properties"]["rate_bps"]["anyOf"]
    pattern = next(each["pattern"] for each in rate if each["type"] == "string")
    assert [bool(re.search(pattern, text)) for text in ("10M", "1 gbit", "7", "20us", "lots")] == [True] * 3 + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("sent", "key", "words"),
    [
        ("streams: [{name: s, rate_pps: 9, count_packets: 9, options: {stamp: false}}]", "altered", "needs stamps"),
        ("traces: [{name: s, file: x.pcap}]", "jitter_sd_us", "needs stamps, and s has none"),
        ("connections: [{name: s, block_bytes: 100, blocks: 1}]", "latency_max_us", "connections allow only loss"),
    ],
)
def test_a_limit_that_cannot_be_measured_is_refused(tmp_path: Path, sent: str, key: str, words: str) -> None:
    message = refused(tmp_path, f"name: t\n{sent}\nexpect: {{streams: {{s: {{{key}: 1}}}}}}\n")
    assert f"expect.streams.s.{key}: {words}" in message


def test_nothing_to_send_is_named(tmp_path: Path) -> None:
    assert "nothing to send" in refused(tmp_path, "name: idle\n")


def test_the_unit_of_an_expected_count_is_not_that_of_the_streams_name(tmp_path: Path) -> None:
    text = "streams: [{name: s, rate_pps: 9, count_packets: 9}]"
    message = refused(tmp_path, f"name: t\n{text}\nexpect: {{sent: {{s: 3ms}}}}\n")
    assert "expect.sent.s = '3ms': wrong unit: 'ms' is of a time, not of a number of packets" in message


@pytest.mark.parametrize(("timing", "words"), [("{multiplier: 0}", "greater than 0"), ("{pps: 1, bps: 1}", "one of")])
def test_a_traces_timing_is_checked(tmp_path: Path, timing: str, words: str) -> None:
    text = f"name: t\ntraces: [{{name: t, file: x.pcap, timing: {timing}}}]\n"
    assert words in refused(tmp_path, text)


def test_a_number_may_have_an_exponent_without_a_sign(tmp_path: Path) -> None:
    text = "name: t\nstreams: [{name: s, rate: {steady: 2e3}, duration_s: 1, headers: [{ethernet: {}}]}]\n"
    assert load(tmp_path, text).streams[0].rate == {"steady": 2000.0}


def test_the_schema_is_one_and_knows_every_key() -> None:
    schema = json.loads(scenario.schema())
    keys = {"name", "description", "samples_per_s", "streams", "sources", "traces", "connections"}
    keys |= {"seed", "stop_after_s", "clock", "receive", "expect", "upf"}
    assert schema["properties"].keys() == keys
    assert "from" in schema["$defs"]["Stream"]["properties"]


def test_the_shipped_schema_is_up_to_date() -> None:
    shipped = Path("configs/scenario.schema.json").read_text()
    assert shipped == scenario.schema(), "make it again: pktswarm schema > configs/scenario.schema.json"
