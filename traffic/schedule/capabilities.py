"""Which sender can do what: the choice for each leg, told with its reason; and what becomes of a leg's frames in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import leg_frames, pktgen_limits, xdp_limits
from pktswarm.traffic.schedule.records import MAX_LEGS

AUTO_ORDER = ("xdp", "pktgen", "trafgen", "tcpreplay")
"""`auto` takes the first that can send the leg on that node."""
TRAFGEN_LIST_FRAMES = 4096
TRAFGEN_LIST_BYTES = 16 * 2**20
"""trafgen sends from a list of ready frames: this long at most, whichever comes first."""


def choose(leg: Leg, missing: dict[str, str]) -> tuple[str, list[str]]:
    """The engine for `leg` on a node that reports `missing` (engine → why not, "" if it is there).

    Returns (name, reasons why those before it were passed over); the name is empty if none can.
    """
    wanted = order(leg) if leg.engine == "auto" else (leg.engine,)
    reasons: list[str] = []
    for name in wanted:
        why_not = unable(name, leg) or missing.get(name, "this version has no such engine")
        if not why_not:
            return name, reasons
        reasons.append(f"{name}: {why_not}")
    return "", reasons


def order(leg: Leg) -> tuple[str, ...]:
    """What `auto` tries. A source is tcpreplay's, as ready frames, only where the scenario says so."""
    return AUTO_ORDER if leg.sequence_file is None else AUTO_ORDER[:-1]


def unable(engine: str, leg: Leg) -> str:
    """Why `engine` cannot send `leg`, whatever the node; empty when it can."""
    if leg.kind == "connections" and engine != "socket":
        return "it makes no connections"
    if leg.sequence_file is not None and engine not in ("xdp", "tcpreplay"):
        return "its frames have no times, users and sizes of their own"
    if engine != "xdp" and (leg.rates or leg.gap_table):
        return "it sends at a steady rate only"
    return RULES[engine](leg)


def check_numbers(legs: Iterable[Leg]) -> None:
    """BadInput for a transmitter with more legs for the engine xdp than that takes."""
    by_source = Counter(leg.source for leg in legs if leg.engine == "xdp" and leg.echo_of is None)
    for source, number in by_source.items():
        if number > MAX_LEGS:
            problem, allowed = "too many streams and traces for xdp on one interface", f"up to {MAX_LEGS}"
            raise BadInput(source, problem, key="streams", value=number, allowed=allowed)


def trafgen_list_frames(size_bytes: int) -> int:
    """How many frames of that size trafgen's list holds."""
    return max(1, min(TRAFGEN_LIST_FRAMES, TRAFGEN_LIST_BYTES // size_bytes))


def trafgen_list_length(template: Template) -> int:
    """How many frames trafgen goes round: every counter's round complete, and of random ones as many as fit."""
    period, longest = template.period, trafgen_list_frames(len(template.data))
    return longest // period * period if template.is_random else period


def _trafgen(leg: Leg) -> str:
    if leg.kind != "stream":
        return "it replays no traces with their timing"
    if leg.options:
        return f"it has no option {next(iter(leg.options))!r}"
    if leg.sizes:
        return "its frames have one size"
    if leg.rate_pps is None and leg.count_packets is not None and leg.duration_s is not None:
        return "it sends a number of frames, or for a time, and not what ends first"
    period, longest = build_frame(leg.frame, leg.size_bytes).period, trafgen_list_frames(leg.size_bytes)
    if period > longest:
        return f"its counters repeat after {period} frames, and its list holds {longest} of {leg.size_bytes} bytes"
    return ""


def _tcpreplay(leg: Leg) -> str:
    if leg.sequence_file is not None:
        return f"it has no option {next(iter(leg.options))!r}" if leg.options else ""
    if leg.kind != "trace":
        return "it sends traces only"
    return "it stamps no frames" if leg_frames.stamped(leg) else ""


def _interactive(leg: Leg) -> str:
    return "" if leg.engine == "interactive" else "it sends traces with interactive: true only"


def _socket(leg: Leg) -> str:
    return "" if leg.kind == "connections" else "it makes connections only"


RULES: dict[str, Callable[[Leg], str]] = {
    "xdp": xdp_limits.unable,
    "pktgen": pktgen_limits.unable,
    "trafgen": _trafgen,
    "tcpreplay": _tcpreplay,
    "interactive": _interactive,
    "socket": _socket,
}
