"""`pktswarm dependence`: long-range dependence of the packet arrivals of a trace or a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pktswarm.master.cli.options import NS_PER_S, BinWidth, Json, PlotData, Png, Svg, examples, nanoseconds
from pktswarm.master.cli.quantity import NOT_NEGATIVE, time_option
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.traffic.dependence import Dependence, Start

COMMAND = "dependence"
MOST_PACKETS = 1 << 27
"""The arrival times of this number of packets take 1 GiB of memory."""
MOST_COPIES = 10_000
EXAMPLES = examples("dependence trace.pcap --repeat 4 --scale 4")


TraceFile = Annotated[
    Path,
    typer.Argument(help="Capture file, CSV file of arrival times, or results folder of a run.", show_default=False),
]
Receiver = Annotated[
    str, typer.Option("--host", help="Receiver whose captures are read, in a results folder; default: all.")
]
Repetitions = Annotated[
    int,
    typer.Option("--repeat", help="Also analyse this number of repetitions of the trace.", min=1, max=MOST_COPIES),
]
Instances = Annotated[
    int, typer.Option("--scale", help="Also analyse this number of simultaneous instances.", min=1, max=MOST_COPIES)
]
StartTimes = Annotated[
    str, typer.Option("--start", help="Start times of the instances: together, spread, random_offset.")
]
Offset = Annotated[
    float,
    typer.Option(
        "--offset",
        parser=time_option("--offset", NOT_NEGATIVE),
        metavar="TIME",
        help="Largest random offset, s or 20us; 0 means one mean gap.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random offsets, 0 or more.", min=0)]
SmallestScale = Annotated[
    float | None,
    typer.Option(
        "--from",
        parser=time_option("--from"),
        metavar="TIME",
        help="Smallest time scale of the estimates, 1e-9 s or more and below 1e9 s.",
        show_default="from the data",
    ),
]
Estimators = Annotated[
    list[str] | None,
    typer.Option(
        "--estimator",
        help="Estimator of the Hurst exponent, repeatable: variance-time, rs, wavelet, whittle; default: all.",
    ),
]


def dependence(
    file: TraceFile,
    host: Receiver = "",
    repeat: Repetitions = 1,
    scale: Instances = 1,
    start: StartTimes = "together",
    offset_s: Offset = 0.0,
    seed: Seed = 1,
    bin_s: BinWidth = None,
    from_s: SmallestScale = None,
    estimator: Estimators = None,
    csv: PlotData = None,
    png: Png = None,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Estimate the long-range dependence of packet arrivals: gaps, autocorrelation, Hurst exponent."""
    # Loading SciPy takes 0.5 s; only this command needs it.
    from pktswarm.master.dependence import tables as shown
    from pktswarm.master.output import check_picture
    from pktswarm.traffic.dependence import ESTIMATORS, analyse, check_estimators, five_cases, read_arrivals

    chosen = tuple(dict.fromkeys(estimator or ESTIMATORS))
    check_estimators(chosen)
    how = _start(start)
    bin_ns, from_ns = (
        nanoseconds(COMMAND, "--bin", bin_s, "bin width"),
        nanoseconds(COMMAND, "--from", from_s, "time scale"),
    )
    check_picture(png, "--png", ".png", COMMAND)
    check_picture(svg, "--svg", ".svg", COMMAND)
    arrivals = read_arrivals(file, host)
    _check_size(file, len(arrivals.times_ns), repeat, scale)
    reports = []
    for case in five_cases(arrivals.times_ns, repeat, scale, how, seed, round(offset_s * NS_PER_S)):
        report = analyse(case.times_ns, case.name, bin_ns, from_ns, chosen)
        reports.append(replace(report, warnings=case.warnings + report.warnings))
        # All cases use the bin width of the first, so that their lags and scales are comparable.
        bin_ns = reports[0].bin_ns
    if csv is not None:
        shown.write_csv(csv, reports)
    _draw(reports, [path for path in (png, svg) if path is not None])
    if as_json:
        print(json.dumps({"file": str(file), **shown.document(reports, arrivals.notes)}))
    else:
        shown.print_reports(Console(), reports, arrivals.notes)


def _start(start: str) -> Start:
    from pktswarm.traffic.dependence import STARTS

    for known in STARTS:
        if start == known:
            return known
    raise BadInput(COMMAND, "unknown start", key="--start", value=start, allowed=", ".join(STARTS))


def _check_size(file: Path, packets: int, repeat: int, scale: int) -> None:
    if packets * repeat * scale > MOST_PACKETS:
        problem = f"too many packets with --repeat {repeat} and --scale {scale}"
        raise BadInput(file, problem, value=packets * repeat * scale, allowed=f"up to {MOST_PACKETS:,} packets")


def _draw(reports: list[Dependence], paths: list[Path]) -> None:
    for path in paths:
        # Loading matplotlib takes 0.5 s.
        from pktswarm.master.dependence.plot import draw

        draw(reports, path)
