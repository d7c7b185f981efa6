"""Who sends what to whom: pairs, shares that add up exactly, engines chosen with their reasons, tasks."""

from pathlib import Path
from typing import Any

import pytest

from master import inventory, plan, resolve, scenario
from traffic.errors import BadInput
from traffic.match import Match
from traffic.task import Leg
from traffic.traces import Packet, write_pcap

HOSTS = """
all:
  children:
    master: {{hosts: {{m0: {{}}}}}}
    transmit: {{vars: {{traffic_interface: eth1}}, hosts: {{{tx}}}}}
    receive: {{vars: {{traffic_interface: eth1}}, hosts: {{{rx}}}}}
"""


def make_inventory(tmp_path: Path, tx: int = 3, rx: int = 2) -> inventory.Inventory:
    path = tmp_path / "hosts.yml"
    names = [", ".join(f"{kind}{n}: {{}}" for n in range(1, count + 1)) for kind, count in (("tx", tx), ("rx", rx))]
    path.write_text(HOSTS.format(tx=names[0], rx=names[1]))
    return inventory.load(path)


def make_plan(tmp_path: Path, text: str, **nodes: int) -> tuple[scenario.Scenario, plan.Plan, inventory.Inventory]:
    path = tmp_path / "test.yaml"
    path.write_text("name: test\n" + text)
    hosts = make_inventory(tmp_path, **nodes)
    loaded = scenario.load(path)
    return loaded, plan.plan(loaded, path, hosts), hosts


def report(number: int, **interface: Any) -> dict[str, Any]:
    known = {"name": "eth1", "exists": True, "carrier": True, "mtu": 1500, "mac": f"02:00:00:00:00:{number:02x}"}
    return {
        "interface": {**known, "ipv4": f"10.0.0.{number}", **interface},
        "senders": {"pktgen": "not in this kernel", "trafgen": "", "tcpreplay": ""},
        "receivers": {"netsniff-ng": ""},
    }


def reports(hosts: inventory.Inventory) -> dict[str, dict[str, Any]]:
    return {host.name: report(number) for number, host in enumerate(hosts.hosts, start=1)}


def resolved(
    tmp_path: Path, text: str, change: dict[str, dict[str, Any]] | None = None, **nodes: int
) -> resolve.Resolved:
    loaded, planned, hosts = make_plan(tmp_path, text, **nodes)
    known = {**reports(hosts), **(change or {})}
    return resolve.resolve(loaded, planned, {host.name: host for host in hosts.hosts}, known)


def trace_file(tmp_path: Path, sizes: list[int]) -> Path:
    """UDP packets of `sizes`, each its own flow, 1 ms apart."""
    packets = []
    for index, size in enumerate(sizes):
        ports = (1000 + index).to_bytes(2, "big") + b"\x00\x35" + (size - 34).to_bytes(2, "big") + b"\0\0"
        ip = b"\x45\0" + (size - 14).to_bytes(2, "big") + bytes(4) + b"\x40\x11\0\0" + bytes([10, 9, 9, 1, 10, 9, 9, 2])
        packets.append(Packet(index * 1_000_000, (bytes(12) + b"\x08\0" + ip + ports).ljust(size, b"x")))
    path = tmp_path / "trace.pcap"
    path.write_bytes(write_pcap(packets))
    return path


def test_a_streams_count_and_rate_are_shared_and_add_up(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, rate_pps: 100, count_packets: 1000}]")
    assert [leg.count_packets for leg in planned.legs] == [334, 333, 333]
    assert sum(leg.rate_pps or 0 for leg in planned.legs) == pytest.approx(100)
    assert [(leg.source, leg.target) for leg in planned.legs] == [("tx1", "rx1"), ("tx2", "rx2"), ("tx3", "rx1")]


def test_per_node_gives_each_the_whole(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, rate_pps: 100, count_packets: 1000, per: node}]")
    assert [(leg.count_packets, leg.rate_pps) for leg in planned.legs] == [(1000, 100)] * 3


def test_fewer_packets_than_transmitters_leave_some_out(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, count_packets: 2}]")
    assert [leg.count_packets for leg in planned.legs] == [1, 1]


def test_a_rate_and_a_duration_make_a_count(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, rate_pps: 300, duration_s: 2.5}]")
    assert [leg.intended_packets for leg in planned.legs] == [250, 250, 250]
    assert planned.expected_s == pytest.approx(2.5)


def test_one_host_can_be_named(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, from: tx2, to: rx2, count_packets: 5}]")
    assert [(leg.source, leg.target) for leg in planned.legs] == [("tx2", "rx2")]


def test_a_host_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"streams\.0\.from = 'tx9': no such transmit host .*tx1, tx2, tx3"):
        make_plan(tmp_path, "streams: [{name: s, from: tx9, count_packets: 5}]")


def test_a_trace_is_shared_whole_and_a_rate_with_it(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 9)
    _, planned, _ = make_plan(tmp_path, "traces: [{name: t, file: trace.pcap, repeat: 2, timing: {pps: 900}}]")
    assert sum(leg.intended_packets or 0 for leg in planned.legs) == 18
    assert sum(leg.timing["value"] for leg in planned.legs) == pytest.approx(900)


def test_original_timing_holds_across_nodes(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 9)
    _, planned, _ = make_plan(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    leads = [leg.timing["lead_ns"] for leg in planned.legs]
    assert min(leads) == 0
    assert sorted(leads) == sorted(min(p.time_ns for p in planned.shares[leg.id]) for leg in planned.legs)


def test_tasks_have_every_address_and_tell_their_streams_apart(tmp_path: Path) -> None:
    made = resolved(tmp_path, "streams: [{name: a, count_packets: 9}, {name: b, count_packets: 9}]")
    assert set(made.sends) == {"tx1", "tx2", "tx3"} and set(made.receives) == {"rx1", "rx2"}
    first = made.legs[0]
    assert first.frame["headers"][0] == {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:04"}}
    assert first.frame["headers"][1]["ipv4"] == {"src": "10.0.0.1", "dst": "10.0.0.4"}
    matches = [Match.from_json(leg.match) for leg in made.legs]
    assert not any(one.overlaps(two) for i, one in enumerate(matches) for two in matches[:i])
    assert [leg.stream for leg in made.receives["rx1"].legs] == ["a", "a", "b", "b"]


def test_the_engine_is_chosen_by_what_the_node_has_and_the_reason_is_told(tmp_path: Path) -> None:
    made = resolved(tmp_path, "streams: [{name: s, count_packets: 9}]")
    assert {leg.engine for leg in made.legs} == {"trafgen"}
    assert made.choices == ["trafgen sends s on tx1, tx2, tx3, because: pktgen: not in this kernel"]


def change_of(name: str, number: int, **interface: Any) -> dict[str, dict[str, Any]]:
    return {name: report(number, **interface)}


@pytest.mark.parametrize(
    ("stream", "change", "words"),
    [
        ("engine: pktgen", {}, ["tx1", "engine", "'pktgen'", "not in this kernel"]),
        ("engine: tcpreplay", {}, ["tx1", "it sends traces only"]),
        ("size_bytes: 1600", {}, ["tx1", "eth1", "1600", "MTU of 1500", "up to 1518"]),
        ("size_bytes: 64", change_of("rx1", 4, exists=False), ["rx1", "traffic_interface", "no such interface"]),
        ("size_bytes: 64", change_of("rx2", 5, carrier=False), ["rx2", "eth1", "no link"]),
        ("size_bytes: 64", change_of("tx2", 2, ipv4=""), ["tx2", "ipv4.src", "no address known", "inventory"]),
        ("headers: [{ethernet: {dst: {random: ['02:00:00:00:00:01', '02:00:00:00:00:ff']}}}]", {}, ["rx1", "varies"]),
    ],
)
def test_what_a_node_cannot_do_names_the_host(
    tmp_path: Path, stream: str, change: dict[str, dict[str, Any]], words: list[str]
) -> None:
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, f"streams: [{{name: s, count_packets: 9, {stream}}}]", change)
    for word in words:
        assert word in str(caught.value)


def test_streams_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    headers = "headers: [{ethernet: {}}, {ipv4: {}}, {udp: {src: 1, dst: 2}}]"
    text = f"streams: [{{name: a, count_packets: 9, {headers}}}, {{name: b, count_packets: 9, {headers}}}]"
    with pytest.raises(BadInput, match="'a' and 'b' from tx1 cannot be told apart"):
        resolved(tmp_path, text)


def test_a_receiver_without_an_engine_is_named(tmp_path: Path) -> None:
    lacking = report(4)
    lacking["receivers"] = {"netsniff-ng": "netsniff-ng is not installed"}
    with pytest.raises(BadInput, match=r"rx1: receive: no engine can receive here: netsniff-ng: .* not installed"):
        resolved(tmp_path, "streams: [{name: s, count_packets: 9}]", {"rx1": lacking})


def test_a_trace_longer_than_the_mtu_is_refused_with_its_packet(tmp_path: Path) -> None:
    trace_file(tmp_path, [100, 1515, 100])
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    for word in ("trace.pcap", "packet 2", "1515", "tx1 eth1"):
        assert word in str(caught.value)


def test_a_traces_frames_go_from_node_to_node_and_belong_to_it_alone(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 3)
    text = "streams: [{name: s, count_packets: 9}]\ntraces: [{name: t, file: trace.pcap}]"
    made = resolved(tmp_path, text)
    legs: list[Leg] = [leg for leg in made.legs if leg.kind == "trace"]
    (name, data), *_ = made.files[legs[0].source]
    frame = data[24 + 16 :][:100]
    assert legs[0].trace_file == name
    assert Match.from_json(legs[0].match).matches(frame)
    assert not any(Match.from_json(leg.match).matches(frame) for leg in made.legs if leg.kind == "stream")


def test_a_tagged_trace_is_refused_in_a_capture_and_counted_otherwise(tmp_path: Path) -> None:
    path = trace_file(tmp_path, [100])
    frame = path.read_bytes()[-100:]
    path.write_bytes(write_pcap([Packet(0, frame[:12] + b"\x81\x00\x00\x07" + frame[12:])]))
    with pytest.raises(BadInput, match=r"trace\.pcap: receive\.mode = 'capture': packet 1 has a VLAN tag"):
        resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    made = resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]\nreceive: {mode: count}")
    assert made.legs[0].intended_packets == 1
