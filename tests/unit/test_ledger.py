"""What a run amounts to: rows, sums, checks against the interfaces, verdicts, and the exit status with its reason."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from master.expectations import Expect
from master.inventory import Host
from master.judge import judge, totals
from master.ledger import Ledger, first_frame_skew_ns, fold
from master.resolve import Rank, Resolved
from master.results import Row, stream_values
from traffic import users
from traffic.task import Leg, ReceiveCount, ReceiveTask, SendCount

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
    made.take({"event": "phase", "name": "hello", "at_ns": 1})
    made.take({"event": "start", "at_ns": 1_000, "utc_ns": 5_000_000_000})
    for rank in (1, 2):
        clock = {"at_ns": 900, "offset_ns": 50, "bound_ns": 9, "realtime_minus_monotonic_ns": 10_000}
        made.take({"event": "clock", "rank": rank, "when": "start", **clock})
    if sent is not None:
        count = SendCount(0, "trafgen", sent, sent * 60, seconds=0.5)
        told(made, 1, asdict(count), tx_packets=tx_packets)
    if received is not None:
        # 11,050 of the node's UTC is the start instant: 1,000 + offset 50 + 10,000.
        taken = ReceiveCount(0, "netsniff-ng", received, received * 60, 12_050, 1_000_012_050, missed)
        told(made, 2, asdict(taken), rx_packets=rx_packets)
    if over:
        made.take({"event": "phase", "name": "over", "at_ns": 9})
    return made


def told(made: Ledger, rank: int, count: dict[str, Any], **counters: int) -> None:
    made.take(
        {"event": "counts", "rank": rank, "counts": [count], "interface": {**COUNTERS, **counters}, "captures": []}
    )


def status(made: Ledger, **expect: Any) -> tuple[int, str]:
    outcome = made.outcome(Expect(**expect), {})
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
    assert (row.sent, row.lost, row.received) == (None, None, 100)
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
        ({"tx_packets": 99}, "tx1 (transmit): the engines say 100 packets, the interface's tx_packets only 99"),
        ({"rx_packets": 99}, "rx1 (receive): the engines say 100 packets, the interface's rx_packets only 99"),
        ({"missed": 5}, "rx1 (receive): the receiver itself missed 5 packets"),
    ],
)
def test_counts_that_contradict_each_other_are_3(counts: dict[str, int], words: str) -> None:
    code, reason = status(ledger(**counts), loss=0)
    assert code == 3 and reason.startswith(words)


def test_frames_that_the_senders_kernel_added_to_a_trace_are_a_doubt() -> None:
    trace = replace(LEG, kind="trace")
    assert "1 packets more left eth1" in status(ledger(tx_packets=101, leg=trace))[1]
    assert status(ledger(tx_packets=101))[0] == 0, "a stream is known by its headers"
    sessions = replace(trace, match={"kind": "stream"})
    assert status(ledger(tx_packets=101, leg=sessions))[0] == 0, "its node answers for a gNB besides"


def test_a_lost_node_is_named_and_the_others_counts_stand() -> None:
    made = ledger(sent=None)
    made.take({"event": "lost", "rank": 1, "problem": "not heard for 5 s"})
    code, reason = status(made)
    assert (code, reason) == (3, "tx1 (transmit): not heard for 5 s")
    assert made.rows()[0].received == 100
    assert [row["state"] for row in made.node_rows()] == ["lost", "ok"]


def test_a_run_without_its_end_is_3() -> None:
    assert status(ledger(over=False)) == (3, "rank 0 was lost in phase 'hello'")


def test_a_stopped_run_is_3_with_its_reason() -> None:
    made = ledger()
    made.take({"event": "stopped", "problem": ""})
    assert status(made) == (3, "stopped by the user")


def test_bad_input_that_a_node_finds_counts_as_such_only_before_the_start() -> None:
    made = Ledger([Rank(1, TX, "transmit")])
    made.take({"event": "failed", "rank": 1, "problem": "no such filter", "bad_input": True})
    assert made.bad_input == "tx1: no such filter"
    late = ledger()
    late.take({"event": "failed", "rank": 1, "problem": "odd", "bad_input": True})
    assert late.bad_input == "" and status(late)[0] == 3


def test_the_skew_of_a_barrier_is_on_the_masters_clock() -> None:
    made = ledger()
    for rank, at_ns, offset_ns in ((1, 5_000, 0), (2, 9_000, 3_500)):
        made.take({"event": "left", "rank": rank, "name": "start", "at_ns": at_ns, "offset_ns": offset_ns})
    assert made.release_skew_ns() == {"start": 500}


def test_verdicts_are_per_stream() -> None:
    rows = [
        Row(LEG, intended=10, sent=10, received=10),
        Row(replace(LEG, stream="b"), intended=10, sent=10, received=9),
    ]
    assert [verdict["holds"] for verdict in judge(Expect(loss=0), rows)] == [True, False]


def test_stamps_tell_loss_by_number_and_fill_their_columns() -> None:
    made = ledger(received=None)
    tally = {"packets": 99, "bytes": 99 * 60, "distinct": 97, "duplicated": 2, "reordered": 1, "altered": 4}
    latency = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 3000) | {"mean_ns": 3000.4}
    tally |= {"latency": {"frames": 97, **latency}, "jitter": {"pairs": 96, "sd_ns": 12.6, "rfc3550_ns": 9.4}}
    # The transmitter's clock was read 500 too low before the run; what was read at its start is closer.
    for rank, offset_ns in ((1, -450), (2, 50)):
        clock = {"at_ns": 0, "offset_ns": offset_ns, "bound_ns": 1000, "realtime_minus_monotonic_ns": 0}
        made.nodes[rank].clock["before"] = clock
    count = asdict(ReceiveCount(0, "xdp", 99, 99 * 60, tally=tally))
    told(made, 2, count, rx_packets=99)
    (row,) = made.rows()
    values = stream_values(row)
    assert (values["received_packets"], values["lost_packets"], values["lost_by"]) == (99, 3, "stamps")
    assert [values[f"{name}_packets"] for name in ("duplicated", "reordered", "altered")] == [2, 1, 4]
    assert (values["latency_mean_ns"], values["latency_min_ns"], values["latency_bound_ns"]) == (3500, 3500, 18)
    assert (values["jitter_sd_ns"], values["jitter_rfc3550_ns"]) == (13, 9)
    assert status(made, loss=0) == (1, "s: lost 3, expected at most 0")


def test_the_first_frame_of_each_node_is_compared_and_none_that_was_due_later() -> None:
    rows = [
        Row(replace(LEG, source="tx1"), first_ns=900, left_ns=400),
        Row(replace(LEG, source="tx1", timing={"lead_ns": 5000}), first_ns=9999, left_ns=5300),
        Row(replace(LEG, source="tx2"), first_ns=700, left_ns=350),
    ]
    rows = [replace(row, engine="xdp") for row in rows]
    assert first_frame_skew_ns(rows) == {"xdp": {"nodes": 2, "skew": 50, "median_after_start": 375}}
    rows = [replace(row, left_ns=None) for row in rows[::2]]
    assert first_frame_skew_ns(rows)["xdp"]["skew"] == 200


def test_a_counter_and_a_capture_that_disagree_are_a_doubt() -> None:
    made = ledger(received=None)
    xdp = asdict(ReceiveCount(0, "xdp", 100, 6000, tally={"packets": 100, "bytes": 6000, "distinct": 100}))
    capture = asdict(ReceiveCount(0, "netsniff-ng", 99, 5940))
    counters = {**COUNTERS, "rx_packets": 100}
    made.take({"event": "counts", "rank": 2, "counts": [xdp, capture], "interface": counters, "captures": []})
    assert status(made) == (3, "rx1: the counter has 100 packets of s, the capture 99")


def test_late_frames_have_a_column_of_their_own() -> None:
    made = ledger(sent=None)
    told(made, 1, asdict(SendCount(0, "xdp", 97, late_packets=5, skipped_packets=3)), tx_packets=97)
    assert stream_values(made.rows()[0])["late_packets"] == 5
    assert stream_values(ledger().rows()[0])["late_packets"] is None


@pytest.mark.parametrize(("captured", "doubted"), [(34, False), (33, True), (100, True)])
def test_a_capture_of_one_in_three_is_held_against_the_count(captured: int, doubted: bool) -> None:
    made = ledger()
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9, capture_every=3)
    counts = [asdict(ReceiveCount(0, "xdp", 100, 6000)), asdict(ReceiveCount(0, "netsniff-ng", captured, 1))]
    made.take(
        {"event": "counts", "rank": 2, "counts": counts, "interface": {**COUNTERS, "rx_packets": 100}, "captures": []}
    )
    words = [f"rx1: the counter has 100 packets of s, the capture {captured} of 34 (one in 3)"]
    assert made.doubts() == (words if doubted else [])


@pytest.mark.parametrize(("captured", "doubted"), [(0, False), (99, False), (101, True)])
def test_a_filtered_capture_has_no_more_than_the_count(captured: int, doubted: bool) -> None:
    made = ledger()
    made.resolved.receives["rx1"] = ReceiveTask("eth1", "", [LEG], 9, capture_filter="udp")
    counts = [asdict(ReceiveCount(0, "xdp", 100, 6000)), asdict(ReceiveCount(0, "netsniff-ng", captured, 1))]
    made.take(
        {"event": "counts", "rank": 2, "counts": counts, "interface": {**COUNTERS, "rx_packets": 100}, "captures": []}
    )
    assert bool(made.doubts()) == doubted


def test_users_that_do_not_add_up_are_a_doubt() -> None:
    leg = replace(LEG, users={"field": "udp.src", "by": "src_port", "first": 1, "step": 1, "count": 2})
    made = ledger(leg=leg)
    for third, doubts in ((0, []), (1, ["s from tx1: its users' received packets add up to 101, the stream has 100"])):
        columns = {name: users.pack([60, 40, third]) for name in users.COLUMNS}
        told(made, 2, asdict(ReceiveCount(0, "xdp", 100, 6000, users=columns)), rx_packets=100)
        assert made.doubts() == doubts


@pytest.mark.parametrize(
    ("heard_ns", "words"),
    [
        (999, "last heard before the start"),
        (2_500_001_000, "last heard 2.50 s after the start; its interface had sent 1,280 packets by its last sample"),
    ],
)
def test_a_lost_node_is_told_with_when_it_was_last_heard_and_what_it_had_sent(heard_ns: int, words: str) -> None:
    made = ledger(sent=None)
    made.take({"event": "sample", "rank": 1, "at_ns": 2_000, "interface": {**COUNTERS, "tx_packets": 1280}})
    made.take({"event": "lost", "rank": 1, "problem": "cannot be reached any more", "heard_ns": heard_ns})
    code, reason = status(made)
    assert (code, reason) == (3, f"tx1 (transmit): cannot be reached any more ({words})")


def test_a_failed_capture_costs_no_count_and_is_told() -> None:
    made = ledger()
    count = asdict(ReceiveCount(0, "xdp", 100, 6000, 12_050, 1_000_012_050))
    problems = {"problems": ["netsniff-ng: exit 1"]}
    counters = {**COUNTERS, "rx_packets": 100}
    made.take({"event": "counts", "rank": 2, "counts": [count], "interface": counters, "captures": [], **problems})
    assert [row.received for row in made.rows()] == [100]
    assert status(made, loss=0) == (3, "rx1 (receive): netsniff-ng: exit 1")


def test_the_instances_of_a_trace_are_one_row_over_all_of_their_time() -> None:
    """They begin a part of a period apart: what all sent was not sent in the time of the longest."""
    second = 1_000_000_000
    rows = {
        number: Row(
            replace(LEG, id=number, kind="trace", counted_with=0 if number else None),
            engine="xdp",
            sent=101,
            late=number,
            seconds=4.0,
            left_ns=number * second,
        )
        for number in range(4)
    }
    (row,) = fold(rows)
    assert (row.sent, row.late, row.seconds, row.left_ns) == (404, 6, 7.0, 0)
    assert stream_values(row)["sent_pps"] == round(403 / 7, 1)


def test_a_rate_is_of_as_many_packets_as_its_time_is_of() -> None:
    """xdp tells when the first and the last frame left, trafgen how long it took."""
    rates = [stream_values(Row(LEG, engine=name, sent=101, seconds=1.0))["sent_pps"] for name in ("xdp", "trafgen")]
    assert rates == [100, 101]
