"""Load of each node in a plan relative to its measured capacity, and warnings where it exceeds the capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pktswarm.master.plan.capacity import Capacity, Limit
from pktswarm.master.scenario.addresses import with_placeholders
from pktswarm.traffic.leg import ANY_FIELD_ENGINE, Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, Role
from pktswarm.traffic.schedule.capabilities import order, unable
from pktswarm.traffic.schedule.leg_frames import sizes_bytes

if TYPE_CHECKING:
    from pktswarm.master.plan.shares import Share
    from pktswarm.master.scenario.receive import Receive
    from pktswarm.traffic.schedule.sequence import Records

RECEIVERS = ("xdp", "netsniff-ng")
"""Receiving engines in the order in which `auto` tries them."""
ROUNDING = 1e-6
"""Tolerance of shares: a share of up to 1 + ROUNDING is within the capacity."""


@dataclass(frozen=True)
class Planned:
    """Load that a leg puts on its nodes. `pps`: peak rate; None: unlimited or unknown. `sizes`: (bytes with FCS,
    weight)."""

    leg: Leg
    pps: float | None
    sizes: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class LegLimit:
    """One end of a leg: its rate, and the limit of its node for such frames with no other load."""

    leg: int
    stream: str
    node: str
    role: Role
    pps: float
    limit: Limit

    @property
    def share(self) -> float:
        """Fraction of the capacity of the node."""
        return self.pps / self.limit.rate_pps


@dataclass(frozen=True)
class Load:
    """Load of a node in one role: the sum over its legs."""

    node: str
    role: Role
    parts: tuple[LegLimit, ...]

    @property
    def share(self) -> float:
        return sum(one.share for one in self.parts)

    @property
    def pps(self) -> float:
        return sum(one.pps for one in self.parts)

    @property
    def possible_pps(self) -> float:
        """Capacity of the node for this mix of frames."""
        return self.pps / self.share

    @property
    def too_much(self) -> bool:
        return self.share > 1 + ROUNDING

    @property
    def least(self) -> bool:
        return any(one.limit.least for one in self.parts)

    @property
    def engines(self) -> str:
        return ", ".join(dict.fromkeys(one.limit.engine for one in self.parts))

    def describe(self) -> str:
        does = "send" if self.role == "transmit" else "receive"
        at_most = " or more" if self.least else ""
        return (
            f"{self.node} {does}s {self.pps:,.6g} packets/s, {self.share:.0%} of the {self.possible_pps:,.6g}{at_most} "
            f"that it was seen to {does} ({self.engines})"
        )

    def document(self) -> dict[str, Any]:
        figures = {"pps": self.pps, "possible_pps": self.possible_pps, "share": self.share, "at_least": self.least}
        return {"node": self.node, "role": self.role, "engines": self.engines, **figures}


def planned(legs: Iterable[Leg], shares: Mapping[int, Share], sequences: Mapping[int, Records]) -> list[Planned]:
    """Loads of the legs whose rate is known before the run: without connections, echoes and interactive traces."""
    return [
        _planned(leg, shares.get(leg.id), sequences.get(leg.id))
        for leg in legs
        if leg.kind != "connections" and leg.echo_of is None and leg.engine != "interactive"
    ]


def _planned(leg: Leg, share: Share | None, records: Records | None) -> Planned:
    if share is not None:
        size = share.frame_bytes / len(share.rows) + FCS_BYTES
        return Planned(leg, _trace_pps(leg, share, size), ((size, 1.0),))
    if records is not None:
        size = float(records["frame_bytes"].mean()) + FCS_BYTES if len(records) else float(leg.size_bytes)
        pps = len(records) / leg.duration_s if leg.duration_s else None
        return Planned(leg, pps, ((size, 1.0),))
    pps = max(rate for _, rate in leg.rates) if leg.rates else leg.rate_pps
    return Planned(leg, pps, tuple((float(size), float(weight)) for size, weight in sizes_bytes(leg)))


def _trace_pps(leg: Leg, share: Share, size: float) -> float | None:
    """Average rate; peaks of a trace are not considered."""
    mode, value = leg.timing.mode, leg.timing.value
    if mode in ("pps", "bps"):
        return value if mode == "pps" else value / (8 * (size - FCS_BYTES))
    period_ns = leg.timing.period_ns
    return len(share.rows) / period_ns * 1e9 if period_ns else None


def limits_of(plans: Iterable[Planned], receive: Receive, capacity: Capacity) -> list[LegLimit]:
    """Limits at both ends of each leg with a known rate, where the node was measured."""
    found = []
    for one in plans:
        if one.pps:
            leg = one.leg
            ends: list[tuple[str, Role, Limit | None]] = [
                (leg.transmitter, "transmit", sending_limit(one, capacity)),
                *((host, "receive", _receiving_limit(one, host, receive, capacity)) for host in leg.receivers),
            ]
            found += [
                LegLimit(leg.id, leg.stream, node, role, one.pps, limit)
                for node, role, limit in ends
                if limit is not None
            ]
    return found


def sending_limit(one: Planned, capacity: Capacity) -> Limit | None:
    """Limit of the engine that will send: `auto` takes the first that is able and installed."""
    leg, node = one.leg, one.leg.transmitter
    engine: str | None = leg.engine
    if engine in ("auto", ANY_FIELD_ENGINE):
        example = with_placeholders(leg)
        able = (name for name in order(leg) if not capacity.lacks(node, name) and not unable(name, example))
        engine = next(able, None)
    return None if engine is None else capacity.limit(node, "transmit", engine, "", one.sizes)


def _receiving_limit(one: Planned, node: str, receive: Receive, capacity: Capacity) -> Limit | None:
    """Limit of the receiving engine. Before the nodes report, `auto` stands for the first engine with a measurement."""
    names = RECEIVERS if receive.engine == "auto" else (receive.engine,)
    more = one.leg.arrives.added_bytes if one.leg.arrives else 0
    sizes = [(size + more, weight) for size, weight in one.sizes]
    limits = (capacity.limit(node, "receive", name, receive.mode, sizes) for name in names)
    return next((limit for limit in limits if limit is not None), None)


def loads_of(limits: Iterable[LegLimit]) -> list[Load]:
    parts: dict[tuple[str, Role], list[LegLimit]] = {}
    for one in limits:
        parts.setdefault((one.node, one.role), []).append(one)
    return [Load(node, role, tuple(those)) for (node, role), those in parts.items()]


def warnings(loads: Sequence[Load]) -> list[str]:
    """Warnings about rates above the capacity or above any measured rate."""
    return [*(_warning(load) for load in loads if load.too_much), *_reached(loads)]


def _warning(load: Load) -> str:
    if load.role == "transmit":
        end = "more was never tried" if load.least else "what does not leave is no loss of the device"
    else:
        end = "more was never tried" if load.least else "what is lost may be lost by it, not by the device"
    return f"{load.describe()}: {end}"


def _reached(loads: Sequence[Load]) -> list[str]:
    """A note for each stream with a rate above that of its transmitters: the rate they can send."""
    asked: dict[str, float] = {}
    possible: dict[str, float] = {}
    for load in (load for load in loads if load.role == "transmit" and not load.least):
        for one in load.parts:
            asked[one.stream] = asked.get(one.stream, 0.0) + one.pps
            possible[one.stream] = possible.get(one.stream, 0.0) + one.pps / max(1.0, load.share)
    return [
        f"{stream}: of {pps:,.6g} packets/s its transmitters can send about {possible[stream]:,.6g}"
        for stream, pps in asked.items()
        if possible[stream] < pps * (1 - ROUNDING)
    ]


def document(limits: Iterable[LegLimit], capacity: Capacity, not_used: Sequence[str] = ()) -> dict[str, Any]:
    """Document for run.json and `check`: every end of a leg, each node's load, and the figures not used."""
    limits = list(limits)
    ends = [{**asdict(one), "limit": asdict(one.limit)} for one in limits]
    nodes = [load.document() for load in loads_of(limits)]
    return {
        "file": str(capacity.path),
        "wiring": capacity.wiring,
        "legs": ends,
        "nodes": nodes,
        "not_used": [*not_used],
    }
