"""Runs side by side: what differs, and whether by more than noise."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from scipy import stats

from in_process import Call
from pages import Page, check_accessible, check_nothing_to_fetch_or_run
from pktswarm.master import report
from pktswarm.master.compare import noise, run_sets, storage, wording
from pktswarm.master.compare.comparison import BEYOND, CLOCKS, SAME, UNKNOWN, WITHIN, Comparison, Difference
from pktswarm.master.compare.noise import Value
from pktswarm.master.results import recount
from pktswarm.traffic.errors import BadInput
from result_folders import Made, changed, leg

HOSTILE = "<script>alert(1)</script>"
Change = Callable[[dict[str, Any]], object]


def setting(**values: object) -> Change:
    """In each row of streams."""
    return lambda document: [row.update(values) for row in document["rows"]]


def repeated(folder: Path, losses: Sequence[int], change: Change = lambda document: None, **made: Any) -> str:
    """Runs of one side, of which the first leg loses so many packets each."""
    return ",".join(str(changed(Made(lost={0: n}, **made).write(folder), change)) for n in losses)


def compare(*words: str) -> Comparison:
    first, *others = run_sets.sides(list(words))
    return Comparison(first, others)


def of(comparison: Comparison, subject: str, figure: str, side: str = "B") -> Difference:
    (one,) = [one for one in comparison.differences if (one.subject, one.figure, one.side) == (subject, figure, side)]
    return one


# --- noise -----------------------------------------------------------------------------------------------------------


def values(numbers: Sequence[float]) -> noise.Side:
    return noise.side([Value(number) for number in numbers])


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_the_interval_is_welchs_as_scipy_has_it(confidence: float) -> None:
    one, other = [10.1, 10.4, 9.7, 10.2], [12.0, 15.5, 11.0]
    half = noise.half_width(values(one), values(other), confidence)
    theirs = stats.ttest_ind(other, one, equal_var=False).confidence_interval(confidence)
    assert half == pytest.approx((theirs.high - theirs.low) / 2)


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_what_is_the_same_is_told_apart_in_few_comparisons_whatever_the_number_of_figures(runs: int) -> None:
    draw, figures, comparisons = random.Random(runs), 20, 400
    each = noise.of_each(0.95, figures)
    found = 0
    for _ in range(comparisons):
        pairs = [[[draw.gauss(50, 3) for _ in range(runs)] for _ in range(2)] for _ in range(figures)]
        sides_ = [[values(one) for one in pair] for pair in pairs]
        found += any(abs(a.mean - b.mean) > (noise.half_width(a, b, each) or 0) for a, b in sides_)
    assert found / comparisons < 0.09, "5 % and what chance adds to 400 draws"


def test_what_differs_by_much_more_than_runs_do_is_found() -> None:
    one, other = values([50, 51, 49, 50, 50]), values([60, 61, 59, 60, 62])
    assert (noise.half_width(one, other, noise.of_each(0.95, 40)) or 99) < 10


def test_one_run_has_no_noise_that_is_known() -> None:
    assert noise.half_width(values([1]), values([1, 2, 3]), 0.95) is None
    assert noise.half_width(values([7, 7]), values([8, 8]), 0.95) == 0


def test_a_few_lost_packets_are_chance_even_where_each_run_loses_as_many(tmp_path: Path) -> None:
    none = repeated(tmp_path, [0, 0, 0])
    few = of(compare(none, repeated(tmp_path, [1, 1, 1])), "small", "loss_ratio")
    assert (few.first_sd, few.other_sd, few.verdict) == (0, 0, WITHIN)
    many = of(compare(none, repeated(tmp_path, [100, 100, 100])), "small", "loss_ratio")
    assert (many.verdict, many.for_the_worse) == (BEYOND, True)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_runs(tmp_path: Path) -> None:
    comparison = compare(repeated(tmp_path, [0, 3]), repeated(tmp_path, [30, 50]))
    lost = of(comparison, "small", "lost_packets")
    assert (lost.first, lost.other, lost.difference, lost.first_runs) == (1.5, 40, 38.5, 2)
    assert lost.relative == pytest.approx(38.5 / 1.5) and lost.other_sd == pytest.approx(200**0.5)
    share = of(comparison, "small", "loss_ratio")
    assert share.other == pytest.approx(40 / 300) and share.unit == "ratio"
    total = [cast(list[dict[str, Any]], run.document["totals"])[-1] for run in comparison.others[0].runs]
    for name in ("intended_packets", "sent_packets", "received_packets", "lost_packets"):
        assert of(comparison, "all streams", name).other == sum(one[name] for one in total) / 2


def test_of_several_legs_the_longest_latency_stands_and_rates_are_summed(tmp_path: Path) -> None:
    legs = [leg(0, "a"), leg(1, "a", "tx2", "rx2")]
    folder = Made(legs).write(tmp_path)
    changed(folder, lambda document: document["rows"][1].update(latency_p99_ns=77_000, latency_min_ns=1_000))
    comparison = compare(str(folder), str(folder))
    found = {name: of(comparison, "a", name).first for name in ("latency_p99_ns", "latency_min_ns", "sent_pps")}
    assert found == {"latency_p99_ns": 77_000, "latency_min_ns": 1_000, "sent_pps": 199.4}


def test_what_was_not_measured_stays_empty(tmp_path: Path) -> None:
    def forget(document: dict[str, Any]) -> None:
        document["rows"][0]["lost_packets"] = None
        del document["rows"][0]["jitter_sd_ns"]

    comparison = compare(repeated(tmp_path, [5, 5]), repeated(tmp_path, [0]) + "," + repeated(tmp_path, [0], forget))
    lost, jitter = (of(comparison, "small", name) for name in ("lost_packets", "jitter_sd_ns"))
    assert (lost.first, lost.other, lost.difference, lost.verdict) == (5, None, None, "")
    assert (jitter.other, of(comparison, "all streams", "loss_ratio").other) == (None, None)
    folder = storage.keep(comparison, tmp_path / "kept")
    rows = {(row["subject"], row["figure"]): row for row in csv.DictReader((folder / "compare.csv").open())}
    row = rows["small", "lost_packets"]
    assert [row[name] for name in ("first", "other", "difference", "relative", "noise")] == ["5.0", "", "", "", ""]


def test_latencies_are_only_as_sure_as_the_clocks(tmp_path: Path) -> None:
    clocks = {"latency_bound_ns": 18_000}
    one = repeated(tmp_path, [0, 0], setting(**clocks))
    near = compare(one, repeated(tmp_path, [0, 0], setting(latency_p50_ns=30_000, **clocks)))
    assert near.first.runs[0].figures["small"].bound_ns == 18_000
    assert of(near, "small", "latency_p50_ns").verdict == CLOCKS, "25.5 µs later, and the clocks ±18 µs on each side"
    later = repeated(tmp_path, [0, 0], setting(latency_p50_ns=50_000, **clocks))
    far = of(compare(one, later), "small", "latency_p50_ns")
    assert (far.verdict, far.for_the_worse) == (BEYOND, True)
    jitter = of(compare(one, repeated(tmp_path, [0, 0], setting(jitter_sd_ns=5_000))), "small", "jitter_sd_ns")
    assert jitter.verdict == BEYOND, "of one clock"


def connections(goodput_bps: float) -> Change:
    row = {"leg": 9, "connections": "web", "direction": "down", "from": "rx1", "to": "tx1", "role": "target"}
    row |= {"protocol": "tcp", "parallel": 1, "lost_datagrams": None, "goodput_bps": int(goodput_bps)}
    return lambda document: document.update(connections=[row])


def test_connections_are_compared_by_direction(tmp_path: Path) -> None:
    runs = [repeated(tmp_path, [0], connections(bps)) for bps in (9e6, 9.1e6, 4e6, 4.1e6)]
    one = of(compare(",".join(runs[:2]), ",".join(runs[2:])), "web (down)", "goodput_bps")
    assert (one.first, one.verdict, one.for_the_worse) == (9.05e6, BEYOND, True)


# --- what is said ----------------------------------------------------------------------------------------------------


def test_compared_with_itself_everything_is_the_same(tmp_path: Path) -> None:
    runs = repeated(tmp_path, [3, 9, 1])
    comparison = compare(runs, runs)
    assert {one.verdict for one in comparison.differences} == {SAME}
    assert wording.verdict(comparison) == "No difference is larger than the noise"
    assert not (document := comparison.document())["scenario"] and not document["nodes"]


def test_single_runs_say_that_the_noise_is_not_known(tmp_path: Path) -> None:
    comparison = compare(repeated(tmp_path, [0]), repeated(tmp_path, [90]))
    one = of(comparison, "small", "loss_ratio")
    assert (one.verdict, one.noise, one.for_the_worse) == (UNKNOWN, None, False)
    assert wording.verdict(comparison) == "The noise is unknown: a side has a single run"
    assert "A and B are single runs" in wording.explanation(comparison)
    assert comparison.status(fail_on_worse=True) == 0, "and so the option is refused: see below"


def test_better_is_not_worse(tmp_path: Path) -> None:
    comparison = compare(repeated(tmp_path, [90, 91, 90]), repeated(tmp_path, [0, 0, 0]))
    assert of(comparison, "small", "loss_ratio").beyond and comparison.status(fail_on_worse=True) == 0
    assert wording.verdict(comparison).endswith("none for the worse")


def test_more_than_two_sides_are_each_compared_with_the_first(tmp_path: Path) -> None:
    comparison = compare(*(repeated(tmp_path, losses) for losses in ([0] * 3, [0] * 3, [80, 82, 80])))
    found = [of(comparison, "small", "loss_ratio", side) for side in "BC"]
    assert [one.verdict for one in found] == [SAME, BEYOND]


def test_streams_in_one_only_scenarios_and_versions_that_differ_are_told(tmp_path: Path) -> None:
    def newer(document: dict[str, Any]) -> None:
        (small,) = [one for one in document["scenario"]["streams"] if one["name"] == "small"]
        small["rate_pps"] = 200
        document["ranks"]["1"]["kernel"] = "6.19.0"
        document["rows"][0]["engine"] = "pktgen"

    one = Made().write(tmp_path)
    other = changed(Made([leg(0, "small"), leg(2, "tiny", "tx2", "rx2")]).write(tmp_path), newer)
    document = compare(str(one), str(other)).document()
    assert document["in_one_only"] == [
        {"stream": "large", "side": "A", "not_in": "B"},
        {"stream": "tiny", "side": "B", "not_in": "A"},
    ]
    told = {(each["key"], each["first"], each["other"]) for each in document["scenario"]}
    streams = {("streams.large", "there", "–"), ("streams.tiny", "–", "there")}
    assert told == streams | {("streams.small.rate_pps", "100", "200")}
    assert ("tx1 (transmit): kernel", "6.18.0", "6.19.0") in {
        (each["key"], each["first"], each["other"]) for each in document["nodes"]
    }
    assert ("engine of small, tx1 → rx1", "xdp", "pktgen") in {
        (each["key"], each["first"], each["other"]) for each in document["nodes"]
    }


def device(**fields: Any) -> Change:
    return lambda document: document.update(dut=fields)


def test_a_changed_device_is_listed_and_named_in_the_verdict(call_here: Call, tmp_path: Path) -> None:
    """The figures are the same: only the device's settings tell the sides apart."""
    settings = {"kind": "switch", "bottleneck_bps": 40_000_000}
    first = repeated(tmp_path, [3] * 4, device(name="switch", settings=settings, labels={"firmware": "2.1"}))
    settings = {**settings, "bottleneck_bps": 30_000_000}
    other = repeated(tmp_path, [3] * 4, device(name="switch", settings=settings))
    found = compare(first, other)
    assert found.document()["dut"] == [
        {"side": "B", "key": "settings.bottleneck_bps", "first": "40000000", "other": "30000000"},
        {"side": "B", "key": "labels.firmware", "first": "2.1", "other": "–"},
    ]
    text = "No difference is larger than the noise. The devices under test differ: settings.bottleneck_bps, labels.f"
    assert wording.verdict(found).startswith(text)
    made = call_here("compare", first, other, "--results", tmp_path)
    assert "device under test: settings.bottleneck_bps: 40000000 → 30000000 (B)" in made.stdout
    (page,) = tmp_path.glob("*-compare/compare.html")
    assert "settings.bottleneck_bps" in page.read_text() and text in page.read_text()
    mixed = compare(",".join([first, other.split(",")[0]]), other)
    assert ["bottleneck_bps" in line for line in mixed.document()["sides"][0]["not_repetitions"]] == [True]


def test_a_device_that_is_not_described_may_differ(call_here: Call, tmp_path: Path) -> None:
    described = repeated(tmp_path, [3] * 2, device(name="switch"))
    unknown = repeated(tmp_path, [3] * 2)
    assert "same way" in wording.device(compare(described, described))
    assert "unknown: nothing is known of the device of B." in wording.device(compare(described, unknown))
    made = call_here("compare", unknown, unknown, "--results", tmp_path)
    assert "nothing is known of the device of A and B" in " ".join(made.stdout.split())


def test_the_plots_of_both_sides_have_equal_axes(tmp_path: Path) -> None:
    """B lasts longer and has a longer latency."""
    slow = setting(**{f"latency_{point}_ns": 400_000 for point in ("min", "p50", "p90", "p99", "p999", "max")})
    first, other = repeated(tmp_path, [0]), repeated(tmp_path, [3], slow, seconds=6.0)
    folder = storage.keep(compare(first, other), tmp_path / "out")
    page = Page((folder / "compare.html").read_text())
    titles = [one["text"] for one in page.all("h3") if one["text"].startswith(("A: ", "B: "))]
    assert [title[0] for title in titles] == ["A", "B"] * 3
    ticks = [_ticks(one["text"]) for one in page.all("svg")]
    assert ticks[::2] == ticks[1::2] and all(len(each) > 5 for each in ticks)
    latencies = _rows(folder / "plots/latency.csv")
    assert {row["latency_us"] for row in latencies if row["side"] == "B"} == {"400"}
    assert {row["percentile"] for row in latencies} == {"0", "50", "90", "99", "99.9", "100"}
    rates = [row for row in _rows(folder / "plots/packets.csv") if (row["side"], row["line"]) == ("A", "in")]
    assert max(float(row["packets_per_s"]) for row in rates) == pytest.approx(200, rel=0.05)


def _ticks(text: str) -> list[str]:
    """The numbers at the axes of a plot."""
    return re.findall(r"^[ \t]*([-−]?[\d.,]+)[ \t]*$", text, flags=re.M)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_runs_of_a_side_that_are_not_the_same_run_again_are_told(tmp_path: Path) -> None:
    other = repeated(tmp_path, [0], lambda document: document["scenario"].update(seed=7))
    (side,) = compare(repeated(tmp_path, [0, 0]), f"{repeated(tmp_path, [0])},{other}").document()["sides"][1:]
    assert len(side["not_repetitions"]) == 1 and "they differ in seed" in side["not_repetitions"][0]


# --- what is read ----------------------------------------------------------------------------------------------------


def incomplete(document: dict[str, Any]) -> None:
    document.update(status=3, reason="tx1: no message for 5 s")


def test_a_run_that_is_not_whole_is_left_out_where_there_are_others(tmp_path: Path) -> None:
    words = f"{repeated(tmp_path, [0, 0])},{repeated(tmp_path, [9], incomplete)}"
    comparison = compare(words, repeated(tmp_path, [0, 0]))
    assert len(comparison.first.runs) == 2 and of(comparison, "small", "lost_packets").first == 0
    assert "tx1: no message for 5 s" in comparison.first.left_out[0] and comparison.noise_is_known


def test_where_no_run_is_whole_they_are_shown_and_nothing_is_said_of_differences(tmp_path: Path) -> None:
    comparison = compare(repeated(tmp_path, [0, 0]), repeated(tmp_path, [99, 99], incomplete))
    one = of(comparison, "small", "loss_ratio")
    assert one.other == pytest.approx(0.33) and one.verdict == UNKNOWN
    assert "no verdict on differences" in wording.verdict(comparison)
    with pytest.raises(BadInput, match="--fail-on-worse"):
        comparison.check_noise()


def test_a_half_written_folder_is_refused_and_where_to_look_said(tmp_path: Path) -> None:
    whole, crashed = Made().write(tmp_path), Made().write(tmp_path, over=False)
    with pytest.raises(BadInput, match=r"never written.*: nothing to compare; .* shows its partial results"):
        compare(str(whole), str(crashed))
    (crashed / "run.json").write_text('{"format_version": 1, "rows": [')
    with pytest.raises(BadInput, match=r"run\.json cannot be read: .* nothing to compare"):
        compare(str(whole), str(crashed))


def test_results_of_another_format_are_refused_with_what_to_do(tmp_path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        document["format_version"] = 0

    whole, old = Made().write(tmp_path), changed(Made().write(tmp_path), older)
    words = r"format_version = 0: of an older format: read it with the pktswarm that wrote it \(0\.1\.0\), or run its"
    for read in (lambda: compare(str(whole), str(old)), lambda: report.make(old), lambda: recount.run_json(old)):
        with pytest.raises(BadInput, match=words):
            read()


def test_results_of_before_figures_were_added_are_read_without_them(tmp_path: Path) -> None:
    """As this format's first version wrote them: 33 columns of streams, no groups, no users."""

    def first_version(document: dict[str, Any]) -> None:
        for name in ("group", "resent_packets", "latency_by", "unstamped_sent_packets", "unstamped_received_packets"):
            for row in document["rows"]:
                del row[name]
        for name in ("sent_frames", "received_frames", "late_packets"):
            for row in document["rows"]:
                del row[name]
        for name in ("groups", "flows", "connections", "played", "verified", "latency_by_captures", "engines", "notes"):
            del document[name]

    new, old = Made(lost={0: 4}).write(tmp_path), changed(Made(lost={0: 4}).write(tmp_path), first_version)
    comparison = compare(str(new), str(old))
    assert of(comparison, "small", "lost_packets").verdict == SAME
    assert of(comparison, "small", "late_ratio").other is None
    assert report.make(old).is_file()


def test_the_same_run_twice_on_one_side_is_refused(tmp_path: Path) -> None:
    one, other = Made().write(tmp_path), Made().write(tmp_path)
    with pytest.raises(BadInput, match="a run is given twice on one side"):
        compare(f"{one},{one}", str(other))


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = str(Made().write(tmp_path))
    with pytest.raises(BadInput, match=r"nothing to compare \(allowed: 2 to 26 folders\)"):
        compare(one)
    with pytest.raises(BadInput, match="none: there is no such folder"):
        compare(one, f"{tmp_path}/none")
    with pytest.raises(BadInput, match="no results of a run here"):
        compare(one, str(tmp_path))
    with pytest.raises(BadInput, match="--results: cannot be written"):
        storage.keep(compare(one, one), Path(one) / "run.json")


def test_a_noise_that_is_not_known_cannot_decide_the_exit_status(call_here: Call, tmp_path: Path) -> None:
    one = Made().write(tmp_path)
    done = call_here("compare", one, one, "--fail-on-worse", "--results", tmp_path / "kept")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"--fail-on-worse = '{one.name} with 1': the noise of single runs is unknown" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_only_the_figures_that_are_named_decide(call_here: Call, tmp_path: Path) -> None:
    one, other = repeated(tmp_path, [0, 1, 0]), repeated(tmp_path, [90, 80, 95])
    words = ("compare", one, other, "--fail-on-worse", "--results", tmp_path / "kept")
    assert call_here(*words, "--figure", "loss").returncode == 1
    assert call_here(*words, "--figure", "latency_p99_us", "--figure", "reordered").returncode == 0
    done = call_here(*words, "--figure", "latency_p98_us")
    assert done.returncode == 2 and "--figure = 'latency_p98_us': not a figure (allowed: loss, altered" in done.stderr
    assert "sent_pps" not in done.stderr, "what says nothing of the device decides nothing"
    done = call_here("compare", one, other, "--figure", "loss", "--results", tmp_path / "kept")
    assert done.returncode == 2
    assert "--figure = 'loss': no effect without --fail-on-worse (allowed: with --fail-on-worse)" in done.stderr


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_compares_on_the_terminal_as_json_and_on_a_page(call_here: Call, tmp_path: Path) -> None:
    one, other = repeated(tmp_path, [0, 1, 0]), repeated(tmp_path, [90, 80, 95])
    done = call_here("compare", one, other, "--results", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    assert "worse  small: lost, % of sent: 0.11 → 29.44 (+29.33, noise ±" in done.stdout
    assert "Worse by more than the noise: 4 figures" in done.stdout, "small's and all streams' loss and rate"
    done = call_here("compare", one, other, "--results", tmp_path / "kept", "--fail-on-worse", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["noise_is_known"]) == (1, 1, True)
    folder = Path(document["results"])
    page = Page((folder / "compare.html").read_text())
    assert "✗ Worse: small: lost, % of sent: 0.11 → 29.44" in page.text
    rows = list(csv.DictReader((folder / "compare.csv").open()))
    assert [row["figure"] for row in rows] == [one["figure"] for one in document["differences"]]
    assert [float(row["difference"] or 0) for row in rows] == [
        one["difference"] or 0 for one in document["differences"]
    ]
    runs = [row for row in csv.DictReader((folder / "runs.csv").open()) if row["figure"] == "lost_packets"]
    assert [float(row["value"]) for row in runs if row["subject"] == "small"] == [0, 1, 0, 90, 80, 95]


def test_the_page_can_be_read_by_all_and_runs_nothing(tmp_path: Path) -> None:
    legs = [leg(0, HOSTILE), leg(1, "large", "tx2", "rx2")]
    other = repeated(tmp_path, [0, 0], lambda document: document["scenario"].update(description=HOSTILE))
    comparison = compare(repeated(tmp_path, [0, 0], legs=legs), repeated(tmp_path, [88, 90], legs=legs), other)
    text = (storage.keep(comparison, tmp_path / "kept") / "compare.html").read_text()
    check_nothing_to_fetch_or_run(text)
    check_accessible(Page(text))
    assert HOSTILE in Page(text).text
