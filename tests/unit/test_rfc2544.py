"""RFC 2544's benchmarks: formulas, the procedure on devices of known capacity and queue, results."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from browser import chromium, looked_at
from pages import check_nothing_to_fetch_or_run
from pktswarm.master.benchmark.attempts import TrialResult
from pktswarm.master.benchmark.latency import Latencies, latencies
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.cli import app, rfc2544
from pktswarm.master.cluster import inventory
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.rfc2544 import formulas, page, show, tester
from pktswarm.master.rfc2544 import options as ask
from pktswarm.master.rfc2544.bursts import BurstSearch
from pktswarm.master.rfc2544.document import About, BenchmarkDocument
from pktswarm.master.rfc2544.options import FULL, QUICK, TESTS, Options
from pktswarm.master.rfc2544.procedure import HOLDS_ALL, NO_RATE, Benchmark, Limit, TrialPlan
from pktswarm.master.rfc2544.storage import Storage
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.search.confirm import LONGEST_S
from pktswarm.traffic.counting.tally import Jitter, Latency, Tally
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import Leg

EXAMPLE, SCENARIO = Path("hosts/example.yml"), Path("configs/rfc2544.yaml")
MEDIUM_BPS, DEVICE_BPS, QUEUE_BYTES = 100e6, 40e6, 100_000
LATENCIES = Latencies(100, 1_000, 2_000.0, 1_900, 5_000, 8_000, 9_000, 7_000, 300.0, 50, 0)


# --- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size_bytes", "at_1_gbit", "at_10_mbit"),
    [
        (64, 1_488_095, 14880),
        (128, 844_595, 8445),
        (256, 452_899, 4528),
        (512, 234_962, 2349),
        (1024, 119_732, 1197),
        (1280, 96_154, 961),
        (1518, 81_274, 812),
    ],
)
def test_maximum_frame_rates_are_those_of_the_standard(size_bytes: int, at_1_gbit: int, at_10_mbit: int) -> None:
    """RFC 2544, appendix B has the second column, cut to whole frames."""
    assert round(formulas.maximum_pps(1e9, size_bytes)) == at_1_gbit
    assert int(formulas.maximum_pps(10e6, size_bytes)) == at_10_mbit


def test_the_buffer_is_corrected_by_what_leaves_it_meanwhile() -> None:
    """RFC 9004, 5.4."""
    assert formulas.implied_buffer_s(26_000, 14_880_952) == pytest.approx(1.7472e-3)
    assert formulas.corrected_buffer_s(26_000, 14_880_952 / 4, 14_880_952) == pytest.approx(0.75 * 1.7472e-3)
    assert formulas.corrected_buffer_s(26_000, 0, 14_880_952) == formulas.implied_buffer_s(26_000, 14_880_952)


def test_a_loss_that_was_not_measured_is_none_and_not_0() -> None:
    assert (formulas.loss_percent(200, 50), formulas.loss_percent(200, 0)) == (25, 0)
    assert formulas.loss_percent(None, 0) is formulas.loss_percent(200, None) is formulas.loss_percent(0, 0) is None


# --- the longest burst -----------------------------------------------------------------------------------------------


def lost_of(frames: int, holds: int, share: float) -> int:
    """The loss of a queue of `holds` frames before a forwarder of `share` of the received frames."""
    return max(0, frames - int(frames * share) - holds)


def bursts(longest: int, holds: int, share: float, believed: float, parts: int = 1) -> tuple[BurstSearch, int]:
    search, trials = BurstSearch(longest, believed, 0.01, parts), 0
    while (wanted := search.next()) is not None:
        frames = sum(round(wanted / parts) for _ in range(parts))
        search.take(frames, lost_of(frames, holds, share))
        trials += 1
        assert trials < 100
    return search, trials


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_the_longest_burst_is_found_within_its_step(seed: int, parts: int) -> None:
    chance = random.Random(seed)
    share, holds = chance.uniform(0.05, 0.95), round(10 ** chance.uniform(1, 4))
    most = next(frames for frames in range(10**7) if lost_of(frames + 1, holds, share))
    search, trials = bursts(300_000, holds, share, share * chance.uniform(0.98, 1.02), parts)
    assert search.held <= most and search.lost > most
    assert search.lost - search.held <= search.step == max(2 * parts if parts > 1 else 1, -(-search.lost // 100))
    assert not search.over_the_limit and trials <= 20


def test_where_the_throughput_is_known_a_few_bursts_are_enough() -> None:
    """The device has a queue of 20 ms, and forwards 40 % of the medium's rate."""
    assert bursts(297_619, 1_667, 0.4, 0.4)[1] <= 5


def test_a_device_that_holds_every_burst_has_no_length() -> None:
    search, _ = bursts(10_000, 10_000, 0.5, 0.5)
    assert search.over_the_limit and search.held == 10_000


def test_bursts_that_contradict_one_another_end_the_search() -> None:
    chance = random.Random(1)
    for _ in range(50):
        search = BurstSearch(100_000, 0.4, 0.01)
        for _trial in range(100):
            if (frames := search.next()) is None:
                break
            search.take(frames, chance.choice([0, 0, 1, frames // 2]))
        else:
            pytest.fail("it does not end")


# --- the procedure ---------------------------------------------------------------------------------------------------


class Device:
    """A queue before a bottleneck, as in the lab. `cannot`: (test, size) with loads that the tester cannot send."""

    def __init__(self, bps: float = DEVICE_BPS, cannot: tuple[str, int] | None = None) -> None:
        self.bps, self.cannot = bps, cannot
        self.wanted: list[TrialPlan] = []

    def holds_pps(self, size_bytes: int) -> float:
        return self.bps / 8 / (size_bytes - 4)

    def __call__(self, wanted: TrialPlan) -> TrialResult:
        self.wanted.append(wanted)
        if self.cannot == (wanted.test, wanted.size_bytes):
            return TrialResult(
                Trial(wanted.load_pps, wanted.duration_s, 9, 5, 5, 0, problem="5 of 9 packets were sent")
            )
        sent = round(wanted.load_pps * wanted.duration_s)
        queue = QUEUE_BYTES // (wanted.size_bytes - 4)
        passed = min(sent, int(self.holds_pps(wanted.size_bytes) * wanted.duration_s) + queue)
        trial = Trial(wanted.load_pps, wanted.duration_s, sent, sent, passed, sent - passed, wanted.duration_s)
        return TrialResult(trial, LATENCIES)


def benchmark(device: Any, **asked: Any) -> Benchmark:
    wanted = Options(**{"sizes_bytes": (64, 1518), "medium_l1_bps": MEDIUM_BPS, **asked})
    limits = {size: formulas.maximum_pps(MEDIUM_BPS, size) for size in wanted.sizes_bytes}
    made = Benchmark(wanted, {size: Limit(most, most / 100, 1) for size, most in limits.items()}, device)
    made.run()
    return made


def test_every_benchmark_of_a_known_device_is_found() -> None:
    device = Device()
    done = benchmark(device)
    assert (done.status, done.problem, [of.problem for of in done.sizes]) == (0, "", ["", ""])
    for of in done.sizes:
        queue = QUEUE_BYTES // (of.size_bytes - 4)
        sustained = device.holds_pps(of.size_bytes)
        short = sustained + queue / QUICK.trial_s
        # Trials of 1 s hold `short`, which the confirming trial does not.
        assert of.rate_pps is not None and of.throughput is not None and of.throughput.confirmed_s == LONGEST_S
        assert 0.98 * sustained <= of.rate_pps <= sustained + queue / LONGEST_S + 2 < 0.99 * short
        assert len(of.latency) == QUICK.latency_trials
        share = device.holds_pps(of.size_bytes) / of.maximum_pps
        assert of.burst_frames == pytest.approx(queue / (1 - share), rel=0.03)
        assert len(of.bursts) == QUICK.bursts
    at = [wanted for wanted in device.wanted if wanted.test == "latency"]
    assert [(one.load_pps, one.duration_s) for one in at] == [(of.rate_pps, QUICK.latency_s) for of in done.sizes]
    burst_loads = {wanted.load_pps for wanted in device.wanted if wanted.test == "back-to-back"}
    assert burst_loads == {of.maximum_pps for of in done.sizes}


def test_loss_that_shows_once_shortens_no_burst() -> None:
    whole, hiccups = Device(), []

    def measure(wanted: TrialPlan) -> TrialResult:
        result = whole(wanted)
        if wanted.test != "back-to-back" or result.trial.lost_packets or wanted in hiccups:
            return result
        hiccups.append(wanted)
        return TrialResult(replace(result.trial, lost_packets=3))

    done, undisturbed = benchmark(measure), benchmark(Device())
    assert hiccups and [of.bursts for of in done.sizes] == [of.bursts for of in undisturbed.sizes]


def test_the_loss_rate_goes_down_by_tenths_until_two_loads_lose_nothing() -> None:
    device = Device(bps=DEVICE_BPS)
    of = benchmark(device, tests=("loss",), sizes_bytes=(1518,)).sizes[0]
    share = 100 * device.holds_pps(1518) / of.maximum_pps
    assert 40 < share < 41, "40 % and 30 % lose nothing"
    assert [one.load_percent for one in of.loss] == [100, 90, 80, 70, 60, 50, 40, 30]
    assert [bool(one.lost_packets) for one in of.loss] == [True] * 6 + [False] * 2
    first = of.loss[0]
    assert first.loss_percent == pytest.approx(100 - share, abs=1.0), "the queue takes some"
    assert [one.load_pps / of.maximum_pps for one in of.loss] == pytest.approx([p / 100 for p in range(100, 20, -10)])


def test_a_device_that_loses_nothing_is_tried_at_two_loads_alone() -> None:
    of = benchmark(Device(bps=200e6), sizes_bytes=(512,)).sizes[0]
    assert [one.load_percent for one in of.loss] == [100, 90]
    assert of.throughput is not None and of.throughput.rate_pps == of.maximum_pps
    assert of.left_out == {"back-to-back": HOLDS_ALL} and not of.bursts


def test_the_full_form_takes_as_long_and_as_often_as_the_standard_asks() -> None:
    device = Device()
    done = benchmark(device, form=FULL, sizes_bytes=(512,))
    at = {test: [one.duration_s for one in device.wanted if one.test == test] for test in TESTS}
    assert at["latency"] == [120.0] * 20
    assert set(at["loss"]) == {60.0}
    loads = {one.load_pps: one.duration_s for one in device.wanted if one.test == "throughput"}
    assert loads[done.sizes[0].rate_pps or 0] == 60.0
    assert len(done.sizes[0].bursts) == 50
    assert max(at["back-to-back"]) <= done.options.longest_burst_s


@pytest.mark.parametrize("test", TESTS)
def test_a_load_that_was_not_sent_ends_its_size_without_a_figure_of_the_device(test: str) -> None:
    done = benchmark(Device(cannot=(test, 64)))
    small, large = done.sizes
    assert small.problem == f"{test}: 5 of 9 packets were sent" and done.status == 3 and not done.problem
    found = {"throughput": small.rate_pps, "latency": small.latency, "loss": small.loss, "back-to-back": small.bursts}
    for name in TESTS[TESTS.index(test) :]:
        assert not found[name], name
    for name in TESTS[: TESTS.index(test)]:
        assert found[name], name
    assert large.rate_pps and large.loss and large.latency and large.bursts and not large.problem


def test_a_node_that_was_held_up_is_tried_again_and_no_more_than_twice() -> None:
    def run(times: int) -> tuple[Benchmark, int]:
        whole = Device()
        held: list[TrialPlan] = []

        def measure(wanted: TrialPlan) -> TrialResult:
            result = whole(wanted)
            if len(held) < times:
                held.append(wanted)
                return TrialResult(replace(result.trial, problem="tx1 took 1.02 s", held_up=True))
            return result

        return benchmark(measure, tests=("loss",), sizes_bytes=(1518,)), len(held)

    done, _ = run(2)
    assert done.status == 0 and len(done.trials) == 8 + 2 and len(done.sizes[0].loss) == 8
    done, held = run(99)
    assert (done.status, held) == (3, 3) and not done.sizes[0].loss
    assert "in 3 trials; this is a limit of the tester" in done.sizes[0].problem


@pytest.mark.parametrize("error", ["stopped by the user", "interrupted"])
@pytest.mark.parametrize("number", [1, 3, 20])
def test_ctrl_c_ends_all_of_it_and_keeps_what_was_found(number: int, error: str) -> None:
    whole = Device()

    def measure(wanted: TrialPlan) -> TrialResult:
        result = whole(wanted)
        if len(whole.wanted) < number:
            return result
        if error == "interrupted":
            raise PktswarmError(error)
        return TrialResult(replace(result.trial, problem=error))

    if (number, error) == (1, "interrupted"):
        with pytest.raises(PktswarmError):
            benchmark(measure)
        return
    done = benchmark(measure)
    assert (done.status, done.problem, len(whole.wanted)) == (3, error, number)
    assert len(done.trials) == number - (error == "interrupted")
    assert not done.sizes[1].loss and done.sizes[1].rate_pps is None


def test_a_device_that_loses_at_every_rate_has_no_throughput_and_nothing_that_goes_by_it() -> None:
    done = benchmark(Device(bps=100e3), sizes_bytes=(1518,))
    of = done.sizes[0]
    assert done.status == 1 and of.rate_pps is None and not of.latency and not of.bursts
    assert of.left_out == {"latency": NO_RATE, "back-to-back": NO_RATE}
    assert [one.load_percent for one in of.loss] == list(formulas.LOADS_PERCENT)


# --- latency ---------------------------------------------------------------------------------------------------------


def timed(frames: int, mean_ns: float, bound_ns: int | None = 40) -> Row:
    latency = Latency(frames, int(mean_ns) - 10, mean_ns, 50, 90, 99, 999, int(mean_ns) + 10)
    tally = Tally(frames, 64 * frames, distinct=frames, latency=latency, jitter=Jitter(frames - 1, mean_ns / 10, 1.0))
    leg = Leg(0, "load", "tx1", "rx1", "stream", "xdp")
    return Row(leg, None, SentCounts("xdp", frames + 1), ReceivedCounts(frames, tally=tally, latency_bound_ns=bound_ns))


def test_the_latency_of_a_trial_is_that_of_all_its_frames() -> None:
    one = latencies([timed(100, 1000.0), timed(300, 2000.0, 70)])
    assert one is not None
    assert (one.frames, one.min_ns, one.mean_ns, one.max_ns) == (400, 990, 1750.0, 2010)
    assert (one.variation_ns, one.jitter_sd_ns, one.bound_ns, one.lost_packets) == (9, 200.0, 70, 2)


def test_a_leg_without_latency_leaves_none() -> None:
    untimed = Row(Leg(1, "load", "tx2", "rx2", "stream", "xdp"), None, SentCounts("xdp", 5), ReceivedCounts(5))
    assert latencies([timed(100, 1000.0), untimed]) is None and latencies([]) is None
    no_clock = latencies([timed(100, 1000.0, None)])
    assert no_clock is not None and no_clock.bound_ns is None


# --- a scenario at each frame size -----------------------------------------------------------------------------------


def loads(path: Path, **asked: Any) -> tester.Loads:
    return tester.loads(path, scenarios.load(path), inventory.load(EXAMPLE), Options(**asked))


def test_the_scenario_that_ships_sends_the_mediums_maximum_at_each_size() -> None:
    made = loads(SCENARIO)
    assert made.medium_l1_bps == pytest.approx(60e6)
    for size, limit in made.limits().items():
        assert limit.maximum_pps == pytest.approx(formulas.maximum_pps(60e6, size))
        sent = made.of_size[size].at(limit.maximum_pps, 2.0).streams[0]
        assert (sent.size_bytes, sent.duration_s, sent.rate_l1_bps) == (size, 2.0, None)
        assert sent.rate_pps == pytest.approx(limit.maximum_pps)
        assert limit.parts == len(inventory.load(EXAMPLE).with_role("transmit"))


def test_another_maximum_scales_the_streams_and_leaves_the_background(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    streams = "{name: a, rate_pps: 100, duration_s: 9}, {name: b, rate_pps: 30, duration_s: 9, background: true}"
    path.write_text(f"name: s\nstreams: [{streams}]\nreceive: {{drain_s: 3}}\n")
    made = loads(path, medium_l1_bps=1e9, sizes_bytes=(512,))
    limit = made.limits()[512]
    changed = made.of_size[512].at(limit.maximum_pps, 1.0)
    assert round(limit.maximum_pps) == 234_962 and changed.streams[0].rate_pps == pytest.approx(limit.maximum_pps)
    assert (changed.streams[1].rate_pps, changed.streams[1].size_bytes) == (30, 64)
    assert changed.receive.drain_s == 3 and changed.receive.mode == "count"


def test_the_full_form_waits_for_the_last_frames_as_the_standard_asks() -> None:
    assert loads(SCENARIO, form=FULL).of_size[64].at(1000, 1).receive.drain_s == FULL.drain_s == 2.0


# --- refused options -------------------------------------------------------------------------------------------------

STREAM = "streams: [{name: a, rate_l1_bps: 1.0e+7, duration_s: 9}]"
VLANS = "headers: [{ethernet: {}}, {vlan: {id: 5}}, {ipv4: {}}, {udp: {src: 5, dst: 5}}]"
REFUSED = {
    "size": (STREAM, ["--sizes", "64,63"], "--sizes = '63': frame size out of range (allowed: 64 to 9618 bytes"),
    "no size": (STREAM, ["--sizes", "64,,128"], "--sizes = '': frame size out of range"),
    "words": (STREAM, ["--sizes", "all"], "--sizes = 'all': frame size out of range"),
    "test": (STREAM, ["--tests", "jitter"], "--tests = 'jitter': there is no such test (allowed: throughput, latency"),
    "alone": (STREAM, ["--tests", "latency"], "--tests = 'latency': latency requires throughput"),
    "maximum": (STREAM, ["--max", "1000"], "--max = '1000': a rate without a unit (allowed: with bit, kbit"),
    "none": (STREAM, ["--max", "0bit"], "--max = '0bit': out of range (allowed: more than 0 bit/s)"),
    "low": (STREAM, ["--max", "1kbit"], "--max = 1.488"),
    "precision": (STREAM, ["--precision", "0"], "--precision = '0': precision out of range (allowed: 0.01% to 50%)"),
    "burst": (
        STREAM,
        ["--longest-burst", "31"],
        "--longest-burst = 31.0: burst duration out of range (allowed: more than 0, up to 30 s)",
    ),
    "no medium": (
        "streams: [{name: a, rate_pps: 1000, duration_s: 9}]",
        [],
        "streams.0.rate_l1_bps: the rate of the medium, the load of 100 %, is missing (allowed: rate_l1_bps, or",
    ),
    "no room": (
        f"streams: [{{name: a, rate_l1_bps: 1.0e+7, duration_s: 9, size_bytes: 128, {VLANS}}}]",
        [],
        "--sizes = 64: the frames of a have no room for their headers and a stamp (allowed: 68 bytes or more)",
    ),
    "short beside": (
        f"{STREAM[:-1]}, {{name: b, rate_pps: 30, count_packets: 10, background: true}}]",
        [],
        "streams.1.count_packets = 10: unsearched traffic ends before a trial of 2 s",
    ),
    "no streams": (
        "traces: [{name: t, file: configs/traces/lab.pcapng}]",
        [],
        "streams: the scenario has no streams to scale",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_message_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    text, options, words = REFUSED[name]
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\n{text.replace('configs/', f'{Path.cwd()}/configs/')}\n")
    given = ["rfc2544", path, "--hosts", EXAMPLE, "--results", tmp_path / "results", *options]
    with pytest.raises(BadInput) as error:
        app.app([*map(str, given)], standalone_mode=False)
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)
    assert not (tmp_path / "results").exists()


def test_the_help_warns_as_rfc_6815_asks_and_tells_what_the_quick_form_is() -> None:
    text = " ".join((rfc2544.rfc2544.__doc__ or "").split())
    assert "only in an isolated test network, NEVER on a network in use (RFC 6815)" in text
    assert "is not conformant to RFC 2544" in text
    assert ",".join(map(str, formulas.SIZES_BYTES)) == rfc2544.SIZES and ",".join(TESTS) == rfc2544.TESTS


# --- results on disk, on the page and on the terminal ----------------------------------------------------------------

ABOUT: About = {
    "name": "lab",
    "scenario_file": "s.yaml",
    "streams": ["a"],
    "hosts_file": "h.yml",
    "medium_l1_bps": 100e6,
}


def kept(tmp_path: Path, done: Benchmark) -> tuple[Path, BenchmarkDocument]:
    folder = Storage(tmp_path, "lab", ABOUT)
    return folder.path, folder.write(done)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def shown(document: BenchmarkDocument, folder: Path) -> str:
    file = io.StringIO()
    show.print_results(Console(width=150, file=file), document, folder)
    return file.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def test_document_tables_page_and_terminal_have_the_same_figures(tmp_path: Path) -> None:
    folder, document = kept(tmp_path, benchmark(Device()))
    assert re.fullmatch(r"\d{8}T\d{6}Z-lab-rfc2544", folder.name)
    assert json.loads((folder / "rfc2544.json").read_text()) == json.loads(json.dumps(document))
    text, printed = page.make(folder, document).read_text(), shown(document, folder)
    for of, found, burst in zip(
        document["sizes"], rows(folder / "throughput.csv"), rows(folder / "back_to_back.csv"), strict=True
    ):
        throughput, bursts = of["throughput"], of["back_to_back"]
        assert throughput is not None and throughput["rate_pps"] is not None and bursts is not None
        assert float(found["throughput_pps"]) == throughput["rate_pps"]
        assert float(found["throughput_l2_bps"]) == 8 * of["size_bytes"] * throughput["rate_pps"]
        assert float(found["maximum_pps"]) == pytest.approx(MEDIUM_BPS / 8 / (of["size_bytes"] + 20))
        assert float(burst["frames_mean"]) == bursts["frames_mean"]
        corrected_s = bursts["frames_mean"] / of["maximum_pps"]
        corrected_s *= 1 - throughput["rate_pps"] / of["maximum_pps"]
        assert float(burst["corrected_buffer_s"]) == pytest.approx(corrected_s)
        for figure in (f"{throughput['rate_pps']:,.0f}", f"{1e3 * corrected_s:,.3f}", "2.0"):
            assert figure in text and figure in printed
    lost = rows(folder / "loss.csv")
    assert len(lost) == sum(len(of["loss"]) for of in document["sizes"])
    assert all(float(one["loss_percent"]) == 100 * int(one["lost_packets"]) / int(one["sent_packets"]) for one in lost)
    assert [one["latency_mean_ns"] for one in rows(folder / "latency.csv")] == ["2000.0", "2000.0"]
    assert len(rows(folder / "trials.csv")) == len(document["trials"]) > 10


@pytest.mark.parametrize("form", [QUICK, FULL])
def test_what_it_deviates_in_is_told_everywhere(form: ask.Form, tmp_path: Path) -> None:
    done = benchmark(Device(), form=form, sizes_bytes=(64,), tests=("throughput",))
    folder, document = kept(tmp_path, done)
    text, printed = page.html(folder, document), shown(document, folder)
    assert document["conformant"] is False and document["conformity"] in printed
    assert ("NOT conformant to RFC 2544" in printed) == (form == QUICK)
    assert ("Quick form: not conformant to RFC 2544" in text) == (form == QUICK)
    assert "never in a network in use (RFC 6815)" in text and "RFC 6815" in document["warning"]
    assert "Frame sizes 128, 256, 512, 1024, 1280, 1518 are left out (9.1)." in document["deviations"]
    assert "Not tested, by --tests: latency, loss, back-to-back." in document["deviations"]
    assert any("Trials of 1 s, not 60 s (24)" in one for one in document["deviations"]) == (form == QUICK)
    escaped = text.replace("&#39;", "'")
    assert all(one in escaped for one in document["deviations"])


def test_the_page_has_the_graphs_that_the_standard_asks_for_and_nothing_to_fetch(tmp_path: Path) -> None:
    folder, document = kept(tmp_path, benchmark(Device()))
    text = page.html(folder, document)
    assert text.count("<svg") == 2 and "theoretical maximum" in text and "load, % of the maximum" in text
    named = re.findall(r"Data: <a href=\"([^<]+)\">", text)
    assert named == ["throughput.csv", "loss.csv"] and all((folder / name).is_file() for name in named)
    check_nothing_to_fetch_or_run(text)
    assert text.count("data-plot=") == 2 and "None" not in text
    for name in ("Throughput (RFC 2544, 26.1)", "Latency (RFC 2544, 26.2)", "Frame loss rate (RFC 2544, 26.3)"):
        assert f">{name}</h2>" in text
    assert "--max 100000000bit" in text and "--sizes 64,1518" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_page_that_keeps_a_person_out(scheme: str, tmp_path: Path) -> None:
    chromium()
    folder, document = kept(tmp_path, benchmark(Device(cannot=("loss", 64))))
    found = looked_at(page.html(folder, document), tmp_path, scheme)
    assert not [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]


def test_a_size_that_ended_has_dashes_and_its_reason(tmp_path: Path) -> None:
    folder, document = kept(tmp_path, benchmark(Device(cannot=("throughput", 64))))
    throughput = document["sizes"][0]["throughput"]
    assert document["status"] == 3 and throughput is not None and throughput["rate_pps"] is None
    text, printed = page.html(folder, document), shown(document, folder)
    for one in (text, printed):
        assert "64 bytes: ended early: throughput: 5 of 9 packets were sent" in one
    assert rows(folder / "throughput.csv")[0]["throughput_pps"] == ""
    assert show.cells(document["sizes"][0])[2:] == ["–"] * 8
    assert "Incomplete" in text


def test_every_trial_leaves_a_whole_document(tmp_path: Path) -> None:
    folder, seen = Storage(tmp_path, "lab", ABOUT), []

    def tell(done: Benchmark) -> None:
        folder.write(done)
        document = json.loads((folder.path / "rfc2544.json").read_text())
        seen.append(len(document["trials"]))
        assert document["status"] == 3 and document["problem"] == "the run did not end"

    wanted = Options(sizes_bytes=(64,), tests=("throughput", "loss"))
    most = formulas.maximum_pps(MEDIUM_BPS, 64)
    Benchmark(wanted, {64: Limit(most, most / 100, 1)}, Device(), tell).run()
    assert set(seen) == set(range(1, max(seen) + 1)) and max(seen) > 5


def parsed(confirm_s: float | None, full: bool = False) -> Options:
    return ask.parse(Path("c.yaml"), "64", "throughput", full, None, 0.005, 2.0, confirm_s)


def test_the_confirming_trial_is_as_long_as_the_user_says_and_stated() -> None:
    assert parsed(None).form == QUICK and parsed(None, full=True).form == FULL
    assert parsed(90.0, full=True).form.confirm_s == 90.0
    sentences = {seconds: parsed(seconds).deviations[0] for seconds in (None, 0.0, 60.0)}
    for seconds, words in (
        (None, "One of 10 to 60 s, long"),
        (0.0, "No longer trial confirms"),
        (60.0, "One of 60 s confirms"),
    ):
        assert f"Trials of 1 s, not 60 s (24). {words}" in sentences[seconds]
        assert "NOT conformant" in parsed(seconds).conformity


def test_a_confirming_trial_of_days_is_refused() -> None:
    with pytest.raises(BadInput, match=r"--confirm = 90000.*3600"):
        parsed(90_000.0)
