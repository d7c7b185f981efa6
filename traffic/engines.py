"""Which sender can do what: the choice for each leg, told with its reason; and what becomes of a leg's frames in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from traffic import pktgen, schedule, stamp
from traffic.frames import build_frame
from traffic.task import Leg
from traffic.template import Template

AUTO_ORDER = ("pktgen", "trafgen", "tcpreplay")
"""`auto` takes the first that can send the leg on that node; xdp, which is new, has to be asked for by name."""
TRAFGEN_LIST_FRAMES = 4096
TRAFGEN_LIST_BYTES = 16 * 2**20
"""trafgen sends from a list of ready frames: this long at most, whichever comes first."""


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


def templates_as_sent(leg: Leg) -> dict[int, Template]:
    """Size with FCS → what the frames of a stream look like on the wire, by the engine that sends them."""
    if leg.engine == "pktgen":
        return {size: build_frame(pktgen.as_sent(leg), size) for size in pktgen.sizes_bytes(leg)}
    if leg.engine == "xdp":
        return {size: _stamped(leg, build_frame(leg.frame, size)) for size, _ in schedule.sizes_bytes(leg)}
    return {leg.size_bytes: build_frame(leg.frame, leg.size_bytes)}


def _stamped(leg: Leg, template: Template) -> Template:
    """The stamp differs from frame to frame, and with it the checksum over the payload."""
    if not schedule.stamped(leg):
        return template
    start = stamp.payload_offset(leg.frame["headers"])
    varying = bytearray(template.varying_mask)
    varying[start : start + stamp.PLAIN_BYTES] = b"\xff" * stamp.PLAIN_BYTES
    for checksum in template.checksums:
        if checksum.covers(start, start + stamp.PLAIN_BYTES):
            varying[checksum.offset_bytes : checksum.offset_bytes + 2] = b"\xff\xff"
    return replace(template, varying_mask=bytes(varying))


def trafgen_list_frames(size_bytes: int) -> int:
    """How many frames of that size trafgen's list holds."""
    return max(1, min(TRAFGEN_LIST_FRAMES, TRAFGEN_LIST_BYTES // size_bytes))


def _trafgen(leg: Leg) -> str:
    if leg.kind != "stream":
        return "it replays no traces with their timing"
    if leg.options:
        return f"it has no option {next(iter(leg.options))!r}"
    period, longest = _period(leg.frame, leg.size_bytes), trafgen_list_frames(leg.size_bytes)
    if period > longest:
        return f"its counters repeat after {period} frames, and its list holds {longest} of {leg.size_bytes} bytes"
    return ""


def _period(frame: dict[str, Any], size_bytes: int) -> int:
    return build_frame(frame, size_bytes).period


def _tcpreplay(leg: Leg) -> str:
    return "" if leg.kind == "trace" else "it sends traces only"


RULES: dict[str, Callable[[Leg], str]] = {
    "xdp": schedule.unable,
    "pktgen": pktgen.unable,
    "trafgen": _trafgen,
    "tcpreplay": _tcpreplay,
}
