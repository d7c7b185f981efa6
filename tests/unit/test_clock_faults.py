"""Clocks that were set or ran away during a run: what is left out of its results, what stays, and what is said of it.

Recorded are the readings of a run: before, at its start, with each sample, and after it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.connections.counts import EndCount, ReceivedCount, SentCount
from pktswarm.traffic.connections.counts import values as connection_values
from pktswarm.traffic.counting import users
from pktswarm.traffic.leg import ConnectionShape, FlowUsers, Leg
from pktswarm.traffic.protocol.rank0_events import Rank0Event
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount
from run_events import NO_INPUTS, as_event

S = 1_000_000_000
UTC_NS = 1_700_000_000 * S
LEG = Leg(0, "s", "tx1", "rx1", "stream", engine="xdp", intended_packets=100)
COUNTERS = dict.fromkeys(("tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_dropped"), 100)
LATENCY = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 3000) | {"mean_ns": 3000.0}
TALLY = {
    **{"packets": 100, "bytes": 6000, "distinct": 100, "duplicated": 0, "reordered": 0, "altered": 0},
    "latency": {"frames": 100, **LATENCY},
    "jitter": {"pairs": 99, "sd_ns": 12.6, "rfc3550_ns": 9.4},
}
OWN = (0, 0, 0, 0, 0)
"""What a clock says at READ_S beyond what it says at the first: nothing."""
READ_S = (-1, 0, 1, 2, 4)
"""Before, at the start, two samples, and after. The sending ends at 3 s."""


def run(
    leg: Leg = LEG,
    utc: dict[str, tuple[int, ...]] | None = None,
    offsets: dict[str, tuple[int, ...]] | None = None,
    tai: bool = False,
    engine: str = "",
    **came: Any,
) -> Ledger:
    """As its events told it. `utc`, `offsets`: host → by how much its UTC, and its CLOCK_MONOTONIC, had moved at each
    of READ_S."""
    hosts = [Host("tx1", "10.0.0.1", ("transmit",), traffic_interface="eth1")]
    hosts.append(Host("rx1", "10.0.0.2", ("receive",), traffic_interface="eth1"))
    made = Ledger([Rank(1, hosts[0], "transmit"), Rank(2, hosts[1], "receive")])
    made.resolved = Resolved([leg], receives={"rx1": ReceiveTask("eth1", "", [leg], 9, tai=tai)})
    for place, at_s in enumerate(READ_S):
        if at_s == 0:
            made.take(as_event({"event": "start", "at_ns": 0, "utc_ns": UTC_NS}))
            made.take(as_event({"event": "phase", "name": "send", "at_ns": 0}))
        if at_s == 4:
            made.take(as_event({"event": "phase", "name": "drain", "at_ns": 3 * S}))
        for rank, host in ((1, "tx1"), (2, "rx1")):
            moved_ns, set_ns = (one.get(host, OWN)[place] for one in (offsets or {}, utc or {}))
            when = {-1: "before", 0: "start", 4: "after"}.get(at_s)
            made.take(reading(rank, at_s * S, when, moved_ns, UTC_NS + set_ns))
    sent = asdict(SendCount(0, engine or leg.engine, 100, 6000, seconds=2.5))
    received = asdict(ReceiveCount(0, "xdp", 100, 6000, **{"tally": TALLY, **came}))
    for rank, count in ((1, sent), (2, received)):
        made.take(as_event({"event": "counts", "rank": rank, "counts": [count], "interface": COUNTERS, "captures": []}))
    made.take(as_event({"event": "phase", "name": "over", "at_ns": 5 * S}))
    return made


def reading(rank: int, at_ns: int, when: str | None, offset_ns: int, utc_ns: int) -> Rank0Event:
    if when is None:
        utc = {"realtime_minus_monotonic_ns": utc_ns, "within_ns": 300}
        return as_event({"event": "sample", "rank": rank, "at_ns": at_ns + offset_ns, "interface": {}, "utc": utc})
    clock = {
        "at_ns": at_ns,
        "offset_ns": offset_ns,
        "bound_ns": 20_000,
        "round_trip_ns": 40_000,
        "realtime_minus_monotonic_ns": utc_ns,
    }
    return as_event({"event": "clock", "rank": rank, "when": when, **clock})


def outcome(made: Ledger) -> Outcome:
    return made.outcome(Expect(loss=0, sent="intended"), NO_INPUTS)


def values(made: Ledger) -> StreamRow:
    (row,) = made.rows()
    return stream_values(row)


def notes(made: Ledger) -> list[str]:
    return list(outcome(made).document["notes"])


STEP: dict[str, tuple[int, ...]] = {"tx1": (0, 0, 0, 2 * S, 2 * S)}
SAID = "tx1: its UTC was set by +2.000000 s in all between 1.00 s and 2.00 s after the start"


def test_a_run_whose_clocks_were_left_alone_has_all_its_figures_and_says_nothing() -> None:
    made = run()
    assert values(made)["latency_min_ns"] == 3000 and values(made)["jitter_sd_ns"] == 13
    assert notes(made) == [] and outcome(made).status == 0


@pytest.mark.parametrize("utc", [STEP, {"rx1": STEP["tx1"]}, {"tx1": STEP["tx1"], "rx1": STEP["tx1"]}])
def test_stamps_of_the_clock_that_nobody_can_set_stand_and_the_step_is_told(utc: dict[str, tuple[int, ...]]) -> None:
    made = run(utc=utc)
    assert values(made) == values(run())
    assert notes(made) == [SAID.replace("tx1", host) for host in ("tx1", "rx1") if host in utc]


@pytest.mark.parametrize(("moved_ns", "told"), [(-2 * S, True), (90_000_000, False)])
def test_the_masters_own_utc_is_in_the_log_only(moved_ns: int, told: bool) -> None:
    made = run()
    made.look_at_master_utc(5 * S, UTC_NS + moved_ns)
    words = "the master: its UTC was set by -2.000000 s in all between 0.00 s and 5.00 s after the start"
    words += "; so are the times in the log"
    assert notes(made) == ([words] if told else [])
    assert values(made) == values(run()) and outcome(made).status == 0


@pytest.mark.parametrize("back", [0, 2 * S])
def test_pktgens_times_are_of_its_nodes_utc_and_are_left_out(back: int) -> None:
    # Also where it was set back before the last reading: the samples have seen it.
    made = run(replace(LEG, engine="pktgen"), {"tx1": (0, 0, 0, 2 * S, 2 * S - back)})
    told = values(made)
    assert not [name for name in told if name.startswith(("latency_m", "latency_p", "jitter_"))]
    assert (told["lost_packets"], told["received_packets"], told["duplicated_packets"]) == (0, 100, 0)
    assert {f"left out of s: {what}, because tx1's UTC was set" for what in ("latency", "jitter")} < set(notes(made))
    assert SAID in notes(made) and outcome(made).status == 0


def test_utc_set_at_the_receiver_is_nothing_to_pktgens_times() -> None:
    made = run(replace(LEG, engine="pktgen"), {"rx1": STEP["tx1"]})
    assert values(made)["latency_min_ns"] == 3000


@pytest.mark.parametrize("host", ["tx1", "rx1"])
def test_stamps_that_ptp_steers_stand_on_the_utc_of_both(host: str) -> None:
    made = run(utc={host: STEP["tx1"]}, tai=True)
    assert "latency_min_ns" not in values(made) and "jitter_sd_ns" not in values(made)
    assert {f"left out of s: {what}, because {host}'s UTC was set" for what in ("latency", "jitter")} < set(notes(made))


def test_a_step_of_microseconds_may_be_seconds_there_and_back_and_costs_as_much() -> None:
    made = run(replace(LEG, engine="pktgen"), {"tx1": (0, 0, 0, -700, -700)})
    assert "latency_min_ns" not in values(made) and "jitter_sd_ns" not in values(made)
    assert {f"left out of s: {what}, because tx1's UTC was set" for what in ("latency", "jitter")} < set(notes(made))


def test_times_of_users_are_left_out_as_their_streams_are() -> None:
    leg = replace(LEG, engine="pktgen", users=FlowUsers(field="udp.src", by="src_port", first=1, step=1, count=1))
    columns = {name: users.pack([100, 0]) for name in users.COLUMNS}
    for utc, timed in (({}, True), (STEP, False)):
        (row,) = run(leg, utc, users=columns).rows()
        assert row.users is not None
        assert ("latency_min_ns" in row.users.row(0)) == timed
        assert (row.users.latency_means_ns() != [None]) == timed
        assert row.users.row(0)["received_packets"] == 100


def test_the_kernels_utc_times_are_left_out_and_those_of_our_own_clock_stand() -> None:
    times: dict[str, Any] = {"first_ns": UTC_NS + S, "last_ns": UTC_NS + 3 * S}
    made = run(utc={"rx1": STEP["tx1"]}, tally=None, **times)
    row = values(made)
    assert (row["first_ns"], row["last_ns"], row["received_pps"]) == (None, None, None)
    assert "left out of s: first and last arrival, because rx1's UTC was set" in notes(made)
    # What xdp counted on its own clock and told as UTC when it was over, 2 s further on.
    later = {name: at_ns + 2 * S for name, at_ns in times.items()} | {"utc_less_monotonic_ns": UTC_NS + 2 * S}
    made = run(utc={"rx1": STEP["tx1"]}, **later)
    row = values(made)
    assert (row["first_ns"], row["last_ns"], row["received_pps"]) == (S, 3 * S, 49.5)


@pytest.mark.parametrize(("engine", "known"), [("trafgen", False), ("tcpreplay", False), ("pktgen", True)])
def test_seconds_that_an_engine_took_by_utc_are_left_out(engine: str, known: bool) -> None:
    made = run(replace(LEG, engine=engine), STEP, engine=engine)
    assert values(made)["sent_packets"] == 100
    assert (values(made)["sent_pps"] is not None) == known
    assert ("left out of s: the send rate, because tx1's UTC was set" in notes(made)) != known


def test_a_datagrams_time_is_the_kernels_utc() -> None:
    connection = ConnectionShape(protocol="udp")
    leg = replace(LEG, kind="connections", engine="socket", connection=connection)
    received = ReceivedCount(5, 500, 5, goodput_bps=9.0, delay_blocks=5, jitter_sd_ns=7.0)
    received = replace(received, delay_min_ns=1, delay_mean_ns=2.0, delay_max_ns=3, first_ns=S, last_ns=2 * S)
    for utc, timed in (({}, True), ({"rx1": STEP["tx1"]}, False)):
        made = run(leg, utc, tally=None)
        made.nodes[1].connections[0] = EndCount(SentCount(sent_blocks=5, sent_bytes=500, datagrams=5))
        made.nodes[2].connections[0] = EndCount(None, received, realtime_minus_monotonic_ns=UTC_NS + 2 * S)
        (row,) = made.connection_rows()
        told = connection_values(row)
        assert (told["received_blocks"], told["lost_datagrams"], told["first_ns"]) == (5, 0, S)
        assert ("delay_min_ns" in told, told["jitter_sd_ns"] is not None) == (timed, timed)


@pytest.mark.parametrize("host", ["tx1", "rx1"])
def test_a_clock_that_ran_away_costs_the_latencies_that_need_it(host: str) -> None:
    made = run(offsets={host: (0, 0, 0, 0, 900_000)})  # 180 ppm
    told = values(made)
    assert "latency_min_ns" not in told and told["lost_packets"] == 0
    moved = f"{host}: its clock moved by +900 µs against the master's within 4.0 s, more than clocks drift"
    assert moved in notes(made)
    why = f"because {host}'s clock drifted"
    assert {f"left out of s: {what}, {why}" for what in ("latency", "jitter")} < set(notes(made))
    assert outcome(made).status == 0
    assert made.faults().of_stamps(replace(LEG, echo_of=9), "rx1", False) == "", "sent and received by one clock"


def test_a_clock_that_drifts_as_clocks_do_is_removed_and_the_bound_tells_the_ends() -> None:
    latency = dict.fromkeys(LATENCY, 200_000) | {"frames": 100, "mean_ns": 2e5}
    made = run(offsets={"rx1": (-50_000, 0, 0, 0, 200_000)}, tally={**TALLY, "latency": latency})  # 50 ppm
    told = values(made)
    # Counted with the offset of 1 s before the start; in the middle of the sending it was 75 µs + 50 µs further on.
    assert told["latency_min_ns"] == 200_000 - 125_000
    bound_ns, usual_ns = told["latency_bound_ns"], values(run())["latency_bound_ns"]
    assert bound_ns is not None and usual_ns is not None and 75_000 <= bound_ns - usual_ns <= 80_000


def test_a_look_in_between_that_is_off_the_line_makes_the_bound_wider() -> None:
    made = run()
    before = values(made)["latency_bound_ns"]
    assert before is not None
    made.take(as_event({"event": "drift", "rank": 2, "at_ns": 2 * S, "offset_ns": 90_000, "bound_ns": 15_000}))
    assert values(made)["latency_bound_ns"] == before + 90_000 - 15_000 - 20_000


def test_a_latency_below_the_bound_of_the_clocks_is_refused_and_the_counts_stay() -> None:
    possible, impossible = ({"frames": 100, **LATENCY, "min_ns": least_ns} for least_ns in (-40_000, -40_001))
    assert values(run(tally={**TALLY, "latency": possible}))["latency_min_ns"] == -40_000
    made = run(tally={**TALLY, "latency": impossible})
    told = values(made)
    assert told["lost_packets"] == 0 and not {"latency_min_ns", "jitter_sd_ns"} & set(told)
    why = "its minimum of -40.0 µs is below the bound of -40.0 µs: the clocks of tx1 and rx1 are further apart"
    assert any(why in note for note in notes(made))


def test_pktgens_stamps_are_known_to_their_resolution_and_to_the_reading_of_utc() -> None:
    bounds_ns = [values(run(replace(LEG, engine=engine)))["latency_bound_ns"] for engine in ("xdp", "pktgen")]
    assert bounds_ns == [40_000, 40_000 + 1_000 + 40_000]
