"""The report of a run: what its page says, to whom it can be read, and what it makes of a folder that is not whole."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from in_process import Call
from n4_results import n4
from pages import Page, check_accessible, check_nothing_to_fetch_or_run
from pktswarm.master import report
from pktswarm.master.cli import report as cli_report
from pktswarm.master.report import formatting, over_time
from pktswarm.master.report.folder import read
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.run import Finished
from pktswarm.master.scenario import scenario
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers
from result_folders import Made, changed, leg
from run_events import as_event

HOSTILE = "<script>alert(1)</script>$x_1$&amp;"


def page_of(folder: Path) -> Page:
    return Page(report.make(folder).read_text())


# --- what it says ----------------------------------------------------------------------------------------------------


def test_totals_are_the_same_numbers_everywhere(tmp_path: Path) -> None:
    folder = Made(lost={0: 7}, sent_less=3).write(tmp_path)
    names = [f"{name}_packets" for name in ("intended", "sent", "received", "lost")]
    rows = list(csv.DictReader((folder / "streams.csv").open()))
    summed = [sum(int(row[name]) for row in rows) for name in names]
    assert summed == [600, 594, 587, 7]
    document = json.loads((folder / "run.json").read_text())
    page = page_of(folder)
    assert [document["totals"][-1][name] for name in names] == summed
    assert [int(one["@value"]) for one in page.inside("total") if one["tag"] == "data"] == summed
    report.write_junit([document], tmp_path / "j.xml")
    told = dict(re.findall(r'<property name="(\w+)" value="(\d+)"', (tmp_path / "j.xml").read_text()))
    assert [int(told[name]) for name in names] == summed


def test_the_verdict_comes_first_with_what_held_and_what_did_not(tmp_path: Path) -> None:
    page = page_of(Made(lost={0: 7}).write(tmp_path))
    headings = [one["text"] for one in page.all("h2")]
    assert headings[0] == "Verdict"
    assert "Not as expected (exit status 1)" in page.text
    assert "Not as expected: small: lost 7, expected at most 0" in page.text
    assert "As expected: large: lost 0, expected at most 0" in page.text
    assert page.text.index("lost 7, expected") < page.text.index("lost 0, expected")


def test_doubts_are_told_with_the_verdict(tmp_path: Path) -> None:
    lost = as_event({"event": "lost", "rank": 1, "problem": "no message for 5 s"})
    page = page_of(Made().write(tmp_path, [lost]))
    assert "Incomplete (exit status 3)" in page.text
    assert "Doubt: tx1 (transmit): no message for 5 s (last message before the start)" in page.text


def test_what_a_run_measured_is_in_its_page(tmp_path: Path) -> None:
    few = FlowUsers(field="ipv4.src", by="src_ip", first=0x0A3C0001, step=1, count=30)
    made = Made([leg(0, "small", users=few), leg(1, "large", "tx2", "rx2")], lost={0: 2}, lost_users=2)
    folder = made.write(tmp_path)
    page = page_of(folder)
    wanted = [
        "Nodes, as they reported", "6.18.0", "veth",  # versions
        "10.60.0.1", "10.60.0.2",
        "µs between the first and the last node that left it",
        "0.1 ± 9.0",
        "packets left after their due times",
        "pktswarm run made.yaml --hosts hosts/made.yml",
        "count_packets: 300",
    ]  # fmt: skip
    missing = [one for one in wanted if one not in page.text]
    assert not missing, page.text
    cells = [one["text"] for one in page.all("td")]
    row = next(csv.DictReader((folder / "streams.csv").open()))
    times = [name for name in row if name.startswith(("latency_", "jitter_")) and name.endswith("_ns")]
    assert len(times) == 10 and row["latency_bound_ns"] != ""
    assert {f"{int(row[name]) / 1e3:,.1f}" for name in times} <= set(cells)


def test_the_device_under_test_is_described(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    assert "Nothing is known of the device" in Page(report.make(folder).read_text()).text
    settings = {"bottleneck_bps": 40_000_000, "on": False}
    dut = {"name": "edge <b>", "version": "1.10", "settings": settings, "labels": {"firmware": "2.1"}}
    page = Page(report.make(changed(folder, lambda document: document.update(dut=dut))).read_text())
    texts = [one["text"] for one in page.inside("topology") + page.all("dt", "dd")]
    assert {"edge <b>", "1.10", "40,000,000", "False", "2.1", "firmware"} <= set(texts)


def with_upf(document: dict[str, Any]) -> None:
    """Sides, roles and flows of a UPF's run: three gNBs and a server, all of which send and receive."""
    hosts, (row, *_), (rank, *_) = ("tx1", "tx2", "tx3", "rx1"), document["rows"], document["ranks"].values()
    ranks = [{**rank, "host": host, "role": role} for host in hosts for role in ("transmit", "receive")]
    flows = [("tx1", "rx1"), ("tx2", "rx1"), ("rx1", "tx1+tx2+tx3")]
    document.update(
        upf=n4(),
        inventory=[{"name": host, "side": "n6" if host == "rx1" else "n3"} for host in hosts],
        ranks={str(number): each for number, each in enumerate(ranks, 1)},
        rows=[{**row, "from": source, "to": target} for source, target in flows],
        dut={"name": "upf-9"},
    )


def test_the_report_of_a_upf_has_its_n4_results(tmp_path: Path) -> None:
    folder = changed(Made().write(tmp_path), with_upf)
    page = Page(report.make(folder).read_text())
    check_accessible(page)
    found = [one["text"] for one in page.all("td", "th", "li", "p")]
    (at,) = [n for n, text in enumerate(found) if text == "establishment"]
    assert found[at + 1 : at + 9] == ["5", "4", "1", "0", "5", "2.500", "3.000", "4.000"]
    assert {"5 deleted", "10.45.0.1", "gone: no response for 3.0 s", "1 x no resources available (75)"} <= set(found)
    assert "Sessions at the end: 5 deleted; 3 of 3 heartbeats answered by the UPF, 2 by the SMF." in found
    assert "UPF at 192.0.2.2, Node ID upf.example." in found
    assert "#n4" in [one.get("@href") for one in page.all("a")]


def test_a_run_without_a_upf_has_no_n4_and_one_that_ended_early_says_so(tmp_path: Path) -> None:
    assert "N4" not in Page(report.make(Made().write(tmp_path)).read_text()).text
    folder = changed(Made().write(tmp_path), lambda document: document.update(upf={}))
    assert "N4 has no results: the run ended before its sessions did." in Page(report.make(folder).read_text()).text


def drawn(page: Page) -> tuple[list[list[str]], str]:
    """The lists of nodes and the text between them."""
    (around,) = [one for one in page.elements if one.get("@class") == "topology"]
    inside = [one for one in page.elements if around in one["around"]]
    lists = [one for one in inside if one["tag"] == "ul"]
    items = [[one["text"] for one in inside if one["tag"] == "li" and each in one["around"]] for each in lists]
    (between,) = [one["text"] for one in inside if one["tag"] == "p"]
    return items, between


def test_each_node_of_a_upf_is_drawn_once_at_its_side_with_arrows_both_ways(tmp_path: Path) -> None:
    page = Page(report.make(changed(Made().write(tmp_path), with_upf)).read_text())
    items, between = drawn(page)
    both = "eth1, sends and receives"
    assert items == [
        ["N3 (gNBs)", f"tx1 {both}", f"tx2 {both}", f"tx3 {both}"],
        ["N6 (data network)", f"rx1 {both}"],
    ]
    assert between == "↔ upf-9 ↔"
    assert (
        "N3 (gNBs) to N6 (data network): 2 pairs of nodes; N6 (data network) to N3 (gNBs): 3 pairs of nodes"
        in page.text
    )


def _swapped(row: dict[str, Any]) -> dict[str, Any]:
    return {"from": row["to"], "to": row["from"]}


def test_traffic_in_one_direction_has_arrows_in_one_direction(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    items, between = drawn(Page(report.make(folder).read_text()))
    assert items == [
        ["side a", "tx1 eth1, sends", "tx2 eth1, sends"],
        ["side b", "rx1 eth1, receives", "rx2 eth1, receives"],
    ]
    assert between == "→ device under test →"
    swapped = changed(
        folder, lambda document: [row.update({"from": row["to"], "to": row["from"]}) for row in document["rows"]]
    )
    assert drawn(Page(report.make(swapped).read_text()))[1] == "← device under test ←"
    sideless = changed(folder, lambda document: [host.update(side="") for host in document["inventory"]])
    assert [each[0] for each in drawn(Page(report.make(sideless).read_text()))[0]] == ["nodes", "nodes"]


def test_what_was_not_measured_is_a_dash_and_never_0(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    document["totals"][-1]["lost_packets"] = None
    (folder / "run.json").write_text(json.dumps(document))
    total = page_of(folder).inside("total")
    assert [one["text"] for one in total if one["tag"] == "td"][3:5] == ["–", "–"]
    assert (
        formatting.count(None),
        formatting.microseconds(None),
        formatting.percent(None, 3),
        formatting.pps(None),
    ) == ("–",) * 4


def test_parts_of_a_percent_are_not_rounded_away() -> None:
    assert [formatting.percent(n, 1_000_000) for n in (0, 1, 150, 500_000)] == [
        "0.00 %",
        "0.0001 %",
        "0.01 %",
        "50.00 %",
    ]
    assert [formatting.bps(n) for n in (999, 1_500, 2.5e6, 1e10)] == [
        "999.0 bit/s", "1.500 kbit/s", "2.500 Mbit/s", "10.000 Gbit/s",
    ]  # fmt: skip


def test_a_sender_that_sent_less_is_told_apart_from_the_device(tmp_path: Path) -> None:
    text = page_of(Made(sent_less=100).write(tmp_path)).text
    assert "small: the tester sent 200 of 300 packets (k_sender 0.666667)" in text
    assert "The tester sent all intended packets" not in text
    assert "The tester sent all intended packets" in page_of(Made().write(tmp_path)).text


def test_the_scenario_of_the_page_is_the_one_that_ran(tmp_path: Path) -> None:
    path = Path("configs/demo.yaml")
    ran = scenario.load(path)
    folder = Made().write(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    document["scenario"] = json.loads(ran.model_dump_json(by_alias=True))
    (folder / "run.json").write_text(json.dumps(document))
    shown = page_of(folder).all("pre")[0]["text"]
    assert scenario.Scenario.model_validate(yaml.safe_load(shown)) == ran
    assert "background" not in shown, "what stands at its default"


# --- plots and their data --------------------------------------------------------------------------------------------


def test_every_plot_names_the_file_that_has_its_data(tmp_path: Path) -> None:
    folder = Made(lost={0: 5}).write(tmp_path)
    page = page_of(folder)
    named = [re.findall(r"Data: (\S+\.csv)\.", one["text"]) for one in page.all("figcaption")]
    assert len(named) == 6 and all(len(one) == 1 for one in named)
    names = ("throughput", "received_by_stream", "missing_by_stream", "latency", "latency_over_time")
    assert {one for each in named for one in each} == {f"plots/{name}.csv" for name in names}
    for (name,) in named:
        assert len(list(csv.reader((folder / name).open()))) > 2
    last = [row for row in csv.DictReader((folder / "plots/missing_by_stream.csv").open()) if row["stream"] == "small"]
    assert float(last[-1]["missing_packets"]) == 5
    percentiles = csv.DictReader((folder / "plots/latency.csv").open())
    assert [row["latency_ns"] for row in percentiles if row["stream"] == "small"] == [
        "3000", "4500", "6000", "9000", "20000", "40000",
    ]  # fmt: skip


def test_no_packet_of_the_samples_is_counted_twice_or_left_out(tmp_path: Path) -> None:
    made = Made([leg(0, "a"), leg(1, "a", "tx2", "rx1"), leg(2, "b", "tx2", "rx2")], lost={2: 30})
    folder = made.write(tmp_path)
    for bin_s in (None, 0.1, 0.07, 1.0):
        found = over_time.read(folder / "samples.csv", None, bin_s, sums=None)
        assert found is not None and found.in_bps is not None and found.out_bps is not None
        seconds = np.diff(found.edges_s)
        assert (found.in_pps * seconds).sum() == pytest.approx(900)
        assert (found.out_pps * seconds).sum() == pytest.approx(870)
        assert (found.in_bps * seconds).sum() == pytest.approx(900 * 64 * 8), "with the FCS"
        assert (found.out_bps * seconds).sum() == pytest.approx(870 * 64 * 8)
        assert (found.received_pps["a"] * seconds).sum() == pytest.approx(600)
        assert found.missing["b"][-1] == 30
    steady = found if (found := over_time.read(folder / "samples.csv", [], 0.1)) is not None else None
    assert steady is not None and not steady.received_pps
    inner = slice(3, -4)
    assert steady.in_pps[inner] == pytest.approx(np.full(len(steady.in_pps[inner]), 300.0), rel=0.05)


def test_what_one_leg_of_a_stream_does_not_tell_has_no_sum(tmp_path: Path) -> None:
    folder = Made([leg(0, "a"), leg(1, "a", "tx2", "rx2")]).write(tmp_path)
    samples = list(csv.reader((folder / "samples.csv").open()))
    node, stream, missing = (samples[0].index(name) for name in ("node", "stream", "missing_packets"))
    for row in samples:
        if row[node] == "rx2" and row[stream] == "a":
            row[missing] = ""
    with (folder / "samples.csv").open("w", newline="") as file:
        csv.writer(file).writerows(samples)
    found = over_time.read(folder / "samples.csv", None)
    assert found is not None and list(found.received_pps) == ["a"] and not found.missing


def test_thinned_out_a_peak_stays() -> None:
    values = np.zeros(100_000)
    values[77_777], values[33_333] = 9.0, -4.0
    times, kept = over_time.thin(np.arange(100_000.0), values, 1200)
    assert len(kept) <= 1200 and (kept.max(), kept.min()) == (9.0, -4.0)
    assert times[kept.argmax()] == 77_777 and list(times) == sorted(times)


# --- to whom it can be read ------------------------------------------------------------------------------------------


def test_there_is_nothing_to_fetch_and_nothing_to_run(tmp_path: Path) -> None:
    check_nothing_to_fetch_or_run(report.make(Made(lost={0: 5}).write(tmp_path)).read_text())


def test_a_hostile_name_is_shown_and_not_run(tmp_path: Path) -> None:
    hostile = Made([leg(0, HOSTILE), leg(1, "large", "tx2", "rx2")], lost={0: 1}, name="<b>bold")
    folder = hostile.write(tmp_path)
    page = page_of(folder)
    assert len(page.all("script")) == 1 and not page.all("b")
    assert f"{HOSTILE}: lost 1, expected at most 0" in page.text
    in_pictures = {one["text"] for one in page.all("text")}
    assert HOSTILE in in_pictures, in_pictures


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_is_accessible(tmp_path: Path, whole: bool) -> None:
    check_accessible(page_of(Made(lost={0: 5}).write(tmp_path, over=whole)))


def luminance(colour: str) -> float:
    """WCAG 2.2's relative luminance."""
    long = colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
    parts = [int(long[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_enough_in_light_in_dark_and_on_paper() -> None:
    style = Path("master/templates/report.css").read_text()
    schemes = [dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(schemes) == 3 and all(len(colours) == 17 for colours in schemes)
    for colours in schemes:
        for ground in ("paper", "band"):
            for word in ("ink", "dim", "good", "bad", "doubt", "link"):
                assert contrast(colours[word], colours[ground]) >= 4.5, (word, colours[word], colours[ground])
        for number in range(over_time.MOST_STREAMS):
            assert contrast(colours[f"plot-{number}"], colours["paper"]) >= 3, (number, colours)


# --- folders that are not whole --------------------------------------------------------------------------------------


def test_a_run_that_crashed_is_reported_as_incomplete_with_what_it_has(tmp_path: Path) -> None:
    folder = Made(lost={0: 7}).write(tmp_path, over=False)
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"utc":"2026-01-01T00:00:00Z","event":"pha')
    with (folder / "samples.csv").open("a") as file:
        file.write("3000000000,rx1,receive,,,,,,small,tx1,rx1,,9999")
    page = page_of(folder)
    assert "Incomplete: the run crashed (exit status 3)" in page.text
    assert "the run ended in phase 'send'; run.json was never written" in page.text
    assert "6.18.0" in page.text and "Bits in and out" in page.text
    rows = [[cell["text"] for cell in page.elements if row in cell["around"]] for row in page.all("tr")]
    (small,) = [[text for text in row if text] for row in rows if row[:3] == ["small", "tx1", "rx1"]]
    assert small[3::2] == ["300", "293", "7"], "each in its element <data>"
    assert not [one for one in page.elements if one.get("@id") == "total"]


@pytest.mark.parametrize("text", ["", '{"format_version": 1, "tot', "\0"])
def test_a_run_json_that_was_cut_off_is_told_and_the_rest_reported(tmp_path: Path, text: str) -> None:
    folder = Made().write(tmp_path, over=False)
    (folder / "run.json").write_text(text)
    page = page_of(folder)
    assert "run.json cannot be read" in page.text and "tx1" in page.text


def test_a_crash_before_anything_was_sent(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"event":"phase","name":"hello","at_ns":1}\n')
    page = page_of(tmp_path)
    assert "the run ended in phase 'hello'" in page.text and "No node had reported." in page.text


def test_no_run_and_a_run_of_another_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no such folder \(allowed: a folder under results/\)"):
        read(tmp_path / "none")
    with pytest.raises(BadInput, match="no results of a run here"):
        read(tmp_path)
    (tmp_path / "run.json").write_text('{"format_version": 3}')
    formatting = r"format_version = 3: of a newer format: read it with the pktswarm that wrote it, .* \(allowed: 1, 2\)"
    with pytest.raises(BadInput, match=formatting):
        read(tmp_path)


@pytest.mark.parametrize("option", ["--output", "--junit"])
def test_a_file_that_cannot_be_written_is_refused_first(call_here: Call, tmp_path: Path, option: str) -> None:
    folder = Made().write(tmp_path)
    done = call_here("report", folder, option, tmp_path / "none" / "file")
    assert done.returncode == 2 and f"{option} = '{tmp_path}/none': there is no such folder" in done.stderr
    done = call_here("report", folder, option, tmp_path)
    assert done.returncode == 2 and "this is a folder (allowed: a file)" in done.stderr
    assert not (folder / "report.html").exists()


def test_run_refuses_a_junit_file_that_cannot_be_before_anything_else(call_here: Call, tmp_path: Path) -> None:
    done = call_here("run", tmp_path / "none.yaml", "--junit", tmp_path / "none" / "j.xml")
    assert done.returncode == 2 and "--junit" in done.stderr and "none.yaml" not in done.stderr


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_makes_the_page_again_and_elsewhere(call_here: Call, tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    done = call_here("report", folder)
    assert done.returncode == 0 and done.stdout.strip() == str(folder / "report.html")
    done = call_here("report", folder, "-o", tmp_path / "other.html", "--junit", tmp_path / "j.xml")
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path / "other.html")
    there, here = (path.read_text() for path in (tmp_path / "other.html", folder / "report.html"))
    assert f'href="{folder.name}/samples.csv"' in there, "links lead to the folder"
    assert there.replace(f'href="{folder.name}/', 'href="') == here
    assert (tmp_path / "j.xml").read_text().startswith("<?xml")


def finished(folder: Path) -> Finished:
    return Finished(folder, Outcome(1, "as it was", document=json.loads((folder / "run.json").read_text())))


def test_a_report_that_fails_costs_one_line_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Made().write(tmp_path)
    (folder / "plots").write_text("in the way")
    cli_report.after_run(finished(folder), tmp_path / "j.xml", page=True)
    told = capsys.readouterr()
    assert re.fullmatch(r"pktswarm: the report could not be made: .*plots.*\n", told.err) and not told.out
    assert (tmp_path / "j.xml").exists() and not (folder / "report.html").exists()
    (folder / "plots").unlink()
    cli_report.after_run(finished(folder), tmp_path, page=True)
    told = capsys.readouterr()
    assert "could not be made" in told.err and f"report: {folder}/report.html" in told.err


def test_nothing_of_the_report_is_loaded_before_it_is_made() -> None:
    code = "import sys, pktswarm.master.cli.app, pktswarm.master.run.run, pktswarm.master.results.terminal;"
    code += "print({'jinja2', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
