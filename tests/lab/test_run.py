"""Whole runs on a real lab in a cluster that is up: what real engines count, and that nothing is left behind."""

import csv
import json
import os
import re
import signal
import struct
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

import forked
from pktswarm.master.results import latency_histogram
from pktswarm.traffic.capture.files import Packet, read_capture, write_pcap
from ptp_hosts import ptp4l
from run_cluster import (
    LONG,
    PKTSWARM,
    Cluster,
    assert_nothing_left,
    assert_silence,
)
from running import cluster_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()


cluster = cluster_of(Cluster)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert_nothing_left(cluster)


# --- what is counted ----------------------------------------------------------------------------------------------


def test_the_demo_loses_nothing_and_its_recount_agrees(cluster: Cluster) -> None:
    document = cluster.run(CONFIGS / "demo.yaml", 0, None, "--report")
    folder = Path(document["results"])
    total = document["totals"][-1]
    assert total["sent_packets"] == total["received_packets"] == total["intended_packets"] == 9000 + 9000 + 4500 + 895
    assert document["doubts"] == []
    rows = list(csv.DictReader((folder / "streams.csv").open()))
    assert list(rows[0])[:7] == [
        "stream", "from", "to", "intended_packets", "sent_packets", "received_packets", "lost_packets",
    ]  # fmt: skip
    assert sum(int(row["received_packets"]) for row in rows) == total["received_packets"]
    assert {row["engine"] for row in rows} == {"xdp"}
    measured = {row["stream"]: row["latency_min_ns"] != "" and row["jitter_sd_ns"] != "" for row in rows}
    assert measured == {"small": True, "medium": True, "large": True, "recorded": False}
    assert {row["altered_packets"] for row in rows} == {"0", ""}
    told = [row for row in csv.DictReader((folder / "samples.csv").open()) if row["stream"] == "small"]
    for column in ("sent_packets", "received_packets"):
        figures = [int(row[column]) for row in told if row["from"] == "tx1" and row[column]]
        assert figures == sorted(figures) and 0 < figures[-1] <= 4500
    nodes = list(csv.DictReader((folder / "nodes.csv").open()))
    assert {(node["node"], node["state"]) for node in nodes} == {(n, "ok") for n in ("tx1", "tx2", "rx1", "rx2")}
    columns = {"transmit": ("sent_packets", "tx_packets"), "receive": ("received_packets", "rx_packets")}
    for node in nodes:
        sent, counter = columns[node["role"]]
        assert 0 < int(node[sent]) <= int(node[counter])
    assert oct((folder / "captures").stat().st_mode & 0o777) == "0o700"
    page = (folder / "report.html").read_text()
    (shown,) = re.findall(r'<tr id="total">.*?</tr>', page)
    names = [f"{name}_packets" for name in ("intended", "sent", "received", "lost")]
    summed = [sum(int(row[name]) for row in rows) for name in names]
    assert [int(value) for value in re.findall(r'<data value="(\d+)">', shown)] == summed
    again = forked.run([PKTSWARM, "recount", folder, "--json"])
    assert again.returncode == 0, again.stdout + again.stderr
    assert sum(leg["received_packets"] for leg in json.loads(again.stdout)["legs"]) == total["received_packets"]


def test_a_recount_of_a_capture_that_lost_a_frame_disagrees(cluster: Cluster) -> None:
    document = cluster.run(cluster.scenario("streams: [{name: s, count_packets: 20, rate_pps: 500}]"), 0)
    capture = next((Path(document["results"]) / "captures").glob("rx1-*"))
    capture.write_bytes(capture.read_bytes()[: -(16 + 60)])
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 1
    assert "DISAGREE in 1 of 2 flows" in again.stdout


def test_count_mode_counts_the_same_without_captures(cluster: Cluster) -> None:
    text = (
        "streams: [{name: a, count_packets: 300, rate_pps: 600}, "
        "{name: b, size_bytes: 900, count_packets: 200, rate_pps: 500}]"
    )
    document = cluster.run(cluster.scenario(text + "\nreceive: {mode: count}\nexpect: {loss: 0, sent: intended}"), 0)
    assert [total["received_packets"] for total in document["totals"]] == [300, 200, 500]
    assert list((Path(document["results"]) / "captures").iterdir()) == []
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 2 and "kept no captures" in again.stderr


def test_an_interactive_trace_is_played_from_both_ends(cluster: Cluster) -> None:
    trace = f"{{name: t, file: {CONFIGS}/traces/lab.pcapng, interactive: true}}"
    document = cluster.run(cluster.scenario(f"traces: [{trace}]\nexpect: {{loss: 0, sent: intended}}"), 0)
    rows = {(row["from"], row["to"]): row for row in document["rows"]}
    assert {("tx1", "rx1"), ("rx1", "tx1"), ("tx2", "rx2"), ("rx2", "tx2")} == set(rows)
    assert sum(row["received_packets"] for row in rows.values()) == 895
    assert document["doubts"] == []
    flows = list(csv.DictReader((Path(document["results"]) / "flows.csv").open()))
    assert {flow["state"] for flow in flows} == {"complete"}
    assert sum(int(flow["sent_packets"]) + int(flow["answers_sent_packets"]) for flow in flows) == 895
    assert all(float(flow["stretch"]) > 0 for flow in flows if flow["ports"].startswith("tcp"))
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 2 and "interactive traces are not counted again" in again.stderr
    captures = Path(document["results"]) / "captures"
    names = {
        f"{end}{n}-interactive-eth1-{does}.pcap" for n in (1, 2) for end, does in (("tx", "begins"), ("rx", "answers"))
    }
    assert {path.name for path in captures.iterdir()} == names
    held = sum(len(read_capture(captures / f"tx{n}-interactive-eth1-begins.pcap")) for n in (1, 2))
    resent = sum(int(flow["resent_packets"]) + int(flow["answers_resent_packets"]) for flow in flows)
    assert 895 <= held <= 895 + resent  # what a busy machine sends again may come when the capture is over


def test_ctrl_c_during_an_interactive_replay_keeps_both_ends_counts(cluster: Cluster) -> None:
    process = cluster.start_and_send(
        cluster.scenario(f"traces: [{{name: t, file: {CONFIGS}/traces/lab.pcapng, interactive: true}}]"), "--json"
    )
    process.send_signal(signal.SIGINT)
    document = json.loads(process.communicate(timeout=40)[0])
    assert process.returncode == 3 and document["reason"] == "stopped by the user"
    assert document["doubts"] == []
    sent, received = document["totals"][-1]["sent_packets"], document["totals"][-1]["received_packets"]
    assert 0 < received <= sent < 895
    assert "unfinished" in {flow["state"] for flow in document["flows"]}


def test_an_interactive_trace_beside_a_stream(cluster: Cluster) -> None:
    trace = f"{{name: t, file: {CONFIGS}/traces/lab.pcapng, from: tx1, to: rx1, interactive: true}}"
    stream = "{name: s, from: tx1, to: rx1, rate_pps: 200, count_packets: 400}"
    text = f"traces: [{trace}]\nstreams: [{stream}]\nreceive: {{mode: count}}\nexpect: {{loss: 0, sent: intended}}"
    document = cluster.run(cluster.scenario(text), 0)
    assert [total["received_packets"] for total in document["totals"]] == [400, 895, 1295]


def test_two_interactive_traces_between_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "later.pcap"
    packets = [
        packet for packet in read_capture(CONFIGS / "traces" / "lab.pcapng") if packet.data[12:14] == b"\x08\x00"
    ]
    # IPv4 packets with other identifications: else the two traces would have packets in common.
    frames = [one.data[:18] + bytes(octet ^ 0xFF for octet in one.data[18:20]) + one.data[20:] for one in packets]
    other.write_bytes(write_pcap([Packet(one.time_ns, data) for one, data in zip(packets, frames, strict=True)]))
    ends = "from: tx1, to: rx1, interactive: true"
    traces = f"[{{name: t, file: {CONFIGS}/traces/lab.pcapng, {ends}}}, {{name: u, file: {other}, {ends}}}]"
    document = cluster.run(cluster.scenario(f"traces: {traces}\nexpect: {{loss: 0, sent: intended}}"), 0)
    assert document["doubts"] == []
    assert [total["received_packets"] for total in document["totals"]] == [895, len(packets), 895 + len(packets)]
    assert {flow["state"] for flow in document["flows"]} == {"complete"}


def test_a_host_with_both_roles_sends_and_receives(cluster: Cluster) -> None:
    def both(everything: dict[str, Any]) -> None:
        children = everything["children"]
        children["transmit"]["hosts"]["rx1"] = children["receive"]["hosts"]["rx1"]
        children["receive"]["hosts"]["tx1"] = children["transmit"]["hosts"]["tx1"]

    each = "count_packets: 90, rate_pps: 300"
    streams = f"{{name: there, from: tx1, to: rx1, {each}}}, {{name: back, from: rx1, to: tx1, {each}}}"
    text = f"streams: [{streams}]\nexpect: {{loss: 0, sent: intended}}"
    document = cluster.run(cluster.scenario(text), 0, cluster.inventory(both))
    roles = {(rank["host"], rank["role"]) for rank in document["ranks"].values()}
    assert roles == {("tx1", "transmit"), ("tx1", "receive"), ("rx1", "transmit"), ("rx1", "receive")}
    assert [total["received_packets"] for total in document["totals"]] == [90, 90, 180]


def test_unmet_expectations_end_with_1(cluster: Cluster) -> None:
    text = "streams: [{name: s, count_packets: 10, rate_pps: 100}]\nexpect: {received: {s: 11}}"
    document = cluster.run(cluster.scenario(text), 1)
    assert document["reason"] == "s: received 10, expected 11"


def test_what_is_measured_is_judged_by_its_limits(cluster: Cluster) -> None:
    """Of each stream, of a single one, and of every user."""
    text = """
streams:
  - {name: one, size_bytes: 128, rate_pps: 400, count_packets: 800}
  - name: two
    size_bytes: 128
    rate_pps: 400
    count_packets: 800
    users: ipv4.src
    headers: [{ethernet: {}}, {ipv4: {src: {increment: [10.9.0.1, 10.9.0.4]}, dst: 10.9.1.1}}, {udp: {src: 7, dst: 8}}]
receive: {mode: count}
expect:
  loss: 0
  altered: 0
  reordered: 0
  duplicated: 0 %
  misdelivered: 0
  latency_max_us: 5.0e+6
  users: {loss: 0, latency_mean_us: 5.0e+6}
  streams:
    two: {received_pps: 100, jitter_sd_us: 1.0e+6, LIMIT}
"""
    held = cluster.run(cluster.scenario(text.replace(", LIMIT", "")), 0)
    assert held["reason"] == "as expected" and {one["outcome"] for one in held["verdicts"]} == {"held"}
    assert len([one for one in held["verdicts"] if "users'" in one["what"]]) == 2
    fast = text.replace("received_pps: 100", "received_pps: 1.0e+6").replace(", LIMIT", "")
    failed = cluster.run(cluster.scenario(fast), 1)
    assert re.fullmatch(r"two: received_pps [\d,.]+, expected at least 1,000,000", failed["reason"]), failed["reason"]
    open_ = cluster.run(cluster.scenario(text.replace("LIMIT", "latency_mean_us: 0.001")), 1)
    (one,) = [one for one in open_["verdicts"] if one["what"] == "two: latency_mean_us"]
    assert one["outcome"] == "failed" and float(one["found"]) > 0.001, "one clock, whose bound is 0"


# --- the XDP engine -----------------------------------------------------------------------------------------------


def test_xdp_is_counted_by_its_stamps_and_the_capture_agrees(cluster: Cluster) -> None:
    document = cluster.run(CONFIGS / "xdp.yaml", 0)
    assert {row["engine"] for row in document["rows"]} == {"xdp"}
    assert [total["lost_packets"] for total in document["totals"]] == [0, 0, 0]
    histograms = latency_histogram.read(Path(document["results"]))
    for row in document["rows"]:
        points = histograms[row["stream"], row["from"], row["to"]]
        assert sum(packets for _, packets in points) == row["received_packets"]
        assert latency_histogram.nearest_rank(points, 0.99) == row["latency_p99_ns"]
        assert row["lost_by"] == "stamps"
        assert (row["duplicated_packets"], row["reordered_packets"], row["altered_packets"]) == (0, 0, 0)
        assert row["latency_min_ns"] <= row["latency_p50_ns"] <= row["latency_p99_ns"] <= row["latency_max_ns"]
        # The lab's nodes have one clock.
        assert row["latency_bound_ns"] == 0 < row["latency_min_ns"] and row["jitter_sd_ns"] > 0
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout


@pytest.mark.parametrize("more", ["", ", timed_every: 1"])
def test_of_fast_frames_a_part_is_timed_and_the_results_say_which(cluster: Cluster, more: str) -> None:
    text = f"""streams: [{{name: one, engine: xdp, from: tx1, to: rx1, size_bytes: 64, duration_s: 0.5}}]
receive: {{mode: count{more}}}
expect: {{loss: 0}}"""
    document = cluster.run(cluster.scenario(text), 0)
    (row,) = document["rows"]
    notes = [note for note in document["notes"] if "receive.timed_every" in note]
    if more:
        assert (row["latency_packets"], notes) == (row["received_packets"], [])
        return
    timed = row["latency_packets"]
    assert row["received_packets"] // 16 < timed < row["received_packets"] // 2
    assert notes == [
        f"one from tx1 to rx1: latency and jitter are of {timed:,} of {row['received_packets']:,} packets: two of "
        "16 in a row (receive.timed_every)"
    ]


def test_with_ptp_sender_and_receiver_stand_on_one_clock(cluster: Cluster) -> None:
    """Of the lab's nodes CLOCK_TAI is one, as PTP makes it: no offset is added, and the bound is that of one clock."""
    text = "clock: ptp\nstreams: [{name: one, from: tx1, to: rx1, size_bytes: 128, rate_pps: 1000, duration_s: 1}]"
    document = cluster.run(cluster.scenario(text), 0)
    (row,) = document["rows"]
    assert (row["engine"], row["received_packets"], row["latency_bound_ns"]) == ("xdp", 1000, 0)
    assert [note for note in document["notes"] if "ptp" in note] == [
        f"{host}: clock: ptp: no bound by ptp4l: no ptp4l answers" for host in ("tx1", "rx1")
    ]
    assert 0 < row["latency_min_ns"] <= row["latency_max_ns"] < 10**9
    assert row["jitter_sd_ns"] > 0


def test_the_reports_of_ptp4l_are_notes_of_a_run(cluster: Cluster) -> None:
    """One kernel clock: it must not be steered, and so the port does not get beyond the state before SLAVE."""
    text = "clock: ptp\nstreams: [{name: one, from: tx1, to: rx1, size_bytes: 128, rate_pps: 1000, duration_s: 1}]"
    pids = cluster.state.keeper.pids
    with ptp4l([pids["tx1"], pids["rx1"]], "UNCALIBRATED", "--free_running=1"):
        document = cluster.run(cluster.scenario(text), 0)
    leads, follows = [note for note in document["notes"] if "ptp" in note]
    assert leads.startswith("tx1: clock: ptp: it is the grandmaster, ")
    assert follows == "rx1: clock: ptp: no bound by ptp4l: the port of ptp4l is UNCALIBRATED"
    events = [json.loads(line) for line in (Path(document["results"]) / "log.jsonl").read_text().splitlines()]
    read = [event["ptp"] for event in events if event.get("event") == "counts"]
    assert [len(each) for each in read] == [2, 2]


def agrees(document: dict[str, Any]) -> list[Path]:
    """The run's captures, once they are counted again."""
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout
    return list((Path(document["results"]) / "captures").glob("*.pcap"))


def test_users_in_tunnels_arrive_each_with_its_address(cluster: Cluster) -> None:
    document = cluster.run(CONFIGS / "gtpu.yaml", 0)
    for row in document["rows"]:
        assert (row["lost_by"], row["lost_packets"], row["altered_packets"]) == ("stamps", 0, 0)
    users = {(number, f"10.60.{number >> 8}.{number & 255}") for number in range(1, 1001)}
    for capture in agrees(document):
        frames = [packet.data for packet in read_capture(capture)]
        # ethernet, ipv4, udp, gtpu (TEID at its byte 4), gtpu_options, pdu_session, ipv4
        found = {(int.from_bytes(one[46:50], "big"), str(IPv4Address(one[58 + 12 : 58 + 16]))) for one in frames}
        assert found == users
        assert {len(one) + 4 for one in frames} == {128, 594, 1500}


def test_what_is_wrong_on_purpose_arrives_so_and_in_all_its_sizes(cluster: Cluster) -> None:
    wrong = "{ethernet: {}}, {ipv4: {checksum: {off_by: 1}}}, {udp: {src: PORTS, dst: 7, length: {off_by: -4}}}"
    text = "receive: {engine: xdp}\nexpect: {loss: 0, sent: intended}\nstreams:\n"
    sizes = "size_bytes: [64, 1518, 512, 64], rate_pps: 800, count_packets: 800"
    text += f"- {{name: a, engine: xdp, {sizes}, headers: [{wrong}]}}\n".replace("PORTS", "{list: [9, 5, 7]}")
    text += f"- {{name: b, engine: trafgen, count_packets: 300, rate_pps: 300, headers: [{wrong}]}}"
    document = cluster.run(cluster.scenario(text.replace("PORTS", "{pick: [90, 95], weights: [1, 2]}")), 0)
    assert document["totals"][-1]["received_packets"] == 1100
    frames = [packet.data for capture in agrees(document) for packet in read_capture(capture)]
    assert len(frames) == 1100
    assert all(sum(struct.unpack("!10H", one[14:34])) % 0xFFFF == 1 for one in frames)
    assert all(int.from_bytes(one[38:40], "big") == len(one) - 34 - 4 for one in frames)
    counted = Counter(len(one) + 4 for one in frames if int.from_bytes(one[34:36], "big") < 10)
    assert counted == {64: 400, 1518: 200, 512: 200}


def test_xdp_counts_without_a_capture_too(cluster: Cluster) -> None:
    text = "streams: [{name: s, engine: xdp, rate_pps: 20000, count_packets: 40000}]\nreceive: {mode: count}"
    document = cluster.run(cluster.scenario(text + "\nexpect: {loss: 0, sent: intended}"), 0)
    assert document["totals"][-1]["received_packets"] == 40000
    assert list((Path(document["results"]) / "captures").iterdir()) == []


MIXED = """
streams:
  - {name: plain, size_bytes: 128, rate_pps: 1000, count_packets: 1000, engine: trafgen}
  - name: up
    size_bytes: 128
    rate_pps: 10000
    count_packets: 20000
    engine: xdp
    users: ipv4.src
    expect: {ttl: 63, src_mac: null}
    headers: [{ethernet: {}}, {ipv4: {src: {increment: [10.60.0.0, 10.60.255.255]}}}, {udp: {src: 7, dst: 8}}]
traces: [{name: recorded, file: TRACE, timing: original}]
"""


def test_xdp_counts_every_kind_of_leg_and_each_user(cluster: Cluster) -> None:
    """65,536 users on the way from each of two nodes; a device that changes nothing where it is to lower the TTL."""
    text = MIXED.replace("TRACE", str(CONFIGS / "traces/lab.pcapng"))
    text += 'receive: {mode: count, filter: "(ip or arp) and not port 9999"}\nexpect: {loss: 0, sent: intended}'
    document = cluster.run(cluster.scenario(text), 0)
    assert document["doubts"] == [] and "xdp receives on rx1, rx2" in document["notes"]
    lost_by = {row["stream"]: row["lost_by"] for row in document["rows"]}
    assert lost_by == {"plain": "difference", "up": "stamps", "recorded": "difference"}
    assert [row["altered_packets"] for row in document["rows"] if row["stream"] == "up"] == [10000, 10000]
    with (Path(document["results"]) / "users.csv").open() as file:
        users = list(csv.DictReader(file))
    assert len(users) == 2 * 65536
    for node in ("tx1", "tx2"):
        counts = [row["received_packets"] for row in users if row["from"] == node]
        assert counts == ["1"] * 10000 + ["0"] * 55536
    assert (users[7]["user"], users[65535]["user"]) == ("10.60.0.7", "10.60.255.255")
    assert users[7]["latency_min_ns"] == users[7]["latency_max_ns"] != "" == users[65535]["latency_min_ns"]


def test_of_many_frames_one_in_ten_is_captured_and_all_are_counted(cluster: Cluster) -> None:
    text = MIXED.replace("TRACE", str(CONFIGS / "traces/lab.pcapng"))
    text = text.replace("ttl: 63, ", "") + "receive: {capture_every: 10}\nexpect: {loss: 0, sent: intended}"
    document = cluster.run(cluster.scenario(text), 0)
    assert document["doubts"] == [] and "xdp+netsniff-ng receives on rx1, rx2" in document["notes"]
    assert document["totals"][-1]["received_packets"] == 1000 + 20000 + 895
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout
    frames = sum(-(-row["received_packets"] // 10) for row in document["rows"])
    assert f"{frames:,} captured frames in 6 flows" in again.stdout


def test_a_capture_has_what_its_filter_lets_through_and_all_are_counted(cluster: Cluster) -> None:
    streams = "".join(f"  - {{name: s{n}, rate_pps: 1000, count_packets: 600}}\n" for n in range(2))
    text = f"streams:\n{streams}expect: {{loss: 0, sent: intended}}\nreceive: {{capture_filter: FILTER}}"
    document = cluster.run(cluster.scenario(text.replace("FILTER", "udp port 5002")), 0)
    assert document["totals"][-1]["received_packets"] == 1200 and document["doubts"] == []
    captured = [packet.data for path in Path(document["results"]).glob("captures/*") for packet in read_capture(path)]
    assert [int.from_bytes(frame[36:38], "big") for frame in captured] == [5002] * 600
    error = cluster.run(cluster.scenario(text.replace("FILTER", "udp port port")), 2)["error"]
    assert "receive.capture_filter" in error and "udp port port" in error


def test_tc_sends_what_xdp_sends(cluster: Cluster) -> None:
    """Users, a stamped trace and random payload, each to the packet, and as the interfaces count."""
    headers = "[{ethernet: {}}, {ipv4: {src: {increment: [10.60.0.0, 10.60.3.231]}}}, {udp: {src: 7, dst: 8}}]"
    shape = "size_bytes: 200, rate_pps: 8000, count_packets: 16000, payload: {random: true}, users: ipv4.src"
    text = f"streams:\n  - {{name: up, engine: tc, {shape}, headers: {headers}}}\n"
    text += f"traces: [{{name: recorded, engine: tc, file: {CONFIGS}/traces/lab.pcapng, options: {{stamp: true}}}}]\n"
    text += "receive: {mode: count}\nexpect: {loss: 0, sent: intended}"
    document = cluster.run(cluster.scenario(text), 0)
    assert document["doubts"] == [] and {row["engine"] for row in document["rows"]} == {"tc"}
    lost_by = {row["stream"]: row["lost_by"] for row in document["rows"]}
    assert lost_by == {"up": "stamps", "recorded": "stamps+difference"}, "not every packet of it has room for one"
    assert [row["received_packets"] for row in document["rows"] if row["stream"] == "up"] == [8000, 8000]
    with (Path(document["results"]) / "users.csv").open() as file:
        counts = {row["received_packets"] for row in csv.DictReader(file) if row["stream"] == "up"}
    assert counts == {"8"}


def test_tags_cross_the_switch_in_their_frames(cluster: Cluster) -> None:
    udp = "{udp: {src: 7, dst: 8}}"
    tagged = f"[{{ethernet: {{}}}}, {{vlan: {{id: 10, priority: 3}}}}, {{ipv4: {{}}}}, {udp}]"
    twice = f"[{{ethernet: {{}}}}, {{svlan: {{id: 20}}}}, {{vlan: {{id: 11}}}}, {{ipv4: {{}}}}, {udp}]"
    text = (
        f"streams:\n  - {{name: one, engine: trafgen, rate_pps: 500, count_packets: 400, headers: {tagged}}}\n"
        f"  - {{name: two, engine: xdp, rate_pps: 500, count_packets: 400, size_bytes: 128, headers: {twice}}}\n"
        "receive: {engine: xdp, filter: vlan}\nexpect: {loss: 0, sent: intended}"
    )
    document = cluster.run(cluster.scenario(text), 0)
    assert [row["altered_packets"] for row in document["rows"] if row["stream"] == "two"] == [0, 0]


def test_killing_the_command_line_ends_xdp_too(cluster: Cluster) -> None:
    process = cluster.start_and_send(cluster.scenario(LONG.replace("name: long", "name: long, engine: xdp")))
    process.kill()
    assert_silence(cluster)
    process.communicate(timeout=60)
