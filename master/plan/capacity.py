"""The capacity file of an inventory: what each node was seen to send, and to receive without loss (docs/calibrate.md).

`pktswarm calibrate` writes it beside the inventory. Sizes count the FCS. Figures of sizes that were not measured are
interpolated, and never too high: the time a node needs for a frame does not fall with the frame's size and is convex in
it (constant where the processor limits the rate, proportional to the size where the link does), so it lies below the
straight line between two measured sizes.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from pktswarm.master.files import replace_text
from pktswarm.master.scenario.fields import Strict
from pktswarm.master.scenario.problems import refuse
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import Role

FORMAT_VERSION = 1
CONFIRMED, AT_LEAST, UNCONFIRMED, FAILED = "confirmed", "at least", "not confirmed", "failed"
USED = (CONFIRMED, AT_LEAST)
FURTHEST = 1.05
"""Largest frame size with a known rate, as a multiple of the largest measured size."""
AGAIN = "make it with: pktswarm calibrate --hosts"


class Figure(Strict):
    """Measured capacity of one node in one role, with one engine, at one frame size.

    `rate_pps`: the highest rate that held in two or more trials; `above_pps`: the lowest rate above it that did not
    hold. `state` "at least": no higher rate could be offered, so `above_pps` is None. "not confirmed": the rate held
    once and failed when repeated. "failed": `problem` is the reason why there is no rate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    role: Role
    engine: str
    mode: Literal["", "count", "capture"] = ""
    """Receivers only."""
    size_bytes: int = Field(ge=64, le=9618)
    state: Literal["confirmed", "at least", "not confirmed", "failed"]
    rate_pps: float | None = Field(None, gt=0)
    above_pps: float | None = None
    top_pps: float | None = None
    """Transmitters only: unlimited rate, from the interface's counter."""
    senders: list[str] = Field(default_factory=list)
    """Receivers only: the nodes that sent to it together."""
    kernel: str
    driver: str
    speed_mbps: int | None = None
    engine_version: str = ""
    pktswarm: str = ""
    utc: str = ""
    trial_s: float | None = None
    precision: float | None = None
    trials: int = 0
    problem: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.node, self.role, self.engine, self.mode, self.size_bytes

    @property
    def l2_bps(self) -> float | None:
        return None if self.rate_pps is None else 8 * self.size_bytes * self.rate_pps

    def changed(self, report: Mapping[str, Any]) -> str:
        """Properties of the node that changed since the measurement; empty: none. `report`: the node's current one."""
        interface = report.get("interface", {})
        now = {"kernel": report.get("kernel"), "driver": interface.get("driver")}
        if self.speed_mbps is not None:
            now["speed_mbps"] = interface.get("speed_mbps")
        return ", ".join(
            f"{name} {getattr(self, name)} then, {there} now"
            for name, there in now.items()
            if there != getattr(self, name)
        )


class _File(Strict):
    format_version: Literal[1]
    pktswarm: str = ""
    wiring: str = ""
    missing: dict[str, dict[str, str]] = Field(default_factory=dict)
    figures: list[Figure] = Field(default_factory=list)


@dataclass(frozen=True)
class Limit:
    """Highest rate of a node for a mix of frame sizes. `least`: a lower bound, as no higher rate was tried."""

    rate_pps: float
    engine: str
    least: bool
    utc: str


@dataclass(frozen=True)
class Capacity:
    """Measured capacities of an inventory's nodes. `missing`: node → engine that it lacks → reason."""

    path: Path
    figures: tuple[Figure, ...] = ()
    missing: dict[str, dict[str, str]] | None = None
    wiring: str = ""

    def figure(self, key: tuple[str, str, str, str, int]) -> Figure | None:
        return next((one for one in self.figures if one.key == key), None)

    def with_figure(self, figure: Figure) -> Capacity:
        return replace(self, figures=(*(one for one in self.figures if one.key != figure.key), figure))

    def limit(
        self, node: str, role: Role, engine: str, mode: str, sizes: Sequence[tuple[float, float]]
    ) -> Limit | None:
        """Limit for a mix of frame sizes; None without a measurement. `sizes`: (bytes with FCS, weight)."""
        wanted = (node, role, engine, mode)
        known = {one.size_bytes: one for one in self.figures if one.key[:4] == wanted and one.state in USED}
        rates = {size: one.rate_pps for size, one in known.items() if one.rate_pps is not None}
        if not rates or max(size for size, _ in sizes) > FURTHEST * max(rates):
            return None
        weights = sum(weight for _, weight in sizes)
        mean_s = sum(weight * _seconds(rates, size) for size, weight in sizes) / weights
        least = any(one.state == AT_LEAST for one in known.values())
        return Limit(1 / mean_s, engine, least, max(one.utc for one in known.values()))

    def lacks(self, node: str, engine: str) -> bool:
        """Whether the node reported that it lacks this engine."""
        return bool((self.missing or {}).get(node, {}).get(engine))

    def updated_from(self, reports: Mapping[str, Mapping[str, Any]]) -> tuple[Capacity, list[str]]:
        """Drop figures measured with another kernel, driver or link than the node has now; return a note for each node.

        `reports`: node → its report; figures of other nodes stay.
        """
        kept, notes = [], {}
        for one in self.figures:
            why = one.changed(reports[one.node]) if one.node in reports else ""
            if not why:
                kept.append(one)
            elif one.state in USED:
                notes[one.node] = (
                    f"{one.node}: what it was seen to do is not used any more, it has changed since ({why})"
                )
        missing = {**(self.missing or {}), **{node: missing_of(report) for node, report in reports.items()}}
        return replace(self, figures=tuple(kept), missing=missing), list(notes.values())

    def write(self) -> None:
        document = {
            "format_version": FORMAT_VERSION,
            "pktswarm": VERSION,
            "wiring": self.wiring,
            "missing": self.missing or {},
            "figures": [one.model_dump() for one in self.figures],
        }
        replace_text(self.path, json.dumps(document, indent=2) + "\n")


def missing_of(report: Mapping[str, Any]) -> dict[str, str]:
    """Sending engines that a node lacks → reason."""
    return {name: why for name, why in report.get("senders", {}).items() if why}


def path_of(inventory: Path) -> Path:
    """hosts/NAME.yml → hosts/NAME.capacity.json"""
    return inventory.with_suffix(".capacity.json")


def beside(inventory: Path) -> Capacity | None:
    """Read the capacity file of an inventory; None without one. Raises BadInput for an invalid file."""
    path = path_of(inventory)
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(path, f"cannot be read: {error}", allowed=f"{AGAIN} {inventory}") from None
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
        value = data.get("format_version") if isinstance(data, dict) else None
        allowed = f"{FORMAT_VERSION}; delete it and {AGAIN} {inventory}"
        raise BadInput(path, "is of another format", key="format_version", value=value, allowed=allowed)
    try:
        file = _File.model_validate(data)
    except ValidationError as error:
        raise refuse(path, error, _File, data) from None
    _check(path, file.figures)
    return Capacity(path, tuple(file.figures), file.missing, file.wiring)


def _check(path: Path, figures: Iterable[Figure]) -> None:
    seen: set[object] = set()
    for number, one in enumerate(figures):
        if one.state in USED and one.rate_pps is None:
            raise BadInput(path, f"is missing where the state is {one.state!r}", key=f"figures.{number}.rate_pps")
        if one.key in seen:
            what = " ".join(map(str, one.key))
            raise BadInput(path, "stands twice", key=f"figures.{number}", value=what, allowed="one figure of each")
        seen.add(one.key)


def _seconds(rates: Mapping[int, float], size: float) -> float:
    """Upper bound of the time for a frame; see the module's docstring. `rates`: size in bytes → packets/s."""
    sizes = sorted(rates)
    place = bisect_left(sizes, size)
    if place == 0:
        return 1 / rates[sizes[0]]
    if place == len(sizes):
        return size / sizes[-1] / rates[sizes[-1]]
    low, high = sizes[place - 1], sizes[place]
    part = (size - low) / (high - low)
    return (1 - part) / rates[low] + part / rates[high]
