"""When the sending process sleeps."""

from __future__ import annotations

from nodes.senders.xdp_run import AWAKE_AHEAD_NS, MOST_AHEAD_NS, next_ahead_ns


def test_it_wakes_earlier_where_it_was_late_and_slowly_later_again() -> None:
    ahead_ns = AWAKE_AHEAD_NS
    for _ in range(20):
        ahead_ns = next_ahead_ns(ahead_ns, too_late=True)
    assert ahead_ns == MOST_AHEAD_NS
    one_later_ns = next_ahead_ns(ahead_ns, too_late=False)
    assert AWAKE_AHEAD_NS < one_later_ns < ahead_ns
    for _ in range(2000):
        ahead_ns = next_ahead_ns(ahead_ns, too_late=False)
    assert ahead_ns == AWAKE_AHEAD_NS
