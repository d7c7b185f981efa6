"""Messages between processes: what a decoder makes of an object, and what it refuses."""

import socket
from typing import Any

import pytest

from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.protocol.codec import encode, parse, to_fields
from pktswarm.traffic.protocol.guard_orders import Prepare, Word, decode_guard_order
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.node_report import Holder
from pktswarm.traffic.protocol.rank0_events import decode_rank0_event
from pktswarm.traffic.protocol.rank_events import Arrived, Counts, Hello, decode_node_event
from pktswarm.traffic.protocol.rank_orders import File, Task, decode_rank_order
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount
from run_events import REPORT

COUNTS = Counts([SendCount(3, "xdp", 5), ReceiveCount(4, "xdp", 6)], [], None, {"tx_packets": 5}, [File("c", 9)])


def test_a_message_is_the_same_behind_its_way() -> None:
    task = Task("{}", [File("a", 3)], "ready", 1)
    assert decode_rank_order(parse(encode(task))) == task
    assert decode_node_event(parse(encode(COUNTS))) == COUNTS
    assert to_fields(Arrived("stop")) == {"event": "arrived", "name": "stop"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"event": "shouted"}, "unknown event 'shouted'"),
        ({"op": "word"}, "unknown event None"),
        ({"event": "lost", "rank": 1, "problem": "x", "silent_s": 1.0}, "event lost: heard_ns: missing"),
        ({"event": "note", "text": "x", "more": 1}, "event note: more: unknown field"),
        ({"event": "note", "text": 1}, "event note: text = 1: wrong type"),
        ({"event": "phase", "name": "x", "at_ns": True}, "event phase: at_ns = True: wrong type"),
        ({"event": "clock", "rank": 1, "when": "now"}, "event clock: at_ns: missing"),
        ({**to_fields(COUNTS), "counts": [{"leg": 1, "engine": "xdp"}]}, "event counts: counts.sent_packets: missing"),
        ({**to_fields(COUNTS), "counts": 3}, "event counts: counts = 3: not a list"),
    ],
)
def test_a_message_that_is_none_is_refused_by_name(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        decode_rank0_event(fields)


def test_a_node_that_no_run_holds_reports_an_empty_object() -> None:
    hello = {"event": "hello", "host": "a", "role": "transmit", "report": {**REPORT, "held_by": {}}}
    report = to_fields(decode_rank0_event(hello))["report"]
    assert isinstance(report, dict) and report["held_by"] == {}
    held = {**hello, "report": {**REPORT, "held_by": {"run": "r", "by": "b", "since": "s"}}}
    event = decode_rank0_event(held)
    assert isinstance(event, Hello) and event.report.held_by == Holder("r", "b", "s")


def test_messages_behind_one_that_is_none_are_read() -> None:
    ours, theirs = socket.socketpair()
    lines = Lines(ours, decode_guard_order)
    theirs.sendall(b'not json\n{"op":"shell","raw_bytes":3}\nabc{"op":"word","raw_bytes":"x"}\n')
    Lines(theirs, decode_guard_order).send(Word())
    Lines(theirs, decode_guard_order).send(Prepare("transmit", "{}"), b"raw")
    lines.receive(1.0)
    for problem in ("not JSON", "unknown operation 'shell'", "raw_bytes: 'x' is not a number"):
        with pytest.raises(MessageError, match=problem):
            list(lines.messages())
    assert list(lines.messages()) == [(Word(), b""), (Prepare("transmit", "{}"), b"raw")]
