"""The choice of an engine for each leg, and the limits of every engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from functools import partial

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import ANY_FIELD_ENGINE, FIELD_ENGINES, MADE_IN_KERNEL, Leg
from pktswarm.traffic.schedule import leg_frames, pktgen_limits, xdp_limits
from pktswarm.traffic.schedule.records import MAX_LEGS

AUTO_ORDER = (*FIELD_ENGINES, "pktgen", "trafgen", "tcpreplay")
"""`auto` takes the first engine that can send the leg on the node."""
TRAFGEN_LIST_FRAMES = 4096
TRAFGEN_LIST_BYTES = 16 * 2**20
"""Limits of the list of ready frames that trafgen sends; the lower one counts."""


def choose(leg: Leg, missing: dict[str, str], on_request: Container[str] = ()) -> tuple[str, list[str]]:
    """The engine for `leg` on a node that reports `missing` (engine → why not, "" if it is there), and `on_request`:
    those of them that work where the leg names them.

    Returns (name, reasons against the engines before it); the name is empty if none can.
    """
    wanted = order(leg)
    reasons: list[str] = []
    for name in wanted:
        lacks = "" if leg.engine == name in on_request else missing.get(name, "unknown engine")
        why_not = unable(name, leg) or lacks
        if not why_not:
            return name, reasons
        reasons.append(f"{name}: {why_not}")
    return "", reasons


def order(leg: Leg) -> tuple[str, ...]:
    """The engines to try. With `auto`, tcpreplay sends a source, as ready frames, only where the scenario names it."""
    if leg.engine == ANY_FIELD_ENGINE:
        return FIELD_ENGINES
    if leg.engine != "auto":
        return (leg.engine,)
    return AUTO_ORDER if leg.sequence_file is None else AUTO_ORDER[:-1]


def unable(engine: str, leg: Leg) -> str:
    """Why `engine` cannot send `leg`, whatever the node; empty when it can."""
    if leg.kind == "connections" and engine != "socket":
        return "cannot make connections"
    if leg.sequence_file is not None and engine not in (*FIELD_ENGINES, "tcpreplay"):
        return "cannot send frames with times, users and sizes of their own"
    if engine not in FIELD_ENGINES and (leg.rates or leg.gap_table):
        return "sends at a steady rate only"
    if engine not in FIELD_ENGINES and leg.held:
        return "cannot start a stream while others are sent"
    return RULES[engine](leg)


def check_numbers(legs: Iterable[Leg]) -> None:
    """BadInput for a transmitter with more legs than a field engine takes."""
    by_source = Counter(leg.source for leg in legs if leg.engine in MADE_IN_KERNEL and leg.echo_of is None)
    for source, number in by_source.items():
        if number > MAX_LEGS:
            problem, allowed = "too many streams and traces for one interface", f"up to {MAX_LEGS}"
            raise BadInput(source, problem, key="streams", value=number, allowed=allowed)


def trafgen_list_frames(size_bytes: int) -> int:
    """The maximum number of frames of that size in trafgen's list."""
    return max(1, min(TRAFGEN_LIST_FRAMES, TRAFGEN_LIST_BYTES // size_bytes))


def trafgen_list_length(template: Template) -> int:
    """The length of trafgen's list: whole rounds of every counter; with random fields as many as fit."""
    period, longest = template.period, trafgen_list_frames(len(template.data))
    return longest // period * period if template.is_random else period


def _trafgen(leg: Leg) -> str:
    if leg.kind != "stream":
        return "sends streams only"
    if leg.options:
        return f"unknown option {next(iter(leg.options))!r} (allowed: none)"
    if leg.sizes:
        return "sends frames of one size only"
    if leg.rate_pps is None and leg.count_packets is not None and leg.duration_s is not None:
        return "without a rate it takes count_packets or duration_s, not both"
    period, longest = build_frame(leg.frame, leg.size_bytes).period, trafgen_list_frames(leg.size_bytes)
    if period > longest:
        return f"the fields repeat after {period} frames: the maximum is {longest} frames of {leg.size_bytes} bytes"
    return ""


def _tcpreplay(leg: Leg) -> str:
    if leg.sequence_file is not None:
        return f"unknown option {next(iter(leg.options))!r} (allowed: none)" if leg.options else ""
    if leg.kind != "trace":
        return "sends traces only"
    return "cannot stamp frames" if leg_frames.stamped(leg) else ""


def _interactive(leg: Leg) -> str:
    return "" if leg.engine == "interactive" else "sends traces with interactive: true only"


def _socket(leg: Leg) -> str:
    return "" if leg.kind == "connections" else "makes connections only"


RULES: dict[str, Callable[[Leg], str]] = {
    "xdp": xdp_limits.unable,
    "tc": partial(xdp_limits.unable, engine="tc"),
    "pktgen": pktgen_limits.unable,
    "trafgen": _trafgen,
    "tcpreplay": _tcpreplay,
    "interactive": _interactive,
    "socket": _socket,
}
