"""Scenarios: what ships loads, and each wrong input gets one message with file, key, value and what is allowed."""

import json
from pathlib import Path

import pytest

from master import scenario
from traffic.errors import BadInput

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
    ("old", "new", "words"),
    [
        ("size_bytes: 128", "size: 128", ["streams.0.size", "unknown key", "size_bytes"]),
        ("receive: {mode: count", "recieve: {mode: count", ["recieve", "unknown key", "receive"]),
        ("mode: count", "mode: counting", ["receive.mode", "'counting'", "'capture' or 'count'"]),
        ("size_bytes: 128", "size_bytes: lots", ["streams.0.size_bytes", "'lots'", "integer"]),
        ("size_bytes: 128", "size_bytes: 63", ["streams.0.size_bytes", "63", "64"]),
        ("size_bytes: 128", "size_bytes: 9619", ["streams.0.size_bytes", "9619", "9618"]),
        ("rate_pps: 1000", "rate_pps: 0", ["streams.0.rate_pps", "0", "greater than 0"]),
        ("rate_pps: 1000", "rate_pps: 10, rate_bps: 10", ["streams.0", "rate_pps and rate_bps contradict"]),
        ("count_packets: 500", "count_packets: 5, duration_s: 5", ["streams.0", "contradict"]),
        (", count_packets: 500", "", ["streams.0", "count_packets or duration_s is needed"]),
        ("[1000, 1009]", "[1009, 1000]", ["streams.1.headers.2.udp.src", "1009"]),
        ("{ttl: 9}", "{ttl: 256}", ["streams.1.headers.1.ipv4.ttl", "256", "255"]),
        ("{ttl: 9}", "{ttk: 9}", ["streams.1.headers.1.ipv4.ttk", "ttl"]),
        ("{ipv4: {ttl: 9}}, ", "", ["streams.1.headers.1", "udp"]),
        ("name: two", "name: one", ["two streams or traces are called 'one'"]),
        ("sent: {one: 500}", "sent: {three: 500}", ["expect names 'three'", "one, two"]),
        ("loss: 0.5 %", "loss: little", ["expect.loss", "'little'"]),
        ("name: good", "name: ../../etc", ["name", "'../../etc'"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    for word in words:
        assert word in message


def test_nothing_to_send_is_named(tmp_path: Path) -> None:
    assert "nothing to send" in refused(tmp_path, "name: idle\n")


@pytest.mark.parametrize(("timing", "words"), [("{multiplier: 0}", "greater than 0"), ("{pps: 1, bps: 1}", "one of")])
def test_a_traces_timing_is_checked(tmp_path: Path, timing: str, words: str) -> None:
    text = f"name: t\ntraces: [{{name: t, file: x.pcap, timing: {timing}}}]\n"
    assert words in refused(tmp_path, text)


def test_the_schema_is_one_and_knows_every_key() -> None:
    schema = json.loads(scenario.schema())
    assert schema["properties"].keys() == {"name", "description", "streams", "traces", "receive", "expect"}
    assert "from" in schema["$defs"]["Stream"]["properties"]


def test_the_shipped_schema_is_up_to_date() -> None:
    shipped = Path("configs/scenario.schema.json").read_text()
    assert shipped == scenario.schema(), "make it again: pktswarm schema > configs/scenario.schema.json"
