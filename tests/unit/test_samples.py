"""Samples of a run as rows of samples.csv."""

from __future__ import annotations

from typing import Any

from master import samples
from traffic.task import Leg

LEGS = {7: Leg(7, "s", "tx1", "rx1", "stream")}
INTERFACE = {"tx_packets": 5, "tx_bytes": 300, "rx_packets": 1, "rx_bytes": 60, "rx_dropped": 0}


def rows(**event: Any) -> list[dict[str, Any]]:
    made = samples.rows({"interface": INTERFACE, **event}, "tx1", "transmit", 12, LEGS)
    return [dict(zip(samples.COLUMNS, row, strict=True)) for row in made]


def test_an_interface_has_a_row_without_a_stream() -> None:
    (row,) = rows()
    assert (row["time_ns"], row["node"], row["tx_packets"], row["rx_dropped_packets"]) == (12, "tx1", 5, 0)
    assert row["stream"] is None and row["sent_packets"] is None


def test_a_stream_has_what_its_engine_tells_and_no_more() -> None:
    sent = rows(legs={"7": {"sent_packets": 4}})[1]
    assert (sent["stream"], sent["from"], sent["to"], sent["sent_packets"]) == ("s", "tx1", "rx1", 4)
    assert sent["received_packets"] is None and sent["tx_packets"] is None
    received = rows(legs={"7": {"packets": 3, "bytes": 180, "missing": 1, "altered": None}})[1]
    assert (received["received_packets"], received["received_bytes"], received["missing_packets"]) == (3, 180, 1)
    assert received["altered_packets"] is None and received["sent_packets"] is None
