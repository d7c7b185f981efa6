"""NetSpec's wide area experiments (Lee 1998), figures 5 to 9: a target flow and background flows, in six sets.

A point is one run of a target flow of a set with a background, stored as soon as it is measured. Flows and paced rates
are in configs/netspec-25.yaml and configs/netspec-60.yaml.

It is no family (master.tables.family): its hosts depend on the inventory, pacing and options on the set and protocol,
and it has a table for each measure, and the curves of the reference's figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypedDict

from rich import box
from rich.table import Table

from pktswarm.master import shipped
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.results.folder import Outcome
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.tables.storage import Scenario, Storage
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput

CONFIGS = {25: Path("configs/netspec-25.yaml"), 60: Path("configs/netspec-60.yaml")}
"""By the background's mean rate in Mbit/s."""
SECONDS = 4.0
"""Default duration of a point."""
FULL_S = 150 * 3600 / 772
"""Duration in the reference: 772 experiments in 150 hours."""


@dataclass(frozen=True)
class Set:
    """One of the reference's six sets."""

    key: str
    protocol: Literal["tcp", "udp"]
    paced: Literal["", "target", "background"]

    @property
    def title(self) -> str:
        return f"{self.protocol.upper()}, {f'{self.paced} paced' if self.paced else 'no pacing'}"


SETS = (
    Set("tcp", "tcp", ""),
    Set("udp", "udp", ""),
    Set("tcp-target-paced", "tcp", "target"),
    Set("udp-target-paced", "udp", "target"),
    Set("tcp-background-paced", "tcp", "background"),
    Set("udp-background-paced", "udp", "background"),
)
FIGURES = (
    (5, "sd of delay jitter of the TCP target flows, no pacing", "jitter_sd_ms", "tcp", (25, 60)),
    (6, "sd of delay jitter of the UDP target flows, no pacing", "jitter_sd_ms", "udp", (25, 60)),
    (7, "packet loss of the UDP target flows, no pacing", "loss_percent", "udp", (25, 60)),
    (8, "sd of delay jitter of the UDP target flows, 60 Mbit/s background paced", "jitter_sd_ms",
     "udp-background-paced", (60,)),
    (9, "packet loss of the UDP target flows, 60 Mbit/s background paced", "loss_percent",
     "udp-background-paced", (60,)),
)  # fmt: skip
METRICS = {
    "goodput_mbps": ("throughput, Mbit/s", 2),
    "jitter_sd_ms": ("sd of the delay jitter of blocks, ms", 3),
    "loss_percent": ("packet loss, %", 2),
    "retransmitted_segments": ("retransmitted segments", 0),
}


@dataclass(frozen=True)
class Point:
    set: Set
    background_mbps: int
    target: str

    @property
    def key(self) -> str:
        return f"{self.set.key}-{self.background_mbps}-{self.target}"


@dataclass
class Measured:
    """Figures of a point's target flow. None: not measured (loss is of datagrams, retransmissions are TCP's)."""

    set: str
    background_mbps: int
    target: str
    target_mbps: float
    goodput_mbps: float | None
    jitter_sd_ms: float | None
    loss_percent: float | None
    retransmitted_segments: int | None
    sent_blocks: int | None
    intended_blocks: int | None
    received_blocks: int | None
    background_goodput_mbps: float | None
    problem: str = ""


class Netspec:
    """The runs of the table. `execute` runs a scenario file and returns its outcome and results folder."""

    def __init__(
        self,
        inventory: Inventory,
        folder: Path,
        seconds: float,
        backgrounds: tuple[int, ...],
        execute: Callable[[Path], tuple[Outcome, Path]],
        dut: DutEntry | None = None,
    ) -> None:
        self.inventory, self.seconds, self.execute = inventory, seconds, execute
        self.storage = Storage(folder, dut)
        self.scenarios = {rate: scenarios.load(shipped.scenario(CONFIGS[rate])) for rate in backgrounds}

    def points(self) -> list[Point]:
        """Returns the points in the order of their runs, set by set."""
        return [
            Point(each, background, target.name)
            for each in SETS
            for background, scenario in self.scenarios.items()
            for target in scenario.connections
            if not target.background
        ]

    def run(self) -> Iterator[Measured]:
        """Yields every point, stored before or measured now."""
        for point in self.points():
            scenario = self.scenario(point)
            stored = self.storage.measured(point.key, scenario)
            yield self._measure(point, scenario) if stored is None else Measured(**stored)

    def _measure(self, point: Point, scenario: Scenario) -> Measured:
        outcome, results = self.execute(self.storage.write_scenario(point.key, scenario))
        measured = self._measured(point, outcome)
        if not measured.problem:
            self.storage.keep(point.key, scenario, results, asdict(measured))
        return measured

    def scenario(self, point: Point) -> Scenario:
        """Puts the target between the first two hosts, the background between the others, if there are any."""
        sources = [host.name for host in self.inventory.with_role("transmit")]
        targets = [host.name for host in self.inventory.with_role("receive")]
        made: list[Scenario] = []
        for connection in self.scenarios[point.background_mbps].connections:
            if not connection.background and connection.name != point.target:
                continue
            flow: Scenario = connection.model_dump(by_alias=True, exclude_defaults=True, mode="json")
            flow |= {"duration_s": self.seconds, "from": sources[0], "to": targets[0]}
            if connection.background:
                place = len(made)
                flow |= {"from": _other(sources, place), "to": _other(targets, place)}
            else:
                flow["protocol"] = point.set.protocol
            made.append(_paced(flow, point.set, connection.background))
        return {"name": f"netspec-{point.key}", "connections": made, "receive": {"mode": "count", "drain_s": 1.0}}

    def _measured(self, point: Point, outcome: Outcome) -> Measured:
        rows = outcome.document["connections"]
        row = next(each for each in rows if each["connections"] == point.target)
        lost, sent = row.get("lost_datagrams"), row.get("sent_datagrams")
        others = [each.get("goodput_bps") for each in rows if each["role"] == "background"]
        return Measured(
            set=point.set.key,
            background_mbps=point.background_mbps,
            target=point.target,
            target_mbps=self.target_mbps(point),
            goodput_mbps=_scaled(row.get("goodput_bps"), 1e6),
            jitter_sd_ms=_scaled(row.get("jitter_sd_ns"), 1e6),
            loss_percent=None if lost is None or not sent else 100 * lost / sent,
            retransmitted_segments=row.get("retransmitted_segments"),
            sent_blocks=row.get("sent_blocks"),
            intended_blocks=row.get("intended_blocks"),
            received_blocks=row.get("received_blocks"),
            background_goodput_mbps=None if None in others else sum(bps or 0 for bps in others) / 1e6,
            problem=outcome.reason if outcome.status == EXIT_INCOMPLETE else "",
        )

    def target_mbps(self, point: Point) -> float:
        connections = self.scenarios[point.background_mbps].connections
        found = next(each for each in connections if each.name == point.target)
        if found.block_bytes is None or found.period_s is None:
            raise BadInput(
                CONFIGS[point.background_mbps], "a target flow needs block_bytes and period_s", key=found.name
            )
        return round(8 * found.block_bytes / found.period_s / 1e6, 2)


def _other(names: list[str], place: int) -> str:
    others = names[1:] or names
    return others[place % len(others)]


def _paced(connection: Scenario, chosen: Set, background: bool) -> Scenario:
    """Removes pacing that the set does not have, and TCP's options of UDP."""
    if chosen.paced != ("background" if background else "target"):
        connection.pop("pace_bps", None)
    if connection.get("protocol") == "udp":
        for key in ("nodelay", "congestion"):
            connection.pop(key, None)
    return connection


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


# --- what is printed --------------------------------------------------------------------------------------------


def tables(measured: list[Measured]) -> list[Table]:
    """Makes a table for each background and metric: target flows as rows, sets as columns."""
    made = []
    for background in sorted({point.background_mbps for point in measured}):
        for metric, (title, digits) in METRICS.items():
            made.append(_table(f"{title}; background {background} Mbit/s", metric, digits, background, measured))
    return made


def _table(title: str, metric: str, digits: int, background: int, measured: list[Measured]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("target\nMbit/s", justify="right")
    sets = [each for each in SETS if _has(each, metric)]
    for each in sets:
        table.add_column(each.title.replace(", ", "\n"), justify="right")
    mine = {
        (point.set, point.target_mbps): getattr(point, metric)
        for point in measured
        if point.background_mbps == background
    }
    for rate in sorted({rate for _, rate in mine}):
        cells = [mine.get((each.key, rate)) for each in sets]
        table.add_row(f"{rate:.2f}", *("–" if cell is None else f"{cell:,.{digits}f}" for cell in cells))
    return table


def _has(chosen: Set, metric: str) -> bool:
    only = {"loss_percent": "udp", "retransmitted_segments": "tcp"}.get(metric)
    return only is None or chosen.protocol == only


class Curves(TypedDict):
    """A figure of the reference; `curves`: background → [target Mbit/s, value]."""

    figure: int
    title: str
    metric: str
    set: str
    curves: dict[str, list[list[float | None]]]


def figures(measured: list[Measured]) -> list[Curves]:
    """Returns figures 5 to 9 of the reference."""
    made: list[Curves] = []
    for number, title, metric, key, backgrounds in FIGURES:
        curves = {
            str(background): [
                [point.target_mbps, getattr(point, metric)]
                for point in sorted(measured, key=lambda point: point.target_mbps)
                if point.set == key and point.background_mbps == background
            ]
            for background in backgrounds
        }
        made.append({"figure": number, "title": title, "metric": metric, "set": key, "curves": curves})
    return made


def captions() -> list[str]:
    return [f"figure {number}: {title}" for number, title, *_ in FIGURES]
