"""`pktswarm dependence`: how much the arrivals of a trace or of a run depend on each other, over all time scales."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.traffic.dependence import Dependence, Start

NS_PER_S = 1_000_000_000
MOST_PACKETS = 1 << 27
"""A gigabyte of times."""


def dependence(
    file: Annotated[
        Path, typer.Argument(help="A capture, a CSV of times, or a folder under results/", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="In a results folder: this receiver's captures only.")] = "",
    repeat: Annotated[int, typer.Option(help="Also the trace repeated so often.", min=1, max=10_000)] = 1,
    scale: Annotated[int, typer.Option(help="Also so many instances of it at once.", min=1, max=10_000)] = 1,
    start: Annotated[str, typer.Option(help="How instances start: together, spread, random_offset.")] = "together",
    offset_s: Annotated[
        float, typer.Option("--offset", help="The largest random offset, s; 0 is one mean gap.", min=0.0)
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the random offsets.", min=0)] = 1,
    bin_s: Annotated[float | None, typer.Option("--bin", help="Width of a bin, s.", show_default="chosen")] = None,
    from_s: Annotated[
        float | None, typer.Option("--from", help="The least scale to estimate from, s.", show_default="chosen")
    ] = None,
    estimator: Annotated[
        list[str] | None, typer.Option(help="Only this one, may be repeated: variance-time, rs, wavelet, whittle.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the data of every plot into this folder.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw everything in one picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Long-range dependence: inter-arrival times, autocorrelation, and the Hurst exponent by four estimators."""
    # SciPy takes half a second to load: no other command waits for it.
    from pktswarm.master.dependence import tables as shown
    from pktswarm.master.output import check_picture
    from pktswarm.traffic.dependence import ESTIMATORS, analyse, check_estimators, five_cases, read_arrivals

    chosen = tuple(dict.fromkeys(estimator or ESTIMATORS))
    check_estimators(chosen)
    how = _start(start)
    bin_ns, from_ns = _positive("--bin", bin_s), _positive("--from", from_s)
    check_picture(png, "--png", ".png", "dependence")
    check_picture(svg, "--svg", ".svg", "dependence")
    arrivals = read_arrivals(file, host)
    _check_size(file, len(arrivals.times_ns), repeat, scale)
    reports = []
    for case in five_cases(arrivals.times_ns, repeat, scale, how, seed, round(offset_s * NS_PER_S)):
        report = analyse(case.times_ns, case.name, bin_ns, from_ns, chosen)
        reports.append(replace(report, warnings=case.warnings + report.warnings))
        # One width for all cases: lags and scales are then the same times in all.
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
    raise BadInput("dependence", "unknown", key="--start", value=start, allowed=", ".join(STARTS))


def _positive(option: str, seconds: float | None) -> int | None:
    """In nanoseconds."""
    if seconds is None:
        return None
    if not 1e-9 <= seconds < 1e9:
        raise BadInput("dependence", "is no width", key=option, value=seconds, allowed="1e-9 to 1e9 seconds")
    return round(seconds * NS_PER_S)


def _check_size(file: Path, packets: int, repeat: int, scale: int) -> None:
    if packets * repeat * scale > MOST_PACKETS:
        problem = f"repeated {repeat} and scaled {scale} it has {packets * repeat * scale:,} packets"
        raise BadInput(file, problem, allowed=f"{MOST_PACKETS:,} in all")


def _draw(reports: list[Dependence], paths: list[Path]) -> None:
    for path in paths:
        # matplotlib takes half a second to load.
        from pktswarm.master.dependence.plot import draw

        draw(reports, path)
