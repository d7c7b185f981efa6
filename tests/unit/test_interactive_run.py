"""An interactive trace from the scenario to the results: two legs, one file for both nodes, counts of two ends."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, PropertyMock

import pytest
from rich.console import Console

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank, ranks
from pktswarm.master.plan import plan, resolve
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results import replayed_flows
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.scenario import scenario
from pktswarm.master.scenario.expectations import Expect
from pktswarm.nodes.interactive.ends import Ends
from pktswarm.traffic.capture.trace import Packet, read_packets, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.flow_report import FlowReport, FlowState
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount
from run_events import NO_INPUTS, as_event

RECORDED = Path(__file__).parents[2] / "configs" / "traces" / "lab.pcapng"
HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}, rx2: {}}}
"""
TRACE = f"traces: [{{name: t, file: {RECORDED}, interactive: true"


def loaded(tmp_path: Path, text: str) -> tuple[scenario.Scenario, Path, inventory.Inventory]:
    path, hosts = tmp_path / "test.yaml", tmp_path / "hosts.yml"
    path.write_text(f"name: test\n{text}\n")
    hosts.write_text(HOSTS)
    return scenario.load(path), path, inventory.load(hosts)


def resolved(tmp_path: Path, text: str, **interface: Any) -> Resolved:
    read, path, hosts = loaded(tmp_path, text)
    known = {"name": "eth1", "exists": True, "carrier": True, "mtu": 1500}
    reports = {
        host.name: {
            "interface": {**known, "mac": f"02:00:00:00:00:{n:02x}", "ipv4": f"10.0.0.{n}", **interface},
            "senders": {"trafgen": "", "interactive": "", "xdp": "no", "pktgen": "no"},
            "receivers": {"netsniff-ng": "", "xdp": "no", "interactive": ""},
        }
        for n, host in enumerate(hosts.hosts, start=1)
    }
    planned = plan.plan(read, path, hosts)
    return resolve.resolve(read, planned, {host.name: host for host in hosts.hosts}, reports)


def test_each_share_has_a_leg_of_each_side_and_the_ranks_of_the_first_do_both(tmp_path: Path) -> None:
    read, path, hosts = loaded(tmp_path, TRACE + "}]")
    planned = plan.plan(read, path, hosts)
    pairs = [(leg.source, leg.target, leg.answers) for leg in planned.legs]
    assert pairs == [("tx1", "rx1", None), ("rx1", "tx1", 0), ("tx2", "rx2", None), ("rx2", "tx2", 2)]
    assert [leg.id for leg in planned.legs] == [0, 1, 2, 3]
    assert sum(leg.intended_packets or 0 for leg in planned.legs) == 895
    roles = [(rank.host.name, rank.role) for rank in ranks(hosts, planned.legs)]
    assert roles == [("tx1", "transmit"), ("tx2", "transmit"), ("rx1", "receive"), ("rx2", "receive")]
    assert planned.limit_s > 10 * planned.expected_s


def test_both_nodes_are_given_the_same_frames_and_both_legs(tmp_path: Path) -> None:
    made = resolved(tmp_path, TRACE + ", from: tx1, to: rx1}]")
    assert made.files["tx1"] == made.answer_files["rx1"]
    assert [leg.id for leg in made.sends["tx1"].legs] == [leg.id for leg in made.receives["rx1"].legs] == [0, 1]
    assert made.receives["rx1"].engine == "interactive"
    assert set(made.sends) == {"tx1"} and set(made.receives) == {"rx1"}
    ((name, data),) = made.files["tx1"]
    (tmp_path / name).write_bytes(data)
    senders = [packet.data[6:12] for packet in read_packets(tmp_path / name)]
    assert [senders.count(bytes([2, 0, 0, 0, 0, n])) for n in (1, 3)] == [leg.intended_packets for leg in made.legs]


def test_beside_other_traffic_the_other_engine_receives_the_rest(tmp_path: Path) -> None:
    stream = "streams: [{name: s, from: tx1, to: rx1, rate_pps: 10, count_packets: 5}]"
    made = resolved(tmp_path, f"{stream}\n{TRACE}, from: tx1, to: rx1}}]")
    assert made.receives["rx1"].engine == "netsniff-ng+interactive"


def test_two_traces_between_two_nodes_are_told_apart_by_their_content(tmp_path: Path) -> None:
    numbers = [packet.data for packet in read_packets(RECORDED)]
    tcp = [frame for frame in numbers if frame[12:14] == b"\x08\x00" and frame[23] == 6]
    other = [frame[:18] + bytes(a ^ 0xFF for a in frame[18:20]) + frame[20:] for frame in tcp]  # IPv4 identification
    file = tmp_path / "other.pcap"
    file.write_bytes(write_pcap([Packet(n * 1000, frame) for n, frame in enumerate(other)]))
    pair = f"{TRACE}, from: tx1, to: rx1}}, {{name: u, file: FILE, from: tx1, to: rx1, interactive: true}}]"
    made = resolved(tmp_path, pair.replace("FILE", str(file)))
    assert [(leg.stream, leg.answers) for leg in made.legs] == [("t", None), ("t", 0), ("u", None), ("u", 2)]
    assert sum(leg.intended_packets or 0 for leg in made.legs[2:]) == len(tcp)
    with pytest.raises(BadInput, match="'t' and 'u' have an equal packet between tx1 and rx1"):
        resolved(tmp_path, pair.replace("FILE", str(RECORDED)))


def test_frames_that_the_recording_host_merged_are_cut_and_told(tmp_path: Path) -> None:
    made = resolved(tmp_path, TRACE + ", from: tx1, to: rx1}]", mtu=1000)
    assert sum(leg.intended_packets or 0 for leg in made.legs) > 895
    assert any("merged" in note for note in made.notes)


@pytest.mark.parametrize(
    "key",
    [
        *("repeat: 2", "timing: top", "timing: {multiplier: 2}", "engine: tcpreplay", "options: {burst: 2}"),
        *("speed: 2", "rate_pps: 100", "rate_bps: 1.0e6", "longest_gap_s: 1", "scale: 2", "filter: tcp"),
        *("window: {from_s: 1}", "users_by: syn", "client_prefix: 10.0.0.0/8", "users: {first: 10.60.0.1}"),
        *("direction: both", "gtpu: {}", "vlan: 5", "payload: sizes", "oversize: cut", "mtu_bytes: 1400"),
        *("split: user", "verify: true", "background: true", "servers: {first: 10.70.0.1}"),
    ],
)
def test_what_does_not_go_with_interactive_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadInput, match=f"traces.0.*an interactive trace cannot be combined with {key.split(':')[0]}"):
        loaded(tmp_path, f"{TRACE}, {key}}}]")


def test_no_cut_off_time_ends_an_interactive_trace(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="stop_after_s cannot end t: an interactive trace ends when both ends have finished"
    ):
        loaded(tmp_path, f"stop_after_s: 1\n{TRACE}}}]")


def test_a_trace_without_a_flow_that_can_be_played_is_refused(tmp_path: Path) -> None:
    frame = bytes(12) + b"\x08\x00" + bytes.fromhex("45000028000020004006000001010101020202020050005000000001")
    file = tmp_path / "fragments.pcap"
    file.write_bytes(write_pcap([Packet(0, frame + bytes(12))]))
    read, path, hosts = loaded(tmp_path, f"traces: [{{name: t, file: {file}, interactive: true}}]")
    with pytest.raises(BadInput, match=r"fragments.pcap: interactive = True: has no flow that can be played"):
        plan.plan(read, path, hosts)


# --- counts -------------------------------------------------------------------------------------------------------

TX = Host("tx1", "10.0.0.1", ("transmit",), traffic_interface="eth1")
RX = Host("rx1", "10.0.0.2", ("receive",), traffic_interface="eth1")
THERE = Leg(0, "t", "tx1", "rx1", "trace", "interactive", intended_packets=10)
BACK = replace(THERE, id=1, source="rx1", target="tx1", answers=0, intended_packets=6)
COUNTERS = dict.fromkeys(("tx_bytes", "tx_dropped", "rx_bytes", "rx_dropped"), 0)


def report(sent: int, received: int, state: FlowState = "complete") -> FlowReport:
    return FlowReport(0, "tcp 1 → 2", state, 1_000, 2_500, sent, 2, received, 1, sent * 60, 120, received * 60)


def run(state: FlowState = "complete", tx_packets: int = 12, rx_node_tx_packets: int = 8) -> Ledger:
    made = Ledger([Rank(1, TX, "transmit"), Rank(2, RX, "receive")])
    made.resolved = Resolved([THERE, BACK])
    made.take(as_event({"event": "phase", "name": "over", "at_ns": 9}))
    for rank, out, coming, here in ((1, 0, 1, report(10, 6, state)), (2, 1, 0, report(6, 9))):
        sent = SendCount(out, "interactive", here.sent, here.sent_bytes, resent_packets=2, flows=[here])
        received = ReceiveCount(coming, "interactive", here.received, here.received_bytes)
        counters = {"tx_packets": tx_packets if rank == 1 else rx_node_tx_packets, "rx_packets": 100, **COUNTERS}
        counts = [asdict(sent), asdict(received)]
        made.take(as_event({"event": "counts", "rank": rank, "counts": counts, "interface": counters, "captures": []}))
    return made


def test_each_direction_is_a_row_with_what_both_ends_told() -> None:
    there, back = run().rows()
    assert (there.intended, there.sent.packets, there.sent.resent, there.received.packets, there.lost) == (
        10,
        10,
        2,
        9,
        1,
    )
    assert (back.intended, back.sent.packets, back.sent.resent, back.received.packets, back.lost) == (6, 6, 2, 6, 0)
    nodes = run().node_rows()
    assert [(node["sent_packets"], node["received_packets"]) for node in nodes] == [(10, 6), (6, 9)]


def test_what_was_sent_again_counts_against_the_interface() -> None:
    assert run().doubts() == []
    assert run(tx_packets=11).doubts() == [
        "tx1 (transmit): the engines counted 12 packets, tx_packets of the interface is 11"
    ]
    assert "eth1 sent 1 packets more than the engines" in run(tx_packets=13).doubts()[0]
    assert run(rx_node_tx_packets=7).doubts() == [
        "rx1 (receive): the engines counted 8 packets, tx_packets of the interface is 7"
    ]


def test_flows_of_both_ends_become_one_row_with_their_stretch() -> None:
    outcome = run().outcome(Expect(), NO_INPUTS)
    (flow,) = outcome.flows
    assert list(flow) == replayed_flows.COLUMNS
    assert (flow["state"], flow["stretch"], flow["received_packets"], flow["answers_received_packets"]) == (
        "complete", 2.5, 9, 6,
    )  # fmt: skip
    assert outcome.document["flows"] == outcome.flows
    shown = io.StringIO()
    Console(file=shown, width=120).print(replayed_flows.table(outcome.flows))
    assert "tcp 1 → 2" in shown.getvalue() and "2.50" in shown.getvalue()


def test_a_flow_that_was_given_up_is_told() -> None:
    outcome = run("given up").outcome(Expect(), NO_INPUTS)
    assert outcome.flows[0]["state"] == "given up"
    assert "t: 1 of 1 flows given up" in outcome.document["notes"]


def test_no_end_is_ready_before_its_capture_has_begun() -> None:
    """Though the last process arms itself while the ends are looked at."""
    ends = Ends([], "lo", Path("/no/spool"), 1.0, begins=True)
    looks = iter([False, True, True])
    arming, capture = Mock(), Mock()
    capture.ready = lambda: capture.start.called
    type(arming).armed = PropertyMock(side_effect=lambda: next(looks))
    ends.ends, ends._capture = [arming], capture
    assert not ends.ready() and not capture.start.called
    assert ends.ready() and capture.start.called
