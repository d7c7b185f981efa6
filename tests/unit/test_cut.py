"""The cut-off time of a scenario, and targets told from the background."""

from __future__ import annotations

from pathlib import Path

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.results import totals
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.scenario import scenario
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import capabilities, due_times

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}}}
"""


def planned(tmp_path: Path, text: str) -> plan.Plan:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    path = tmp_path / "test.yaml"
    path.write_text(f"name: test\n{text}\n")
    return plan.plan(scenario.load(path), path, inventory.load(tmp_path / "hosts.yml"))


def one(tmp_path: Path, stream: str, stop: str = "0.5") -> Leg:
    (leg,) = planned(tmp_path, f"stop_after_s: {stop}\nstreams: [{{name: s, {stream}}}]").legs
    return leg


@pytest.mark.parametrize(
    ("stream", "count", "duration"),
    [
        ("rate: 1000, duration_s: 2", 500, 0.5),
        ("rate: 1000, duration_s: 0.25", 250, 0.25),
        ("rate: 1000, count_packets: 2000", 500, None),
        ("rate: 1000, count_packets: 20", 20, None),
    ],
)
def test_a_steady_stream_has_as_many_as_are_due(
    tmp_path: Path, stream: str, count: int, duration: float | None
) -> None:
    leg = one(tmp_path, stream)
    assert (leg.count_packets, leg.intended_packets, leg.duration_s) == (count, count, duration)


def test_a_changing_or_random_stream_has_as_many_as_are_due(tmp_path: Path) -> None:
    leg = one(tmp_path, "rate: {square: {rates: [1000, 4000], every_s: 0.25}}, duration_s: 2")
    assert (leg.intended_packets, leg.duration_s) == (1250, 0.5)
    leg = one(tmp_path, "rate: 1000, arrivals: poisson, count_packets: 2000")
    due = due_times.due_times(leg)
    assert leg.intended_packets == len(due) < 700 and due.max() < 5e8


def test_without_a_rate_nobody_knows_how_many(tmp_path: Path) -> None:
    leg = one(tmp_path, "count_packets: 1000")
    assert (leg.count_packets, leg.intended_packets, leg.duration_s) == (1000, None, 0.5)
    assert "count_packets or duration_s, not both" in capabilities.unable("trafgen", leg)
    assert one(tmp_path, "duration_s: 3").duration_s == 0.5


def test_a_source_sends_the_first_of_its_packets(tmp_path: Path) -> None:
    text = "sources: [{name: s, source: mpeg, users: 3, duration_s: 2}]"
    whole, cut = planned(tmp_path, text), planned(tmp_path, f"stop_after_s: 0.5\n{text}")
    kept = cut.sequences[0]
    assert kept.tolist() == whole.sequences[0][: len(kept)].tolist()
    assert len(kept) < len(whole.sequences[0]) / 2
    (leg,) = cut.legs
    assert leg.intended_packets == leg.count_packets == len(kept)
    assert (leg.duration_s, cut.expected_s) == (0.5, 0.5)
    assert leg.size_bytes == kept["frame_bytes"].max() + 4


@pytest.mark.parametrize(("stop", "intended"), [("0.0095", 10), ("0.0205", 21), ("9", 30)])
def test_a_trace_is_cut_in_the_middle_of_a_pass(tmp_path: Path, stop: str, intended: int) -> None:
    headers = [
        {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}},
        {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}},
        {"udp": {"src": 1, "dst": 2}},
    ]
    frame = build_frame({"headers": headers}, 64).data
    (tmp_path / "t.pcap").write_bytes(write_pcap([Packet(n * 1_000_000, frame) for n in range(10)]))
    text = f"stop_after_s: {stop}\ntraces: [{{name: t, file: t.pcap, repeat: 3, timing: TIMING}}]"
    (leg,) = planned(tmp_path, text.replace("TIMING", "{pps: 1000}")).legs
    assert leg.intended_packets == intended
    (leg,) = planned(tmp_path, text.replace("TIMING", "top")).legs
    assert leg.intended_packets is None


def test_connections_begin_no_block_later(tmp_path: Path) -> None:
    text = "stop_after_s: 0.5\nconnections: [{name: c, block_bytes: 100, period_s: 0.1, blocks: 20}]"
    (leg,) = planned(tmp_path, text).legs
    assert (leg.connection.blocks, leg.connection.duration_ns) == (5, 500_000_000)


def test_a_cut_before_anything_is_sent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no packet is due before it"):
        one(tmp_path, "rate: 10, duration_s: 1", "0.001")


def test_the_background_is_told_from_the_targets_and_summed_apart(tmp_path: Path) -> None:
    text = "streams: [{name: a, count_packets: 3}, {name: b, count_packets: 4}]"
    text += "\nsources: [{name: c, source: mpeg, background: true, duration_s: 1}]"
    legs = planned(tmp_path, text).legs
    rows = [Row(leg, leg.intended_packets, SentCounts(packets=10 + leg.id), ReceivedCounts(9)) for leg in legs]
    assert [stream_values(row)["group"] for row in rows] == ["target", "target", "background"]
    target, background = totals.group_totals(rows)
    assert (target["group"], target["intended_packets"], target["sent_packets"]) == ("target", 7, 21)
    assert (background["group"], background["sent_packets"], background["lost_packets"]) == ("background", 12, 3)
    assert totals.group_totals(rows[:2]) == []
    assert [total["stream"] for total in totals.totals(rows)] == ["a", "b", "c", "total"]
