"""Events of rank 0 as a ledger takes them, from the fields that a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pktswarm.master.results.document import RunInputs
from pktswarm.traffic.counting.samples import Figures, pack
from pktswarm.traffic.protocol.codec import from_fields
from pktswarm.traffic.protocol.node_report import NodeReport
from pktswarm.traffic.protocol.rank0_events import Rank0Event, decode_rank0_event

REPORT = {
    "hostname": "host",
    "kernel": "6.1.0",
    "machine": "x86_64",
    "cpus": 4,
    "python": "3.11",
    "pktswarm": "1",
    "interface": {"name": "eth1", "exists": True},
    "senders": {},
    "receivers": {},
    "versions": {},
}
REST: dict[str, dict[str, Any]] = {
    "hello": {"host": "host", "role": "transmit"},
    "clock": {"when": "start"},
    "counts": {"problems": [], "played": None, "interface": None, "captures": []},
    "lost": {"silent_s": 5.0, "heard_ns": 0},
    "sample": {"sent": [], "received": [], "utc": None},
}
"""The fields that a test may leave out."""
NO_INPUTS: RunInputs = {
    "name": "",
    "scenario_file": "",
    "hosts_file": "",
    "scenario": {},
    "inventory": [],
    "legs": [],
}


def as_event(fields: dict[str, Any]) -> Rank0Event:
    fields = {**REST.get(fields["event"], {}), **fields}
    for key in ("utc", "reading"):
        if fields.get(key):
            fields[key] = {"was_set": False, **fields[key]}
    if "report" in fields:
        fields["report"] = {**REPORT, **fields["report"]}
        fields["report"]["interface"] = {"exists": True, **fields["report"]["interface"]}
    return decode_rank0_event(fields)


def packed(legs: Mapping[int, Figures]) -> dict[str, Any]:
    """The figures of a sample."""
    return dict(zip(("sent", "received"), pack(legs), strict=True))


def node_report(**fields: Any) -> NodeReport:
    fields = {**REPORT, **fields}
    fields["interface"] = {"name": "eth1", "exists": True, **fields["interface"]}
    return from_fields(NodeReport, fields, "report")
