"""Results of N4 as a run has them."""

from __future__ import annotations

from typing import Any


def operation(requested: int, p50_ns: int) -> dict[str, Any]:
    response = {"count": 5, "min_ns": 1, "mean_ns": 2.0, "p50_ns": p50_ns, "p99_ns": 3_000_000, "max_ns": 4_000_000}
    counts = {"requested": requested, "accepted": 4, "failed": 1, "failures": {"no resources available (75)": 1}}
    more = {"outstanding": 0, "repeated": 0, "late": 0, "other_seid": 0, "seconds": 1.0, "per_s": 5.0}
    return {**counts, **more, "response": response}


def n4(p50_ns: int = 2_500_000) -> Any:
    user = {
        "group": "users",
        "state": "deleted",
        "local_seid": 1,
        "remote_seid": 2,
        "ue_v4": "10.45.0.1",
        "ue_v6": None,
        "uplink_teid": 1,
        "upf": "198.51.100.1",
        "downlink_teid": 2,
        "gnb": "g",
    }
    group = {"name": "users", "states": {"deleted": 5}, "first": user, "last": user, "usage_reports": 0}
    group |= {"uplink_bytes": None, "downlink_bytes": None, "total_bytes": None, "sessions": 5, "notifications": 0}
    return {
        "upf": {"n4": "192.0.2.2", "node_id": "upf.example", "features": ""},
        "groups": [group],
        "operations": {"establishment": operation(5, p50_ns)},
        "heartbeats": {**operation(3, p50_ns), "accepted": 3},
        "heartbeats_answered": 2,
        "events": [{"unix_ns": 1, "kind": "gone", "words": "no response for 3.0 s"}],
    }
