"""Results of runs, as typed objects."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pktswarm.master.report import folder as folders
from pktswarm.master.results import latency_histogram
from pktswarm.master.results.document import RunDocument, Verdict
from pktswarm.master.results.document_rows import RunRow, StreamTotal
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, NotAsExpected, PktswarmError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # optional, and without types
    from matplotlib.figure import Figure

_PAGES = threading.Lock()
"""matplotlib draws for one thread at a time."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class Latency:
    """One-way latency, or round-trip time, in ns (RFC 7679, RFC 2681). None: not measured.

    `bound`: the uncertainty of the clocks; each figure is within ± bound. `by`: stamps, round trip or captures."""

    min: int | None = None
    mean: int | None = None
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    p999: int | None = None
    max: int | None = None
    bound: int | None = None
    by: str | None = None
    packets: int | None = None
    """The number of packets in the figures."""


@dataclass(frozen=True)
class Counts:
    """Packets that were planned, sent, received and lost. None: not measured, or a node of several did not report."""

    intended_packets: int | None
    sent_packets: int | None
    received_packets: int | None
    lost_packets: int | None

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ sent packets, 0 to 1."""
        return self.lost_packets / self.sent_packets if self.sent_packets and self.lost_packets is not None else None


@dataclass(frozen=True)
class Flow(Counts):
    """A stream from one node to one node: a row of streams.csv (docs/guide.md)."""

    stream: str
    source: str
    target: str
    engine: str
    late_packets: int | None
    duplicated_packets: int | None
    reordered_packets: int | None
    altered_packets: int | None
    misdelivered_packets: int | None
    sent_bytes: int | None
    received_bytes: int | None
    sent_pps: float | None
    received_pps: float | None
    sent_bps: float | None
    received_bps: float | None
    first_ns: int | None
    """The first arrival, since the start."""
    last_ns: int | None
    jitter_rfc3550_ns: int | None
    latency_ns: Latency


@dataclass(frozen=True)
class StreamResult(Counts):
    """A stream over all its nodes. A percentile over several flows is that of their histograms, None without them."""

    name: str
    flows: tuple[Flow, ...]
    latency_ns: Latency

    @property
    def duplicated_packets(self) -> int | None:
        return _sum(self.flows, "duplicated_packets")

    @property
    def reordered_packets(self) -> int | None:
        return _sum(self.flows, "reordered_packets")

    @property
    def altered_packets(self) -> int | None:
        return _sum(self.flows, "altered_packets")


class Result:
    """A results folder of a run: `Result.load(folder)` reads those of every version."""

    def __init__(self, folder: Path, read: folders.Results) -> None:
        self.folder = folder
        self.document: RunDocument = read.document
        """The content of run.json."""
        self.crashed = read.crashed
        """The run did not come to its end, and `document` is what its log has."""

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Raises BadInput where there is no run, or one of a newer format."""
        path = Path(folder)
        return cls(path, folders.read(path))

    @property
    def name(self) -> str:
        return self.document["name"]

    @property
    def status(self) -> int:
        """Exit status of the command line: 0 as expected, 1 not as expected, 3 incomplete."""
        return self.document["status"]

    @property
    def as_expected(self) -> bool:
        return self.status == EXIT_AS_EXPECTED

    @property
    def complete(self) -> bool:
        """False: a node was lost, an engine failed, or the run was stopped; `reason` says which."""
        return self.status != EXIT_INCOMPLETE

    @property
    def reason(self) -> str:
        return self.document["reason"]

    @property
    def verdicts(self) -> list[Verdict]:
        return self.document["verdicts"]

    @property
    def doubts(self) -> list[str]:
        """Reasons why the counts may be wrong; a run with doubts is incomplete."""
        return self.document["doubts"]

    @property
    def notes(self) -> list[str]:
        return self.document.get("notes", [])

    def check(self) -> None:
        """Raises NotAsExpected, or Error for a run that is incomplete."""
        if not self.as_expected:
            error = NotAsExpected if self.complete else PktswarmError
            raise error(f"{self.name}: {self.reason} ({self.folder})")

    @property
    def report(self) -> Path:
        """The page of the run; made when it is first asked for."""
        page = self.folder / "report.html"
        with _PAGES:
            if not page.exists():
                from pktswarm.master import report

                report.make(self.folder)
        return page

    # --- counts -------------------------------------------------------------------------------------------------

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        return tuple(map(_flow, self.document["rows"]))

    @cached_property
    def streams(self) -> Mapping[str, StreamResult]:
        """Name → counts, in the order of the scenario."""
        totals = self.document["totals"][:-1]
        return {total["stream"]: self._stream(total, total["stream"]) for total in totals}

    @cached_property
    def total(self) -> StreamResult:
        """All streams together."""
        if not self.document["totals"]:
            return StreamResult(None, None, None, None, "total", (), Latency())
        return self._stream(self.document["totals"][-1], None)

    def _stream(self, total: StreamTotal, name: str | None) -> StreamResult:
        flows = tuple(flow for flow in self.flows if name in (None, flow.stream))
        counts = (total["intended_packets"], total["sent_packets"], total["received_packets"], total["lost_packets"])
        return StreamResult(*counts, name or "total", flows, self._latency(flows))

    @cached_property
    def _histograms(self) -> Mapping[tuple[str, str, str], list[tuple[int, int]]]:
        return latency_histogram.read(self.folder)

    def _latency(self, flows: tuple[Flow, ...]) -> Latency:
        arrived = [flow for flow in flows if flow.received_packets != 0]
        each = [flow.latency_ns for flow in arrived]
        if len(each) == 1:
            return each[0]
        if not each or any(one.min is None for one in each):
            return Latency()
        found = [self._histograms.get((flow.stream, flow.source, flow.target), []) for flow in arrived]
        merged = sorted(point for own in found for point in own) if all(found) else []
        mean = _mean([(one.mean, sum(count for _, count in own)) for one, own in zip(each, found, strict=True)])
        shares = {name: latency_histogram.nearest_rank(merged, share) for name, share in PERCENTILES.items() if merged}
        mins, maxs, bounds = ([getattr(one, name) for one in each] for name in ("min", "max", "bound"))
        by = each[0].by if len({one.by for one in each}) == 1 else None
        bound = None if None in bounds else max(bounds)
        packets = None if any(one.packets is None for one in each) else sum(one.packets or 0 for one in each)
        return Latency(min=min(mins), mean=mean, max=max(maxs), bound=bound, by=by, packets=packets, **shares)

    # --- notebooks ----------------------------------------------------------------------------------------------

    def to_pandas(self) -> pandas.DataFrame:
        """The flows as a table, one row each. Raises Error where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise PktswarmError("to_pandas() needs the package pandas (pip install pandas)") from None
        return pandas.DataFrame([dict(_columns(flow)) for flow in self.flows])

    def plot(self) -> Figure:
        """Rates sent and received over time, packets/s of all streams, as a matplotlib figure."""
        from pktswarm.master.api.plot import rates

        return rates(self.folder)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("stream", *SHOWN))
        rows = "".join(_html_row(stream) for stream in (*self.streams.values(), self.total))
        title = f"<b>{html.escape(self.name)}</b>: {html.escape(self.reason)}"
        return f"<p>{title}</p><table><tr>{head}</tr>{rows}</table>"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.reason}; {self.folder}>"


SHOWN = ("sent packets", "received packets", "lost packets", "latency p50 µs", "latency p99 µs")


def _html_row(stream: StreamResult) -> str:
    counts = [stream.sent_packets, stream.received_packets, stream.lost_packets]
    cells = ["" if count is None else f"{count:,}" for count in counts]
    cells += ["" if ns is None else f"{ns / 1000:,.1f}" for ns in (stream.latency_ns.p50, stream.latency_ns.p99)]
    return "".join(["<tr>", *(f"<td>{html.escape(cell)}</td>" for cell in (stream.name, *cells)), "</tr>"])


LATENCY = [each.name for each in fields(Latency) if each.name not in ("by", "packets")]


def _columns(flow: Flow) -> Iterator[tuple[str, object]]:
    for each in fields(flow):
        if each.name == "latency_ns":
            yield from ((f"latency_{name}_ns", getattr(flow.latency_ns, name)) for name in LATENCY)
        else:
            yield each.name, getattr(flow, each.name)


def _flow(row: RunRow) -> Flow:
    given: Mapping[str, Any] = row
    figures = {name: given.get(f"latency_{name}_ns") for name in LATENCY}
    latency = Latency(**figures, by=given.get("latency_by"), packets=given.get("latency_packets"))
    values: dict[str, Any] = {each.name: given.get(each.name) for each in fields(Flow)}
    return Flow(**{**values, "source": row["from"], "target": row["to"], "latency_ns": latency})


def _mean(each: list[tuple[int | None, int]]) -> int | None:
    """The mean of means, each with the number of its packets; None where one of them is not known."""
    known = [(mean, packets) for mean, packets in each if mean is not None and packets]
    if len(known) != len(each):
        return None
    return round(sum(mean * packets for mean, packets in known) / sum(packets for _, packets in known))


def _sum(flows: tuple[Flow, ...], name: str) -> int | None:
    each = [getattr(flow, name) for flow in flows]
    return None if not each or None in each else sum(each)
