"""Service activation after Y.1564: steps, checks, the procedure on devices of known limits, the file, results."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from browser import chromium, looked_at
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.cli import app
from pktswarm.master.cluster import inventory
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.y1564 import page, services, show, steps, tester
from pktswarm.master.y1564.procedure import Activation, ActivationResult, TrialPlan
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import CIR, EIR, PERFORMANCE, POLICING, Check, Measured, availability, judge
from pktswarm.master.y1564.storage import Storage
from pktswarm.traffic.errors import BadInput, PktswarmError

SHIPPED = Path("configs/services/access.yaml")
TIMED = Latencies(100, 1_000_000, 2e6, 2_000_000, 4_000_000, 5_000_000, 9_000_000, 4_000_000, 300.0, 50_000, 0)


def service(**keys: Any) -> Service:
    return Service.model_validate({"cir_bps": 10e6, **keys})


# --- steps -----------------------------------------------------------------------------------------------------------


def rates(one: Service) -> list[tuple[str, float]]:
    return [(step.kind, step.bps / 1e6) for step in steps.steps(one)]


def test_the_steps_go_up_to_the_cir_and_then_above_it() -> None:
    to_cir = [(CIR, 2.5), (CIR, 5.0), (CIR, 7.5), (CIR, 10.0)]
    assert rates(service()) == to_cir
    assert rates(service(eir_bps=4e6)) == [*to_cir, (EIR, 14.0)]
    assert rates(service(eir_bps=4e6, policing=True)) == [*to_cir, (EIR, 14.0), (POLICING, 15.0)]
    assert rates(service(policing=True)) == [*to_cir, (POLICING, 12.5)]


@pytest.mark.parametrize(("eir_mbps", "policing_mbps"), [(0, 12.5), (1.9, 14.4), (2, 12.5), (8, 20.0)])
def test_policing_is_tested_well_above_what_may_pass(eir_mbps: float, policing_mbps: float) -> None:
    """CIR + 125 % of EIR, or 125 % of CIR + EIR where EIR is below a fifth of CIR."""
    assert steps.policing_bps(service(eir_bps=eir_mbps * 1e6)) == pytest.approx(policing_mbps * 1e6)


def passed(one: Service, kind: str, measured: Measured) -> dict[str, bool | None]:
    return {check.what: check.holds for check in judge(one, kind, measured)}


def test_up_to_the_cir_everything_that_was_agreed_is_judged() -> None:
    one = service(loss="0.1 %", delay_ms=2.06, delay_variation_ms=3)
    wanted = {"loss ratio": True, "delay, ms": True, "delay variation, ms": False}
    assert passed(one, CIR, Measured(9e6, 0.001, TIMED)) == wanted
    assert passed(one, CIR, Measured(9e6, 0.0011, TIMED))["loss ratio"] is False
    assert passed(one, CIR, Measured(9e6, 0.0, replace(TIMED, mean_ns=2.2e6)))["delay, ms"] is False
    assert passed(one, CIR, Measured(9e6, 0.0, replace(TIMED, mean_ns=2.05e6)))["delay, ms"] is None, "clocks"
    assert passed(service(), CIR, Measured(9e6, 1e-9, None)) == {"loss ratio": False}, "the default of the loss is 0"


def test_what_was_not_measured_neither_passes_nor_fails() -> None:
    assert passed(service(delay_ms=2), CIR, Measured(9e6, 0.0, None)) == {"loss ratio": True, "delay, ms": None}
    assert Check("x", None, at_most=1).holds is None


def test_what_a_scenario_can_expect_a_service_can_too() -> None:
    values = cast(StreamRow, {"received_packets": 100, "reordered_packets": 2, "jitter_sd_ns": 7_000})
    measured = Measured(9e6, 0.0, TIMED, rows=[values])
    wanted = {"reordered": "2 %", "altered": 0, "jitter_sd_us": 6}
    found = passed(service(expect=wanted), CIR, measured)
    assert found == {"loss ratio": True, "reordered": True, "altered": None, "jitter_sd_us": False}
    assert passed(service(expect=wanted), EIR, measured).keys() == {"received, bit/s"}
    with pytest.raises(ValueError, match="use the key loss of the service"):
        service(expect={"loss": 0})


@pytest.mark.parametrize(
    ("received_mbps", "holds"), [(9.89, False), (9.91, True), (14.0, True), (14.27, True), (14.29, False)]
)
@pytest.mark.parametrize("kind", [EIR, POLICING])
def test_above_the_cir_that_much_has_to_arrive_and_no_more_than_may(
    received_mbps: float, holds: bool, kind: str
) -> None:
    one = service(eir_bps=4e6, loss="1 %", delay_ms=0.001)
    assert passed(one, kind, Measured(received_mbps * 1e6, 0.5, TIMED)) == {"received, bit/s": holds}


def test_availability_is_judged_of_the_performance_test_alone() -> None:
    one = service(availability="99 %")
    assert passed(one, PERFORMANCE, Measured(9e6, 0.0, None, 0.98)) == {"loss ratio": True, "availability": False}
    assert passed(one, CIR, Measured(9e6, 0.0, None)) == {"loss ratio": True}


@pytest.mark.parametrize(
    ("severe", "available"),
    [
        ("." * 30, 1.0),
        ("." * 5 + "x" * 9 + "." * 16, 1.0),
        ("." * 5 + "x" * 10 + "." * 15, 20 / 30),
        ("." * 5 + "x" * 10 + "." * 9 + "x" + "." * 15, 20 / 40),
        ("x" * 10, 0.0),
        ("x" * 9, 1.0),
        ("." * 20 + "x" * 12, 20 / 32),
    ],
)
def test_ten_bad_seconds_in_a_row_are_unavailable_until_ten_good_ones(severe: str, available: float) -> None:
    """ITU-T Y.1563."""
    received = [49.0 if second == "x" else 51.0 for second in severe]
    assert availability(received, 100.0) == pytest.approx(available)


def test_no_whole_second_tells_nothing() -> None:
    assert availability([], 100.0) is None


# --- the procedure ---------------------------------------------------------------------------------------------------

SERVICES = {"voice": service(cir_bps=2e6, delay_ms=10), "data": service(eir_bps=4e6, policing=True)}


class Device:
    """A device that forwards up to a rate of each service."""

    def __init__(self, bps: dict[str, float], cannot: str = "") -> None:
        self.bps, self.cannot = bps, cannot
        self.wanted: list[TrialPlan] = []

    def __call__(self, wanted: TrialPlan) -> ActivationResult:
        self.wanted.append(wanted)
        if wanted.step.name == self.cannot:
            return ActivationResult(Trial(1.0, 1.0, problem="5 of 9 packets were sent"))
        names = [wanted.service] if wanted.service else list(self.bps)
        measured = {}
        for name in names:
            sent = wanted.step.bps if wanted.service else SERVICES[name].cir_bps
            got = min(sent, self.bps[name])
            measured[name] = Measured(got, 1 - got / sent, TIMED, 1.0)
        return ActivationResult(Trial(1.0, wanted.duration_s, 9, 9, 9, 0), None, measured)


def activation(measure: Any, **more: Any) -> Activation:
    made = Activation(SERVICES, more.pop("tests", ("configuration", PERFORMANCE)), 5.0, 30.0, measure, **more)
    made.run()
    return made


def test_a_device_that_gives_what_was_agreed_passes_every_step() -> None:
    device = Device({"voice": 2e6, "data": 14e6})
    done = activation(device)
    assert (done.status, done.problem) == (0, "")
    order = [(one.service, one.step.kind, one.duration_s) for one in device.wanted]
    assert order == [
        *[("voice", CIR, 5.0)] * 4, *[("data", CIR, 5.0)] * 4, ("data", EIR, 5.0), ("data", POLICING, 5.0),
        ("", PERFORMANCE, 30.0),
    ]  # fmt: skip
    assert device.wanted[-1].step.bps == 12e6
    assert [(one.service, one.passed) for one in done.results[-2:]] == [("voice", True), ("data", True)]
    assert [one.step.bps for one in done.results[-2:]] == [2e6, 10e6]


@pytest.mark.parametrize(
    ("data_bps", "failed"),
    [(9e6, ["100 % of CIR", EIR, POLICING, "all services at CIR"]), (20e6, [POLICING]), (10e6, [])],
)
def test_a_service_that_is_not_what_was_agreed_fails_at_the_steps_that_show_it(
    data_bps: float, failed: list[str]
) -> None:
    done = activation(Device({"voice": 2e6, "data": data_bps}))
    assert [one.step.name for one in done.results if one.passed is False] == failed
    assert all(one.service == "data" for one in done.results if not one.passed)
    assert done.status == (1 if failed else 0)


def test_a_load_that_was_not_sent_ends_the_services_steps_without_a_verdict() -> None:
    device = Device({"voice": 2e6, "data": 14e6}, cannot="50 % of CIR")
    done = activation(device, tests=("configuration",))
    assert [(one.service, one.step.name, one.passed, one.problem) for one in done.results if one.passed is None] == [
        (name, "50 % of CIR", None, "5 of 9 packets were sent") for name in SERVICES
    ]
    assert done.status == 3 and len(device.wanted) == 4 and not done.problem


def test_ctrl_c_ends_all_of_it_and_keeps_what_was_found() -> None:
    whole = Device({"voice": 2e6, "data": 14e6})

    def measure(wanted: TrialPlan) -> ActivationResult:
        if len(whole.wanted) == 3:
            raise PktswarmError("interrupted")
        return whole(wanted)

    done = activation(measure)
    assert (done.status, done.problem, len(done.results), len(done.trials)) == (3, "interrupted", 3, 3)


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_that_ships_is_a_scenario_with_its_services() -> None:
    file = services.load(SHIPPED)
    assert list(file.services) == ["voice", "data"]
    voice = file.services["voice"]
    assert (voice.cir_bps, voice.loss_ratio) == (2e6, 0.0) and voice.availability_ratio == pytest.approx(0.999)
    assert file.services["data"].loss_ratio == 0.001
    assert [stream.name for stream in file.alone("data").streams] == ["data"]
    assert file.pps("voice", 2e6) == pytest.approx(2e6 / 8 / 218)


def test_each_step_sends_its_service_alone_at_its_rate_beside_the_background(tmp_path: Path) -> None:
    hosts, path = Path("hosts/example.yml"), tmp_path / "s.yaml"
    beside = "{name: c, rate_pps: 30, duration_s: 99, background: true}"
    path.write_text(
        "name: s\nservices: {a: {cir_bps: 8e6}, b: {cir_bps: 4e6}}\n"
        f"streams: [{{name: a, size_bytes: 500}}, {{name: b, size_bytes: 250}}, {beside}]\n"
    )
    file = services.load(path)
    loads = tester.loads(file, inventory.load(hosts), 30.0)
    made = tester.Tester(file, loads, hosts, tmp_path / "runs", 1.0, Console(quiet=True), Allow(), KeptRanks())
    alone = made.runs["b"].plan(file.pps("b", 3e6), 2.0).plan.legs
    sent = {name: sum(leg.rate_pps or 0 for leg in alone if leg.stream == name) for name in ("a", "b", "c")}
    assert sent == {"a": 0, "b": pytest.approx(1500), "c": pytest.approx(30)}
    together = made.runs[tester.TOGETHER].plan(loads[tester.TOGETHER].own_pps, 2.0).plan.legs
    sent = {name: sum(leg.rate_pps or 0 for leg in together if leg.stream == name) for name in ("a", "b", "c")}
    assert sent == {"a": pytest.approx(2000), "b": pytest.approx(2000), "c": pytest.approx(30)}


STREAM = "streams: [{name: a}]"
REFUSED = {
    "none": (STREAM, [], "services: the file has no services (allowed: {NAME of a stream: {cir_bps: …}})"),
    "empty": (f"services: {{}}\n{STREAM}", [], "services: out of range (allowed: 1 or more items)"),
    "unknown key": (
        f"services: {{a: {{cir_bps: 3, pir: 3}}}}\n{STREAM}",
        [],
        "services.a.pir: unknown key (allowed: cir_bps, eir_",
    ),
    "no CIR": (f"services: {{a: {{}}}}\n{STREAM}", [], "services.a.cir_bps: missing key"),
    "CIR": (
        f"services: {{a: {{cir_bps: 0}}}}\n{STREAM}",
        [],
        "services.a.cir_bps = 0: out of range (allowed: more than 0 bit/s)",
    ),
    "loss": (f"services: {{a: {{cir_bps: 1e6, loss: 2}}}}\n{STREAM}", [], "services.a.loss = 2: must be a percentage"),
    "availability": (
        f"services: {{a: {{cir_bps: 1e6, availability: 101 %}}}}\n{STREAM}",
        [],
        "services.a.availability = '101 %': must be a percentage such as 0.1 %, at most 100 %",
    ),
    "no stream": (
        f"services: {{a: {{cir_bps: 1e6}}, b: {{cir_bps: 1e6}}}}\n{STREAM}",
        [],
        "services = 'b': no stream has this name (allowed: a)",
    ),
    "no service": (
        "services: {a: {cir_bps: 1e6}}\nstreams: [{name: a}, {name: b, rate_pps: 3, duration_s: 9}]",
        [],
        "services = 'b': a stream without a service must have background: true",
    ),
    "rate": (
        "services: {a: {cir_bps: 1e6}}\nstreams: [{name: a, rate_pps: 3}]",
        [],
        "streams.0.rate_pps = 3: the service defines the rate and the duration of its stream; remove this key",
    ),
    "per node": (
        "services: {a: {cir_bps: 1e6}}\nstreams: [{name: a, per: node}]",
        [],
        "streams.0.per = 'node': a service's rate is the sum over its nodes",
    ),
    "no such host": (
        "services: {a: {cir_bps: 1e6}}\nstreams: [{name: a, from: tx9}]",
        [],
        "streams.0.from = 'tx9'",
    ),
    "short beside": (
        "services: {a: {cir_bps: 1e6}}\nstreams: [{name: a}, {name: b, rate_pps: 3, duration_s: 9, background: true}]",
        [],
        "streams.1.duration_s = 9.0: unsearched traffic ends before a trial of 30 s",
    ),
    "test": ("", ["--tests", "loss"], "--tests = 'loss': there is no such test (allowed: configuration, performance)"),
    "step": ("", ["--step", "0"], "--step = 0.0: test duration out of range (allowed: more than 0, up to 86400 s)"),
    "performance": ("", ["--performance", "1e9"], "--performance = 1000000000.0: test duration out of range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_message_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    text, options, words = REFUSED[name]
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\n{text}\n")
    given = ["y1564", path, "--hosts", "hosts/example.yml", "--results", tmp_path / "results", *options]
    with pytest.raises(BadInput) as error:
        app.app([*map(str, given)], standalone_mode=False)
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)
    assert not (tmp_path / "results").exists()


# --- results on disk, on the page and on the terminal ----------------------------------------------------------------


def test_document_table_page_and_terminal_have_the_same_verdicts(tmp_path: Path) -> None:
    folder = Storage(tmp_path, "access", {"name": "access", "scenario_file": "s.yaml", "hosts_file": "h.yml"})
    document = folder.write(activation(Device({"voice": 2e6, "data": 20e6})))
    assert json.loads((folder.path / "y1564.json").read_text()) == json.loads(json.dumps(document))
    assert {one["service"]: one["verdict"] for one in document["services"]} == {"voice": "pass", "data": "fail"}
    with (folder.path / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and [row["verdict"] for row in rows].count("fail") == 1
    failed = next(row for row in rows if row["verdict"] == "fail")
    assert (failed["service"], failed["step"], float(failed["received_bps"])) == ("data", POLICING, 15e6)
    shown = io.StringIO()
    show.print_results(Console(width=140, file=shown), document, folder.path)
    text, printed = page.html(folder.path, document), shown.getvalue()
    why = "data, policing: received, bit/s is 1.5e+07, agreed: at least 1e+07 and at most 1.428e+07"
    for one in (text, printed):
        assert why in one and "15.000" in one and "not conformant to it" in one
    assert "Not every service passed" in text and "RFC 6815" in text and "<script" not in text
    assert "None" not in text and text.count("✗ fail") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_page_that_keeps_a_person_out(scheme: str, tmp_path: Path) -> None:
    chromium()
    folder = Storage(tmp_path, "access", {"name": "access", "scenario_file": "s.yaml", "hosts_file": "h.yml"})
    text = page.html(folder.path, folder.write(activation(Device({"voice": 2e6, "data": 20e6}))))
    found = looked_at(text, tmp_path, scheme)
    assert not [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]
