"""Output of `pktswarm dependence`: tables, JSON, and the data of every diagram as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pktswarm.master.output import figures_table, write_rows
from pktswarm.traffic.dependence import CONFIDENCE, Dependence, Estimate
from pktswarm.traffic.dependence.autocorrelation import Autocorrelation
from pktswarm.traffic.errors import BadInput

# --- The terminal ----------------------------------------------------------------------------------------------------


def print_reports(console: Console, reports: list[Dependence], notes: list[str]) -> None:
    console.print(_arrivals_table(reports))
    console.print(_hurst_table(reports))
    for how in dict.fromkeys(
        f"{estimate.name}: {estimate.interval}" for report in reports for estimate in report.estimates
    ):
        console.print(f"[dim]{CONFIDENCE:.0%} interval of {escape(how)}[/]")
    for note in notes:
        console.print(f"note: {escape(note)}")
    for report in reports:
        for warning in report.warnings:
            console.print(f"[yellow]warning[/] {escape(report.name)}: {escape(warning)}")


def _arrivals_table(reports: list[Dependence]) -> Table:
    columns = "packets", "duration, s", "packets/s", "bin, ms", "var/mean", "gap cv", "gap 0", "Σ|ρ| (noise)"
    table = figures_table(["arrivals"], columns)
    for report in reports:
        zero = report.gaps.zero / max(1, report.packets - 1)
        cells = [
            f"{report.packets:,}",
            f"{report.duration_s:,.3g}",
            f"{report.rate_pps:,.4g}",
            f"{report.bin_ns / 1e6:,.3g}",
            f"{report.dispersion:,.3g}",
            f"{report.gaps.variation:.3g}",
            f"{zero:.0%}",
            _sums(report.counts_acf),
        ]
        table.add_row(escape(report.name), *cells)
    return table


def _sums(acf: Autocorrelation | None) -> str:
    return "–" if acf is None else f"{acf.sums[-1]:.3g} ({acf.noise[-1]:.2g})"


def _hurst_table(reports: list[Dependence]) -> Table:
    table = figures_table(["arrivals", "estimator"], ["H", "from", "to", "scales, s"])
    for report in reports:
        for number, estimate in enumerate(report.estimates):
            figures = [_figure(value) for value in (estimate.hurst, estimate.low, estimate.high)]
            scales = "–" if estimate.scales_s is None else f"{estimate.scales_s[0]:.3g} – {estimate.scales_s[1]:.3g}"
            table.add_row("" if number else escape(report.name), estimate.name, *figures, scales)
    return table


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


# --- JSON and CSV ----------------------------------------------------------------------------------------------------


class AutocorrelationFigures(TypedDict):
    """`first`: at lag 1; `sum`: of absolute values over all lags, `sum_of_noise`: that of independent arrivals."""

    lags: int
    first: float
    sum: float
    sum_of_noise: float


class GapFigures(TypedDict):
    mean_ns: float
    deviation_ns: float
    least_ns: float
    largest_ns: float
    zero: int
    ks_exponential: float


class CaseFigures(TypedDict):
    """`estimates`: fields of traffic.dependence.Estimate without the diagram."""

    name: str
    packets: int
    duration_s: float
    rate_pps: float
    bin_ns: float
    bins: int
    dispersion: float
    least_scale_s: float
    gaps: GapFigures
    counts_autocorrelation: AutocorrelationFigures | None
    gaps_autocorrelation: AutocorrelationFigures | None
    estimates: list[dict[str, object]]
    warnings: list[str]


class DependenceDocument(TypedDict):
    confidence: float
    notes: list[str]
    cases: list[CaseFigures]


def document(reports: list[Dependence], notes: list[str]) -> DependenceDocument:
    """Returns all results but the points of the diagrams, which are in the CSV files."""
    return {"confidence": CONFIDENCE, "notes": notes, "cases": [_case(report) for report in reports]}


def _case(report: Dependence) -> CaseFigures:
    return {
        "name": report.name,
        "packets": report.packets,
        "duration_s": report.duration_s,
        "rate_pps": report.rate_pps,
        "bin_ns": report.bin_ns,
        "bins": report.bins,
        "dispersion": report.dispersion,
        "least_scale_s": report.least_scale_s,
        "gaps": {
            "mean_ns": report.gaps.mean_ns,
            "deviation_ns": report.gaps.deviation_ns,
            "least_ns": report.gaps.least_ns,
            "largest_ns": report.gaps.largest_ns,
            "zero": report.gaps.zero,
            "ks_exponential": report.gaps.ks_exponential,
        },
        "counts_autocorrelation": _acf(report.counts_acf),
        "gaps_autocorrelation": _acf(report.gaps_acf),
        "estimates": [_estimate(estimate) for estimate in report.estimates],
        "warnings": report.warnings,
    }


def _acf(acf: Autocorrelation | None) -> AutocorrelationFigures | None:
    if acf is None:
        return None
    first = float(acf.rho[0])
    return {"lags": len(acf.rho), "first": first, "sum": float(acf.sums[-1]), "sum_of_noise": float(acf.noise[-1])}


def _estimate(estimate: Estimate) -> dict[str, object]:
    return {key: value for key, value in asdict(estimate).items() if key != "diagram"}


def write_csv(folder: Path, reports: list[Dependence]) -> None:
    """Writes gaps.csv, autocorrelation.csv, hurst.csv and a file for each estimator's diagram."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(folder / "hurst.csv", "case,estimator,hurst,low,high,scale_from_s,scale_to_s", _hurst_rows(reports))
        write_rows(folder / "gaps.csv", "case,from_ns,to_ns,packets", _gap_rows(reports))
        header = "case,of,lag,autocorrelation,sum,sum_of_noise"
        write_rows(folder / "autocorrelation.csv", header, _acf_rows(reports))
        for number, estimate in enumerate(reports[0].estimates):
            _write_diagram(
                folder / f"{estimate.name}.csv", [(report.name, report.estimates[number]) for report in reports]
            )
    except OSError as error:
        raise BadInput(folder, f"cannot be written: {error.strerror}", key="--csv") from None


def _hurst_rows(reports: list[Dependence]) -> Iterable[list[object]]:
    for report in reports:
        for estimate in report.estimates:
            yield [
                report.name,
                estimate.name,
                estimate.hurst,
                estimate.low,
                estimate.high,
                *(estimate.scales_s or (None, None)),
            ]


def _gap_rows(reports: list[Dependence]) -> Iterable[list[object]]:
    for report in reports:
        yield [report.name, 0, 0, report.gaps.zero]
        edges = report.gaps.edges_ns.tolist()
        for low, high, packets in zip(edges, edges[1:], report.gaps.packets.tolist(), strict=False):
            yield [report.name, f"{low:.6g}", f"{high:.6g}", packets]


def _acf_rows(reports: list[Dependence]) -> Iterable[list[object]]:
    for report in reports:
        for what, acf in (("counts", report.counts_acf), ("gaps", report.gaps_acf)):
            columns = [] if acf is None else zip(acf.rho.tolist(), acf.sums.tolist(), acf.noise.tolist(), strict=True)
            for lag, values in enumerate(columns, 1):
                yield [report.name, what, lag, *(f"{value:.6g}" for value in values)]


def _write_diagram(path: Path, cases: list[tuple[str, Estimate]]) -> None:
    drawn = [(name, estimate.diagram) for name, estimate in cases if estimate.diagram is not None]
    if not drawn:
        return
    header = f"case,{drawn[0][1].x_name},{drawn[0][1].y_name},fitted"
    rows = [
        [name, f"{x:.9g}", f"{y:.9g}", "" if math.isnan(fitted) else f"{fitted:.9g}"]
        for name, estimate in drawn
        for x, y, fitted in np.column_stack([estimate.x, estimate.y, estimate.fitted]).tolist()
    ]
    write_rows(path, header, rows)
