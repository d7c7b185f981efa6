"""What the command line tells rank 0."""

import socket

from pktswarm.master.run.kept_ranks import send_order
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import Phase, decode_rank0_event
from pktswarm.traffic.protocol.rank0_orders import Looked, decode_rank0_order


def test_an_order_to_a_rank_0_that_is_gone_is_no_error_and_its_last_words_are_read() -> None:
    """Ctrl-C, or a death, between what it asked for and the answer."""
    ours, theirs = socket.socketpair()
    Lines(theirs, decode_rank0_order).send(Phase("over", 0))
    theirs.close()
    control = Lines(ours, decode_rank0_event)
    send_order(control, Looked(), b"x" * 1_000_000)
    control.receive(1.0)
    assert [event for event, _ in control.messages()] == [Phase("over", 0)]
