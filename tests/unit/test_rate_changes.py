"""Rates that are set while streams are sent: what is ordered, refused, and left of the planned figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pktswarm
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.live.expected_sent import ExpectedSent
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.run.aftermath import of_rates
from pktswarm.master.run.rate_changes import orders, steered, switch_orders
from pktswarm.nodes.engine import Sender
from pktswarm.nodes.senders.trafgen import TrafgenSender
from pktswarm.traffic.errors import BadInput, EngineError, PktswarmError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_events import Phase
from pktswarm.traffic.protocol.rank0_orders import SetRate
from pktswarm.traffic.protocol.rank_events import RateSet
from pktswarm.traffic.protocol.task import SendTask
from pktswarm.traffic.schedule.capabilities import choose
from pktswarm.traffic.schedule.leg_frames import sequence_limit
from result_folders import Made, leg

SCENARIO = Path("made.yaml")


def sending(*legs: Leg, phase: str = "send") -> tuple[Ledger, list[Rank]]:
    made = Made([*legs])
    ranks = made.ranks()
    ledger = Ledger(ranks)
    ledger.resolved = Resolved([*legs])
    ledger.take(Phase(phase, 0))
    return ledger, ranks


def lasting(number: int, stream: str, source: str = "tx1", **changes: Any) -> Leg:
    return leg(number, stream, source, duration_s=3.0, **changes)


def test_a_rate_is_shared_as_it_was_planned() -> None:
    first, second = lasting(0, "s"), replace(lasting(1, "s", "tx2"), rate_pps=300.0)
    given = [*orders(*sending(first, second, lasting(2, "other")), SCENARIO, "s", 1000.0)]
    assert given == [SetRate(1, 0, 250.0), SetRate(2, 1, 750.0)]


@pytest.mark.parametrize(
    ("changes", "stream", "rate_pps", "words"),
    [
        ({}, "none", 5.0, "made.yaml: set_rate = 'none': no such stream (allowed: s)"),
        ({}, "s", 0.0, "made.yaml: set_rate s = 0.0: rate out of range (allowed: 0.001 to 1,000,000,000 packets/s)"),
        ({"duration_s": None}, "s", 99.0, "(allowed: 100 to 1,000,000,000 packets/s: a stream of a number of packets"),
        ({"engine": "trafgen"}, "s", 5.0, "set_rate = 's': its rate cannot be changed (allowed: streams at one rate"),
        ({"rates": [[0, 5.0]]}, "s", 5.0, "its rate cannot be changed"),
        ({"rate_pps": None}, "s", 5.0, "its rate cannot be changed"),
        ({"kind": "trace"}, "s", 5.0, "its rate cannot be changed"),
        ({"handover_targets": ["rx2"]}, "s", 5.0, "its rate cannot be changed"),
    ],
)
def test_what_cannot_be_set_is_named(changes: dict[str, Any], stream: str, rate_pps: float, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        list(orders(*sending(replace(lasting(0, "s"), **changes)), SCENARIO, stream, rate_pps))
    assert words in str(raised.value)


def test_before_and_behind_the_sending_there_is_no_rate() -> None:
    with pytest.raises(PktswarmError, match="set_rate s: not in phase 'drain': no stream is sent"):
        list(orders(*sending(lasting(0, "s"), phase="drain"), SCENARIO, "s", 5.0))
    with pytest.raises(PktswarmError, match="start_stream s: not in phase 'plan': no stream is sent"):
        list(switch_orders(*sending(lasting(0, "s"), phase="plan"), SCENARIO, "s", True))


def test_a_stream_is_stopped_and_started_on_all_its_nodes() -> None:
    ledger = sending(lasting(0, "s"), replace(lasting(1, "s", "tx2"), rate_pps=None), lasting(2, "other"))
    assert [*switch_orders(*ledger, SCENARIO, "s", False)] == [SetRate(1, 0, 0.0), SetRate(2, 1, 0.0)]
    assert [*switch_orders(*ledger, SCENARIO, "s", True)] == [SetRate(1, 0, None), SetRate(2, 1, None)]


@pytest.mark.parametrize(
    "changes", [{"duration_s": None}, {"engine": "pktgen"}, {"kind": "trace"}, {"sequence_file": "leg-0.sequence"}]
)
def test_what_cannot_be_stopped_is_named(changes: dict[str, Any]) -> None:
    words = r"start_stream = 's': it cannot be stopped and started \(allowed: streams with a duration that xdp or tc"
    with pytest.raises(BadInput, match=words):
        list(switch_orders(*sending(replace(lasting(0, "s"), **changes)), SCENARIO, "s", True))
    with pytest.raises(BadInput, match=r"stop_stream = 'none': no such stream \(allowed: s\)"):
        list(switch_orders(*sending(lasting(0, "s")), SCENARIO, "none", False))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"count_packets": 5}, "held needs duration_s: a number of packets could not end in time"),
        ({"duration_s": 5, "engine": "trafgen"}, "held needs engine xdp or tc"),
    ],
)
def test_a_stream_that_cannot_be_held_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        pktswarm.Scenario(streams=[{"name": "s", "rate_pps": 5, "held": True, **keys}])


def test_only_a_program_can_start_what_is_held() -> None:
    legs = [lasting(0, "s"), lasting(1, "t", held=True)]
    with pytest.raises(
        BadInput, match=r"made\.yaml: t\.held = True: it would never be sent: only a program can start it"
    ):
        steered(SCENARIO, legs, by_program=False)
    for by_program, last in ((False, legs[:1]), (True, legs)):
        assert [leg.steered for leg in steered(SCENARIO, last, by_program)] == [by_program] * len(last)


def test_the_numbers_of_a_stream_whose_rate_can_rise_have_no_limit() -> None:
    """The receiver took the numbers beyond the planned ones for damaged, and their packets for lost."""
    assert sequence_limit(lasting(0, "s", count_packets=300)) == 300
    assert sequence_limit(lasting(0, "s", count_packets=300, steered=True)) == 0
    assert sequence_limit(leg(0, "s", count_packets=300, steered=True)) == 300, "its number of packets ends it"


def test_an_engine_that_cannot_hold_is_not_taken() -> None:
    missing = {"xdp": "no", "tc": "no", "pktgen": "", "trafgen": ""}
    headers = {"headers": [{"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}], "payload": {}}
    held = replace(leg(0, "s", held=True, duration_s=1.0, frame=headers), engine="auto")
    name, reasons = choose(held, missing)
    assert name == "" and "trafgen: cannot start a stream while others are sent" in reasons


def test_a_note_has_all_changes() -> None:
    ledger, _ = sending(lasting(0, "s", held=True))
    for at_s, rate_pps in ((1, None), (2, 500.0), (3, 0.0)):
        ledger.take(RateSet(0, rate_pps, at_s * 10**9, rank=1))
    changes = "held at first, started at 1.000 s, rate set to 500 packets/s at 2.000 s, stopped at 3.000 s"
    assert [*of_rates(ledger)] == [f"s from tx1: {changes}; the intended packets are not known"]


def test_nothing_is_intended_of_a_stream_that_is_held() -> None:
    expected = ExpectedSent(leg(0, "s", held=True))
    assert expected.at(10**9) is None and expected.total is None


def test_the_intended_packets_are_not_known_any_more(tmp_path: Path) -> None:
    folder = Made([leg(0, "small"), leg(1, "large", "tx2")]).write(tmp_path, [RateSet(0, 500.0, 0, rank=1)])
    result = pktswarm.Result.load(folder)
    small, large = result.streams["small"], result.streams["large"]
    assert (small.intended_packets, small.sent_packets, large.intended_packets) == (None, 300, 300)
    judged = [each.get("what") for each in result.verdicts]
    assert judged == ["small: lost", "large: lost", "large: sent"], "small was to send what nobody knows"


def test_nothing_is_due_of_a_rate_that_was_changed() -> None:
    expected = ExpectedSent(leg(0, "s"))
    assert expected.at(10**9) == 100
    expected.forget()
    assert expected.at(10**9) is None and expected.total is None


def test_an_engine_without_it_says_so(tmp_path: Path) -> None:
    sender: Sender = TrafgenSender(SendTask("eth1", [leg(0, "s")], 10.0), tmp_path)
    with pytest.raises(EngineError, match="trafgen: the rate of a stream that is sent cannot be changed"):
        sender.set_rate(0, 5.0)
