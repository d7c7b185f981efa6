"""The search for the highest rate within a loss: devices of known capacity, refused options, results."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pktswarm.master.benchmark import attempts
from pktswarm.master.benchmark.load import Load, load_of
from pktswarm.master.benchmark.trial import Tolerance, Trial, trial_of
from pktswarm.master.cli import app
from pktswarm.master.cli import search as cli_search
from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.expectations import Limits
from pktswarm.master.search import engine, goals, page, show, storage
from pktswarm.master.search.document import SearchAbout, document
from pktswarm.master.search.show import trial_line
from pktswarm.traffic.counting.tally import Latency, Tally
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import Leg

EXAMPLE = Path("hosts/example.yml")
LOSSES = (0.0, 0.005, 0.02)
PRECISION = 0.005
ABOUT: SearchAbout = {"name": "s", "scenario_file": "s.yaml", "streams": ["load"]}
Device = Callable[[float, float], Trial]


def device(capacity_pps: float, noise: float = 0.0, hiccups: float = 0.0, seed: int = 1) -> Device:
    """A device of a capacity, which varies by up to `noise` between trials.

    In the share `hiccups` of the trials it drops one packet in a hundred.
    """
    chance = random.Random(seed)

    def trial(load_pps: float, duration_s: float) -> Trial:
        sent = round(load_pps * duration_s)
        passed = min(sent, int(capacity_pps * duration_s * (1 + chance.uniform(-noise, noise))))
        passed -= passed // 100 if chance.random() < hiccups else 0
        return Trial(
            load_pps, duration_s, sent, sent, passed, sent - passed, duration_s, 512 * load_pps, 672 * load_pps
        )

    return trial


def search(trial: Device, losses: tuple[float, ...] = (0.0,), **more: Any) -> engine.Search:
    made = engine.Search(goals.SearchOptions(losses=losses, precision=PRECISION, **more), 1000, 100_000, trial)
    made.run()
    return made


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("capacity_pps", [1510.0, 36_789.0, 99_000.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_capacity_of_a_device_is_found_within_the_precision(loss: float, capacity_pps: float, trials: int) -> None:
    done = search(device(capacity_pps), (loss,), trials=trials)
    one = done.goals()[0]
    highest = min(capacity_pps / (1 - loss), 100_000)
    a_packet = 1.0 / (1 - loss)
    assert done.status == 0
    assert one.rate_pps == one.lower_pps and one.rate_pps is not None
    assert highest * (1 - PRECISION) - a_packet <= one.rate_pps <= highest + a_packet
    if one.upper_pps is None:
        assert one.state == engine.HIGHEST and one.rate_pps == 100_000
    else:
        assert one.upper_pps >= highest - a_packet and one.rate_pps >= one.upper_pps * (1 - PRECISION)
    assert one.conditional_throughput_pps == pytest.approx(min(one.rate_pps, capacity_pps), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_the_rate_by_no_more_than_itself(seed: int) -> None:
    noise, capacity_pps = 0.004, 36_789.0
    done = search(device(capacity_pps, noise, seed=seed), LOSSES)
    for loss, one in zip(LOSSES, done.goals(), strict=True):
        lowest, highest = (capacity_pps / (1 - loss) * (1 + side) for side in (-noise, noise))
        assert one.rate_pps is not None and lowest * (1 - PRECISION) - 2 <= one.rate_pps <= highest + 2


def test_a_drop_now_and_then_does_not_decide_where_most_trials_lose_nothing() -> None:
    rates = [search(device(36_789.0, hiccups=0.1, seed=seed), trials=9).goals()[0].rate_pps for seed in range(10)]
    near = [rate for rate in rates if rate is not None and rate >= 36_789 * (1 - 2 * PRECISION)]
    assert len(near) >= 8
    assert all(rate is not None and rate <= 36_790 for rate in rates)


def test_goals_searched_together_take_fewer_trials_than_one_by_one() -> None:
    together = search(device(36_789.0), LOSSES)
    alone = [search(device(36_789.0), (loss,)) for loss in LOSSES]
    assert len(together.trials) < sum(len(one.trials) for one in alone)
    assert [one.state for one in together.goals()] == [engine.REACHED] * 3


def test_longer_trials_are_preceded_by_short_ones() -> None:
    done = search(device(36_789.0), duration_s=60.0, trials=1)
    durations = [trial.duration_s for trial in done.trials]
    assert durations[0] == goals.FIRST_TRIAL_S and durations[-1] == 60.0
    at_bounds = {trial.intended_pps for trial in done.trials if trial.duration_s == 60.0}
    assert {done.goals()[0].lower_pps, done.goals()[0].upper_pps} <= at_bounds


def test_a_device_that_loses_at_the_lowest_rate_has_none() -> None:
    done = search(device(500.0), LOSSES)
    assert done.status == 1 and not done.problem
    for one in done.goals():
        assert (one.state, one.rate_pps, one.conditional_throughput_pps) == (engine.BELOW, None, None)
        assert one.upper_pps == 1000


def test_a_tester_at_its_limit_ends_the_search_without_a_rate() -> None:
    calls = []

    def trial(load_pps: float, duration_s: float) -> Trial:
        calls.append(load_pps)
        made = device(36_789.0)(load_pps, duration_s)
        return Trial(load_pps, duration_s, problem="90 of 100 packets were sent") if len(calls) == 4 else made

    done = search(trial, LOSSES, trials=1)
    assert (done.status, done.problem, len(calls), len(done.trials)) == (3, "90 of 100 packets were sent", 4, 4)
    assert all(one.rate_pps is None for one in done.goals())
    assert done.goals()[0].upper_pps is not None, "what was known before it stays"


@pytest.mark.parametrize("times", [1, attempts.REPEATS, attempts.REPEATS + 1])
def test_a_trial_in_which_a_node_was_held_up_is_made_again(times: int) -> None:
    calls = []

    def trial(load_pps: float, duration_s: float) -> Trial:
        calls.append(load_pps)
        made = device(36_789.0)(load_pps, duration_s)
        held_up = 3 <= len(calls) < 3 + times
        return Trial(load_pps, duration_s, problem="took 1.02 s", held_up=True) if held_up else made

    done, undisturbed = search(trial), search(device(36_789.0))
    assert calls[2 : 2 + times] == [undisturbed.trials[2].intended_pps] * times
    if times > attempts.REPEATS:
        assert (done.status, len(calls)) == (3, 2 + times)
        assert done.problem.startswith("took 1.02 s, in 3 trials; this is a limit of the tester")
    else:
        assert (done.status, done.problem, len(calls)) == (0, "", len(undisturbed.trials) + times)
        assert done.goals() == undisturbed.goals()
        valid = [trial for trial in done.trials if not trial.problem]
        assert valid == undisturbed.trials and len(done.known) == len(done.trials)


@pytest.mark.parametrize("error", [PktswarmError("interrupted"), BadInput("tx1", "its link is down")])
def test_an_interrupted_search_keeps_what_it_has(error: PktswarmError) -> None:
    reference = search(device(36_789.0))

    def until(number: int) -> Device:
        whole, calls = device(36_789.0), []

        def trial(load_pps: float, duration_s: float) -> Trial:
            calls.append(load_pps)
            if len(calls) == number:
                raise error
            return whole(load_pps, duration_s)

        return trial

    with pytest.raises(type(error)):
        search(until(1))
    done = search(until(4))
    assert (done.status, done.problem, len(done.trials)) == (3, str(error), 3)
    assert done.trials == reference.trials[:3]
    assert (done.goals()[0].lower_pps, done.goals()[0].upper_pps) == reference.bounds_after(2)[0]
    assert done.goals()[0].state == engine.OPEN


# --- a trial --------------------------------------------------------------------------------------------------------


def row(stream: str = "load", received: int | None = 990, last_ns: int | None = None, **sent: Any) -> Row:
    leg = Leg(0, stream, "tx1", "rx1", "stream", "xdp")
    counts = SentCounts("xdp", **{"packets": 1000, "bytes": 512_000, "seconds": 0.999, **sent})
    return Row(leg, 1000, counts, ReceivedCounts(received, first_ns=0, last_ns=last_ns))


def tried(rows: list[Row], status: int = 0, reason: str = "") -> Trial:
    return trial_of(1000.0, 1.0, {"load"}, Tolerance(PRECISION), Outcome(status, reason, rows), Path("runs/one"), 2.5)


def test_a_trial_counts_the_searched_streams_alone() -> None:
    made = tried([row(), row(received=1000), row("background", received=0)], status=1)
    assert (made.intended_packets, made.sent_packets, made.received_packets, made.lost_packets) == (
        2000,
        2000,
        1990,
        10,
    )
    assert (made.loss_ratio, made.problem, made.results) == (0.005, "", "runs/one")
    assert (made.l2_bps, made.l1_bps) == (1000 * 512 * 8, 1000 * 532 * 8)


def test_a_load_at_which_a_limit_does_not_hold_is_too_high_for_every_goal() -> None:
    """The device loses nothing up to 1,500 packets/s, and exceeds a limit from 1,000 packets/s on."""

    def trial(load_pps: float, duration_s: float) -> Trial:
        packets = round(load_pps * duration_s)
        slow = ("load: latency_p99_us 400, expected at most 300",) if load_pps > 1000 else ()
        lost = packets // 2 if load_pps > 1500 else 0
        return Trial(load_pps, duration_s, packets, packets, packets - lost, lost, not_held=slow)

    done = search(trial, (0.0, 0.01))
    for found in done.goals():
        assert found.rate_pps is not None and 990 <= found.rate_pps <= 1000
    assert "latency_p99_us 400, expected at most 300" in trial_line(done) or not done.trials[-1].not_held


def test_limits_are_judged_of_each_searched_stream() -> None:
    limits = Limits.model_validate({"received_pps": 2000, "altered": 0})
    tolerance = Tolerance(PRECISION, limits=limits)
    one = row(last_ns=1_000_000_000)
    made = trial_of(1000.0, 1.0, {"load"}, tolerance, Outcome(0, "", [one, row("background")]), Path("x"), 1.0)
    assert made.not_held == (
        "load: altered not measured, expected at most 0",
        "load: received_pps 989, expected at least 2,000",
    )


@pytest.mark.parametrize(("seconds", "held_up"), [(0.48, False), (0.97, True), (1.3, True), (1.51, False)])
def test_a_node_a_little_out_of_pace_may_have_been_held_up(seconds: float, held_up: bool) -> None:
    made = tried([row(), row(seconds=seconds)])
    assert held_up != ("a limit of the tester" in made.problem)
    assert made.held_up == held_up and f"tx1 sent load in {seconds:.3f} s instead of 1.000 s" in made.problem


@pytest.mark.parametrize(("least_s", "held_up"), [(0.01, False), (0.001, True)])
def test_the_time_of_a_burst_can_be_kept_more_narrowly(least_s: float, held_up: bool) -> None:
    rows = [row(seconds=0.024)]
    tolerance = Tolerance(PRECISION, least_s)
    made = trial_of(50_000.0, 0.02, {"load"}, tolerance, Outcome(0, "", rows), Path(), 2.5)
    assert made.held_up == held_up == bool(made.problem)


def test_late_packets_are_those_of_the_stream_that_is_named() -> None:
    """Beside another stream that was later in number and less in time."""
    rows = [
        row(received=990, late=20, max_lateness_ns=40_000_000),
        row("other", received=995, late=900, max_lateness_ns=11_000_000),
    ]
    made = trial_of(2000.0, 1.0, {"load", "other"}, Tolerance(PRECISION), Outcome(0, "", rows), Path(), 2.5)
    words = "while it sent load: 20 of 1,000 packets of this stream were sent late, and 10 of them were lost"
    assert made.problem.endswith(words)


@pytest.mark.parametrize(("delay_ns", "held_up"), [(59_000_000, True), (61_000_000, False)])
def test_loss_behind_a_queue_longer_than_the_lateness_is_the_devices(delay_ns: int, held_up: bool) -> None:
    latency = Latency(990, 1000, 2e6, 2, 3, 4, 5, delay_ns + 1000)
    tally = Tally(packets=990, distinct=990, bytes=0, latency=latency)
    flow = row(received=990, late=20, max_lateness_ns=40_000_000)
    flow.received.tally = tally
    made = tried([flow])
    assert (made.held_up, made.queue_delay_ns) == (held_up, delay_ns)


@pytest.mark.parametrize(
    ("own_per_s", "duration_s", "samples_per_s"), [(2, 1.0, 20), (2, 60.0, 2), (100, 1.0, 100), (2, 0.05, 2)]
)
def test_a_trial_has_the_samples_that_a_trend_needs(own_per_s: int, duration_s: float, samples_per_s: float) -> None:
    scenario = scenarios.load(Path("configs/search.yaml")).model_copy(update={"samples_per_s": own_per_s})
    load = load_of(Path("configs/search.yaml"), scenario, inventory.load(EXAMPLE), [])
    assert load.at(1000.0, duration_s).samples_per_s == samples_per_s


def held_up_in_the_midst(late: int | None, latest_s: float | None, lost: int, **tolerance: Any) -> bool:
    """Evaluate a trial of 1 s."""
    latest_ns = None if latest_s is None else round(latest_s * 1e9)
    rows = [row(received=1000), row(received=1000 - lost, late=late, max_lateness_ns=latest_ns)]
    made = trial_of(1000.0, 1.0, {"load"}, Tolerance(**tolerance), Outcome(0, "", rows), Path(), 2.5)
    words = f"tx1 was held up for up to {latest_s or 0:.3f} s while it sent load: {late} of "
    assert made.held_up == bool(made.problem) == (words in made.problem) and made.lost_packets == lost
    return made.held_up


@pytest.mark.parametrize(
    ("late", "latest_s", "lost", "held_up"),
    [
        (40, 0.04, 40, True),
        (40, 0.04, 41, False),
        (60, 0.06, 70, False),
        (40, 0.009, 5, False),
        (60, 0.06, 0, False),
        (None, None, 5, False),
    ],
    ids=["no more than came late", "more", "more and later", "hardly late", "nothing lost", "no due times"],
)
def test_what_left_late_and_together_may_be_lost_by_that(
    late: int | None, latest_s: float | None, lost: int, held_up: bool
) -> None:
    assert held_up_in_the_midst(late, latest_s, lost, load=0.05) == held_up
    assert not held_up_in_the_midst(late, latest_s, lost, load=0.05, losses=())


@pytest.mark.parametrize(
    ("lost", "held_up"), [(10, True), (20, True), (21, False), (100, False), (101, True), (111, False)]
)
def test_a_goal_is_in_doubt_where_what_was_late_decides(lost: int, held_up: bool) -> None:
    """The goals allow 0 and 100 lost packets of 2,000."""
    late = 20 if lost < 100 else 10
    assert held_up_in_the_midst(late, 0.02, lost, load=0.05, losses=(0.0, 0.05)) == held_up


def test_figures_are_of_a_load_within_the_precision() -> None:
    """Several delays of 30 ms exceed one of 60 ms."""
    assert held_up_in_the_midst(101, 0.03, 700, load=0.05, figures=True)
    assert held_up_in_the_midst(101, 0.03, 0, load=0.05, figures=True)
    assert not held_up_in_the_midst(100, 0.06, 700, load=0.05, figures=True)
    assert not held_up_in_the_midst(101, 0.01, 700, load=0.05, figures=True)


@pytest.mark.parametrize(
    ("rows", "status", "words"),
    [
        ([row()], 3, "a doubt"),
        ([row(packets=998, received=998)], 0, "998 packets were sent and 1,000 intended"),
        ([row(packets=1002, received=998)], 0, "1,002 packets were sent and 1,000 intended"),
        ([row(received=1001)], 0, "more packets were received than sent"),
        ([row(received=1001), row(received=900)], 0, "more packets were received than sent"),
        ([row(received=None)], 0, "no counts"),
        ([], 0, "no counts"),
    ],
    ids=["doubt", "unsent", "too many", "unmatched", "strangers in one", "uncounted", "nothing"],
)
def test_what_a_trial_does_not_tell_of_the_device(rows: list[Row], status: int, words: str) -> None:
    made = tried(rows, status, "a doubt")
    assert words in made.problem and not made.held_up


def test_the_last_packets_gap_and_one_packet_too_few_are_no_problem() -> None:
    assert tried([row(packets=999, received=999, seconds=0.985)]).problem == ""


# --- a scenario at a load -------------------------------------------------------------------------------------------


def load(path: Path, streams: str, names: tuple[str, ...] = (), more: str = "") -> Load:
    path.write_text(f"name: s\nstreams: [{streams}]\n{more}\n")
    return load_of(path, scenarios.load(path), inventory.load(EXAMPLE), list(names))


def rates(made: Load, load_pps: float, duration_s: float) -> dict[str, list[tuple[float | None, int | None]]]:
    legs = plan.plan(made.at(load_pps, duration_s), made.path, inventory.load(EXAMPLE)).legs
    found: dict[str, list[tuple[float | None, int | None]]] = {}
    for leg in legs:
        found.setdefault(leg.stream, []).append((leg.rate_pps, leg.intended_packets))
    return found


def test_streams_share_a_load_as_they_share_their_own_rates(tmp_path: Path) -> None:
    two = "{name: a, rate_pps: 3000, count_packets: 9}, {name: b, size_bytes: 128, rate_l1_bps: 1184000, duration_s: 9}"
    made = load(tmp_path / "s.yaml", two)
    assert made.own_pps == pytest.approx(4000)
    a, b = pytest.approx(2000), pytest.approx(2000 / 3)
    assert rates(made, 8000, 2) == {"a": [(a, 4000)] * 3, "b": [(b, 1334), (b, 1333), (b, 1333)]}


def test_a_rate_of_each_node_counts_as_often_as_there_are_nodes(tmp_path: Path) -> None:
    made = load(tmp_path / "s.yaml", "{name: a, rate_pps: 1000, per: node, duration_s: 9}")
    assert made.own_pps == 3000 and rates(made, 6000, 1) == {"a": [(2000, 2000)] * 3}


def test_the_background_stays_as_it_is_and_ends_with_the_trial(tmp_path: Path) -> None:
    both = "{name: a, rate_pps: 300, duration_s: 9}, {name: b, rate_pps: 600, duration_s: 9, background: true}"
    made = load(tmp_path / "s.yaml", both)
    assert rates(made, 900, 2) == {"a": [(300, 600)] * 3, "b": [(200, 400)] * 3}
    assert rates(load(tmp_path / "s.yaml", both, ("b", "a")), 900, 2) == {"a": [(100, 200)] * 3, "b": [(200, 400)] * 3}
    made.check_lasting(9)
    with pytest.raises(BadInput, match=r"streams\.1\.duration_s = 9.*allowed: 10 s or more"):
        made.check_lasting(10)


def test_a_trial_captures_and_expects_nothing(tmp_path: Path) -> None:
    more = "expect: {loss: 0}\nreceive: {mode: capture, capture_every: 2, drain_s: 1}"
    changed = load(tmp_path / "s.yaml", "{name: a, rate_pps: 300, duration_s: 9}", more=more).at(100, 1)
    assert (changed.expect.loss, changed.receive.mode, changed.receive.capture_every) == (None, "count", 1)
    assert changed.receive.drain_s == 1


# --- refused options ------------------------------------------------------------------------------------------------

STEADY = "streams: [{name: a, rate_pps: 3000, duration_s: 9}]"
REFUSED = {
    "bounds": (
        STEADY,
        ["--min", "9", "--max", "8"],
        "--min = 9.0: the lowest rate is not below the highest (allowed: less",
    ),
    "below its own": (STEADY, ["--min", "3000"], "--min = 3000.0: the lowest rate is not below the highest"),
    "no packet": (STEADY, ["--min", "1"], "--min = 1.0: a trial sends less than one packet of a stream (allowed: 3 "),
    "too low": (STEADY, ["--max", "2"], "--max = 2.0: the lowest rate is not below the highest (allowed: more than 3"),
    "no rate": (STEADY, ["--max", "0"], "--max = 0.0: rate out of range (allowed: more than 0 packets/s)"),
    "loss": (STEADY, ["--loss", "101%"], "--loss = '101%': loss out of range (allowed: 0, or a percentage"),
    "loss of all": (STEADY, ["--loss", "0", "--loss", "100%"], "--loss = '100%': loss out of range"),
    "loss without sign": (
        STEADY,
        ["--loss", "2"],
        "--loss = '2': not a percentage (allowed: 0, or a percentage such as 0.5%",
    ),
    "negative loss": (STEADY, ["--loss=-1%"], "--loss = '-1%': not a percentage"),
    "precision": (STEADY, ["--precision", "0%"], "--precision = '0%': precision out of range (allowed: 0.01% to 50%)"),
    "duration": (
        STEADY,
        ["--duration", "0"],
        "--duration = 0.0: trial duration out of range (allowed: more than 0, up to 3600 s)",
    ),
    "trials": (STEADY, ["--trials", "0"], "--trials = 0: number of trials out of range (allowed: 1 to 100)"),
    "no such stream": (STEADY, ["--stream", "b"], "--stream = 'b': there is no such stream (allowed: a)"),
    "as fast as it goes": ("streams: [{name: a, duration_s: 9}]", [], "streams.0.rate_pps: the stream has no rate"),
    "changing": (
        "streams: [{name: a, rate: {sine: {mean: 300, amplitude: 100, day_s: 1}}, duration_s: 9}]",
        [],
        "streams.0.rate: a rate that changes over time cannot be scaled (allowed: rate_pps",
    ),
    "traces": (
        "traces: [{name: a, file: configs/traces/lab.pcapng}]",
        [],
        "streams: the scenario has no streams to scale (allowed: rate_pps",
    ),
    "background": (
        "streams: [{name: a, rate_pps: 300, duration_s: 9, background: true}]",
        [],
        "--stream: all streams are background; name the streams to search (allowed: a)",
    ),
    "played": (
        f"{STEADY}\ntraces: [{{name: t, file: configs/traces/lab.pcapng, interactive: true}}]",
        [],
        "traces.0.interactive = True: an interactive trace cannot stop at the end of a trial (allowed: false)",
    ),
    "short beside": (
        f"{STEADY[:-1]}, {{name: b, rate_pps: 30, count_packets: 10, background: true}}]",
        [],
        "streams.1.count_packets = 10: unsearched traffic ends before a trial of 1 s (allowed: 1 s",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_message_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    text, options, words = REFUSED[name]
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\n{text.replace('configs/', f'{Path.cwd()}/configs/')}\n")
    words_given = ["search", path, "--hosts", EXAMPLE, "--results", tmp_path / "results", *options]
    with pytest.raises(BadInput) as error:
        app.app([*map(str, words_given)], standalone_mode=False)
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)
    assert not (tmp_path / "results").exists()


def test_the_help_warns_as_rfc_6815_asks() -> None:
    text = " ".join((cli_search.search.__doc__ or "").split())
    assert "only in an isolated test network, NEVER on a network in use (RFC 6815)" in text


def test_what_comes_back_has_no_rate_of_its_own() -> None:
    path = Path("configs/upf/echo.yaml")
    with pytest.raises(BadInput, match=r"streams\.0\.echo = \d+: the rate of an echo stream depends"):
        load_of(path, scenarios.load(path), inventory.load(Path("hosts/upf.yml")), [])


# --- results on disk and on the terminal ----------------------------------------------------------------------------


def test_table_json_and_csv_have_the_same_numbers(tmp_path: Path) -> None:
    done = search(device(36_789.0), (0.0, 0.02))
    folder = storage.Storage(tmp_path, "s", ABOUT)
    written = folder.write(done)
    assert json.loads((folder.path / "search.json").read_text()) == json.loads(json.dumps(written))
    with (folder.path / "search.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(done.trials) == len(written["trials"])
    for one, trial in zip(rows, written["trials"], strict=True):
        same = ("intended_pps", "duration_s", "sent_packets", "received_packets", "lost_packets", "loss_ratio")
        figures: Mapping[str, object] = trial
        assert [float(one[name]) for name in same] == [figures[name] for name in same]
    for goal, name in zip(written["goals"], ("0", "0.02"), strict=True):
        assert float(rows[-1][f"lower_{name}_pps"]) == goal["lower_pps"] == goal["rate_pps"]
        assert float(rows[-1][f"upper_{name}_pps"]) == goal["upper_pps"]
        assert goal["l2_bps"] == 512 * goal["rate_pps"] and goal["l1_bps"] == 672 * goal["rate_pps"]
    text = shown(done)
    assert all(f"{goal['rate_pps']:,.1f}" in text and f"{goal['upper_pps']:,.1f}" in text for goal in written["goals"])
    assert f"trials: {len(done.trials)}, in" in text


def shown(done: engine.Search, width: int = 80) -> str:
    file = io.StringIO()
    show.print_results(Console(width=width, file=file), document(done, ABOUT), Path("results/one"))
    return file.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def test_what_has_no_rate_is_told_from_what_has() -> None:
    assert "≥ 100,000 " in shown(search(device(200_000.0))) and "a higher --max" in shown(search(device(200_000.0)))
    assert "< 1,000.000" in shown(search(device(500.0)))
    ended = shown(search(lambda load_pps, duration_s: Trial(load_pps, duration_s, problem="its own limit")))
    assert "the search ended early: its own limit" in ended and "before the bounds reached the precision" in " ".join(
        ended.split()
    )
    assert not re.search(r"[≥<] \d", ended)


def test_a_rate_below_an_undecided_one_is_shown_as_a_lower_bound() -> None:
    of = device(36_789.0)

    def held_up_at_most(load_pps: float, duration_s: float) -> Trial:
        long = duration_s > 1 and load_pps > 36_700
        return replace(of(load_pps, duration_s), problem="tx1 was held up" if long else "", held_up=long)

    done = search(held_up_at_most, confirm_s=10.0)
    (goal,) = done.goals()
    assert goal.rate_pps is not None
    for text in (" ".join(shown(done, 200).split()), page.html(Path("results/one"), document(done, ABOUT))):
        assert f"≥ {goal.rate_pps:,.1f}" in text.replace("\N{NO-BREAK SPACE}", " ") and goal.undecided in text
        assert "a higher one could not be confirmed" in text


def test_no_figure_is_cut_on_a_narrow_terminal() -> None:
    done = engine.Search(goals.SearchOptions(losses=(0.0, 0.005)), 10e3, 9e6, device(6_123_456.0))
    done.run()
    for one in done.goals():
        assert all(f" {figure:,.0f}" in shown(done) for figure in (one.rate_pps, one.lower_pps, one.upper_pps))


def test_an_error_before_the_first_trial_leaves_no_folder(tmp_path: Path) -> None:
    folder = storage.Storage(tmp_path, "s", ABOUT)
    nothing = engine.Search(goals.SearchOptions(), 1000, 100_000, device(1))
    with pytest.raises(BadInput), folder.discarded_without_trials(nothing):
        raise BadInput("tx1", "no engine")
    assert list(tmp_path.iterdir()) == []
