"""Traces flow by flow, and latency by captures: every clock wrong by an amount of its own."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results import trace_verify
from pktswarm.master.results.row import CaptureCounts, ReceivedCounts, Row, SentCounts
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.results.terminal import describe_flows
from pktswarm.traffic.capture.trace import write_pcap
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.tally import Latency, Tally
from pktswarm.traffic.counting.trace_verify import arrivals, intended
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_events import Clock
from pktswarm.traffic.protocol.task import ReceiveTask, Role
from pktswarm.traffic.replay.flows import OTHER, Flow, FlowCount, count, flow_of
from recordings import MACS, NODES, ipv4, ipv6, tcp, udp
from test_replay_verify import DELAY_NS, case, legs

ONE, TWO = bytes([1, 1, 1, 1]), bytes([2, 2, 2, 2])
SIX = bytes(15) + b"\x01", bytes(15) + b"\x02"
INNER = tcp("10.0.0.1", 9, "10.0.0.2", 80)[14:]
PORTS = struct.pack(">HHHH", 7, 8, 8, 0)
CASES = {
    "udp": (udp("1.1.1.1", 9, "2.2.2.2", 53), Flow(17, ONE, 9, TWO, 53)),
    "tcp": (tcp("1.1.1.1", 9, "2.2.2.2", 53), Flow(6, ONE, 9, TWO, 53)),
    "a tag": (MACS + b"\x81\x00\x00\x05" + udp("1.1.1.1", 9, "2.2.2.2", 53)[12:], Flow(17, ONE, 9, TWO, 53)),
    "ipv6": (ipv6(*SIX, 17, PORTS), Flow(17, SIX[0], 7, SIX[1], 8)),
    "gtpu": (
        udp("1.1.1.1", 2152, "2.2.2.2", 2152, struct.pack(">BBHI", 0x30, 255, len(INNER), 9) + INNER),
        Flow(6, bytes([10, 0, 0, 1]), 9, bytes([10, 0, 0, 2]), 80),
    ),
    "ip in ip": (ipv4("1.1.1.1", "2.2.2.2", INNER, 4), Flow(6, bytes([10, 0, 0, 1]), 9, bytes([10, 0, 0, 2]), 80)),
    "icmp": (ipv4("1.1.1.1", "2.2.2.2", bytes(8), 1), Flow(1, ONE, -1, TWO, -1)),
    "first fragment": (ipv4("1.1.1.1", "2.2.2.2", PORTS, 17, 3, 0x2000), Flow(17, ONE, 7, TWO, 8)),
    "later fragment": (ipv4("1.1.1.1", "2.2.2.2", PORTS, 17, 3, 0x0004), Flow(17, ONE, -1, TWO, -1)),
    "no ip": (MACS + b"\x08\x06" + bytes(40), OTHER),
    "cut off": (udp("1.1.1.1", 9, "2.2.2.2", 53)[:30], OTHER),
}


@pytest.mark.parametrize("name", CASES)
def test_the_flow_of_a_frame(name: str) -> None:
    frame, flow = CASES[name]
    assert flow_of(frame) == flow


def test_columns_of_a_flow() -> None:
    told = Flow(17, ONE, 9, SIX[1], 53).values()
    assert list(told.values()) == [17, "1.1.1.1", "::2", 9, 53]
    assert Flow(1, ONE, -1, TWO, -1).values()["source_port"] is None
    assert OTHER.values() == {"protocol": "other"}


def test_counts_by_flow() -> None:
    a, b, c = (Flow(17, ONE, port, TWO, 1) for port in (1, 2, 3))
    assert count([b, a, b], [b, c, c]) == [FlowCount(b, 2, 1), FlowCount(a, 1, 0), FlowCount(c, 0, 2)]


def test_arrivals_by_flow_and_delay(tmp_path: Path) -> None:
    """One lost, one altered, one twice: these three flows' counts, and no delay of a frame that may be another."""
    wanted, packets = case(tmp_path)
    altered = packets[3]._replace(data=packets[3].data[:-1] + bytes([packets[3].data[-1] ^ 1]))
    arrived = arrivals(wanted, [*packets[:3], altered, *packets[5:], packets[9]])
    sent = Counter(wanted.tuples[number] for number in wanted.content.tolist())
    flows = [Flow(17, bytes([10, 60, 0, 1]), port, bytes([10, 9, 0, 2]), 53) for port in (9, 10)]
    assert sent == dict.fromkeys(flows, 5)
    assert Counter(arrived.tuples) == {flows[0]: 4, flows[1]: 6}
    delays = arrived.delays_ns(wanted)
    assert delays.tolist() == [10**18 + DELAY_NS] * 7, "neither the lost, nor the altered, nor the doubled one"


def test_what_is_cut_off_is_not_intended(tmp_path: Path) -> None:
    group = [replace(leg, duration_s=0.0125) for leg in legs(tmp_path, repeat=3)]
    wanted = intended(group, tmp_path)
    assert len(wanted.due_ns) == len(wanted.content) == len(wanted.flow) == 13
    assert int(wanted.due_ns.max()) < 12_500_000


# --- latency by captures ---------------------------------------------------------------------------------------------

START_NS = 5_000_000_000
MIDDLE_NS = START_NS + 10_000_000_000


def a_node(name: str, role: Role, offset_ns: int, drift_ns: int = 0, utc_ns: int = 0, step_ns: int = 0) -> NodeState:
    """A clock that is `offset_ns` ahead at the start, gains `drift_ns` by the middle; UTC that steps afterwards."""
    host = Host(name, name, (role,), "ctl0", "eth1", "a")
    node = NodeState(Rank(1, host, role))
    readings: tuple[tuple[Literal["before", "start", "after"], int, int, int], ...] = (
        ("before", 0, -drift_ns // 2, 900),
        ("start", START_NS, 0, 700),
        ("after", 25_000_000_000, 2 * drift_ns, 500),
    )
    for when, at_ns, more, bound_ns in readings:
        utc = utc_ns + (step_ns if when == "after" else 0)
        node.clock[when] = Clock(1, when, at_ns, offset_ns + more, bound_ns, 700, utc)
    return node


def a_row(received: int | None = None, sent: int = 5) -> Row:
    counts = SentCounts(packets=sent, max_lateness_ns=4000)
    return Row(Leg(0, "t", "a", "b", "trace"), sent=counts, received=ReceivedCounts(received))


def compared(delays_ns: list[int] | None, flows: list[FlowCount] | None = None) -> trace_verify.Compared:
    array = None if delays_ns is None else np.array(delays_ns, np.int64)
    return trace_verify.Compared(Leg(0, "t", "a", "b", "trace"), None, flows or [], array)


def captured(due_ns: int, delay_ns: int, sender: NodeState, receiver: NodeState) -> int:
    """Arrival in the receiver's UTC less due time, of a frame that left when it was due; worked out from the clocks."""
    began = START_NS + sender.clock["start"].offset_ns  # what the sender was told, on its own clock
    there, here = sender.offset_at(MIDDLE_NS), receiver.offset_at(MIDDLE_NS)
    assert there is not None and here is not None
    arrived_ns = began + due_ns - there.offset_ns + delay_ns  # on the master's
    return arrived_ns + here.offset_ns + receiver.clock["start"].realtime_minus_monotonic_ns - due_ns


@pytest.mark.parametrize("drift_ns", [0, 40_000])
def test_latency_by_captures_and_its_bound(drift_ns: int) -> None:
    sender = a_node("a", "transmit", 7_000_000_000, drift_ns)
    receiver = a_node("b", "receive", -3_000_000_000, -drift_ns, utc_ns=10**18)
    true_ns = [1_000_000 + 1000 * number for number in range(1, 101)]
    one = compared([captured(n * 10**6, delay, sender, receiver) for n, delay in enumerate(true_ns)])
    found = trace_verify.latency(one, a_row(), sender, receiver, START_NS, MIDDLE_NS)
    assert found is not None
    made, bound_ns = found
    assert (made.frames, made.min_ns, made.p50_ns, made.p99_ns, made.max_ns) == (
        100, 1_001_000, 1_050_000, 1_099_000, 1_100_000,
    )  # fmt: skip
    clocks = [node.offset_at(MIDDLE_NS) for node in (sender, receiver)]
    assert bound_ns == sum(clock.bound_ns for clock in clocks if clock) + 4000 + 700


def test_a_receiver_whose_utc_steps_has_a_wider_bound() -> None:
    sender, receiver = a_node("a", "transmit", 0), a_node("b", "receive", 0, utc_ns=10**18)
    stepped = a_node("b", "receive", 0, utc_ns=10**18, step_ns=3_000_000)
    one = compared([captured(0, 1_000_000, sender, receiver)])
    even, wider = (
        trace_verify.latency(one, a_row(), sender, node, START_NS, MIDDLE_NS) for node in (receiver, stepped)
    )
    assert even is not None and wider is not None
    assert wider[1] - even[1] == 1_500_000 and abs(wider[0].p50_ns - even[0].p50_ns) <= wider[1]


def test_no_latency_without_clocks_due_times_or_a_known_lateness() -> None:
    sender, receiver = a_node("a", "transmit", 0), a_node("b", "receive", 0)
    silent = NodeState(receiver.rank)
    for one, row, nodes in (
        (compared(None), a_row(), (sender, receiver)),
        (compared([]), a_row(), (sender, receiver)),
        (compared([5]), replace(a_row(), sent=SentCounts(packets=5)), (sender, receiver)),
        (compared([5]), a_row(), (sender, silent)),
        (compared([5]), a_row(), (NodeState(sender.rank), receiver)),
    ):
        assert trace_verify.latency(one, row, *nodes, START_NS, MIDDLE_NS) is None


LATENCY = Latency(9, 1000, 1500.0, 2000, 3000, 4000, 4500, 5000)


def test_the_results_say_by_what_a_latency_was_obtained() -> None:
    row = replace(a_row(received=5), capture=CaptureCounts(latency=LATENCY, latency_bound_ns=6000))
    values = stream_values(row)
    assert (values["latency_by"], values["latency_p50_ns"], values["latency_bound_ns"]) == ("captures", 2000, 6000)
    assert values["lost_by"] == "difference"
    told = trace_verify.describe(row)
    assert (
        "p50 2.0, p99 4.0, maximum 5.0 ± 6.0 µs from due times to captures (9 frames)" in told
        and "up to 4.0 µs" in told
    )
    assert trace_verify.latencies([row])[0]["p99_ns"] == 4000
    tally = Tally(5, 500, distinct=5, latency=replace(LATENCY, p50_ns=7))
    stamps = replace(row, received=ReceivedCounts(5, tally=tally, latency_bound_ns=8))
    values = stream_values(stamps)
    assert (values["latency_by"], values["latency_p50_ns"], values["latency_bound_ns"]) == ("stamps", 7, 8)
    assert trace_verify.describe(stamps) == "" and trace_verify.latencies([stamps])[0]["p50_ns"] == 2000
    assert "latency_by" not in stream_values(a_row())


def test_a_stamped_trace_loses_by_number_and_by_count() -> None:
    leg, tally = Leg(0, "t", "a", "b", "trace"), Tally(90, 9000, distinct=88, duplicated=2)
    row = Row(leg, None, SentCounts(packets=120, stamped=100), ReceivedCounts(107, tally=tally, unstamped=17))
    values = stream_values(row)
    assert (values["lost_packets"], values["lost_by"]) == (12 + 3, "stamps+difference")
    assert (values["unstamped_sent_packets"], values["unstamped_received_packets"]) == (20, 17)
    assert replace(row, sent=SentCounts(packets=120)).lost is None, "the number of stamped packets is unknown"
    row = Row(leg, None, SentCounts(packets=100, stamped=100), ReceivedCounts(90, tally=tally, unstamped=0))
    assert stream_values(row)["lost_by"] == "stamps"


def test_rows_of_flows() -> None:
    flows = [FlowCount(Flow(17, ONE, 1, TWO, 2), 3, 1), FlowCount(Flow(6, ONE, 1, TWO, 2), 2, 2)]
    rows = trace_verify.flow_rows([compared([], [*flows, FlowCount(OTHER, 0, 4)])], [a_row(received=7)])
    assert [row["lost_packets"] for row in rows] == [2, 0, -4]
    assert {name for row in rows for name in row} == set(trace_verify.FLOW_COLUMNS)
    assert describe_flows(rows) == (
        "1 of 2 flows of traces lost packets, by count; the worst 1.1.1.1 port 1 → 2.2.2.2 port 2: 2 of 3 "
        "(flow_counts.csv)"
    )
    # Of 4 that were sent nobody knows of which flow the fifth would have been.
    rows = trace_verify.flow_rows([compared([], flows)], [a_row(received=3, sent=4)])
    assert [(row["sent_packets"], row["lost_packets"], row["lost_by"]) for row in rows] == [(None, None, None)] * 2
    assert "packets sent of 2 are not known" in describe_flows(rows)


@pytest.mark.parametrize(
    ("more", "asked", "found"),
    [
        ({}, set(), [None]),
        ({}, {"t"}, [(9, 1)]),
        ({"capture_every": 10}, {"t"}, []),
        ({"capture_filter": "udp"}, {"t"}, []),
        ({"mode": "count"}, {"t"}, []),
    ],
)
def test_what_was_captured_whole_is_compared(
    tmp_path: Path, more: dict[str, Any], asked: set[str], found: list[Any]
) -> None:
    (tmp_path / "sent").mkdir()
    (tmp_path / "captures").mkdir()
    wanted, packets = case(tmp_path / "sent")
    match = Match.rest(NODES.user_mac.hex(), NODES.server_mac.hex()).to_data()
    mine = [replace(leg, match=match) for leg in legs(tmp_path / "sent")]
    (tmp_path / "captures" / "b-capture-1.pcap").write_bytes(write_pcap(packets[1:]))
    results = trace_verify.compare(tmp_path, mine, {"b": ReceiveTask("eth1", "", mine, 9.0, **more)}, asked, [])
    told = [one.verified and (one.verified.as_intended, one.verified.lost) for one in results]
    assert told == found
    for one in results:
        assert [(each.intended, each.received) for each in one.flows] == [(5, 4), (5, 5)]
        assert one.delays_ns is not None and len(one.delays_ns) == 9 and len(wanted.due_ns) == 10


def test_what_is_too_much_to_compare_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "b-capture-1.pcap").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(trace_verify, "MOST_CAPTURED_BYTES", 1_000_000)
    notes: list[str] = []
    task = ReceiveTask("eth1", "", [Leg(0, "t", "a", "b", "trace")], 9.0)
    assert trace_verify.compare(tmp_path, task.legs, {"b": task}, set(), notes) == []
    assert notes == ["b captured 0.0 GB, the limit is 0.0 GB: no loss by flow, no latency by captures"]


def test_a_capture_that_is_not_whole_is_told_and_left_alone(tmp_path: Path) -> None:
    flows = [FlowCount(Flow(17, ONE, 1, TWO, 2), 5, 3)]
    one, row = compared([5], flows), a_row(received=4)
    assert trace_verify.flow_rows([one], [row]) == []
    assert trace_verify.trouble([one], [row]) == [
        "t, a → b: the run counted 4 packets, the capture has 3: no loss by flow"
    ]
    assert trace_verify.trouble([one], [a_row(received=3)]) == []
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "b-capture-1.pcap").write_bytes(b"no capture")
    notes: list[str] = []
    task = ReceiveTask(
        "eth1", "", [Leg(0, "t", "a", "b", "trace", match=Match.rest("02" * 6, "04" * 6).to_data())], 9.0
    )
    assert trace_verify.compare(tmp_path, task.legs, {"b": task}, set(), notes) == []
    assert len(notes) == 1 and notes[0].startswith("no loss by flow and no latency by captures: ")
    with pytest.raises(BadInput):
        trace_verify.compare(tmp_path, task.legs, {"b": task}, {"t"}, notes)
