"""Capacity files for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pktswarm.master.plan.capacity import path_of

NODE = {"kernel": "6.18.0", "driver": "veth", "speed_mbps": None}


def figure(node: str, rate_pps: float, size_bytes: int = 64, **more: Any) -> dict[str, Any]:
    """Of a transmitter by xdp, if nothing else is said."""
    role = "receive" if node.startswith("rx") else "transmit"
    mode = "count" if role == "receive" else ""
    made = {"node": node, "role": role, "engine": "xdp", "mode": mode, "size_bytes": size_bytes, "rate_pps": rate_pps}
    return {**made, "state": "confirmed", **NODE, "utc": "2026-01-01T00:00:00Z", **more}


def written(inventory: Path, *figures: dict[str, Any], **more: Any) -> Path:
    path = path_of(inventory)
    path.write_text(json.dumps({"format_version": 1, "wiring": "a test", "figures": figures, **more}))
    return path
