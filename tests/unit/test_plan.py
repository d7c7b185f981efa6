"""Who sends what to whom: pairs, shares that add up exactly, engines chosen with their reasons, tasks."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import explain, plan, receivers, resolve, streams
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.scenario import scenario
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.counting import expect
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import AddressPool, Arrival, FlowUsers, Leg, Oversize, RandomStart, Shift
from pktswarm.traffic.schedule import capabilities

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
        "senders": {
            "xdp": "no live frames here",
            "tc": "no libbpf here",
            "pktgen": "not in this kernel",
            "trafgen": "",
            "tcpreplay": "",
        },
        "receivers": {"netsniff-ng": "", "xdp": "not on this node"},
    }


def reports(hosts: inventory.Inventory) -> dict[str, dict[str, Any]]:
    return {host.name: report(number) for number, host in enumerate(hosts.hosts, start=1)}


def resolved(tmp_path: Path, text: str, change: dict[str, dict[str, Any]] | None = None, **nodes: int) -> Resolved:
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


def test_a_duration_that_does_not_divide_makes_the_streams_count(tmp_path: Path) -> None:
    _, planned, _ = make_plan(tmp_path, "streams: [{name: s, rate_pps: 100, duration_s: 1}]")
    assert [(leg.count_packets, leg.intended_packets) for leg in planned.legs] == [(34, 34), (33, 33), (33, 33)]
    for leg in planned.legs:
        assert ((leg.count_packets or 0) - 1) / (leg.rate_pps or 0) < 1, "the last is due within the duration"


def test_what_does_not_divide_goes_to_those_that_miss_most() -> None:
    """A node with more than its rate makes in the time would have one packet due as the time is over."""
    assert streams.split(105, [4, 3, 3]) == [42, 32, 31]
    assert streams.split(150, [34, 33, 33]) == [51, 50, 49]
    assert streams.split(10, [2, 1, 1]) == [5, 3, 2]
    assert streams.split(100, [1, 1, 1]) == [34, 33, 33]


def test_a_cut_off_stream_has_as_many_as_its_rate_makes_until_then(tmp_path: Path) -> None:
    for duration in ("duration_s: 1", "duration_s: 9", "count_packets: 900"):
        text = f"streams: [{{name: s, rate_pps: 100, {duration}}}]\nstop_after_s: 1"
        assert [leg.intended_packets for leg in make_plan(tmp_path, text)[1].legs] == [34, 33, 33]


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
    assert sum(leg.timing.value for leg in planned.legs) == pytest.approx(900)


def test_original_timing_holds_across_nodes(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 9)
    _, planned, _ = make_plan(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    leads = [leg.timing.lead_ns for leg in planned.legs]
    assert min(leads) == 0
    shares = [planned.shares[leg.id] for leg in planned.legs]
    assert sorted(leads) == sorted(int(share.prepared.due.time_ns[share.rows].min()) for share in shares)


def test_tasks_have_every_address_and_tell_their_streams_apart(tmp_path: Path) -> None:
    made = resolved(tmp_path, "streams: [{name: a, count_packets: 9}, {name: b, count_packets: 9}]")
    assert set(made.sends) == {"tx1", "tx2", "tx3"} and set(made.receives) == {"rx1", "rx2"}
    first = made.legs[0]
    assert first.frame["headers"][0] == {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:04"}}
    assert first.frame["headers"][1]["ipv4"] == {"src": "10.0.0.1", "dst": "10.0.0.4"}
    matches = [Match.from_data(leg.match) for leg in made.legs]
    assert not any(one.overlaps(two) for i, one in enumerate(matches) for two in matches[:i])
    assert [leg.stream for leg in made.receives["rx1"].legs] == ["a", "a", "b", "b"]


def test_the_engine_is_chosen_by_what_the_node_has_and_the_reason_is_told(tmp_path: Path) -> None:
    made = resolved(tmp_path, "streams: [{name: s, count_packets: 9}]")
    assert {leg.engine for leg in made.legs} == {"trafgen"}
    reasons = "xdp: no live frames here; tc: no libbpf here; pktgen: not in this kernel"
    assert made.choices == [f"trafgen sends s on tx1, tx2, tx3, because: {reasons}"]


def test_auto_takes_tc_where_there_are_no_live_frames(tmp_path: Path) -> None:
    senders = {"xdp": "no live frames here", "tc": "", "pktgen": "", "trafgen": ""}
    known = {f"tx{n}": {**report(n), "senders": senders} for n in (1, 2, 3)}
    made = resolved(tmp_path, "streams: [{name: s, count_packets: 9}]", known)
    assert {leg.engine for leg in made.legs} == {"tc"} and all(map(expect.sender_stamps, made.legs))
    assert made.choices == ["tc sends s on tx1, tx2, tx3, because: xdp: no live frames here"]


@pytest.mark.parametrize(("engine", "sends"), [("auto", "tc"), ("xdp", "xdp")])
def test_an_engine_that_changes_the_interface_sends_where_it_is_named(tmp_path: Path, engine: str, sends: str) -> None:
    senders = {"xdp": "only while a program is attached", "tc": "", "pktgen": "", "trafgen": ""}
    known = {f"tx{n}": {**report(n), "senders": senders, "on_request": ["xdp"]} for n in (1, 2, 3)}
    made = resolved(tmp_path, f"streams: [{{name: s, count_packets: 9, engine: {engine}}}]", known)
    assert {leg.engine for leg in made.legs} == {sends}


def change_of(name: str, number: int, **interface: Any) -> dict[str, dict[str, Any]]:
    return {name: report(number, **interface)}


@pytest.mark.parametrize(
    ("stream", "change", "words"),
    [
        ("engine: pktgen", {}, ["tx1", "engine", "'pktgen'", "not in this kernel"]),
        ("engine: tcpreplay", {}, ["tx1", "sends traces only"]),
        ("size_bytes: 1600", {}, ["tx1", "eth1", "1600", "MTU of 1500", "up to 1518"]),
        (
            "size_bytes: 64",
            change_of("rx1", 4, exists=False),
            ["rx1", "traffic_interface", "no interface of this name"],
        ),
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
    with pytest.raises(BadInput, match="'a' and 'b' from tx1 cannot be distinguished"):
        resolved(tmp_path, text)


def test_a_receiver_without_an_engine_is_named(tmp_path: Path) -> None:
    lacking = report(4)
    lacking["receivers"] = {"netsniff-ng": "netsniff-ng is not installed", "xdp": "not on this node"}
    with pytest.raises(BadInput, match=r"rx1: receive: no engine can receive here: netsniff-ng: .* not installed"):
        resolved(tmp_path, "streams: [{name: s, count_packets: 9}]", {"rx1": lacking})


def with_xdp(**interface: Any) -> dict[str, dict[str, Any]]:
    both = {**report(4, **interface), "receivers": {"netsniff-ng": "", "xdp": ""}}
    return {"rx1": both, "rx2": {**both, "interface": report(5)["interface"]}}


@pytest.mark.parametrize(
    ("stream", "more", "every"),
    [
        ("rate_pps: 900000, duration_s: 1", "", 1),
        ("rate_pps: 1100000, duration_s: 1", "", 16),
        ("rate_pps: 1100000, duration_s: 1", "timed_every: 1", 1),
        ("rate_pps: 10, duration_s: 1", "timed_every: 64", 64),
        ("duration_s: 1", "", 16),
        ("engine: pktgen, duration_s: 1", "", 1),
        ("duration_s: 1, users: ipv4.src, headers: [{ethernet: {}}, {ipv4: {src: {increment: [1.0.0.1, 1.0.0.9]}}}, "
        "{udp: {src: 1, dst: 2}}]", "", 1),
    ],
)  # fmt: skip
def test_fast_frames_are_not_all_timed(tmp_path: Path, stream: str, more: str, every: int) -> None:
    engine = "" if "engine" in stream else ", engine: xdp"
    text = f"streams: [{{name: s{engine}, {stream}}}]\nreceive: {{{more}}}"
    change = {"tx1": {**report(2), "senders": {"xdp": "", "pktgen": ""}}, "rx1": with_xdp()["rx1"]}
    made = resolved(tmp_path, text, change, tx=1, rx=1)
    assert made.receives["rx1"].timed_every == every


@pytest.mark.parametrize(("mode", "engine"), [("count", "xdp"), ("capture", "xdp+netsniff-ng")])
def test_xdp_receives_wherever_it_is_whoever_sends(tmp_path: Path, mode: str, engine: str) -> None:
    trace_file(tmp_path, [100] * 3)
    text = (
        f"streams: [{{name: s, count_packets: 9}}]\ntraces: [{{name: t, file: trace.pcap}}]\nreceive: {{mode: {mode}}}"
    )
    made = resolved(tmp_path, text, {"rx1": with_xdp()["rx1"]})
    assert {name: task.engine for name, task in made.receives.items()} == {"rx1": engine, "rx2": "netsniff-ng"}
    assert f"{engine} receives on rx1" in made.notes
    assert "netsniff-ng receives on rx2, because: xdp: not on this node" in made.notes


def test_where_xdp_cannot_tell_all_legs_apart_netsniff_does(tmp_path: Path) -> None:
    udp = "{udp: {src: {increment: [1, 9]}, dst: {increment: [1, 9]}}}"
    ip = "{ipv4: {src: {increment: [10.1.0.1, 10.1.0.9]}, dst: {increment: [10.2.0.1, 10.2.0.9]}}}"
    src = "{increment: ['02:00:00:00:00:01', '02:00:00:00:00:03']}"
    text = f"streams: [{{name: s, count_packets: 9, headers: [{{ethernet: {{src: {src}}}}}, {ip}, {udp}]}}]"
    made = resolved(tmp_path, text, with_xdp(), tx=1)
    assert made.receives["rx1"].engine == "netsniff-ng"
    assert any("because: xdp: an unstamped stream has too long a match for XDP" in note for note in made.notes)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("streams: [{name: s, count_packets: 9}]\nclock: ptp", "clock"),
        ("streams: [{name: s, count_packets: 9}]\nreceive: {capture_every: 10}", "receive.capture_every"),
        ("streams: [{name: s, count_packets: 9}]\nreceive: {timed_every: 16}", "receive.timed_every"),
        (
            "streams: [{name: s, count_packets: 9, users: udp.src, headers: "
            "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [1, 9]}, dst: 2}}]}]",
            "streams.s.users",
        ),
    ],
)
def test_what_only_xdp_counts_is_refused_without_it(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(BadInput, match=rf"rx1: {key}: only the receiver xdp does that.*: not on this node"):
        resolved(tmp_path, text)
    assert resolved(tmp_path, text, with_xdp()).receives["rx1"].engine == "xdp+netsniff-ng"


def test_tags_that_a_veth_may_hide_are_netsniffs(tmp_path: Path) -> None:
    text = "streams: [{name: s, count_packets: 9, headers: [{ethernet: {}}, {vlan: {id: 7}}, {ipv4: {}}]}]"
    made = resolved(tmp_path, text, with_xdp(driver="veth"))
    assert [made.receives[name].engine for name in ("rx1", "rx2")] == ["netsniff-ng", "xdp+netsniff-ng"]
    assert any("because: xdp: a veth may hand over a VLAN tag beside the frame" in note for note in made.notes)
    assert resolved(tmp_path, text, with_xdp(driver="igc")).receives["rx1"].engine == "xdp+netsniff-ng"


def test_a_filter_is_netsniffs_where_the_counter_cannot_be_behind_one(tmp_path: Path) -> None:
    text = "streams: [{name: s, count_packets: 9}]\nreceive: {mode: count, filter: udp}"
    reports = with_xdp()
    reports["rx1"] = {**reports["rx1"], "tail_calls": "the kernel of armv7l takes no tail call"}
    made = resolved(tmp_path, text, reports)
    assert [made.receives[name].engine for name in ("rx1", "rx2")] == ["netsniff-ng", "xdp"]
    assert any("because: xdp: the kernel of armv7l takes no tail call" in note for note in made.notes)


@pytest.mark.parametrize(
    ("more", "echoes", "receive", "key"),
    [
        ({}, 1, "", "streams.s"),
        ({"arrives": Arrival([]), "oversize": Oversize("outer", None, (0, 9))}, 0, "", "streams.s.oversize"),
        ({}, 0, "receive: {engine: xdp, filter: udp}", "receive.filter"),
    ],
)
def test_what_the_counter_does_by_a_further_program_is_refused_where_it_cannot_call_one(
    tmp_path: Path, more: dict[str, Any], echoes: int, receive: str, key: str
) -> None:
    made, _, _ = make_plan(tmp_path, f"streams: [{{name: s, count_packets: 9}}]\n{receive}")
    one = Leg(0, "s", "tx1", "rx1", "stream", **more)
    given = made, "rx1", [one], [one] * echoes
    with pytest.raises(BadInput, match=rf"rx1: {key}: the receiver xdp cannot do that here: no tail call"):
        receivers.refuse_without_tail_calls(*given, {"tail_calls": "no tail call"})
    receivers.refuse_without_tail_calls(*given, {})


def test_users_need_xdp_only_where_they_arrive(tmp_path: Path) -> None:
    headers = "headers: [{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [1, 9]}, dst: 2}}]"
    text = (
        f"streams: [{{name: s, to: rx1, count_packets: 9, users: udp.src, {headers}}}, {{name: t, count_packets: 9}}]"
    )
    made = resolved(tmp_path, text, {"rx1": with_xdp()["rx1"]})
    assert {name: task.engine for name, task in made.receives.items()} == {
        "rx1": "xdp+netsniff-ng",
        "rx2": "netsniff-ng",
    }


def test_a_streams_users_and_what_the_device_changes_reach_the_receiver(tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [10, 90], step: 10}, dst: 2}}]"
    stream = f"{{name: s, count_packets: 9, users: udp.src, expect: {{ttl: 63, src_mac: null}}, headers: {headers}}}"
    made = resolved(tmp_path, f"streams: [{stream}]\nreceive: {{filter: udp}}", with_xdp(), tx=1)
    (leg,) = made.receives["rx1"].legs
    assert leg.users == FlowUsers("udp.src", "src_port", 10, 10, 9)
    assert leg.expect == {"ttl": 63, "src_mac": None}
    mask = Match.from_data(leg.match).mask
    assert mask[:6] == b"\xff" * 6 and mask[6:12] == bytes(6), "a frame is known without what may change"
    assert bytes.fromhex(made.receives["rx1"].filter_program)


def test_a_filter_that_xdp_cannot_have_is_netsniffs_or_refused(tmp_path: Path) -> None:
    text = "streams: [{name: s, count_packets: 9}]\nreceive: {filter: inbound}"
    made = resolved(tmp_path, text, with_xdp())
    assert {task.engine for task in made.receives.values()} == {"netsniff-ng"}
    assert any("because: xdp: reads packet metadata that XDP does not have" in note for note in made.notes)
    with pytest.raises(BadInput, match="filter: reads packet metadata that XDP does not have"):
        resolved(tmp_path, text.replace("{filter", "{engine: xdp, filter"), with_xdp())


def test_a_trace_longer_than_the_mtu_is_refused_with_its_packet(tmp_path: Path) -> None:
    trace_file(tmp_path, [100, 1515, 100])
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    for word in ("trace.pcap", "packet 2", "1515", "tx1 eth1"):
        assert word in str(caught.value)


def test_a_leg_has_all_its_sizes_and_the_largest(tmp_path: Path) -> None:
    text = "streams: [{name: s, engine: xdp, count_packets: 9, rate_bps: 8.0e+6, size_bytes: SIZES}]"
    _, planned, _ = make_plan(tmp_path, text.replace("SIZES", "{64: 3, 128: 1}"), tx=1, rx=1)
    (leg,) = planned.legs
    assert (leg.size_bytes, leg.sizes, leg.sizes_in_turn, leg.rate_pps) == (128, [[64, 3], [128, 1]], False, 12500)
    _, planned, _ = make_plan(tmp_path, text.replace("SIZES", "[128, 64, 128]"), tx=1, rx=1)
    assert (planned.legs[0].sizes, planned.legs[0].sizes_in_turn) == ([[128, 1], [64, 1], [128, 1]], True)
    _, planned, _ = make_plan(tmp_path, text.replace("SIZES", "[128]"), tx=1, rx=1)
    assert (planned.legs[0].size_bytes, planned.legs[0].sizes, planned.legs[0].sizes_in_turn) == (128, [], False)


@pytest.mark.parametrize(
    ("sizes", "words"), [("70", "9 packets of 70 bytes"), ("{uniform: [70, 99]}", "9 packets of 70 to 99 bytes")]
)
def test_sizes_are_explained(tmp_path: Path, sizes: str, words: str) -> None:
    make_plan(tmp_path, f"streams: [{{name: s, count_packets: 9, size_bytes: {sizes}}}]", tx=1, rx=1)
    assert words in explain.explain(tmp_path / "test.yaml", tmp_path / "hosts.yml")


def able_to(engine: str) -> dict[str, dict[str, Any]]:
    made = report(1)
    made["senders"][engine] = ""
    return {"tx1": made}


@pytest.mark.parametrize("engine", ["xdp", "pktgen"])
def test_frames_of_several_sizes_are_known_by_their_bytes_alone(engine: str, tmp_path: Path) -> None:
    text = f"streams: [{{name: s, engine: {engine}, count_packets: 9, size_bytes: imix}}]"
    text += "\nreceive: {engine: netsniff-ng}"
    made = resolved(tmp_path, text, able_to(engine), tx=1, rx=1)
    assert made.legs[0].match is not None and made.legs[0].match.length is None
    (tmp_path / "one").mkdir()
    made = resolved(tmp_path / "one", text.replace("imix", "100"), able_to(engine), tx=1, rx=1)
    assert made.legs[0].match is not None and made.legs[0].match.length == 96


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("engine: xdp, size_bytes: [64, 1600, 70]", ["eth1", "1600", "MTU of 1500", "up to 1518"]),
        ("engine: trafgen, size_bytes: imix", ["tx1", "sends frames of one size only"]),
        ("engine: pktgen, size_bytes: [64, 70]", ["tx1", "cannot send sizes in turn"]),
    ],
)
def test_sizes_that_cannot_be_sent(tmp_path: Path, stream: str, words: list[str]) -> None:
    change = able_to("xdp")
    change["tx1"]["senders"]["pktgen"] = ""
    with pytest.raises(BadInput) as caught:
        resolved(tmp_path, f"streams: [{{name: s, count_packets: 9, {stream}}}]", change, tx=1, rx=1)
    assert all(word in str(caught.value) for word in words)


def test_a_traces_frames_go_from_node_to_node_and_belong_to_it_alone(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 3)
    text = "streams: [{name: s, count_packets: 9}]\ntraces: [{name: t, file: trace.pcap}]"
    made = resolved(tmp_path, text)
    legs: list[Leg] = [leg for leg in made.legs if leg.kind == "trace"]
    (name, data), (rows, _) = made.files[legs[0].source]
    frame = bytes(data[24 + 16 :][:100])
    assert rows == name.replace(".pcap", ".rows.npy")
    assert legs[0].trace_file == name
    assert Match.from_data(legs[0].match).matches(frame)
    assert not any(Match.from_data(leg.match).matches(frame) for leg in made.legs if leg.kind == "stream")


def tagged_trace(folder: Path, tags: Iterable[str]) -> None:
    path = trace_file(folder, [100])
    frame = path.read_bytes()[-100:]
    frames = (frame[:12] + bytes.fromhex(tag) + frame[12:] for tag in tags)
    path.write_bytes(write_pcap([Packet(number, frame) for number, frame in enumerate(frames)]))


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([""], ()),
        (["81000007"], ((0x8100, 7),)),
        (["", "88a8600781000001", "81000007", "88a86007"], (None, (0x8100, 7), (0x88A8, 0x6007))),
        (["91000007"], ()),  # a type that Linux leaves in the frame
        (["91000007", "81000007"], (None, (0x8100, 7))),
    ],
)
def test_the_match_of_a_trace_has_the_outermost_tags_of_its_packets(
    tmp_path: Path, tags: list[str], found: tuple[tuple[int, int] | None, ...]
) -> None:
    tagged_trace(tmp_path, tags)
    made = resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    match = Match.from_data(made.legs[0].match)
    assert match.tags == found and match.captured_tags == (found or (None,))
    assert Match.from_data(match.to_data()) == match
    one = resolved(tmp_path, "traces: [{name: t, file: trace.pcap, vlan: 9}]")
    assert Match.from_data(one.legs[0].match).captured_tags == ((0x8100, 9),)


def test_a_trace_with_more_tags_than_captures_is_refused_in_a_capture_and_counted_otherwise(tmp_path: Path) -> None:
    tagged_trace(tmp_path, (f"8100{number:04x}" for number in range(17)))
    with pytest.raises(
        BadInput, match=r"trace\.pcap: receive\.mode = 'capture': its packets have 17 VLAN tags"
    ) as caught:
        resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]")
    assert "16 tags; mode count; or one tag for all (vlan)" in str(caught.value)
    made = resolved(tmp_path, "traces: [{name: t, file: trace.pcap}]\nreceive: {mode: count}")
    assert made.legs[0].intended_packets == 17


def many(engine: str, number: int) -> str:
    return "streams:\n" + "".join(f"- {{name: s{n}, engine: {engine}, count_packets: 1}}\n" for n in range(number))


def test_more_streams_than_xdp_takes_are_told_before_a_host_is_touched(tmp_path: Path) -> None:
    why = r"tx1: streams = 257: too many streams and traces for one interface \(allowed: up to 256\)"
    with pytest.raises(BadInput, match=why):
        make_plan(tmp_path, many("xdp", 257), tx=1, rx=1)
    assert len(make_plan(tmp_path, many("xdp", 256), tx=1, rx=1)[1].legs) == 256
    assert len(make_plan(tmp_path, many("trafgen", 257), tx=1, rx=1)[1].legs) == 257


def test_more_streams_than_xdp_takes_where_auto_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "AUTO_ORDER", ("xdp",))
    known = {"tx1": {**report(1), "senders": {"xdp": ""}}}
    with pytest.raises(BadInput, match="tx1: streams = 257: too many"):
        resolved(tmp_path, many("auto", 257), known, tx=1, rx=1)


# --- Traces: instances, directions, pools ----------------------------------------------------------------------------

TRACE = "traces: [{name: t, file: trace.pcap, KEYS}]"
USERS = "users: {first: 10.60.0.1}, servers: {first: 10.70.0.1}"


def both_roles(tmp_path: Path) -> inventory.Inventory:
    path = tmp_path / "hosts.yml"
    path.write_text(HOSTS.format(tx="tx1: {}, rx1: {}", rx="tx1: {}, rx1: {}"))
    return inventory.load(path)


def plan_of(tmp_path: Path, keys: str, hosts: inventory.Inventory | None = None, more: str = "") -> plan.Plan:
    path = tmp_path / "test.yaml"
    path.write_text("name: test\n" + TRACE.replace("KEYS", keys) + more)
    loaded = scenario.load(path)
    return plan.plan(loaded, path, hosts or make_inventory(tmp_path, 1, 1))


def test_an_instance_is_a_leg_that_shares_the_file_and_is_counted_with_the_first(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 9)
    text = TRACE.replace("KEYS", f"scale: 3, repeat: 2, {USERS}, gtpu: {{teid: 7}}")
    made = resolved(tmp_path, text, tx=1, rx=1)
    assert [leg.shift for leg in made.legs] == [Shift(n, n, 0, n) for n in (0, 1, 2)]
    assert [(leg.merged_into, leg.trace_file, leg.count_packets) for leg in made.legs] == [
        (None, "leg-0.pcap", 18),
        (0, "leg-0.pcap", 18),
        (0, "leg-0.pcap", 18),
    ]
    assert [name for name, _ in made.files["tx1"]] == ["leg-0.pcap", "leg-0.rows.npy"]
    assert [leg.id for leg in made.sends["tx1"].legs] == [0, 1, 2]
    assert [leg.id for leg in made.receives["rx1"].legs] == [0]
    assert made.legs[1].pools["users"] == AddressPool("10.60.0.1", 1, "fd00::")
    assert "3 instances of it" in explain.explain(tmp_path / "test.yaml", tmp_path / "hosts.yml")


def test_instances_start_together_spread_or_at_random(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 9)
    found = plan_of(tmp_path, f"scale: {{instances: 3, start: spread}}, {USERS}")
    assert [leg.timing.lead_ns for leg in found.legs] == [0, 3_000_000, 6_000_000]
    assert found.expected_s == pytest.approx(0.015)
    found = plan_of(tmp_path, f"scale: {{instances: 2, start: random, seed: 9, offset_s: 0.5}}, {USERS}")
    assert found.legs[0].timing.random is None
    assert found.legs[1].timing.random == RandomStart(1, 500_000_000, 9)


def test_both_directions_are_two_legs_between_the_same_hosts(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 4)
    path = tmp_path / "trace.pcap"
    data = bytearray(path.read_bytes())
    at = 24 + 116 + 16  # the second packet goes the other way
    data[at + 26 : at + 34] = data[at + 30 : at + 34] + data[at + 26 : at + 30]
    path.write_bytes(data)
    found = plan_of(tmp_path, f"direction: both, from: tx1, to: rx1, {USERS}", both_roles(tmp_path))
    assert [(leg.source, leg.target, leg.count_packets) for leg in found.legs] == [("tx1", "rx1", 3), ("rx1", "tx1", 1)]
    assert [leg.timing.lead_ns for leg in found.legs] == [0, 1_000_000]
    with pytest.raises(BadInput, match=r"traces\.0\.direction = 'both': tx1 has no role 'receive'.*--both-roles"):
        plan_of(tmp_path, f"direction: both, {USERS}")


def test_a_traces_users_are_counted_where_one_address_tells_them(tmp_path: Path) -> None:
    trace_file(tmp_path, [100, 200, 300])
    found = plan_of(tmp_path, f"scale: 3, repeat: 2, direction: up, {USERS}")
    first = int.from_bytes(bytes([10, 60, 0, 1]), "big")
    by_source = FlowUsers("ipv4.src", "src_ip", first, 1, 3)
    assert [leg.users for leg in found.legs] == [by_source, None, None]
    assert found.shares[0].by_user(2) == ([6, 6, 6], [2 * (600 + 3 * 4)] * 3)
    assert plan_of(tmp_path, f"scale: 3, {USERS}").legs[0].users is None  # users send and receive in one leg
    assert plan_of(tmp_path, "direction: up").legs[0].users is None
    many = plan_of(tmp_path, f"scale: {{instances: 256, users: 258}}, direction: up, {USERS}")
    assert many.legs[0].users is None and many.shares[0].by_user(1) is None


def test_pools_of_two_traces_must_not_overlap(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 4)
    more = "\n".join(["", "  - {name: u, file: trace.pcap, users: {first: 10.70.0.1}}"])
    text = f"{USERS}"
    path = tmp_path / "test.yaml"
    path.write_text(f"name: test\ntraces:\n  - {{name: t, file: trace.pcap, {text}}}{more}\n")
    with pytest.raises(BadInput, match=r"traces\.1\.users\.first = '10\.70\.0\.1': overlaps traces\.0\.servers, 1"):
        plan.plan(scenario.load(path), path, make_inventory(tmp_path, 1, 1))


def test_one_tag_for_all_is_captured_and_looked_for(tmp_path: Path) -> None:
    trace_file(tmp_path, [100] * 3)
    made = resolved(tmp_path, TRACE.replace("KEYS", "vlan: 100"), tx=1, rx=1)
    match = Match.from_data(made.legs[0].match)
    assert match.outer_tag == (0x8100, 100)
    frame = bytes(made.files["tx1"][0][1][40:144])
    assert match.matches(frame) and frame[12:16] == b"\x81\x00\x00\x64"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("speed: 2, rate_pps: 5", ["speed and rate_pps contradict each other"]),
        ("timing: top, speed: 2", ["speed and timing contradict each other"]),
        ("speed: 0", ["speed", "more than 0"]),
        ("scale: 0", ["scale", "1 or more"]),
        ("scale: {instances: 2, start: soon}", ["scale", "start"]),
        ("timing: top, scale: {instances: 2, start: spread}", ["scale.start spread needs recorded times"]),
        ("window: {from_s: 2, to_s: 1}", ["window", "to_s must be greater than from_s (2)"]),
        ("client_prefix: 10.0.0.0/33", ["10.0.0.0/33"]),
        ("client_prefix: 10.0.0.0/8, users_by: syn", ["client_prefix and users_by contradict each other"]),
        ("users: {first: 10.0.0}", ["users", "10.0.0"]),
        ("users: {first: 10.0.0.1, ipv6: 'fd00::1'}", ["fd00::1: the last 32 bits must be 0"]),
        ("direction: down, gtpu: {}", ["gtpu encapsulates uplink packets only"]),
        ("gtpu: {pdu_session: {qfi: 64}}", ["qfi", "up to 63"]),
        ("vlan: 4095", ["vlan", "4094"]),
        ("oversize: split", ["oversize", "cut"]),
        ("payload: none", ["payload", "sizes"]),
    ],
)
def test_keys_of_a_trace_that_cannot_be(tmp_path: Path, keys: str, words: list[str]) -> None:
    trace_file(tmp_path, [100])
    with pytest.raises(BadInput) as caught:
        plan_of(tmp_path, keys)
    for word in ["test.yaml", "traces.0", *words]:
        assert word in str(caught.value)


def test_verifying_needs_a_capture(tmp_path: Path) -> None:
    trace_file(tmp_path, [100])
    with pytest.raises(BadInput, match=r"t is to be verified, which needs receive.mode capture"):
        plan_of(tmp_path, "verify: true", more="\nreceive: {mode: count}")


def test_patience_lengthens_what_a_run_may_take_beyond_its_sending(tmp_path: Path) -> None:
    _, made, _ = make_plan(tmp_path, "streams: [{name: s, rate_pps: 100, count_packets: 1000}]")
    assert made.limit_s == pytest.approx(made.expected_s * 1.2 + plan.MARGIN_S)
    assert replace(made, patience=20.0).limit_s == pytest.approx(made.expected_s * 1.2 + 20 * plan.MARGIN_S)
    assert replace(made, patience=0.1).limit_s == made.limit_s
