"""What a report makes of finer samples, of captures, and of a schedule: latency over time, sizes, gaps, peaks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages import Page, check_accessible
from pktswarm.master import report
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState, failed_packets
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.preview import preview
from pktswarm.master.report import head, over_time, shapes
from pktswarm.master.report.folder import read
from pktswarm.master.report.shapes import MOST_DUE_PACKETS
from pktswarm.master.results import latency_histogram
from pktswarm.master.results.document import RunDocument
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import SendCount
from result_folders import Made, leg

COLUMNS = (
    "time_ns,node,role,tx_packets,tx_bytes,rx_packets,rx_bytes,rx_dropped_packets,tx_dropped_packets,link_downs,"
    "cpu_busy_s,stream,from,to,sent_packets,received_packets,received_bytes,missing_packets,duplicated_packets,"
    "reordered_packets,altered_packets,group,sent_bytes,latency_packets,latency_sum_ns,latency_min_ns,latency_max_ns"
).split(",")
S = 1_000_000_000
MS = 1_000_000


def write_samples(folder: Path, rows: list[dict[str, Any]]) -> Path:
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return folder / "samples.csv"


def interface(at_ns: int, node: str, role: str, packets: int, busy_s: float = 0.0) -> dict[str, Any]:
    way = "tx" if role == "transmit" else "rx"
    counts: dict[str, float] = {
        f"{one}_{what}": 0 for one in ("tx", "rx") for what in ("packets", "bytes", "dropped_packets")
    }
    counts |= {f"{way}_packets": packets, f"{way}_bytes": 60 * packets, "link_downs": 0, "cpu_busy_s": busy_s}
    return {"time_ns": at_ns, "node": node, "role": role, **counts}


def of_leg(at_ns: int, stream: str, source: str, target: str, packets: int, sum_ns: int) -> dict[str, Any]:
    who = {"time_ns": at_ns, "node": target, "role": "receive", "stream": stream, "from": source, "to": target}
    counts = {"received_packets": packets, "received_bytes": 64 * packets, "missing_packets": 0}
    return {**who, **counts, "latency_packets": packets, "latency_sum_ns": sum_ns}


def a_second_of_each(latencies_ns: list[int], stream: str = "small", target: str = "rx1") -> list[dict[str, Any]]:
    """100 packets a second, in each second with another latency."""
    rows, packets, sum_ns = [], 0, 0
    source = "tx1" if stream == "small" else "tx2"
    for second, latency_ns in enumerate([0, *latencies_ns]):
        packets, sum_ns = 100 * second, sum_ns + 100 * latency_ns
        rows.append(interface(second * S, target, "receive", packets))
        rows.append(of_leg(second * S, stream, source, target, packets, sum_ns))
    return rows


# --- latency over time -----------------------------------------------------------------------------------------------


def test_latency_over_time_is_the_mean_of_each_bin_moved_to_the_clocks_as_streams_csv_has_them(tmp_path: Path) -> None:
    path = write_samples(tmp_path, a_second_of_each([4_000, 7_000, 1_000]))
    found = over_time.read(path, ["small"], 1.0, {("small", "tx1", "rx1"): 14_000.0})
    assert found is not None
    assert found.latency_ns["small"].tolist() == [14_000, 17_000, 11_000], (
        "a mean of 4 µs before the clocks' second reading"
    )
    finer = over_time.read(path, ["small"], 0.25, {("small", "tx1", "rx1"): 14_000.0})
    assert finer is not None and finer.latency_ns["small"] == pytest.approx(np.repeat([14_000, 17_000, 11_000], 4))


def test_a_stream_of_which_a_leg_tells_no_latency_has_none(tmp_path: Path) -> None:
    rows = a_second_of_each([4_000, 4_000]) + a_second_of_each([8_000, 8_000], "large", "rx2")
    means = {("small", "tx1", "rx1"): 4_000.0}
    found = over_time.read(write_samples(tmp_path, rows), ["small", "large"], 1.0, means)
    assert found is not None and list(found.latency_ns) == ["small"]


def test_a_bin_in_which_nothing_came_has_no_latency(tmp_path: Path) -> None:
    rows = a_second_of_each([4_000])
    rows += [of_leg(2 * S, "small", "tx1", "rx1", 100, 400_000), of_leg(3 * S, "small", "tx1", "rx1", 200, 1_000_000)]
    rows.append(interface(3 * S, "rx1", "receive", 200))
    found = over_time.read(write_samples(tmp_path, rows), ["small"], 1.0, {("small", "tx1", "rx1"): 5_000.0})
    assert found is not None
    assert found.latency_ns["small"].tolist() == [4_000, pytest.approx(float("nan"), nan_ok=True), 6_000]
    assert found.received_pps["small"].tolist() == [100, 0, 100] and found.missing["small"].tolist() == [0, 0, 0]


def test_the_page_shows_it_with_its_data_or_says_that_there_is_none(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    before = list(csv.DictReader((folder / "samples.csv").open()))
    write_samples(folder, [{name: one for name, one in row.items() if "latency" not in name} for row in before])
    assert "the samples of this folder have none" in Page(report.make(folder).read_text()).text
    rows = a_second_of_each([4_000, 7_000, 1_000]) + a_second_of_each([9_000] * 3, "large", "rx2")
    write_samples(folder, rows)
    text = report.make(folder).read_text()
    page = Page(text)
    check_accessible(page)
    assert "Latency over time: the mean of each 1 s" in page.text and "tell none" not in page.text
    kept = [float(row["latency_mean_ns"]) for row in rows_of(folder, "latency_over_time") if row["stream"] == "small"]
    assert np.mean(kept) == pytest.approx(5_000), "as streams.csv has it"
    assert (min(kept), max(kept)) == (2_000, 8_000)


# --- edges and bytes -------------------------------------------------------------------------------------------------


def of_both_ends(at_ms: float, packets: int, sent_bytes: int | None = None) -> list[dict[str, Any]]:
    """A sample of each node: frames of 64 bytes. The receiving interface counts them without Ethernet header and FCS,
    and 3 ms later than the transmitting one."""
    sender = {
        "time_ns": int(at_ms * MS),
        "node": "tx1",
        "role": "transmit",
        "stream": "small",
        "from": "tx1",
        "to": "rx1",
    }
    sender |= {"sent_packets": packets, "sent_bytes": 64 * packets if sent_bytes is None else sent_bytes}
    late_ns = int((at_ms + 3) * MS)
    return [
        interface(int(at_ms * MS), "tx1", "transmit", packets),
        sender,
        {**interface(late_ns, "rx1", "receive", packets), "rx_bytes": 46 * packets},
        of_leg(late_ns, "small", "tx1", "rx1", packets, 5_000 * packets),
    ]


def test_rates_are_steps_between_samples_and_begin_at_the_start(tmp_path: Path) -> None:
    rows = [row for at_ms, n in ((-56, 0), (444, 888), (944, 1888), (1444, 1888)) for row in of_both_ends(at_ms, n)]
    found = over_time.read(write_samples(tmp_path, rows), ["small"], None, None, [("small", "tx1", "rx1")])
    assert found is not None and found.bin_s == 0.5
    assert found.edges_s.tolist() == [0, 0.444, 0.944, 1.447], "the times of one node, and the last of all"
    assert found.in_pps == pytest.approx([2000, 2000, 0]), "888 packets in 444 ms, none before the start"
    assert found.out_pps[0] == pytest.approx(2000, rel=0.01) and found.received_pps["small"] == pytest.approx(
        found.out_pps
    )
    assert (found.out_pps * np.diff(found.edges_s)).sum() == pytest.approx(1888)


def test_a_sample_right_behind_the_start_is_no_edge(tmp_path: Path) -> None:
    rows = [row for at_ms, n in ((-498, 0), (2, 3), (502, 1000), (1002, 2000)) for row in of_both_ends(at_ms, n)]
    found = over_time.read(write_samples(tmp_path, rows), ["small"])
    assert (
        found is not None
        and found.edges_s[:2].tolist() == [0, 0.502]
        and found.in_pps[0] == pytest.approx(1000 / 0.502)
    )


def test_bits_in_and_out_have_one_convention_of_bytes(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, [row for n in range(4) for row in of_both_ends(1000 * n, 100 * n)])
    legs = [("small", "tx1", "rx1")]
    found = over_time.read(samples, ["small"], 1.0, None, legs)
    assert found is not None and found.in_bps is not None and found.out_bps is not None
    assert found.in_bps[:3] == pytest.approx([8 * 6400] * 3) and found.out_bps[1] == pytest.approx(8 * 6400)
    assert (found.in_bps.sum(), found.out_bps.sum()) == (8 * 64 * 300, 8 * 64 * 300)
    absent = over_time.read(samples, ["small"], 1.0, None, [*legs, ("large", "tx2", "rx2")])
    assert absent is not None and (absent.in_bps, absent.out_bps) == (None, None), "of large nothing is known"


def test_bits_of_which_an_engine_reports_none_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    folder = Made([leg(0, "small")]).write(tmp_path)
    rows = [row for n in range(4) for row in of_both_ends(1000 * n, 100 * n)]
    write_samples(folder, [{**row, "sent_bytes": ""} for row in rows])
    page = Page(report.make(folder).read_text())
    assert "not shown in, as not every engine reports them" in page.text
    assert {(row["in_bps"], row["out_bps"] == "") for row in rows_of(folder, "throughput")} == {("", False)}
    cells = {row[0]: row for row in table(page, "Peaks between two samples")}
    assert cells["tx1 (transmit)"][2] == "51.200 kbit/s" and cells["all, in"][2] == "–"
    assert cells["rx1 (receive)"][2:4] == ["–", "–"], "a veth counts no Ethernet header"


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "plots" / f"{name}.csv").open()))


# --- peaks and processors --------------------------------------------------------------------------------------------


def bursts(tmp_path: Path, step_ms: int) -> Path:
    """1,000 packets between 0.5 and 0.6 s, nothing else; one processor and a half busy in that time."""
    rows = []
    for at in range(0, 1001, step_ms):
        part = min(1.0, max(0.0, (at - 500) / 100))
        rows.append(interface(at * MS, "tx1", "transmit", round(1000 * part), 0.15 * part))
        rows.append(interface(at * MS, "rx1", "receive", round(900 * part)))
    folder = Made([leg(0, "small")]).write(tmp_path)
    write_samples(folder, rows)
    document = json.loads((folder / "run.json").read_text())
    document["scenario"]["samples_per_s"] = 1000 / step_ms
    (folder / "run.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("step_ms", [100, 50])
def test_the_peak_of_100_ms_is_told_where_the_samples_are_close_enough(tmp_path: Path, step_ms: int) -> None:
    page = Page(report.make(bursts(tmp_path, step_ms)).read_text())
    cells = {row[0]: row for row in table(page, "Peaks between two samples")}
    assert cells["all, in"][4] == "1,000" and cells["all, out"][4] == "900"
    assert cells["tx1 (transmit)"][4:] == ["1,000", "0.15", "1.50"], "busy processors: mean, most"
    assert cells["rx1 (receive)"][4:] == ["900", "0.00", "0.00"]


def test_coarser_samples_tell_no_peak_of_100_ms(tmp_path: Path) -> None:
    page = Page(report.make(bursts(tmp_path, 250)).read_text())
    cells = {row[0]: row for row in table(page, "Peaks between two samples")}
    assert cells["all, in"][4] == "–" and "need ten samples a second" in page.text


def table(page: Page, caption: str) -> list[list[str]]:
    """The texts of its rows' cells."""
    (found,) = [one for one in page.all("table") if caption in one["text"]]
    rows = [row for row in page.all("tr") if found in row["around"]]
    return [[cell["text"] for cell in page.all("th", "td") if row in cell["around"]] for row in rows]


def test_what_the_interface_did_not_take_and_its_errors_are_told(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    rows = list(csv.DictReader((folder / "nodes.csv").open()))
    assert {row["failed_packets"] for row in rows} == {""}, "these counts do not tell"
    rows[0] |= {"failed_packets": "77", "tx_error_packets": "5"}
    with (folder / "nodes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = Page(report.make(folder).read_text()).text
    assert (
        "tx1: its interface did not take 77 packets" in text and "tx1: its interface counted 5 transmit errors" in text
    )


@pytest.mark.parametrize(
    ("each", "wanted"),
    [([3, 4], 7), ([0], 0), ([3, None], None), ([], None), (None, None)],
)
def test_failed_packets_of_a_node_are_known_if_each_engine_reports_them(
    each: list[int | None] | None, wanted: int | None
) -> None:
    node = NodeState(Rank(1, Host("tx1", "10.0.0.1", ("transmit",)), "transmit"))
    node.sent = None if each is None else [SendCount(n, "xdp", 1, 60, failed_packets=f) for n, f in enumerate(each)]
    assert failed_packets(node) == wanted


# --- sizes and inter-arrival times -----------------------------------------------------------------------------------


def capture(folder: Path, host: str, frames: list[tuple[int, int]]) -> None:
    """`frames`: (time_ns, bytes without FCS)."""
    packets = [Packet(1_700_000_000 * S + at_ns, bytes(size)) for at_ns, size in frames]
    (folder / "captures" / f"{host}-capture-eth1").write_bytes(write_pcap(packets))


def test_of_captures_sizes_gaps_and_the_peak_are_counted(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    capture(folder, "rx1", [(0, 60), (2_000, 60), (5_000, 1_000), (5_000, 60), (300 * MS, 60)])
    page = Page(report.make(folder).read_text())
    check_accessible(page)
    assert "Packets that the receivers captured" in page.text and "by the schedule" not in page.text
    row = next(row for row in table(page, "Sizes with FCS") if row[0] == "rx1")
    assert row[1:5] == ["5", "64", "252.0", "1,004"], "packets, least, mean, largest with the FCS"
    assert row[5:8] == ["0.0", "75,000.0", "299,995.0"] and row[9] == "4", "gaps in µs, and the most in 100 ms"
    assert [(one["size_bytes"], one["packets"]) for one in rows_of(folder, "sizes")] == [("64", "4"), ("1004", "1")]
    gaps = rows_of(folder, "gaps")
    assert sum(int(one["packets"]) for one in gaps) == 4 and gaps[0]["to_ns"] == "0"
    for one, gap in zip(gaps[1:], (2_000, 3_000, 299_995_000), strict=True):
        assert float(one["from_ns"]) <= gap <= float(one["to_ns"]), "two digits of logarithms"


def test_a_part_that_was_captured_is_called_so(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    capture(folder, "rx1", [(0, 60), (2_000, 60)])
    document = json.loads((folder / "run.json").read_text())
    document["scenario"]["receive"] = {"capture_every": 10, "capture_filter": "udp"}
    of = shapes.shapes(folder, document).of
    assert "the first of each 10 frames" in of and "'udp'" in of


def scheduled(tmp_path: Path, scenario: str) -> tuple[Path, RunDocument]:
    """A folder whose legs are those of a scenario."""
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario)
    folder = Made().write(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    document["legs"] = [one.to_json() for one in preview.Source(path, None).resolved.legs]
    return folder, document


def test_without_captures_the_schedule_is_shown_and_called_so(tmp_path: Path) -> None:
    folder, document = scheduled(
        tmp_path,
        "name: x\nstreams:\n  - {name: turns, size_bytes: [64, 512], rate_pps: 1000, count_packets: 100}\n"
        "  - {name: fast, count_packets: 10, headers: [{ethernet: {}}, {ipv4: {}}, {udp: {src: 7, dst: 9}}]}\n",
    )
    found = shapes.shapes(folder, document)
    assert "Packets to send, by the schedule" in found.of
    (turns,) = found.each
    assert (turns.listed(), turns.gaps.mean_ns) == ([(64, 50), (512, 50)], 1_000_000)
    assert found.left_out == ["fast from tx1: it is sent as fast as the engine can"]


def test_of_a_long_schedule_the_first_packets_are_looked_at_and_that_is_said(tmp_path: Path) -> None:
    many = MOST_DUE_PACKETS * 3
    folder, document = scheduled(
        tmp_path, f"name: x\nstreams: [{{name: long, rate_pps: 1.0e+6, count_packets: {many}}}]\n"
    )
    found = shapes.shapes(folder, document)
    assert found.each[0].packets == MOST_DUE_PACKETS
    assert found.left_out == [f"{found.each[0].name}: the first {MOST_DUE_PACKETS:,} packets"]


def test_a_capture_that_cannot_be_read_is_said_and_the_page_made(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    (folder / "captures" / "rx1-capture-eth1").write_bytes(b"no capture at all")
    assert "is not a capture file" in Page(report.make(folder).read_text()).text


# --- the head and the distribution of latencies ----------------------------------------------------------------------

HISTOGRAMS = {0: [[3_000, 1], [5_000, 297], [40_000, 2]], 1: [[3_000, 290], [9_000, 9], [40_001, 1]]}


def test_the_head_has_rate_loss_latency_and_verdict_of_each_stream_and_of_all(tmp_path: Path) -> None:
    folder = Made(lost={0: 7}, delays=HISTOGRAMS).write(tmp_path)
    page = Page(report.make(folder).read_text())
    check_accessible(page)
    rows = {row[0]: row[1:] for row in table(page, "Rate, loss, latency and verdict")}
    small, large = (row for row in csv.DictReader((folder / "streams.csv").open()))
    assert rows["small"][0] == f"{float(small['received_pps']):,.1f} packets/s"
    assert rows["small"][2:] == ["7", "2.33 %", "9.0 ± 618.0", "✗ failed: 1 of 2"]
    assert rows["large"][2:] == ["0", "0.00 %", "9.0 ± 618.0", "✓ held: 2 of 2"]
    assert rows["all"][2:4] == ["7", "1.17 %"] and rows["all"][5] == "✗ failed: 1 of 4"
    seconds = (int(large["last_ns"]) - int(large["first_ns"])) / 1e9
    assert rows["all"][0] == f"{592 / seconds:,.1f} packets/s"


def test_the_99th_percentile_of_several_flows_is_that_of_their_histograms_together(tmp_path: Path) -> None:
    folder = Made([leg(0, "small"), leg(1, "small", "tx2", "rx2")], delays=HISTOGRAMS).write(tmp_path)
    (row,) = head.head(read(folder).document, latency_histogram.read(folder))
    assert row.p99 == "9.0 ± 618.0", "of 600 packets 3 took longer"
    (unknown,) = head.head(read(folder).document, {})
    assert unknown.p99 == "≤ 9.0 ± 618.0", "percentiles of flows cannot be combined"
    (folder / "latency_histogram.csv").write_text("stream,from,to,latency_ns,packets\nsmall,tx1,rx1,none,2\n")
    with pytest.raises(BadInput, match=r"latency_histogram.csv:2: not a row of a histogram \(allowed: stream,from,to,"):
        latency_histogram.read(folder)


def test_the_verdict_is_said_once(tmp_path: Path) -> None:
    page = Page(report.make(Made().write(tmp_path)).read_text())
    (box,) = [one for one in page.all("div") if str(one.get("@class", "")).startswith("verdict")]
    assert " ".join(box["text"].split()) == "As expected (exit status 0)"


def plot_of(folder: Path, name: str) -> dict[str, Any]:
    """The points of a plot, as its page has them."""
    page = Page(report.make(folder).read_text())
    plots = [json.loads(svg["@data-plot"]) for svg in page.all("svg")]
    (found,) = [plot for plot in plots if plot["series"][0]["id"].startswith(f"{name}-series")]
    assert isinstance(found, dict)
    return found


def test_the_distribution_of_latencies_has_every_class_and_ends_at_100(tmp_path: Path) -> None:
    folder = Made(delays={0: HISTOGRAMS[0]}).write(tmp_path)
    plot = plot_of(folder, "latency")
    small, large = plot["series"]
    rows = [row for row in csv.DictReader((folder / "latency_histogram.csv").open()) if row["stream"] == "small"]
    assert [int(row["packets"]) for row in rows] == [1, 297, 2]
    us = [int(row["latency_ns"]) / 1e3 for row in rows]
    assert (small["x"], small["steps"]) == ([us[0], *us], True)
    assert small["y"] == pytest.approx([0, 100 / 300, 100 * 298 / 300, 100])
    assert (large["y"], large["steps"]) == ([0, 50, 90, 99, 99.9, 100], False), "without a histogram: the percentiles"
    assert (plot["x"]["scale"], plot["y"]["scale"]) == ("log", "nines")
    assert plot["x"]["limits"][1] >= 10 * plot["x"]["limits"][0]


def test_axes_show_the_histogram_of_one_size_and_one_gap(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    capture(folder, "rx1", [(n * MS, 60) for n in range(4)])
    size, gap = plot_of(folder, "sizes"), plot_of(folder, "gaps")
    assert size["x"]["limits"] == [0, pytest.approx(1.1 * 64)] and size["series"][0]["y"] == [0, 100, 100]
    (low, high), (bottom, top) = gap["x"]["limits"], gap["y"]["limits"]
    assert high >= 10 * low and low < 1000 < high and bottom == 0.5 and top >= 6
    assert gap["series"][0]["y"][0] == 3
