"""The curves of docs/performance.md: packets/s by size, varying fields, users and processors, and errors of times.

    sudo .venv/bin/python -m bench.performance --into docs/performance

The points of a curve are measured in turn, round after round, on a veth pair of the benchmark's own (bench/engines). A
plot has the median of each point, and a bar from the least to the largest of its rounds. `figures.json` has all of
them.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bench import report
from bench.engines import ours, peers, rates, timing
from bench.engines.rows import RECEIVING_CORE, Bench, all_counted, arrived_ns, to_users
from bench.engines.wire import BenchError, Wire, Worker, clock
from pktswarm.traffic.frames.build import build_frame

SIZES = (64, 128, 256, 512, 1024, 1518)
VARYING = (
    ("ipv4", "src", {"increment": ["10.1.0.1", "10.1.255.254"]}),
    ("udp", "src", {"increment": [1024, 65535]}),
    ("ipv4", "dst", {"increment": ["10.2.0.1", "10.2.255.254"]}),
    ("udp", "dst", {"increment": [1024, 65535]}),
    ("ipv4", "id", {"random": [0, 65535]}),
    ("ipv4", "ttl", {"increment": [16, 255]}),
    ("ipv4", "dscp", {"increment": [0, 63]}),
    ("ethernet", "src", {"increment": ["02:00:00:01:00:00", "02:00:00:01:ff:ff"]}),
)
FIELDS = (0, 1, 2, 4, 8)
USERS = (1, 10, 100, 1_000, 10_000, 65_536)
USER_PACKETS = 4_000_000
PROCESSORS = (1, 2)
RATES_PPS = (1_000, 10_000, 100_000, 1_000_000)
TIMED_S, MOST_TIMED = 3.0, 1_000_000
SHARES = {"half of the frames": 0.5, "99 %": 0.99, "99.9 %": 0.999}
STYLE: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "pktswarm", "font.size": 10, "axes.grid": True}
SIZE_IN = (6.4, 3.6)


@dataclass(frozen=True)
class Curve:
    """`lines`: name of a line → its points, (across, the values of the rounds)."""

    name: str
    across: str
    up: str
    lines: dict[str, list[tuple[float, list[float]]]]
    logarithmic_up: bool = False

    @property
    def marks(self) -> list[float]:
        """The places of the points across."""
        return sorted({place for points in self.lines.values() for place, _ in points})


Points = dict[tuple[str, int], Callable[[], float]]
"""(Line, place across) → what measures it."""


def measured(bench: Bench, name: str, across: str, up: str, points: Points) -> Curve:
    values = bench.in_turn(name, {f"{line}, {place:,}": measure for (line, place), measure in points.items()})
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for (line, place), found in zip(points, values.values(), strict=True):
        lines.setdefault(line, []).append((place, found))
    return Curve(name, across, up, lines)


def by_size(bench: Bench) -> list[Curve]:
    points: Points = {}
    for size in SIZES:
        leg = ours.udp(size_bytes=size)
        frame = build_frame(leg.frame, size).data
        points["stamped and measured", size] = partial(rates.of_ours, [bench.wire], leg, bench.spool, bench.window_s)
        points["bare live frames", size] = partial(rates.of_bare, bench.wire, frame, bench.window_s)
    return [measured(bench, "size", "frame, bytes with FCS", "packets/s", points)]


def headers(varying: int) -> list[dict[str, Any]]:
    """Ethernet, IPv4 and UDP, so many fields of which change from frame to frame."""
    made: list[dict[str, Any]] = deepcopy(ours.UDP_HEADERS)
    for header, field, value in VARYING[:varying]:
        next(one[header] for one in made if header in one)[field] = value
    return made


def by_fields(bench: Bench) -> list[Curve]:
    points: Points = {}
    for number in FIELDS:
        leg = ours.stream({"headers": headers(number)})
        measure = partial(rates.of_ours, [bench.wire], leg, bench.spool, bench.window_s)
        points["stamped and measured, 60 bytes", number] = measure
    return [measured(bench, "fields", "fields that vary", "packets/s", points)]


def by_users(bench: Bench) -> list[Curve]:
    """What a receiver counts without loss. A full ring refuses frames at the sender, which makes up for them."""
    packets = USER_PACKETS // (20 if bench.brief else 1)

    def arrivals(users: int, apart: bool) -> float:
        with Wire() as wire, ours.run(wire, to_users(users, packets), bench.spool, peers.SENDING_CORE) as run:
            if apart:
                wire.receive_on(RECEIVING_CORE)
            run.begin()
            result = run.finish(stop=False)
        result.check()
        if users > 1 and not all_counted(result, users):
            raise BenchError(f"the receiver did not count {users} users")
        return result.arrival_pps

    points: Points = {}
    for users in USERS:
        points["a processor for each end", users] = partial(arrivals, users, True)
        points["one for both", users] = partial(arrivals, users, False)
    return [measured(bench, "users", "users counted", "packets/s received, none lost", points)]


def by_processors(bench: Bench) -> list[Curve]:
    points: Points = {}
    for number in PROCESSORS:
        measure = partial(rates.of_ours, bench.wires[:number], ours.udp(), bench.spool, bench.window_s)
        points["stamped and measured, 60 bytes", number] = measure
    return [measured(bench, "processors", "processors, each with an interface", "packets/s", points)]


def times(bench: Bench) -> list[Curve]:
    """|arrival - due| of a steady stream, both aligned by the median (bench/engines/timing.py)."""
    errors: dict[int, list[list[float]]] = {}
    for _ in range(bench.rounds):
        for rate_pps in RATES_PPS:
            errors.setdefault(rate_pps, []).append(sorted(steady(bench, rate_pps)))
    lines = {
        name: [
            (float(rate_pps), [timing.percentile(one, share) / 1000 for one in rounds])
            for rate_pps, rounds in errors.items()
        ]
        for name, share in SHARES.items()
    }
    return [Curve("times", "packets/s", "from the due time, us", lines, True)]


def steady(bench: Bench, rate_pps: int) -> list[float]:
    """The error of each frame, ns."""
    count = min(MOST_TIMED, int(rate_pps * (0.3 if bench.brief else TIMED_S)))
    late = {"late": "catch_up"}  # otherwise a long delay moves all that follows it
    leg = ours.udp(rate_pps=float(rate_pps), count_packets=count, duration_s=None, options=late)
    with (
        Worker("the clock", bench.wire.far, clock(count)) as far,
        Worker("the xdp sender", bench.wire.near, ours.sending(leg, bench.spool, peers.SENDING_CORE)) as sender,
    ):
        far.hear()
        sender.hear()
        sender.tell("go")
        sender.hear()
        arrived = arrived_ns(bench, far, count)
    return timing.errors_ns(arrived, [round(number * 1e9 / rate_pps) for number in range(count)])


CURVES: dict[str, Callable[[Bench], list[Curve]]] = {
    "size": by_size,
    "fields": by_fields,
    "users": by_users,
    "processors": by_processors,
    "times": times,
}


def draw(curve: Curve, path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE_IN, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for name, points in curve.lines.items():
            places, rounds = [place for place, _ in points], [values for _, values in points]
            middles = [statistics.median(values) for values in rounds]
            ends = [
                [m - min(v) for m, v in zip(middles, rounds, strict=True)],
                [max(v) - m for m, v in zip(middles, rounds, strict=True)],
            ]
            axes.errorbar(places, middles, yerr=ends, marker="o", capsize=3, label=name)
        if curve.marks[-1] > 50 * max(curve.marks[0], 1):
            axes.set_xscale("log")
        axes.set_xticks(curve.marks, [f"{mark:,.0f}" for mark in curve.marks])
        axes.minorticks_off()
        if curve.logarithmic_up:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(curve.across)
        axes.set_ylabel(curve.up)
        axes.legend()
        figure.savefig(path, metadata={"Date": None})


def described(curves: Iterable[Curve], rounds: int) -> dict[str, Any]:
    return {
        "kernel": os.uname().release,
        "processor": platform.machine(),
        "processors": os.cpu_count(),
        "rounds": rounds,
        "curves": [asdict(curve) for curve in curves],
    }


def main() -> None:
    parser = report.parser("The curves of docs/performance.md.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--curve", action="append", choices=CURVES, help="only this one; may be given several times")
    parser.add_argument("--window", type=float, default=1.0, help="seconds in which a rate is measured")
    parser.add_argument("--into", type=Path, help="write plots and figures.json there")
    parser.add_argument("--try", dest="brief", action="store_true", help="one short round: does it run? No figures")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-performance-")))
        wires = [stack.enter_context(Wire()) for _ in PROCESSORS]
        rounds = 1 if arguments.brief else arguments.rounds
        bench = Bench(wires, spool, rounds, 0.3 if arguments.brief else arguments.window, arguments.brief)
        curves = [curve for name in arguments.curve or CURVES for curve in CURVES[name](bench)]
    if arguments.into:
        arguments.into.mkdir(parents=True, exist_ok=True)
        for curve in curves:
            draw(curve, arguments.into / f"{curve.name}.svg")
        (arguments.into / "figures.json").write_text(json.dumps(described(curves, rounds), indent=1) + "\n")
    rows = [
        report.Row(f"{curve.name}: {line}, {place:,.0f}: {curve.up}", statistics.median(values), None, "", None, None)
        for curve in curves
        for line, points in curve.lines.items()
        for place, values in points
    ]
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
