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
from pktswarm.master.run.rate_changes import orders
from pktswarm.nodes.engine import Sender
from pktswarm.nodes.senders.trafgen import TrafgenSender
from pktswarm.traffic.errors import BadInput, EngineError, PktswarmError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_events import Phase
from pktswarm.traffic.protocol.rank0_orders import SetRate
from pktswarm.traffic.protocol.rank_events import RateSet
from pktswarm.traffic.protocol.task import SendTask
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
    ],
)
def test_what_cannot_be_set_is_named(changes: dict[str, Any], stream: str, rate_pps: float, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        list(orders(*sending(replace(lasting(0, "s"), **changes)), SCENARIO, stream, rate_pps))
    assert words in str(raised.value)


def test_before_and_behind_the_sending_there_is_no_rate() -> None:
    with pytest.raises(PktswarmError, match="s: the rate cannot be set in phase 'drain': no stream is sent"):
        list(orders(*sending(lasting(0, "s"), phase="drain"), SCENARIO, "s", 5.0))


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
