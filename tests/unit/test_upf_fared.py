"""Who fared worst, and whose rate is above the MBR: from what was sent to and received from each user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from pktswarm.master.results.count_verdicts import judge_mbr
from pktswarm.master.results.terminal import console
from pktswarm.master.results.user_report import lines, mbr, report, worst
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.leg import FlowUsers, Leg, SessionUsers

FIRST = 0x0A2D0001
"""10.45.0.1."""
Of = tuple[str, Literal["up", "down"], tuple[int, int]]
UP: Of = ("5.ipv4.src", "up", (58, 14))
DOWN: Of = ("ipv4.dst", "down", (14, 58))


def leg_users(
    of: Of,
    sent: list[int] | None,
    received: list[int],
    latency_ns: list[int] | None = None,
    mbr_bps: float | None = None,
    first: int = FIRST,
    seconds: float | None = 1.0,
    gnb: str = "gnb1",
    **leg: Any,
) -> Users:
    """`received` has one more, for what is nobody's; `latency_ns`: each packet's, of a user."""
    name, direction, outer_bytes = of
    session = SessionUsers("subscribers", gnb, direction, mbr_bps, outer_bytes)
    own = FlowUsers(name, "src_ip", first, 1, len(received) - 1, session=session)
    made = Leg(0, direction, "tx1", "rx1", "stream", **{"size_bytes": 200, "users": own, **leg})
    times = latency_ns or [0] * (len(received) - 1)
    columns = {
        "packets": received,
        "distinct": received,
        "bytes": [100 * packets for packets in received],
        "latencies": [packets if time else 0 for packets, time in zip(received, [*times, 0], strict=True)],
        "latency_sum_ns": [packets * time for packets, time in zip(received, [*times, 0], strict=True)],
        "latency_min_ns": [*times, 0],
        "latency_max_ns": [2 * time for time in [*times, 0]],
        "damaged": [0] * len(received),
    }
    return Users(made, True, sent, columns, seconds=seconds)


def test_loss_goes_before_latency_and_both_directions_are_one_users() -> None:
    up = leg_users(UP, [10, 10, 10, 10], [10, 7, 10, 10, 0], [5, 5, 900, 5])
    down = leg_users(DOWN, [10, 10, 10, 10], [8, 10, 10, 10, 0], [7, 7, 7, 8])
    found = worst([up, down])
    told = [(one["user"], one["lost_packets"], one["sent_packets"], one["latency_mean_ns"]) for one in found]
    assert told == [
        ("10.45.0.2", 3, 20, 7),
        ("10.45.0.1", 2, 20, 7),
        ("10.45.0.3", 0, 20, 900),
        ("10.45.0.4", 0, 20, 8),
    ]
    assert [(row["stream"], row["lost_packets"]) for row in found[0]["streams"]] == [("up", 3), ("down", 0)]
    assert (found[2]["latency_max_ns"], found[2]["group"]) == (1800, "subscribers")
    assert lines({"worst": found[:1], "mbr": []}) == [
        "worst user: 10.45.0.2 of subscribers: 3 of 20 packets lost (up 3 of 10, down 0 of 10), "
        "latency mean 0.000 ms, maximum 0.000 ms"
    ]


def test_a_packet_too_many_makes_up_for_none_that_is_lost() -> None:
    found = worst([leg_users(UP, [10], [9, 0]), leg_users(DOWN, [10], [11, 0])])
    assert [one["lost_packets"] for one in found] == [1]


def test_loss_is_by_part_and_ten_are_told() -> None:
    few, many = leg_users(UP, [2], [1, 0]), leg_users(UP, [100] * 30, [*range(70, 100), 0], gnb="gnb2")
    found = worst([few, many])
    assert [one["lost_packets"] for one in found] == [1, *range(30, 21, -1)]


def test_nobody_fared_badly_where_nothing_was_lost_or_timed() -> None:
    assert worst([leg_users(UP, [10], [10, 0]), leg_users(DOWN, None, [3, 0])]) == []


def test_latencies_are_as_the_clocks_after_the_run_say() -> None:
    one = leg_users(UP, [10], [10, 0], [500])
    one.shift_ns = 40
    row = next(one.rows())
    assert [row["latency_min_ns"], row["latency_mean_ns"], row["latency_max_ns"]] == [540, 540, 1040]
    assert worst([one])[0]["latency_mean_ns"] == 540


def test_who_gets_more_than_the_mbr_and_by_how_much() -> None:
    """138 bytes of IP in a frame of 200: 1,104 bits."""
    sent = [101] * 4
    up = leg_users(UP, sent, [49, 50, 51, 101, 0], mbr_bps=54_000, seconds=1.0)
    (told,) = mbr([up])
    packets, seconds = sum(sent), 1.0 * 404 / 403
    assert packets == 404 and told["seconds"] == round(seconds, 6)
    # 1 % and a packet: 54,000 bits * 1.01 + 1,104 are 50.4 packets.
    assert (told["users"], told["beyond_users"]) == (4, 2)
    rate = 101 * 1104 / seconds
    assert told["beyond"][0] == {"user": "10.45.0.4", "rate_bps": round(rate), "beyond": round(rate / 54_000 - 1, 4)}
    assert told["beyond"][1]["user"] == "10.45.0.3" and told["highest_bps"] == round(rate)
    words = (
        f"MBR of subscribers, up, 0.054 Mbit/s: 2 of 4 users above, the most 10.45.0.4 by {100 * (rate / 54e3 - 1):.1f}"
    )
    assert lines({"worst": [], "mbr": [told]})[0].startswith(words)


def test_streams_of_one_direction_count_together_and_directions_apart() -> None:
    both = [leg_users(UP, [60], [60, 0], mbr_bps=100_000), leg_users(UP, [60], [60, 0], mbr_bps=100_000)]
    down = leg_users(DOWN, [60], [60, 0], mbr_bps=100_000)
    assert [one["beyond_users"] for one in mbr([*both, down])] == [1, 0]
    assert mbr([leg_users(UP, [60], [60, 0])]) == []


def test_of_several_sizes_the_bytes_less_what_is_around_them_count() -> None:
    one = leg_users(DOWN, [60], [60, 0], mbr_bps=1000, sizes=[[100, 1], [200, 1]])
    assert one.ip_bytes(0) == 60 * (100 - 58)


@pytest.mark.parametrize("changes", [{"seconds": None}, {"sent": None}])
def test_what_was_not_measured_is_told(changes: dict[str, Any]) -> None:
    one = leg_users(UP, **{"sent": [10], "received": [10, 0], "mbr_bps": 1000, **changes})
    told = report([one])
    assert told["mbr"] == [{"group": "subscribers", "direction": "up", "mbr_bps": 1000, "users": None}]
    assert lines(told)[-1].endswith("the rates of its users were not measured")


def test_an_ipv6_address_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("worst user: 2001:db8:45:b::1")
    assert capsys.readouterr().out == "worst user: 2001:db8:45:b::1\n"


def test_an_mbr_that_is_expected_is_judged() -> None:
    kept = leg_users(UP, [10] * 3, [10] * 3 + [0], mbr_bps=20_000)
    broken = leg_users(DOWN, [10] * 3, [10, 40, 10, 0], mbr_bps=20_000)
    unknown = leg_users(DOWN, None, [10] * 3 + [0], mbr_bps=20_000, seconds=None)
    expected = Expect(mbr=True)
    assert [(one["text"], one["holds"]) for one in judge_mbr(expected, mbr([kept, broken]))] == [
        ("MBR of subscribers, up: 0 of 3 users above, expected none", True),
        ("MBR of subscribers, down: 1 of 3 users above, expected none", False),
    ]
    (verdict,) = judge_mbr(expected, mbr([unknown]))
    assert verdict["text"] == "MBR of subscribers, down: not measured, expected none" and not verdict["holds"]
    assert (verdict["what"], verdict["found"]) == ("MBR of subscribers, down", "not measured")
    assert judge_mbr(Expect(), mbr([broken])) == []


def test_what_a_trace_brings_counts_as_what_a_stream_does() -> None:
    """In 100 frames of 100 bytes are 86 of IP each."""
    stream, trace = (leg_users(UP, [number + 1], [number, 0], mbr_bps=100_000) for number in (49, 100))
    trace.leg = replace(trace.leg, stream="web", kind="trace")
    assert [mbr([one])[0]["beyond_users"] for one in (stream, trace)] == [0, 0]
    (told,) = mbr([stream, trace])
    assert told["highest_bps"] == round((49 * 1104 + 100 * 688) / (50 / 49)) and told["beyond_users"] == 1
    (one,) = worst([stream, trace])
    assert (one["lost_packets"], one["sent_packets"], len(one["streams"])) == (2, 151, 2)


def test_a_stream_that_was_not_measured_is_left_out_of_what_a_user_lost() -> None:
    up, down = leg_users(UP, [10], [9, 0]), leg_users(DOWN, None, [3, 0], mbr_bps=1000)
    told = report([up, down])
    assert [one["stream"] for one in told["worst"][0]["streams"]] == ["up"]
    worst_words, mbr_words = lines(told)
    assert "1 of 10 packets lost (up 1 of 10)" in worst_words and mbr_words.endswith("were not measured")
