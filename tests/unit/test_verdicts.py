"""Limits of what was measured: held, failed, not decided where the measurement is not that sure, not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pktswarm.master.results import metric_verdicts as verdicts
from pktswarm.master.results.document_handover import EndMarkers, HandoverResult
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.results.judgement import Measurement
from pktswarm.master.results.row import ReceivedCounts, Row
from pktswarm.master.results.streams_csv import STREAM_COLUMNS
from pktswarm.master.results.users import Users
from pktswarm.master.scenario import expectations
from pktswarm.master.scenario.expectations import METRICS, Expect, Limits, UserLimits, parse
from pktswarm.master.upf.document import N4Document
from pktswarm.traffic.counting.latency_histogram import LARGEST_ERROR
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg

ROW: StreamRow = {
    "from": "tx1",
    "to": "rx1",
    "stream": "s",
    "engine": "xdp",
    "intended_packets": 1000,
    "sent_packets": 1000,
    "received_packets": 990,
    "lost_packets": 10,
    "sent_bytes": None,
    "received_bytes": None,
    "first_ns": None,
    "last_ns": None,
    "altered_packets": 5,
    "reordered_packets": 0,
    "duplicated_packets": 2,
    "misdelivered_packets": 10,
    "latency_mean_ns": 200_000,
    "latency_p99_ns": 400_000,
    "latency_max_ns": 900_000,
    "latency_bound_ns": 30_000,
    "jitter_sd_ns": 12_500,
    "jitter_rfc3550_ns": 9_000,
    "sent_pps": 100.0,
    "received_pps": 99.0,
    "sent_bps": None,
    "received_bps": None,
    "k": None,
    "k_sender": None,
}


def outcomes(rows: list[StreamRow], **limits: Any) -> dict[str, str]:
    judged = verdicts.of_limits("s", Limits.model_validate(limits), rows)
    assert all(one["holds"] == (one["outcome"] == "held") for one in judged)
    return {one["what"].removeprefix("s: "): one["outcome"] for one in judged}


def test_a_limit_has_a_metric_and_each_metric_a_column() -> None:
    assert set(Limits.model_fields) == {*METRICS, "loss"}
    assert {metric.column for metric in METRICS.values()} <= set(STREAM_COLUMNS)
    assert {metric.of for metric in METRICS.values()} <= {*STREAM_COLUMNS, ""}


@pytest.mark.parametrize(
    ("found", "limit", "at_least", "outcome"),
    [
        (Measurement(9), 9, False, "held"),
        (Measurement(9.1), 9, False, "failed"),
        (Measurement(9), 9, True, "held"),
        (Measurement(8.9), 9, True, "failed"),
        (Measurement(8, 1), 9, False, "held"),
        (Measurement(8.5, 1), 9, False, "not decided"),
        (Measurement(10, 1), 9, False, "not decided"),
        (Measurement(10.1, 1), 9, False, "failed"),
        (Measurement(9.5, 1), 9, True, "not decided"),
        (Measurement(9, float("inf")), 90, False, "not decided"),
    ],
)
def test_an_outcome_is_as_sure_as_the_figure(found: Measurement, limit: float, at_least: bool, outcome: str) -> None:
    assert found.against(limit, at_least) == outcome


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({"altered": 5}, "held"),
        ({"altered": 4}, "failed"),
        ({"altered": "0.6 %"}, "held"),
        ({"altered": "0.5 %"}, "failed"),
        ({"reordered": 0}, "held"),
        ({"duplicated": 1}, "failed"),
        ({"misdelivered": "1 %"}, "held"),
        ({"misdelivered": "0.9%"}, "failed"),
        ({"latency_mean_us": 230}, "held"),
        ({"latency_mean_us": 229}, "not decided"),
        ({"latency_mean_us": 169}, "failed"),
        ({"latency_max_us": 930}, "held"),
        ({"jitter_sd_us": 12.5}, "held"),
        ({"jitter_sd_us": 12.4}, "failed"),
        ({"jitter_rfc3550_us": 8}, "failed"),
        ({"sent_pps": 100}, "held"),
        ({"received_pps": 99.5}, "failed"),
        ({"latency_p50_us": 1000}, "not measured"),
        ({"sent_bps": 1}, "not measured"),
    ],
)
def test_what_was_measured_stands_against_its_limit(limits: dict[str, Any], outcome: str) -> None:
    assert outcomes([ROW], **limits) == {next(iter(limits)): outcome}


def test_a_percentile_is_no_surer_than_its_bucket() -> None:
    edge_us = (400_000 * (1 + LARGEST_ERROR) + 30_000) / 1000
    assert outcomes([ROW], latency_p99_us=edge_us) == {"latency_p99_us": "held"}
    assert outcomes([ROW], latency_p99_us=edge_us - 0.1) == {"latency_p99_us": "not decided"}


def test_how_well_ptp_steers_clocks_is_not_counted_in() -> None:
    assert outcomes([{**ROW, "latency_bound_ns": None}], latency_max_us=900) == {"latency_max_us": "held"}


def test_of_several_pairs_counts_are_summed_means_weighted_and_the_longest_percentile_stands() -> None:
    other: StreamRow = {
        **ROW,
        "received_packets": 10,
        "latency_mean_ns": 700_000,
        "latency_p99_ns": 500_000,
        "altered_packets": 1,
    }
    rows = [ROW, other]
    assert str(verdicts.measured(METRICS["altered"], rows)) == "6"
    assert str(verdicts.measured(METRICS["latency_mean_us"], rows)) == "205 ± 30"
    found = verdicts.measured(METRICS["latency_p99_us"], rows)
    assert found is not None and found.value == 500
    assert str(verdicts.measured(METRICS["sent_pps"], rows)) == "200"
    assert outcomes([ROW, {**other, "altered_packets": None}], altered=100) == {"altered": "not measured"}
    assert outcomes([{**ROW, "received_packets": 0}], latency_mean_us=1) == {"latency_mean_us": "not measured"}


def test_a_stream_may_have_limits_of_its_own_on_top() -> None:
    expect = Expect.model_validate({"loss": 0, "altered": 3, "streams": {"voice": {"altered": 0, "sent_pps": 5}}})
    assert expect.limits("web").given() == {"altered": 3}
    voice = expect.limits("voice")
    assert (voice.loss, voice.given()) == (0, {"altered": 0, "sent_pps": 5})
    assert expect.names == {"voice"}


def test_the_text_says_how_sure_the_figure_is() -> None:
    (verdict,) = verdicts.of_limits("s", Limits.model_validate({"latency_mean_us": 210}), [ROW])
    assert verdict["text"] == "s: latency_mean_us 200 ± 30, expected at most 210: not decided"
    (verdict,) = verdicts.of_limits("s", Limits.model_validate({"received_pps": 1e6}), [ROW])
    assert verdict["text"] == "s: received_pps 99, expected at least 1,000,000"


# --- users ------------------------------------------------------------------------------------------------------------


def users_row(sent: list[int] | None, distinct: list[int], bound_ns: int | None = 10_000) -> Row:
    """Three users; the latency of user n is n + 1 ms on average, and twice that at most."""
    leg = Leg(0, "web", "tx1", "rx1", "stream", users=FlowUsers("udp.src", "src_port", count=3))
    row = Row(leg, 30, received=ReceivedCounts(latency_bound_ns=bound_ns), users=Users(leg))
    assert row.users is not None
    row.users.sent, row.users.stamped = sent, True
    row.users.received = {
        "packets": [*distinct, 0],
        "distinct": [*distinct, 0],
        "damaged": [0] * 4,
        "latencies": [*distinct, 0],
        "latency_sum_ns": [(n + 1) * 1_000_000 * many for n, many in enumerate(distinct)] + [0],
        "latency_max_ns": [2_000_000 * (n + 1) for n in range(3)] + [0],
    }
    return row


def of_users(row: Row, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> tuple[str, str]:
    monkeypatch.setattr(Users, "name", lambda self, n: f"user {n}")
    expect = Expect.model_validate({"users": limits})
    (verdict,) = verdicts.of_users(expect, [row])
    return verdict["outcome"], verdict["found"]


def test_every_user_has_to_hold_and_the_worst_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = users_row([10, 10, 10], [10, 8, 9])
    assert of_users(row, monkeypatch, loss=2) == ("held", "3 of 3 held, the worst user 1: 2")
    assert of_users(row, monkeypatch, loss="10 %") == ("failed", "1 of 3 failed, the worst user 1: 2")
    assert of_users(row, monkeypatch, loss=0) == ("failed", "2 of 3 failed, the worst user 1: 2")
    assert of_users(row, monkeypatch, latency_mean_us=2500) == (
        "failed",
        "1 of 3 failed, the worst user 2: 3,000 ± 10",
    )
    assert of_users(row, monkeypatch, latency_max_us=6005)[0] == "not decided"
    assert of_users(row, monkeypatch, latency_max_us=6010)[0] == "held"


def test_a_user_who_heard_nothing_has_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    row = users_row([10, 10, 10], [10, 0, 10])
    assert of_users(row, monkeypatch, latency_mean_us=9000)[0] == "not measured"
    assert of_users(users_row(None, [1, 1, 1]), monkeypatch, loss=3)[0] == "not measured"


def test_users_that_nobody_counts_are_not_measured() -> None:
    expect = Expect.model_validate({"users": {"loss": 0}})
    (verdict,) = verdicts.of_users(expect, [Row(Leg(0, "s", "a", "b", "stream"), 1)])
    assert (verdict["what"], verdict["outcome"]) == ("all streams: users' loss", "not measured")
    assert set(UserLimits.model_fields) == {"loss", "latency_mean_us", "latency_max_us"}


# --- sessions, and the command line's limits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "accepted", "outcome"),
    [("100 %", 10, "held"), ("100 %", 9, "failed"), ("90 %", 9, "held"), (9, 9, "held"), (10, 9, "failed")],
)
def test_sessions_accepted(limit: Any, accepted: int, outcome: str) -> None:
    upf = cast(N4Document, {"operations": {"establishment": {"requested": 10, "accepted": accepted}}})
    (verdict,) = verdicts.of_sessions(Expect.model_validate({"sessions_accepted": limit}), upf)
    assert verdict["outcome"] == outcome and verdict["found"] == f"{accepted} of 10"


def test_sessions_that_were_not_asked_for_are_not_measured() -> None:
    expect = Expect.model_validate({"sessions_accepted": "100 %"})
    assert [one["outcome"] for one in verdicts.of_sessions(expect, None)] == ["not measured"]
    assert [one["outcome"] for one in verdicts.of_sessions(expect, {"operations": {}})] == ["not measured"]
    assert verdicts.of_sessions(Expect.model_validate({}), None) == []


def test_limits_of_the_command_line_are_those_of_a_file() -> None:
    found = parse(Path("s.yaml"), "--expect", ["latency_p99_us=300", "altered=0.5 %", "reordered=0"])
    assert found.given() == {"altered": "0.5 %", "reordered": 0, "latency_p99_us": 300}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency=3", ["--expect = 'latency=3'", "KEY=LIMIT", "latency_p99_us"]),
        ("latency_p99_us", ["is no limit", "KEY=LIMIT"]),
        ("loss=0", ["--expect = 'loss=0'"]),
        ("latency_p99_us=-3", ["latency_p99_us=-3", "a number of us", "more than 0"]),
        ("latency_p99_us=soon", ["latency_p99_us=soon", "a number of us", "20us"]),
        ("altered=-1", ["altered=-1", "a share with its sign"]),
    ],
)
def test_a_limit_that_is_none_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        parse(Path("s.yaml"), "--expect", [text])
    assert all(word in str(caught.value) for word in ("s.yaml", *words)), str(caught.value)


def test_a_limit_of_the_command_line_has_a_unit() -> None:
    given = parse(Path("s.yaml"), "--expect", ["latency_p99_us=20ms", "received_pps=1.5kpps", "altered=2k"]).given()
    assert given == {"latency_p99_us": 20_000, "received_pps": 1500, "altered": 2000}


def test_a_share_is_of_its_whole() -> None:
    assert expectations.allowed("0.1 %", 30_000) == 30 and expectations.allowed(".5%", 200) == 1
    assert expectations.allowed("0.5 %", 1000) == 5 and expectations.allowed(7, 1000) == 7


@pytest.mark.parametrize(("came", "outcome"), [(0, "failed"), (257, "failed"), (258, "held")])
def test_end_markers_that_the_upf_was_asked_for_are_judged_with_loss(came: int, outcome: str) -> None:
    markers: EndMarkers = {"asked": 258, "came": came, "others": 0, "not_looked_for": 3}
    handover: HandoverResult = {
        "group": "users",
        "intended": 258,
        "requested": 258,
        "accepted": 258,
        "failures": {},
        "users": {},
        "end_markers": markers,
        "lost": {},
    }
    (made,) = verdicts.of_end_markers(Expect.model_validate({"loss": 0}), handover)
    assert made["outcome"] == outcome
    assert made["text"] == f"end markers of the UPF, handover of users: {came} received, expected 258"
    assert verdicts.of_end_markers(Expect.model_validate({}), handover) == []
    unasked: HandoverResult = {**handover, "end_markers": None}
    nobody: HandoverResult = {**handover, "end_markers": {**markers, "asked": 0}}
    for other in (None, unasked, nobody):
        assert verdicts.of_end_markers(Expect.model_validate({"loss": 0}), other) == []
