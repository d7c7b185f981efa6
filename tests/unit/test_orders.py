"""What the command line tells rank 0."""

import socket

from pktswarm.master.run.run import _order
from pktswarm.traffic.protocol.messages import Lines


def test_an_order_to_a_rank_0_that_is_gone_is_no_error_and_its_last_words_are_read() -> None:
    """Ctrl-C, or a death, between what it asked for and the answer."""
    ours, theirs = socket.socketpair()
    Lines(theirs).send({"event": "phase", "name": "over"})
    theirs.close()
    control = Lines(ours)
    _order(control, {"op": "go"}, b"x" * 1_000_000)
    control.receive(1.0)
    assert [event["name"] for event, _ in control.messages()] == ["over"]
