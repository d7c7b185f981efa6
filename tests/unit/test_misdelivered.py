"""What came to a receiver that it was not for: told by stream where stamps tell, else by the interface's counter."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.document import RunInputs
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_events import Rank0Event
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount
from run_events import as_event

LEGS = [Leg(n, "s", "tx1", to, "stream", engine="xdp", intended_packets=500) for n, to in enumerate(("rx1", "rx2"))]
COUNTERS = dict.fromkeys(("tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_dropped"), 0)
INPUTS: RunInputs = {
    "name": "",
    "scenario_file": "",
    "hosts_file": "",
    "scenario": {},
    "inventory": [],
    "legs": [],
}


def run(rx2: dict[str, int] | None, rx2_packets: int, stamped: bool = True, **task: Any) -> Ledger:
    """`rx2`: what it tells of others' streams; `rx2_packets`: what its interface took."""
    hosts = [Host(name, "", ("receive",), traffic_interface="eth1") for name in ("rx1", "rx2")]
    hosts.append(Host("tx1", "", ("transmit",), traffic_interface="eth1"))
    made = Ledger([Rank(n, host, host.roles[0]) for n, host in enumerate(hosts, 1)])
    legs = LEGS if stamped else [replace(leg, engine="trafgen") for leg in LEGS]
    receives = {leg.target: ReceiveTask("eth1", "", [leg], 9, **task) for leg in legs}
    made.resolved = Resolved(legs, receives=receives)
    made.take(as_event({"event": "start", "at_ns": 0, "utc_ns": 0}))
    for rank, leg, told, packets in ((1, legs[0], {}, 501), (2, legs[1], rx2, rx2_packets)):
        tally = {"packets": 500, "bytes": 30_000} | ({"distinct": 500, "duplicated": 0} if stamped else {})
        count = ReceiveCount(leg.id, "xdp", 500, 30_000, tally=tally, misdelivered=told if stamped else None)
        made.take(counts(rank, [asdict(count)], rx_packets=packets))
    made.take(counts(3, [asdict(SendCount(leg.id, leg.engine, 500)) for leg in legs], tx_packets=1000))
    made.take(as_event({"event": "phase", "name": "over", "at_ns": 5}))
    return made


def counts(rank: int, told: list[dict[str, Any]], **counters: int) -> Rank0Event:
    return as_event(
        {"event": "counts", "rank": rank, "counts": told, "interface": {**COUNTERS, **counters}, "captures": []}
    )


def notes(made: Ledger) -> list[str]:
    outcome = made.outcome(Expect(loss=0, sent="intended"), INPUTS)
    assert outcome.status == 0 and outcome.document["doubts"] == []
    return list(outcome.document["notes"])


def test_a_run_in_which_all_came_where_it_should_says_so_in_the_column_only() -> None:
    made = run({}, 501)
    assert [stream_values(row)["misdelivered_packets"] for row in made.rows()] == [0, 0]
    assert notes(made) == []


def test_what_came_to_another_receiver_is_told_by_stream_and_no_part_of_what_was_received() -> None:
    made = run({"0": 480}, 981)
    rows = [stream_values(row) for row in made.rows()]
    assert [row["misdelivered_packets"] for row in rows] == [480, 0]
    assert [(row["received_packets"], row["lost_packets"]) for row in rows] == [(500, 0), (500, 0)]
    assert notes(made) == ["s: 480 packets for rx1 arrived at rx2"]


def test_of_frames_without_stamps_the_interface_tells() -> None:
    made = run(None, 1000, stamped=False)
    assert [stream_values(row)["misdelivered_packets"] for row in made.rows()] == [None, None]
    assert notes(made) == ["rx2 (receive): 500 frames that arrived at eth1 belong to none of its streams"]


@pytest.mark.parametrize("task", [{"filter": "udp"}, {"proxy_addresses": ["10.0.0.9"]}])
def test_a_receiver_that_takes_a_part_only_or_talks_itself_tells_nothing(task: dict[str, Any]) -> None:
    assert notes(run(None, 1000, stamped=False, **task)) == []


def test_a_few_frames_more_are_any_networks() -> None:
    assert notes(run(None, 600, stamped=False)) == []


def test_who_does_not_look_for_stamps_says_nothing_of_them() -> None:
    made = run(None, 501)
    assert [stream_values(row)["misdelivered_packets"] for row in made.rows()] == [None, 0]
