"""What a run amounts to: rows, sums, checks against the interfaces, verdicts, and the exit status with its reason."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.count_verdicts import judge
from pktswarm.master.results.flow_rows import fold
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.results.run_result import first_frame_skew_ns, flow_rows
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.results.totals import totals
from pktswarm.master.results.trace_verify import Compared
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.counting import users
from pktswarm.traffic.leg import FlowUsers, Leg, MatchData, Timing
from pktswarm.traffic.protocol.flow_report import FlowReport
from pktswarm.traffic.protocol.rank0_events import Clock
from pktswarm.traffic.protocol.rank_events import Sample
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount
from pktswarm.traffic.replay.flows import Flow, FlowCount
from run_events import NO_INPUTS, as_event

TX = Host("tx1", "10.0.0.1", ("transmit",), traffic_interface="eth1")
RX = Host("rx1", "10.0.0.2", ("receive",), traffic_interface="eth1")
LEG = Leg(0, "s", "tx1", "rx1", "stream", engine="trafgen", intended_packets=100)
COUNTERS = dict.fromkeys(("tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_dropped"), 0)


def ledger(
    sent: int | None = 100,
    received: int | None = 100,
    tx_packets: int = 100,
    rx_packets: int = 100,
    missed: int = 0,
    leg: Leg = LEG,
    over: bool = True,
) -> Ledger:
    """A run of one leg as its events told it."""
    made = Ledger([Rank(1, TX, "transmit"), Rank(2, RX, "receive")])
    made.resolved = Resolved([leg])
    made.take(as_event({"event": "phase", "name": "hello", "at_ns": 1}))
    made.take(as_event({"event": "start", "at_ns": 1_000, "utc_ns": 5_000_000_000}))
    for rank in (1, 2):
        clock = {
            "at_ns": 900,
            "offset_ns": 50,
            "bound_ns": 9,
            "round_trip_ns": 18,
            "realtime_minus_monotonic_ns": 10_000,
        }
        made.take(as_event({"event": "clock", "rank": rank, "when": "start", **clock}))
    if sent is not None:
        count = SendCount(0, "trafgen", sent, sent * 60, seconds=0.5)
        take_count(made, 1, asdict(count), tx_packets=tx_packets)
    if received is not None:
        # 11,050 of the node's UTC is the start instant: 1,000 + offset 50 + 10,000.
        taken = ReceiveCount(0, "netsniff-ng", received, received * 60, 12_050, 1_000_012_050, missed)
        take_count(made, 2, asdict(taken), rx_packets=rx_packets)
    if over:
        made.take(as_event({"event": "phase", "name": "over", "at_ns": 9}))
    return made


def take_count(made: Ledger, rank: int, count: dict[str, Any], **counters: int) -> None:
    made.take(
        as_event(
            {"event": "counts", "rank": rank, "counts": [count], "interface": {**COUNTERS, **counters}, "captures": []}
        )
    )


def status(made: Ledger, **expect: Any) -> tuple[int, str]:
    outcome = made.outcome(Expect(**expect), NO_INPUTS)
    return outcome.status, outcome.reason


def test_a_row_has_what_was_told_and_nothing_else() -> None:
    (row,) = ledger().rows()
    values = stream_values(row)
    assert (values["sent_packets"], values["received_packets"], values["lost_packets"]) == (100, 100, 0)
    assert values["sent_bytes"] == 100 * 64, "with the FCS"
    assert (values["sent_pps"], values["sent_bps"]) == (200.0, 102400.0)
    assert (values["first_ns"], values["last_ns"]) == (1_000, 1_000_001_000)
    assert values["received_pps"] == pytest.approx(99.0)
    assert (values["k"], values["k_sender"]) == (1.0, 1.0)
    assert values["lost_by"] == "difference"
    assert "latency_min_ns" not in values


def test_what_was_not_told_stays_unknown_in_rows_and_sums() -> None:
    made = ledger(sent=None)
    (row,) = made.rows()
    assert (row.sent.packets, row.lost, row.received.packets) == (None, None, 100)
    assert totals([row])[-1]["sent_packets"] is None
    assert totals([row])[-1]["lost_packets"] is None
    assert status(made)[0] == 3


def test_a_whole_run_as_expected_is_0() -> None:
    assert status(ledger(), loss=0, sent="intended") == (0, "as expected")


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        ({"loss": 0}, "s: lost 3, expected at most 0"),
        ({"loss": "2 %"}, "s: lost 3, expected at most 2 %"),
        ({"received": {"s": 100}}, "s: received 97, expected 100"),
    ],
)
def test_not_as_expected_is_1_and_says_what(expect: dict[str, Any], reason: str) -> None:
    assert status(ledger(received=97, rx_packets=97), **expect) == (1, reason)


def test_loss_within_what_is_allowed_holds() -> None:
    assert status(ledger(received=97, rx_packets=97), loss="3%")[0] == 0
    assert status(ledger(received=97, rx_packets=97), loss=3)[0] == 0


def test_a_tester_that_could_not_keep_up_is_no_loss_of_the_device() -> None:
    made = ledger(sent=60, received=60, tx_packets=60, rx_packets=60)
    assert status(made, loss=0)[0] == 0
    assert status(made, sent="intended") == (1, "s: sent 60, expected 100")
    assert made.rows()[0].k_sender == 0.6


def test_more_received_than_sent_is_not_as_expected() -> None:
    assert status(ledger(received=101, rx_packets=101), loss=0) == (1, "s: lost -1, expected at most 0")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"tx_packets": 99}, "tx1 (transmit): the engines counted 100 packets, tx_packets of the interface is 99"),
        ({"rx_packets": 99}, "rx1 (receive): the engines counted 100 packets, rx_packets of the interface is 99"),
        ({"missed": 5}, "rx1 (receive): the receiver itself missed 5 packets"),
    ],
)
def test_counts_that_contradict_each_other_are_3(counts: dict[str, Any], words: str) -> None:
    code, reason = status(ledger(**counts), loss=0)
    assert code == 3 and reason.startswith(words)


def test_frames_that_the_senders_kernel_added_to_a_trace_are_a_doubt() -> None:
    trace = replace(LEG, kind="trace")
    assert "eth1 sent 1 packets more than the engines" in status(ledger(tx_packets=101, leg=trace))[1]
    assert status(ledger(tx_packets=101))[0] == 0, "a stream is known by its headers"
    sessions = replace(trace, match=MatchData("stream"))
    assert status(ledger(tx_packets=101, leg=sessions))[0] == 0, "its node answers for a gNB besides"


def test_a_lost_node_is_named_and_the_others_counts_stand() -> None:
    made = ledger(sent=None)
    made.take(as_event({"event": "lost", "rank": 1, "problem": "no message for 5 s"}))
    code, reason = status(made)
    assert (code, reason) == (3, "tx1 (transmit): no message for 5 s (last message before the start)")
    assert made.rows()[0].received.packets == 100
    assert [row["state"] for row in made.node_rows()] == ["lost", "ok"]


def test_a_run_without_its_end_is_3() -> None:
    assert status(ledger(over=False)) == (3, "rank 0 was lost in phase 'hello'")


def test_a_stopped_run_is_3_with_its_reason() -> None:
    made = ledger()
    made.take(as_event({"event": "stopped", "problem": ""}))
    assert status(made) == (3, "stopped by the user")


def test_bad_input_that_a_node_finds_counts_as_such_only_before_the_start() -> None:
    made = Ledger([Rank(1, TX, "transmit")])
    made.take(as_event({"event": "failed", "rank": 1, "problem": "no such filter", "bad_input": True}))
    assert made.bad_input == "tx1: no such filter"
    late = ledger()
    late.take(as_event({"event": "failed", "rank": 1, "problem": "odd", "bad_input": True}))
    assert late.bad_input == "" and status(late)[0] == 3


def test_the_skew_of_a_barrier_is_on_the_masters_clock() -> None:
    made = ledger()
    for rank, at_ns, offset_ns in ((1, 5_000, 0), (2, 9_000, 3_500)):
        made.take(as_event({"event": "left", "rank": rank, "name": "start", "at_ns": at_ns, "offset_ns": offset_ns}))
    assert made.release_skew_ns() == {"start": 500}


def test_verdicts_are_per_stream() -> None:
    rows = [
        Row(LEG, 10, SentCounts(packets=10), ReceivedCounts(10)),
        Row(replace(LEG, stream="b"), 10, SentCounts(packets=10), ReceivedCounts(9)),
    ]
    assert [verdict["holds"] for verdict in judge(Expect(loss=0), rows)] == [True, False]


def test_stamps_tell_loss_by_number_and_fill_their_columns() -> None:
    made = ledger(received=None)
    tally: dict[str, Any] = {"packets": 99, "bytes": 99 * 60, "distinct": 97}
    tally |= {"duplicated": 2, "reordered": 1, "altered": 4}
    latency = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 3000) | {"mean_ns": 3000.4}
    tally |= {"latency": {"frames": 97, **latency}, "jitter": {"pairs": 96, "sd_ns": 12.6, "rfc3550_ns": 9.4}}
    # The transmitter's clock was read 500 too low before the run; what was read at its start is closer.
    for rank, offset_ns in ((1, -450), (2, 50)):
        made.nodes[rank].clock["before"] = Clock(rank, "before", 0, offset_ns, 1000, 2000, 0)
    count = asdict(ReceiveCount(0, "xdp", 99, 99 * 60, tally=tally))
    take_count(made, 2, count, rx_packets=99)
    (row,) = made.rows()
    values = stream_values(row)
    assert (values["received_packets"], values["lost_packets"], values["lost_by"]) == (99, 3, "stamps")
    assert (values["duplicated_packets"], values["reordered_packets"], values["altered_packets"]) == (2, 1, 4)
    assert (values["latency_mean_ns"], values["latency_min_ns"], values["latency_bound_ns"]) == (3500, 3500, 18)
    assert (values["jitter_sd_ns"], values["jitter_rfc3550_ns"]) == (13, 9)
    assert values["latency_packets"] == 97
    assert status(made, loss=0) == (1, "s: lost 3, expected at most 0")


def test_the_first_frame_of_each_node_is_compared_and_none_that_was_due_later() -> None:
    rows = [
        Row(leg, sent=SentCounts("xdp", first_ns=sent_ns), received=ReceivedCounts(first_ns=received_ns))
        for leg, received_ns, sent_ns in (
            (replace(LEG, source="tx1"), 900, 400),
            (replace(LEG, source="tx1", timing=Timing(lead_ns=5000)), 9999, 5300),
            (replace(LEG, source="tx2", timing=Timing(lead_ns=50)), 750, 400),
        )
    ]
    assert first_frame_skew_ns(rows) == {"xdp": {"nodes": 2, "skew": 50, "median_after_start": 375}}
    rows = [replace(row, sent=SentCounts("xdp")) for row in rows[::2]]
    assert first_frame_skew_ns(rows)["xdp"]["skew"] == 200


def test_a_counter_and_a_capture_that_disagree_are_a_doubt() -> None:
    made = ledger(received=None)
    xdp = asdict(ReceiveCount(0, "xdp", 100, 6000, tally={"packets": 100, "bytes": 6000, "distinct": 100}))
    capture = asdict(ReceiveCount(0, "netsniff-ng", 99, 5940))
    counters = {**COUNTERS, "rx_packets": 100}
    made.take(as_event({"event": "counts", "rank": 2, "counts": [xdp, capture], "interface": counters, "captures": []}))
    assert status(made) == (3, "rx1: the counter has 100 packets of s, the capture 99")


def test_late_frames_have_a_column_of_their_own() -> None:
    made = ledger(sent=None)
    take_count(made, 1, asdict(SendCount(0, "xdp", 97, late_packets=5, skipped_packets=3)), tx_packets=97)
    assert stream_values(made.rows()[0])["late_packets"] == 5
    assert stream_values(ledger().rows()[0])["late_packets"] is None


@pytest.mark.parametrize(("captured", "doubted"), [(34, False), (33, True), (100, True)])
def test_a_capture_of_one_in_three_is_held_against_the_count(captured: int, doubted: bool) -> None:
    made = ledger()
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9, capture_every=3)
    counts = [asdict(ReceiveCount(0, "xdp", 100, 6000)), asdict(ReceiveCount(0, "netsniff-ng", captured, 1))]
    made.take(
        as_event(
            {
                "event": "counts",
                "rank": 2,
                "counts": counts,
                "interface": {**COUNTERS, "rx_packets": 100},
                "captures": [],
            }
        )
    )
    words = [f"rx1: the counter has 100 packets of s, the capture {captured} of 34 (one in 3)"]
    assert made.doubts() == (words if doubted else [])


@pytest.mark.parametrize(("captured", "doubted"), [(0, False), (99, False), (101, True)])
def test_a_filtered_capture_has_no_more_than_the_count(captured: int, doubted: bool) -> None:
    made = ledger()
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9, capture_filter="udp")
    counts = [asdict(ReceiveCount(0, "xdp", 100, 6000)), asdict(ReceiveCount(0, "netsniff-ng", captured, 1))]
    made.take(
        as_event(
            {
                "event": "counts",
                "rank": 2,
                "counts": counts,
                "interface": {**COUNTERS, "rx_packets": 100},
                "captures": [],
            }
        )
    )
    assert bool(made.doubts()) == doubted


def test_users_that_do_not_add_up_are_a_doubt() -> None:
    leg = replace(LEG, users=FlowUsers(field="udp.src", by="src_port", first=1, step=1, count=2))
    made = ledger(leg=leg)
    for third, doubts in (
        (0, []),
        (1, ["s from tx1: received packets of its users add up to 101, the stream has 100"]),
    ):
        columns = {name: users.pack([60, 40, third]) for name in users.COLUMNS}
        take_count(made, 2, asdict(ReceiveCount(0, "xdp", 100, 6000, users=columns)), rx_packets=100)
        assert made.doubts() == doubts


@pytest.mark.parametrize(
    ("heard_ns", "words"),
    [
        (999, "last message before the start"),
        (2_500_001_000, "last message 2.50 s after the start; its interface had sent 1,280 packets by its last sample"),
    ],
)
def test_a_lost_node_is_told_with_when_it_was_last_heard_and_what_it_had_sent(heard_ns: int, words: str) -> None:
    made = ledger(sent=None)
    made.take(as_event({"event": "sample", "rank": 1, "at_ns": 2_000, "interface": {**COUNTERS, "tx_packets": 1280}}))
    made.take(as_event({"event": "lost", "rank": 1, "problem": "cannot be reached any more", "heard_ns": heard_ns}))
    code, reason = status(made)
    assert (code, reason) == (3, f"tx1 (transmit): cannot be reached any more ({words})")


def test_a_failed_capture_costs_no_count_and_is_told() -> None:
    made = ledger()
    count = asdict(ReceiveCount(0, "xdp", 100, 6000, 12_050, 1_000_012_050))
    problems = {"problems": ["netsniff-ng: exit 1"]}
    counters = {**COUNTERS, "rx_packets": 100}
    made.take(
        as_event({"event": "counts", "rank": 2, "counts": [count], "interface": counters, "captures": [], **problems})
    )
    assert [row.received.packets for row in made.rows()] == [100]
    assert status(made, loss=0) == (3, "rx1 (receive): netsniff-ng: exit 1")


def test_the_instances_of_a_trace_are_one_row_over_all_of_their_time() -> None:
    """They begin a part of a period apart: what all sent was not sent in the time of the longest."""
    second = 1_000_000_000
    rows = {
        number: Row(
            replace(LEG, id=number, kind="trace", merged_into=0 if number else None),
            sent=SentCounts("xdp", 101, late=number, seconds=4.0, first_ns=(5 + number) * second),
        )
        for number in range(4)
    }
    (row,) = fold(rows)
    assert (row.sent.packets, row.sent.late, row.sent.seconds, row.sent.first_ns) == (404, 6, 7.0, 5 * second)
    assert stream_values(row)["sent_pps"] == round(403 / 7, 1)


def test_a_rate_is_of_as_many_packets_as_its_time_is_of() -> None:
    """xdp tells when the first and the last frame left, trafgen how long it took."""
    rates = [
        stream_values(Row(LEG, sent=SentCounts(name, 101, seconds=1.0)))["sent_pps"] for name in ("xdp", "trafgen")
    ]
    assert rates == [100, 101]


# --- events, each in the figures that it is for -----------------------------------------------------------------------

SECOND = 1_000_000_000
START_NS, OFFSET_NS = 1_000, 50
"""On the master's clock, and the nodes' less the master's, in ledger()."""


def sample(made: Ledger, rank: int, after_ns: int, **interface: int) -> None:
    """A sample has the time of its node's clock."""
    at_ns = START_NS + OFFSET_NS + after_ns
    made.take(as_event({"event": "sample", "rank": rank, "at_ns": at_ns, "interface": {**COUNTERS, **interface}}))


def notes(made: Ledger) -> list[str]:
    return list(made.outcome(Expect(), NO_INPUTS).document["notes"])


def test_a_link_that_was_down_is_a_note_with_its_times() -> None:
    made = ledger()
    for at_ns, downs, ups in ((0, 0, 0), (SECOND // 2, 1, 0), (SECOND, 1, 1)):
        sample(made, 1, at_ns, link_downs=downs, link_ups=ups)
    assert made.nodes[1].outages.found == [(SECOND // 2, SECOND, 1)]
    assert notes(made) == ["tx1 (transmit): the link of eth1 was down from 0.50 s to 1.00 s after the start"]


def test_an_mtu_that_was_lowered_is_a_doubt_with_what_the_counters_say_at_the_end() -> None:
    made = ledger(sent=None)
    for at_ns, mtu in ((0, 1500), (SECOND, 1300)):
        sample(made, 1, at_ns, mtu=mtu, tx_dropped=2)
    take_count(made, 1, asdict(SendCount(0, "trafgen", 100, 6000)), tx_packets=100, tx_dropped=9)
    words = "the MTU of eth1 was changed from 1500 to 1300 between 0.00 s and 1.00 s after the start (tx_dropped +7)"
    assert made.doubts() == [f"tx1 (transmit): {words}"]


def test_an_interface_that_is_gone_is_a_doubt_with_its_time() -> None:
    made = ledger()
    made.take(as_event({"event": "interface gone", "rank": 2, "at_ns": START_NS + OFFSET_NS + 3 * SECOND}))
    assert made.nodes[2].link.gone_ns == 3 * SECOND
    assert status(made) == (3, "rx1 (receive): eth1 is gone since 3.00 s after the start")


def test_a_time_before_the_start_is_known_is_the_nodes_own() -> None:
    made = Ledger([Rank(1, TX, "transmit")])
    event = as_event({"event": "sample", "rank": 1, "at_ns": 700, "interface": COUNTERS})
    assert isinstance(event, Sample) and made.sampled_ns(event) == 700


def test_the_first_problem_of_a_node_is_the_one_that_is_told() -> None:
    first = as_event({"event": "failed", "rank": 1, "problem": "trafgen: exit 1", "bad_input": False})
    gone = as_event({"event": "guard_gone", "rank": 1})
    restored = as_event({"event": "restored", "rank": 1, "troubles": ["gro of eth1", "lro of eth1"]})
    for events, problem in (
        ([first, gone, restored], "trafgen: exit 1"),
        ([gone, first], "its guard is gone"),
        ([restored, gone], "could not restore everything: gro of eth1"),
    ):
        made = ledger()
        for event in events:
            made.take(event)
        assert made.nodes[1].problem == problem
        assert status(made) == (3, f"tx1 (transmit): {problem}")
        assert made.node_rows()[0]["state"] == "failed" and made.node_rows()[1]["state"] == "ok"


def test_problems_that_come_with_counts_do_not_hide_an_earlier_one() -> None:
    made = ledger(sent=None)
    made.take(as_event({"event": "guard_gone", "rank": 1}))
    count = asdict(SendCount(0, "trafgen", 100, 6000))
    counters = {**COUNTERS, "tx_packets": 100}
    more = {"interface": counters, "captures": [], "problems": ["a", "b"]}
    made.take(as_event({"event": "counts", "rank": 1, "counts": [count], **more}))
    assert made.nodes[1].problem == "its guard is gone"
    made.nodes[1].problem = ""
    made.take(as_event({"event": "counts", "rank": 1, "counts": [count], **more}))
    assert made.nodes[1].problem == "a; b"


def test_what_is_done_in_which_phase() -> None:
    made = Ledger([])
    assert made.phase == "launch"
    for number, name in enumerate(("hello", "send", "over")):
        assert not made.over
        made.take(as_event({"event": "phase", "name": name, "at_ns": number}))
        assert made.phase == name
    assert made.over and made.phases == [("hello", 0), ("send", 1), ("over", 2)]


def test_the_masters_utc_that_is_set_is_a_note_and_one_that_is_not_is_none() -> None:
    made = ledger()
    apart_ns = 5 * SECOND - START_NS
    made.look_at_master_utc(START_NS + SECOND, apart_ns + 90_000_000)  # within what an interrupted master may be off
    assert made.master_utc.found == [] and notes(made) == []
    made.look_at_master_utc(START_NS + 2 * SECOND, apart_ns + SECOND)
    (note,) = notes(made)
    assert note.startswith(
        "the master: its UTC was set by +1.000000 s in all between 1.00 s and 2.00 s after the start"
    )


def test_when_each_node_was_released_is_on_the_masters_clock() -> None:
    made = ledger()
    for rank, name, at_ns in ((1, "start", 5_000), (1, "end", 9_000), (2, "end", 9_500)):
        made.take(as_event({"event": "left", "rank": rank, "name": name, "at_ns": at_ns, "offset_ns": OFFSET_NS}))
    assert made.barriers == {"start": {1: 4_950}, "end": {1: 8_950, 2: 9_450}}
    assert made.release_skew_ns() == {"end": 500}, "one alone is not apart from any other"
    assert [row["released_ns"] for row in made.node_rows()] == [3_950, None]


def test_the_phases_are_told_since_the_start_and_by_the_masters_clock() -> None:
    table = ledger().outcome(Expect(), NO_INPUTS).document["phases"]
    assert table == [
        {"phase": "hello", "at_ns": -999, "monotonic_ns": 1},
        {"phase": "over", "at_ns": -991, "monotonic_ns": 9},
    ]


def test_captures_are_kept_by_name() -> None:
    made = ledger()
    captures = [{"name": "rx1.pcap", "bytes": 24}, {"name": "rx1.2.pcap", "bytes": 7}]
    made.take(as_event({"event": "counts", "rank": 2, "counts": [], "interface": COUNTERS, "captures": captures}))
    assert made.nodes[2].captures == {"rx1.pcap": 24, "rx1.2.pcap": 7}


def with_clocks(made: Ledger, **offsets_ns: int) -> None:
    """Read before the run, by which receivers counted; what ledger() took at the start is 50 for each."""
    for node in made.nodes.values():
        if (offset_ns := offsets_ns.get(node.rank.host.name)) is not None:
            node.clock["before"] = Clock(node.rank.number, "before", 0, offset_ns, 1000, 2000, 10_000)


def change_clock(made: Ledger, rank: int, when: str, **fields: Any) -> None:
    made.nodes[rank].clock[when] = replace(made.nodes[rank].clock[when], **fields)


def xdp_count(**more: Any) -> dict[str, Any]:
    latency = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 3000) | {"mean_ns": 3000.0}
    tally = {"packets": 100, "bytes": 6000, "distinct": 100, "latency": {"frames": 100, **latency}}
    return asdict(ReceiveCount(0, "xdp", 100, 6000, tally=tally, **more))


def test_latencies_are_corrected_by_the_clocks_as_they_stood_in_the_midst_of_the_sending() -> None:
    """The receiver's clock gains 100 ns a second, as two close readings say; before the run both were read as 0."""
    made = ledger(received=None, over=False)
    with_clocks(made, tx1=0, rx1=0)
    for rank, offset_ns in ((1, 50), (2, 450)):
        after = {"at_ns": 900 + 4 * SECOND, "bound_ns": 9, "round_trip_ns": 18, "realtime_minus_monotonic_ns": 10_000}
        made.take(as_event({"event": "clock", "rank": rank, "when": "after", "offset_ns": offset_ns, **after}))
    for name, after_s in (("send", 0), ("drain", 2), ("gather", 3)):
        made.take(as_event({"event": "phase", "name": name, "at_ns": START_NS + after_s * SECOND}))
    take_count(made, 2, xdp_count(), rx_packets=100)
    (row,) = made.rows()
    assert row.received.latency is not None
    assert row.received.latency.min_ns == pytest.approx(3_000 - 100, abs=1)
    assert row.received.latency_bound_ns == pytest.approx(100 + 9 + 9, abs=2), "its ends are 100 off its middle"


def test_the_end_of_the_sending_is_the_drain_or_the_gathering_and_never_before_its_begin() -> None:
    made = Ledger([])
    assert made.sending_ns() == (0, 0, 0)
    made.phases = [("send", 400), ("gather", 1_000)]
    assert made.sending_ns() == (400, 700, 1_000)
    made.phases.insert(1, ("drain", 900))
    assert made.sending_ns() == (400, 650, 900)
    made.start_ns = 500
    assert made.sending_ns() == (500, 700, 900)
    made.start_ns = 2_000
    assert made.sending_ns() == (2_000, 2_000, 2_000)


def test_a_clock_that_was_not_read_corrects_nothing() -> None:
    for clocks in ({"tx1": 0}, {"rx1": 0}, {}):
        made = ledger(received=None)
        with_clocks(made, **clocks)
        take_count(made, 2, xdp_count(), rx_packets=100)
        (row,) = made.rows()
        assert row.received.latency is not None
        assert (row.received.latency.min_ns, row.received.latency_bound_ns) == (3000, None)


def test_times_by_ptp_are_not_corrected() -> None:
    made = ledger(received=None)
    with_clocks(made, tx1=-450, rx1=50)
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9, tai=True)
    take_count(made, 2, xdp_count(), rx_packets=100)
    (row,) = made.rows()
    assert row.received.latency is not None and row.received.latency.min_ns == 3000
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9)
    (row,) = made.rows()
    assert row.received.latency is not None and row.received.latency.min_ns == 3500


def test_the_latencies_of_users_are_corrected_as_their_streams() -> None:
    leg = replace(LEG, users=FlowUsers(field="udp.src", by="src_port", first=1, step=1, count=1))
    made = ledger(received=None, leg=leg)
    with_clocks(made, tx1=-450, rx1=50)
    columns = {name: users.pack([100, 0]) for name in users.COLUMNS}
    take_count(made, 2, xdp_count(users=columns), rx_packets=100)
    (row,) = made.rows()
    assert row.users is not None and row.users.shift_ns == 500
    assert row.users.row(0)["latency_min_ns"] == 100 + 500


def test_what_an_engine_made_utc_itself_is_taken_back_by_what_it_added() -> None:
    """Not by what the master read of the two clocks: UTC may have been set since."""
    made = ledger(received=None)
    take_count(
        made, 2, xdp_count(first_ns=7_000 + 1_050, last_ns=7_000 + 1_250, utc_less_monotonic_ns=7_000), rx_packets=100
    )
    (row,) = made.rows()
    assert (row.received.first_ns, row.received.last_ns, row.omitted_timing) == (0, 200, [])


def test_the_first_frame_of_a_sender_is_told_since_the_start() -> None:
    made = ledger(sent=None)
    count = asdict(SendCount(0, "xdp", 100, 6000, seconds=1.0, first_ns=START_NS + OFFSET_NS + 77))
    take_count(made, 1, count, tx_packets=100)
    assert [row.sent.first_ns for row in made.rows()] == [77]
    made.start_ns = None
    assert [(row.sent.first_ns, row.received.first_ns) for row in made.rows()] == [(None, None)]


def test_a_second_engines_count_of_a_leg_is_the_capture_beside_it() -> None:
    made = ledger(received=None)
    counts = [xdp_count(), asdict(ReceiveCount(0, "netsniff-ng", 98, 1))]
    made.take(as_event({"event": "counts", "rank": 2, "counts": counts, "interface": COUNTERS, "captures": []}))
    assert [(row.received.packets, row.capture.packets) for row in made.rows()] == [(100, 98)]


def test_what_a_sender_told_is_in_its_row() -> None:
    made = ledger(sent=None)
    count = SendCount(0, "xdp", 90, 5400, 1, 2, 3, 4, 270, 5, None, 0.5, resent_packets=6, flows=[flow_report(1)])
    take_count(made, 1, asdict(count), tx_packets=90)
    (row,) = made.rows()
    sent = row.sent
    assert (sent.engine, sent.packets, sent.bytes, sent.seconds) == ("xdp", 90, 5400 + 4 * 90, 0.5)
    assert (sent.late, sent.stamped, sent.frames, sent.max_lateness_ns, sent.resent) == (2, 4, 270, 5, 6)
    assert sent.flows == [flow_report(1)]
    (node, _) = made.node_rows()
    assert (node["sent_packets"], node["received_packets"], node["failed_packets"]) == (90, None, 1)
    assert (node["tx_packets"], node["clock_offset_ns"], node["clock_bound_ns"]) == (90, OFFSET_NS, 9)


def test_users_of_a_trace_have_what_its_schedule_has_where_all_of_it_was_sent() -> None:
    leg = replace(LEG, users=FlowUsers(field="udp.src", by="src_port", first=1, step=1, count=2))
    for sent, expected in ((100, [60, 40]), (99, None)):
        made = ledger(sent=sent, leg=leg)
        made.resolved.by_user[0] = ([60, 40], [6000, 4000])
        (row,) = made.rows()
        assert row.users is not None and row.users.sent == expected


def test_a_leg_that_comes_to_two_nodes_is_one_row_of_both() -> None:
    leg = replace(LEG, handover_targets=["rx2"])
    made = Ledger([Rank(1, TX, "transmit"), Rank(2, RX, "receive"), Rank(3, replace(RX, name="rx2"), "receive")])
    made.resolved = Resolved([leg])
    for rank, packets in ((2, 70), (3, 30)):
        take_count(made, rank, asdict(ReceiveCount(0, "netsniff-ng", packets, packets * 60)), rx_packets=packets)
    (row,) = made.rows()
    assert row.received.packets == 100
    receivers = row.handover.receivers.items()
    assert {host: counts.received.packets for host, counts in receivers} == {"rx1": 70, "rx2": 30}
    del made.nodes[3]
    assert [row.received.packets for row in made.rows()] == [None]


def test_instances_that_were_not_all_counted_have_no_sums() -> None:
    rows = {
        0: Row(LEG, 10, SentCounts("", 10, 640, stamped=5, late=0, max_lateness_ns=7, seconds=2.0)),
        1: Row(replace(LEG, id=1, merged_into=0), 20, SentCounts("", 20, 640, stamped=6, late=2, max_lateness_ns=4)),
    }
    (row,) = fold(rows)
    sent = row.sent
    assert (row.intended, sent.packets, sent.bytes) == (30, 30, 1280)
    assert (sent.stamped, sent.late, sent.max_lateness_ns) == (11, 2, 7)
    assert sent.seconds == 2.0 and sent.first_ns is None, "of which both are not known the longer one is left"
    rows[1] = Row(replace(LEG, id=1, merged_into=0))
    (row,) = fold(rows)
    assert (row.sent.packets, row.sent.late, row.sent.max_lateness_ns) == (None, None, None)


def test_a_run_is_stopped_by_its_user_or_for_a_reason() -> None:
    for problem, words in (("", "stopped by the user"), ("no space left", "no space left")):
        made = ledger()
        made.take(as_event({"event": "stopped", "problem": problem}))
        assert status(made) == (3, words)


def test_the_clocks_of_the_sender_itself_are_the_ones_that_count() -> None:
    """Not those of another transmitter, nor its own as a receiver."""
    made = ledger(received=None)
    with_clocks(made, tx1=-450, rx1=50)
    sender = made.nodes.pop(1)
    for number, rank in ((7, Rank(7, replace(TX, name="tx0"), "transmit")), (8, Rank(8, TX, "receive"))):
        made.nodes[number] = Ledger([rank]).nodes[number]
        made.nodes[number].clock["before"] = replace(sender.clock["before"], offset_ns=9_999, bound_ns=1)
    made.nodes[1] = sender
    change_clock(made, 8, "before", offset_ns=-450)
    take_count(made, 2, xdp_count(), rx_packets=100)
    found = made.latency_error_ns(LEG, made.nodes[2], START_NS)
    assert found is not None and found[0] == 500


def test_a_sender_whose_clock_was_not_read_has_no_time_of_its_first_frame() -> None:
    made = ledger(sent=None)
    made.nodes[1].clock.clear()
    take_count(made, 1, asdict(SendCount(0, "xdp", 100, 6000, seconds=1.0, first_ns=5_000)), tx_packets=100)
    assert [row.sent.first_ns for row in made.rows()] == [None]


def test_a_receiver_whose_clock_was_not_read_has_no_times() -> None:
    made = ledger()
    made.nodes[2].clock.clear()
    assert [(row.received.packets, row.received.first_ns, row.received.last_ns) for row in made.rows()] == [
        (100, None, None)
    ]


def test_what_any_engine_of_a_node_missed_is_told() -> None:
    made = ledger(received=None)
    counts = [xdp_count(dropped_packets=1), asdict(ReceiveCount(0, "netsniff-ng", 98, 1, dropped_packets=2))]
    made.take(as_event({"event": "counts", "rank": 2, "counts": counts, "interface": COUNTERS, "captures": []}))
    assert made.node_rows()[1]["missed_packets"] == 3


def test_frames_that_a_complete_capture_had_not_read_are_those_of_others() -> None:
    made = ledger(received=None)
    counts = [xdp_count(), asdict(ReceiveCount(0, "netsniff-ng", 100, 1, dropped_packets=256))]
    made.take(as_event({"event": "counts", "rank": 2, "counts": counts, "interface": COUNTERS, "captures": []}))
    assert made.node_rows()[1]["missed_packets"] == 0


def captured(made: Ledger, received: int) -> tuple[Row, list[Any]]:
    """With what a capture at the receiver has: one flow, each packet 1,000 ns after it was due."""
    change_clock(made, 1, "start", at_ns=START_NS)
    flow = FlowCount(Flow(17, bytes(4), 1, bytes(4), 2), received, received)
    utc_less_due_ns = 1_000 + START_NS + OFFSET_NS + 10_000
    compared = [Compared(LEG, None, [flow], np.full(received, utc_less_due_ns, np.int64))]
    outcome = made.outcome(Expect(), NO_INPUTS, compared)
    return outcome.rows[0], outcome.document["latency_by_captures"]


def a_timed_sender(**more: Any) -> Ledger:
    made = ledger(sent=None, **more)
    take_count(made, 1, asdict(SendCount(0, "xdp", 100, 6000, latest_ns=5, seconds=1.0)), tx_packets=100)
    return made


def test_captures_that_have_what_was_counted_tell_the_latency() -> None:
    row, documents = captured(a_timed_sender(), 100)
    latency = row.capture.latency
    assert latency is not None and (latency.frames, latency.min_ns) == (100, 1_000)
    assert row.capture.latency_bound_ns == 9 + 9 + 5 + 18 and [one["p50_ns"] for one in documents] == [1_000]


def test_captures_that_have_less_tell_none() -> None:
    row, documents = captured(a_timed_sender(), 99)
    assert (row.capture.latency, row.capture.latency_bound_ns, documents) == (None, None, [])
    made = a_timed_sender()
    made.start_ns = None
    assert captured(made, 100)[0].capture.latency is None


def test_captures_of_a_node_whose_utc_was_set_tell_no_latency() -> None:
    made = a_timed_sender()
    utc = {"realtime_minus_monotonic_ns": 10_000 + SECOND, "within_ns": 5}
    reading = {**utc, "was_set": True}
    made.take(as_event({"event": "utc set", "rank": 2, "at_ns": START_NS + SECOND, "reading": reading}))
    row, documents = captured(made, 100)
    assert row.capture.latency is None and documents == []
    assert [words for words in row.omitted_timing if words.startswith("latency by captures, because")]


def flow_report(number: int, sent: int = 0, received: int = 0) -> FlowReport:
    return FlowReport(number, "1 -> 2", "complete", 10, 20, sent, 0, received, 0, 0, 0, 0)


def test_flows_have_what_both_of_their_ends_told() -> None:
    there, back = replace(LEG, kind="trace"), replace(LEG, id=1, kind="trace", answers=0, source="rx1", target="tx1")
    begun = [flow_report(1, sent=7, received=3), flow_report(2, sent=9)]
    rows = [
        Row(there, sent=SentCounts(flows=begun)),
        Row(back, sent=SentCounts(flows=[flow_report(1, received=6)])),
        Row(replace(LEG, id=2)),
    ]
    found = [
        (row["flow"], row["sent_packets"], row["received_packets"], row["answers_received_packets"])
        for row in flow_rows(rows)
    ]
    assert found == [(1, 7, 6, 3), (2, 9, None, 0)]
    assert [row["received_packets"] for row in flow_rows([rows[0], Row(back)])] == [None, None]
    assert flow_rows([rows[0]]) == [] and flow_rows([Row(there), rows[1]]) == []


def test_utc_is_taken_as_it_was_read_at_the_start() -> None:
    """Not before it: it may have been steered since."""
    made = ledger()
    with_clocks(made, rx1=50)
    change_clock(made, 2, "before", realtime_minus_monotonic_ns=9_000)
    assert [row.received.first_ns for row in made.rows()] == [1_000]
    del made.nodes[2].clock["start"]
    assert [row.received.first_ns for row in made.rows()] == [2_000]
