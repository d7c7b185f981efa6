"""Which sender can do what: the choice for each leg, told with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traffic.task import Leg

AUTO_ORDER = ("pktgen", "trafgen", "tcpreplay")
"""`auto` takes the first that can send the leg on that node."""


def choose(leg: Leg, missing: dict[str, str]) -> tuple[str, list[str]]:
    """The engine for `leg` on a node that reports `missing` (engine → why not, "" if it is there).

    Returns (name, reasons why those before it were passed over); the name is empty if none can.
    """
    wanted = AUTO_ORDER if leg.engine == "auto" else (leg.engine,)
    reasons: list[str] = []
    for name in wanted:
        why_not = unable(name, leg) or missing.get(name, "this version has no such engine")
        if not why_not:
            return name, reasons
        reasons.append(f"{name}: {why_not}")
    return "", reasons


def unable(engine: str, leg: Leg) -> str:
    """Why `engine` cannot send `leg`, whatever the node; empty when it can."""
    return RULES[engine](leg)


def _headers(leg: Leg) -> list[tuple[str, dict[str, Any]]]:
    return [(name, fields or {}) for header in leg.frame.get("headers", []) for name, fields in header.items()]


def _trafgen(leg: Leg) -> str:
    return "" if leg.kind == "stream" else "it replays no traces with their timing"


def _tcpreplay(leg: Leg) -> str:
    return "" if leg.kind == "trace" else "it sends traces only"


def _pktgen(leg: Leg) -> str:
    if leg.kind != "stream":
        return "it sends no traces"
    return ""


RULES: dict[str, Callable[[Leg], str]] = {"pktgen": _pktgen, "trafgen": _trafgen, "tcpreplay": _tcpreplay}
