"""What a node's samples tell of its traffic interface, apart from its outages."""

from pktswarm.master.cluster.link_state import LinkState


def sample(mtu: int | None, **counters: int) -> dict[str, int]:
    return counters if mtu is None else {**counters, "mtu": mtu}


def test_a_lowered_mtu_is_a_doubt_with_its_time_and_the_counters_that_moved_since() -> None:
    link = LinkState()
    link.take(-100_000_000, sample(1500, rx_dropped=3))
    link.take(500_000_000, sample(1500, rx_dropped=4, tx_packets=7))
    link.take(600_000_000, sample(1300, rx_dropped=9))
    link.end(sample(1300, rx_dropped=1004, rx_errors=2))
    words = "the MTU of eth1 was changed from 1500 to 1300 between 0.50 s and 0.60 s after the start"
    assert link.doubts("eth1") == [f"{words} (rx_dropped +1,000, rx_errors +2)"]
    assert link.notes("eth1") == []


def test_a_raised_one_is_a_note_and_each_change_is_told() -> None:
    link = LinkState()
    for at_s, mtu in enumerate((1500, 1300, 9000)):
        link.take(at_s * 1_000_000_000, sample(mtu))
    assert [words.split(" between")[0] for words in link.doubts("eth1")] == [
        "the MTU of eth1 was changed from 1500 to 1300"
    ]
    assert link.notes("eth1") == [
        "the MTU of eth1 was changed from 1300 to 9000 between 1.00 s and 2.00 s after the start "
        "(no counter of it moved)"
    ]


def test_nothing_is_made_of_what_was_not_told() -> None:
    link = LinkState()
    for at_ns, mtu in enumerate((None, 1500, None, 1500)):
        link.take(at_ns, sample(mtu))
    link.end(None)
    assert link.doubts("eth1") == link.notes("eth1") == []


def test_an_interface_that_is_gone_is_a_doubt() -> None:
    assert LinkState(gone_ns=1_230_000_000).doubts("eth1") == ["eth1 is gone since 1.23 s after the start"]
