"""Calibration: the search for a rate and its confirmation on nodes of known capacity, and the capacity file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from capacities import figure, written
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.calibrate import measure, rate_search, show
from pktswarm.master.calibrate import options as asked
from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.calibrate.runs import Flow, Runs, Sent, Stopped, _lost_not_doubted
from pktswarm.master.cli import app
from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan import capacity
from pktswarm.master.results.document import RunDocument
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role
from run_events import node_report

FORM = asked.Form(1.0, 0.05, 1)
HOSTS = """
all:
  vars: {VARS}
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1, side: A}, hosts: {tx1: {}, tx2: {}, tx3: {}}}
    receive: {vars: {traffic_interface: eth1, side: B}, hosts: {rx1: {}}}
"""


def hosts_file(folder: Path, variables: str = "{}", sides: tuple[str, str] = ("a", "b")) -> Path:
    path = folder / "hosts.yml"
    path.write_text(HOSTS.replace("{VARS}", variables).replace("A}", f"{sides[0]}}}").replace("B}", f"{sides[1]}}}"))
    return path


# --- the search for a rate ------------------------------------------------------------------------------------------


def steady(limit_pps: float, calls: list[float] | None = None) -> rate_search.TryRate:
    def tried(rate_pps: float) -> rate_search.Try:
        if calls is not None:
            calls.append(rate_pps)
        return rate_search.Try(rate_pps <= limit_pps, min(rate_pps, limit_pps))

    return tried


@pytest.mark.parametrize("first_pps", [200.0, 900.0, 1000.0, 1200.0, 5000.0])
@pytest.mark.parametrize("confirmations", [1, 9])
def test_a_rate_is_found_within_the_precision_and_confirmed(first_pps: float, confirmations: int) -> None:
    calls: list[float] = []
    found = rate_search.RateSearch(steady(1000.0, calls), 0.05, confirmations).search(first_pps)
    assert found.state == capacity.CONFIRMED and found.rate_pps is not None and found.above_pps is not None
    assert found.rate_pps <= 1000 < found.above_pps and found.rate_pps >= found.above_pps * 0.95
    assert calls.count(found.rate_pps) == 1 + confirmations and found.trials == len(calls)
    assert found.above_pps in calls


@pytest.mark.parametrize("seed", range(10))
def test_with_noise_a_confirmed_rate_held_twice_and_one_above_it_did_not(seed: int) -> None:
    chance = random.Random(seed)
    tries: list[tuple[float | None, bool]] = []

    def tried(rate_pps: float) -> rate_search.Try:
        limit_pps = 1000 * chance.uniform(0.9, 1.0)
        tries.append((rate_pps, rate_pps <= limit_pps))
        return rate_search.Try(rate_pps <= limit_pps, min(rate_pps, limit_pps))

    found = rate_search.RateSearch(tried, 0.05, 1).search(1000.0)
    if found.state == capacity.CONFIRMED:
        assert tries[-1] == (found.rate_pps, True) and tries.count((found.rate_pps, True)) >= 2
        assert (found.above_pps, False) in tries and found.above_pps is not None
        assert found.rate_pps is not None and found.above_pps > found.rate_pps
    else:
        assert found.state == capacity.UNCONFIRMED and found.problem


def test_a_rate_that_does_not_hold_again_is_lowered_until_one_does() -> None:
    found = rate_search.RateSearch(steady(1000.0), 0.1, 1).confirm(1300.0, None)
    assert found.state == capacity.CONFIRMED and found.rate_pps == pytest.approx(1300 * 0.9**3)
    assert found.above_pps == pytest.approx(1300 * 0.9**2)


def test_a_rate_that_never_holds_again_is_told_as_such() -> None:
    found = rate_search.RateSearch(lambda rate: rate_search.Try(False, rate), 0.05, 1).confirm(1000.0, 1100.0)
    assert (found.state, found.rate_pps, found.problem) == (capacity.UNCONFIRMED, 1000.0, "no rate held again")


def test_a_run_that_says_nothing_ends_it_with_its_reason() -> None:
    found = rate_search.RateSearch(lambda rate: rate_search.Try(False, 0.0, "tx1 was lost"), 0.05, 1).search(1000.0)
    assert (found.state, found.rate_pps, found.problem) == (capacity.FAILED, None, "tx1 was lost")


# --- a transmitter --------------------------------------------------------------------------------------------------


def node(
    limit_pps: float, top_pps: float | None = None, trouble: Callable[[int], str] = lambda number: ""
) -> tuple[Callable[[float | None], Sent], list[float | None]]:
    """A transmitter of a limit with pacing, and of `top_pps` without."""
    calls: list[float | None] = []

    def sent(rate_pps: float | None) -> Sent:
        calls.append(rate_pps)
        able = (top_pps or limit_pps) if rate_pps is None else limit_pps
        did = able if rate_pps is None else min(rate_pps, able)
        problem = trouble(len(calls))
        asked_pps = rate_pps or 0.0
        short = rate_pps is not None and rate_pps > able
        trial = Trial(asked_pps, 1.0, round(asked_pps), round(did), 0, 0, problem=OWN_LIMIT if short else "")
        if problem == "held up":
            return Sent(replace(trial, problem="took 1.2 s", held_up=True), round(did), 1.2)
        return Sent(trial, round(did), 1.0, problem)

    return sent, calls


@pytest.mark.parametrize("paced", [0.6, 0.95, 1.0, 1.04])
def test_a_transmitters_figure_is_what_it_sends_paced(paced: float) -> None:
    """The rate with pacing is lower or higher than without: the latter is only a first guess."""
    sent, calls = node(100_000 * paced, 100_000)
    work = measure.Transmitter(sent, FORM)
    held = work.measure()
    assert work.top_pps == 100_000 and calls[0] is None and held.state == "confirmed" and held.trials == len(calls)
    assert held.rate_pps is not None and 100_000 * paced * 0.95 <= held.rate_pps <= 100_000 * paced


def test_what_left_is_the_lesser_of_the_engines_and_the_interfaces_words() -> None:
    trial = Trial(0.0, 1.0, sent_packets=900)
    assert Sent(trial, 1000, 2.0).did_pps == 450 and Sent(trial, 800, 2.0).did_pps == 400
    assert Sent(trial, None, 2.0).did_pps == 0


def test_a_transmitter_that_is_held_up_once_is_tried_again() -> None:
    sent, calls = node(100_000, trouble=lambda number: "held up" if number == 3 else "")
    held = measure.Transmitter(sent, FORM).measure()
    undisturbed, others = node(100_000)
    assert held.rate_pps == measure.Transmitter(undisturbed, FORM).measure().rate_pps
    assert held.trials == len(calls) == len(others) + 1


def test_a_transmitter_of_which_a_run_says_nothing_has_no_figure() -> None:
    sent, _ = node(100_000, trouble=lambda number: "tx1: lost" if number == 2 else "")
    assert measure.Transmitter(sent, FORM).measure() == rate_search.RateResult("failed", trials=2, problem="tx1: lost")
    nothing, _ = node(0.0)
    assert measure.Transmitter(nothing, FORM).measure().problem == "nothing was sent"


# --- a receiver -----------------------------------------------------------------------------------------------------

ABLE = [
    measure.Sender("tx1", "trafgen", 40_000),
    measure.Sender("tx2", "xdp", 60_000),
    measure.Sender("tx3", "xdp", 20_000),
]


def receiver(
    limit_pps: float, together_pps: float = 1e9
) -> tuple[Callable[[Sequence[Flow], float], Trial], list[tuple[list[Flow], float]]]:
    """A receiver of a limit, whose transmitters together send no more than `together_pps`."""
    calls: list[tuple[list[Flow], float]] = []

    def received(flows: Sequence[Flow], trial_s: float) -> Trial:
        calls.append((list(flows), trial_s))
        load = sum(flow.rate_pps or 0.0 for flow in flows)
        packets = round(load * trial_s)
        lost = max(0, packets - round(limit_pps * trial_s))
        problem = f"too few were sent; {OWN_LIMIT}" if load > together_pps else ""
        return Trial(load, trial_s, packets, packets, packets - lost, lost, trial_s, problem=problem)

    return received, calls


@pytest.mark.parametrize("limit_pps", [35_000, 59_000, 75_000, 119_000])
@pytest.mark.parametrize("form", [FORM, asked.Form(0.5, 0.1, 1), asked.Form(4.0, 0.02, 3)])
def test_a_receiver_is_overloaded_by_as_few_transmitters_as_it_takes(limit_pps: float, form: asked.Form) -> None:
    received, calls = receiver(limit_pps)
    work = measure.Receiver(received, ABLE, form)
    held = work.measure()
    assert held.state == "confirmed" and held.rate_pps is not None and held.above_pps is not None
    assert held.rate_pps <= limit_pps + 1 and held.above_pps > limit_pps
    assert held.rate_pps >= limit_pps * (1 - form.precision) - 2
    wanted = 1 if limit_pps < 60_000 else 2 if limit_pps < 100_000 else 3
    assert [one.node for one in work.senders] == ["tx2", "tx1", "tx3"][:wanted]
    flows, _ = calls[-1]
    assert [flow.source for flow in flows] == [one.node for one in work.senders] and held.trials == len(calls)
    assert sum(flow.rate_pps or 0 for flow in flows) == pytest.approx(held.rate_pps)
    known = {one.node: one for one in ABLE}
    assert all((flow.rate_pps or 0) <= known[flow.source].rate_pps * (1 + 1e-9) for flow in flows)
    assert {flow.engine for flow in flows} == {known[flow.source].engine for flow in flows}


def test_a_receiver_that_takes_all_that_can_be_sent_takes_that_at_least() -> None:
    received, _ = receiver(1e9)
    held = measure.Receiver(received, ABLE, FORM).measure()
    assert (held.state, held.rate_pps, held.above_pps) == ("at least", 120_000, None)


def test_transmitters_that_are_in_each_others_way_send_less() -> None:
    received, _ = receiver(1e9, together_pps=90_500)
    held = measure.Receiver(received, ABLE, FORM).measure()
    assert (held.state, held.rate_pps) == ("at least", 90_000)
    received, _ = receiver(50_000, together_pps=55_000)
    held = measure.Receiver(received, ABLE, FORM).measure()
    assert held.state == "confirmed" and held.rate_pps is not None and 47_500 <= held.rate_pps <= 50_000


def test_what_transmitters_sent_once_and_cannot_again_is_lowered() -> None:
    received, calls = receiver(1e9)

    def tiring(flows: Sequence[Flow], trial_s: float) -> Trial:
        made = received(flows, trial_s)
        tired = len(calls) > 3 and made.intended_pps > 100_000
        return replace(made, problem="tx1 took 1.3 s", held_up=True) if tired else made

    held = measure.Receiver(tiring, ABLE, FORM).measure()
    assert held.state == "at least" and held.rate_pps == pytest.approx(96_000)
    assert [sum(flow.rate_pps or 0 for flow in flows) for flows, _ in calls[-2:]] == [pytest.approx(96_000)] * 2


def test_a_receiver_that_cannot_be_measured_has_no_figure() -> None:
    received, _ = receiver(1e9, together_pps=1.0)
    held = measure.Receiver(received, ABLE, FORM).measure()
    assert held.state == "failed" and OWN_LIMIT in held.problem
    assert "no transmitter" in measure.Receiver(received, [], FORM).measure().problem
    received, _ = receiver(10)
    held = measure.Receiver(received, ABLE, FORM).measure()
    assert held.state == "failed" and "packets were lost at 600 packets/s, the lowest rate tried" in held.problem


def test_ctrl_c_in_a_search_is_passed_on() -> None:
    received, calls = receiver(35_000)

    def stopped(flows: Sequence[Flow], trial_s: float) -> Trial:
        if len(calls) == 3:
            raise Stopped("stopped by the user")
        return received(flows, trial_s)

    with pytest.raises(Stopped, match="stopped by the user"):
        measure.Receiver(stopped, ABLE, FORM).measure()


def row(received: int = 990) -> Row:
    sent = SentCounts("xdp", 1000, seconds=1.0)
    return Row(Leg(0, "load-0", "tx1", "rx1", "stream", "xdp"), 1000, sent, ReceivedCounts(received, missed=10))


def test_a_receivers_full_ring_is_loss_and_any_other_doubt_is_one() -> None:
    full = "rx1 (receive): the receiver itself missed 10 packets (ring full): a lower bound"
    other = "tx1 (transmit): the engines counted 9 packets, tx_packets of the interface is 8"

    def judged(doubts: list[str], reason: str, received: int = 990) -> int:
        outcome = Outcome(3, reason, [row(received)], document=cast("RunDocument", {"doubts": doubts}))
        return _lost_not_doubted(outcome, "rx1").status

    assert judged([full], full) == 0
    assert judged([full, other], full) == 3 and judged([other], other) == 3
    assert judged([full], "stopped by the user") == 3
    assert judged([full], full, received=1000) == 3, "what it missed was not of ours"


# --- a calibration --------------------------------------------------------------------------------------------------


class Cluster:
    """Replaces the runs: transmitters and a receiver of known limits. Ends after `patience` trials."""

    def __init__(self, limits: dict[str, float], reports: dict[str, dict[str, Any]], patience: int = 10**6) -> None:
        self.limits, self.reports, self.patience, self.count = limits, reports, patience, 0
        self.asked: list[tuple[str, int, float]] = []

    def probe(self, pairs: Sequence[tuple[str, str]]) -> Any:
        assert all(source != target for source, target in pairs)
        names = dict.fromkeys(name for pair in pairs for name in pair)
        made = [inventory.Host(name, "", (), traffic_interface="eth1") for name in names]
        role: dict[str, Role] = {name: "transmit" if name.startswith("tx") else "receive" for name in names}
        ledger = Ledger([Rank(n, host, role[host.name]) for n, host in enumerate(made, 1)])
        for state in ledger.nodes.values():
            state.report = node_report(**self.reports[state.rank.host.name])
        return type("Probed", (), {"ledger": ledger})

    def sent(self, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Sent:
        self._count()
        self.asked.append((flow.source, size_bytes, trial_s))
        return node(self.limits[flow.source])[0](flow.rate_pps)

    def received(
        self, flows: Sequence[Flow], target: str, size_bytes: int, trial_s: float, receive: dict[str, Any]
    ) -> Trial:
        self._count()
        self.asked.append((target, size_bytes, trial_s))
        return receiver(self.limits[target])[0](flows, trial_s)

    def _count(self) -> None:
        self.count += 1
        if self.count > self.patience:
            raise Stopped("stopped by the user")


def report(**more: Any) -> dict[str, Any]:
    engines = {"xdp": "", "pktgen": "no module", "trafgen": "", "netsniff-ng": ""}
    made = {"kernel": "6.18.0", "pktswarm": "0.1.0", "senders": engines, "receivers": engines}
    return {**made, "interface": {"driver": "veth", "speed_mbps": None}, "versions": {"trafgen": "0.6.8"}, **more}


def calibrated(
    hosts: Path, words: str = "", cluster: Cluster | None = None, **more: Any
) -> tuple[Calibration, Cluster]:
    """Run a calibration. `words`: engines; the others are options of parse()."""
    loaded = inventory.load(hosts)
    limits = {"tx1": 30_000.0, "tx2": 50_000.0, "tx3": 20_000.0, "rx1": 65_000.0}
    made = cluster or Cluster(limits, {name: report() for name in limits})
    given = {"sizes": "64", "nodes": [], "form": FORM, **more}
    wanted = asked.parse(loaded, engines=words or "xdp", **given)
    known = capacity.beside(hosts) or capacity.Capacity(capacity.path_of(hosts), wiring="a test")
    work = Calibration(loaded, wanted, cast("Runs", made), known, lambda figure, known: None)
    work.run()
    return work, made


def test_every_node_is_measured_and_kept(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    work, _ = calibrated(hosts, "xdp,trafgen,pktgen", sizes="64,512")
    known = capacity.beside(hosts)
    assert known is not None and work.status == 0 and len(known.figures) == 2 * (3 * 2 + 1)
    rates = {(one.node, one.engine): one.rate_pps or 0 for one in known.figures if one.size_bytes == 64}
    for (name, _), rate in rates.items():
        limit = {"tx1": 30_000, "tx2": 50_000, "tx3": 20_000, "rx1": 65_000}[name]
        assert limit * 0.94 <= rate <= limit + 1
    trafgen = known.figure(("tx1", "transmit", "trafgen", "", 64))
    assert trafgen is not None and trafgen.engine_version == "0.6.8" and trafgen.kernel == "6.18.0"
    received = known.figure(("rx1", "receive", "xdp", "count", 64))
    assert received is not None and received.senders == ["tx2", "tx1"] and received.state == "confirmed"
    assert known.lacks("tx1", "pktgen") and work.lacking() == ["pktgen is not on tx1, tx2, tx3: no module"]
    shown = Console(width=160, record=True, file=(tmp_path / "shown").open("w"))
    show.print_results(shown, work, tmp_path)
    text = shown.export_text()
    assert "rx1" in text and "kpackets/s" in text and "pktgen is not on tx1" in text


def test_what_is_known_is_not_measured_again_unless_asked_better_or_changed(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    _, first = calibrated(hosts)
    again, second = calibrated(hosts)
    assert first.asked and not second.asked and len(again.figures) == 4
    _, third = calibrated(hosts, again=True, nodes=["tx2"])
    assert {name for name, _, _ in third.asked} == {"tx2"}
    _, better = calibrated(hosts, form=asked.Form(2.0, 0.05, 1))
    assert {name for name, _, _ in better.asked} == {"tx1", "tx2", "tx3", "rx1"}
    _, coarser = calibrated(hosts, form=asked.QUICK)
    assert not coarser.asked
    other = Cluster(better.limits, {**better.reports, "tx3": report(kernel="7.0.0")})
    _, changed = calibrated(hosts, cluster=other)
    assert {name for name, _, _ in changed.asked} == {"tx3"}


@pytest.mark.parametrize("patience", [0, 1, 6, 15])
def test_ctrl_c_keeps_what_was_found(patience: int, tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    whole, _ = calibrated(hosts_file(tmp_path))
    capacity.path_of(hosts).unlink()
    limits = {"tx1": 30_000.0, "tx2": 50_000.0, "tx3": 20_000.0, "rx1": 65_000.0}
    work, _ = calibrated(hosts, cluster=Cluster(limits, {name: report() for name in limits}, patience))
    assert (work.status, work.problem) == (3, "stopped by the user") and len(work.figures) < 4
    known = capacity.beside(hosts)
    kept = [] if known is None else [one.rate_pps for one in known.figures]
    assert kept == [one.rate_pps for one in whole.figures][: len(kept)] and len(kept) == len(work.figures)
    rest, _ = calibrated(hosts)
    assert rest.status == 0 and len(rest.figures) == 4


def test_a_figure_that_is_not_found_is_told_and_not_kept(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path)
    work, _ = calibrated(hosts, nodes=["rx1"])
    assert work.status == 3 and capacity.beside(hosts) is None
    words = "no transmitter has a figure for 64 bytes: calibrate the transmitters first"
    assert [one.problem for one in work.figures] == [words] and words in show.line(work.figures[0], False)

    class Refusing(Cluster):
        def sent(self, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Sent:
            if flow.source == "tx1":
                raise BadInput("tx1", "a frame of 'load-0' is longer than its MTU")
            return super().sent(flow, target, size_bytes, trial_s)

    limits = {"tx1": 30_000.0, "tx2": 50_000.0, "tx3": 20_000.0, "rx1": 65_000.0}
    work, _ = calibrated(hosts, cluster=Refusing(limits, {name: report() for name in limits}))
    assert work.status == 3 and [one.state for one in work.figures].count("failed") == 1
    known = capacity.beside(hosts)
    assert known is not None and {one.node for one in known.figures} == {"tx2", "tx3", "rx1"}


# --- wiring, and refused options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "sides", "words"),
    [
        ("{}", ("a", "b"), "side a to side b; only a cable or a switch may join them"),
        ("{}", ("a", "a"), "through a switch"),
        ("{pktswarm_lab: {}}", ("a", "b"), "through the lab's switches, with no device"),
    ],
)
def test_the_inventory_tells_how_nodes_are_wired(
    variables: str, sides: tuple[str, str], words: str, tmp_path: Path
) -> None:
    assert asked.wiring(inventory.load(hosts_file(tmp_path, variables, sides))).startswith(words)


REFUSED: dict[str, tuple[list[str], str, str]] = {
    "bottleneck": (
        [],
        "{pktswarm_bottleneck: {rate_bps: 1}}",
        "all.vars.pktswarm_bottleneck: a device under test between",
    ),
    "upf": ([], "{pktswarm_upf: {}}", "all.vars.pktswarm_upf: a device under test between the nodes"),
    "size": (["--sizes", "64,63"], "{}", "--sizes = '63': frame size out of range (allowed: 64 to 9618 bytes with FCS"),
    "no size": (["--sizes", ""], "{}", "--sizes = '': frame size out of range"),
    "engine": (
        ["--engines", "xdp,tcpreplay"],
        "{}",
        "--engines = 'tcpreplay': there is no such engine to calibrate (allowed: xdp, tc, pkt",
    ),
    "node": (["--node", "tx9"], "{}", "--node = 'tx9': there is no such node (allowed: tx1, tx2, tx3, rx1)"),
    "seconds": (
        ["--seconds", "0"],
        "{}",
        "--seconds = 0.0: trial duration out of range (allowed: more than 0, up to 3600 s)",
    ),
    "forms": (["--quick", "--full"], "{}", "--quick, --full: mutually exclusive (allowed: one of them)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_message_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    options, variables, words = REFUSED[name]
    hosts = hosts_file(tmp_path, variables)
    with pytest.raises(BadInput) as error:
        given = ["calibrate", "--hosts", str(hosts), "--results", str(tmp_path / "results"), *options]
        app.app(given, standalone_mode=False)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"hosts.yml"}


def test_sides_of_a_upf_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"side = 'n3, n6': a device under test between the nodes"):
        asked.wiring(inventory.load(hosts_file(tmp_path, sides=("n3", "n6"))))


def test_a_calibration_that_ends_before_its_first_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Calibration) -> None:
        raise PktswarmError("tx1 does not answer over SSH")

    monkeypatch.setattr(Calibration, "run", run)
    hosts = hosts_file(tmp_path)
    with pytest.raises(PktswarmError, match="does not answer"):
        app.app(["calibrate", "--hosts", str(hosts), "--results", str(tmp_path / "results")], standalone_mode=False)
    assert not list((tmp_path / "results").iterdir()) and not capacity.path_of(hosts).exists()


def test_json_has_the_figures_and_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: Calibration) -> None:
        self.figures.append(capacity.Figure(**figure("tx1", 1000)))

    monkeypatch.setattr(Calibration, "run", run)
    hosts = hosts_file(tmp_path)
    written(hosts, figure("tx1", 1000))
    given = ["calibrate", "--hosts", str(hosts), "--results", str(tmp_path / "results"), "--json"]
    app.app(given, standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert document["capacity"] == str(capacity.path_of(hosts)) and document["status"] == 0
    assert document["figures"][0]["rate_pps"] == 1000 and document["wiring"].startswith("side a to side b")
