"""Samples of a run: as they travel, and as rows of samples.csv."""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import Any

from pktswarm.master.results import samples
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.interface_sampler import STAT, Meter, busy_ms
from pktswarm.traffic.counting.samples import RECEIVED, SENT, pack, unpack
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank_events import Sample
from run_events import as_event, packed

LEGS = {7: Leg(7, "s", "tx1", "rx1", "stream"), 8: Leg(8, "s", "tx1", "rx1", "trace", merged_into=7, background=True)}
INTERFACE = {"tx_packets": 5, "tx_bytes": 300, "rx_packets": 1, "rx_bytes": 60, "rx_dropped": 0}


def rows(legs: dict[int, dict[str, int | None]] | None = None, **interface: int) -> list[dict[str, Any]]:
    counters = {**INTERFACE, **interface}
    event = as_event({"event": "sample", "rank": 1, "at_ns": 0, "interface": counters, **packed(legs or {})})
    assert isinstance(event, Sample)
    made = samples.rows(event, "tx1", "transmit", 12, LEGS)
    return [dict(zip(samples.COLUMNS, row, strict=True)) for row in made]


def test_an_interface_has_a_row_without_a_stream() -> None:
    (row,) = rows(link_downs=2, cpu_busy_ms=1250)
    assert (row["time_ns"], row["node"], row["tx_packets"], row["rx_dropped_packets"]) == (12, "tx1", 5, 0)
    assert (row["link_downs"], row["cpu_busy_s"]) == (2, 1.25)
    assert row["stream"] is None and row["sent_packets"] is None and row["group"] is None


def test_a_stream_has_what_its_engine_tells_and_no_more() -> None:
    sent = rows({7: {"sent_packets": 4, "sent_bytes": 240}})[1]
    assert (sent["stream"], sent["from"], sent["to"], sent["sent_packets"]) == ("s", "tx1", "rx1", 4)
    assert (sent["sent_bytes"], sent["group"]) == (256, "target")  # with FCS
    assert sent["received_packets"] is None and sent["tx_packets"] is None and sent["link_downs"] is None
    received = rows({7: {"packets": 3, "bytes": 180, "missing": 1, "altered": None}})[1]
    assert (received["received_packets"], received["received_bytes"], received["missing_packets"]) == (3, 192, 1)
    assert received["altered_packets"] is None and received["sent_packets"] is None
    assert received["latency_packets"] is None


def test_latencies_are_told_as_a_sum_so_that_the_mean_of_any_time_can_be_made() -> None:
    told = {"packets": 3, "bytes": 180, "latency_packets": 3, "latency_sum_ns": -30, "latency_min_ns": -20}
    row = rows({7: {**told, "latency_max_ns": 5}})[1]
    names = ("packets", "sum_ns", "min_ns", "max_ns")
    assert [row[f"latency_{name}"] for name in names] == [3, -30, -20, 5]


def test_what_is_counted_with_another_leg_is_in_its_row() -> None:
    _, row = rows({8: {"sent_packets": 4, "sent_bytes": 240}, 7: {"sent_packets": 1, "sent_bytes": 60}})
    assert (row["sent_packets"], row["sent_bytes"], row["group"]) == (5, 300 + 5 * 4, "target")
    _, row = rows({7: {"sent_packets": 1, "sent_bytes": 60}, 8: {"sent_packets": 4}})
    assert (row["sent_packets"], row["sent_bytes"]) == (5, None)


def test_a_node_that_echoes_tells_both_ways_and_nothing_is_changed_underway() -> None:
    legs: dict[int, dict[str, int | None]] = {
        3: dict(zip(RECEIVED, range(len(RECEIVED)), strict=True)),
        4: {"packets": 1, "bytes": 60, "missing": None, "duplicated": 2},
        5: {"sent_packets": 9, "sent_bytes": None},
    }
    sent, received = pack(legs)
    assert sent == [[5, 9]] and received[1] == [4, 1, 60, None, 2]
    assert unpack(received, RECEIVED)[3] == legs[3]
    assert unpack(received, RECEIVED)[4] == dict.fromkeys(RECEIVED) | legs[4]
    assert unpack(sent, SENT) == {5: legs[5]}


def test_processors_are_busy_with_all_but_idling_and_waiting() -> None:
    stat = "cpu  100 20 30 1000 500 4 5 6 77 88\ncpu0 50 10 15 500 250 2 2 3 33 44\nintr 5\n"
    assert busy_ms(stat) == 165 * 10
    assert 0 < busy_ms(STAT.read_text()) <= busy_ms(STAT.read_text())


def test_a_meter_reads_what_the_interface_says_each_time_anew() -> None:
    meter, interface = Meter("lo"), Interface("lo")
    told = meter.read()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(5):
            sender.sendto(b"x" * 100, ("127.0.0.1", 9))
    before, again, after = asdict(interface.counters()), meter.read(), asdict(interface.counters())
    assert set(again) == {*before, "link_downs", "link_ups", "cpu_busy_ms", "mtu"} and again["mtu"] == interface.mtu
    assert all(before[name] <= again[name] <= after[name] for name in before)
    assert again["tx_packets"] >= told["tx_packets"] + 5 and again["cpu_busy_ms"] >= told["cpu_busy_ms"]
