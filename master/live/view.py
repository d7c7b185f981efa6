"""The live document on a terminal: as a screen, or as one line."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pktswarm.master.live import job, phases
from pktswarm.master.live.document import LiveDocument, NodeFigures, PartFigures

BARS = "▁▂▃▄▅▆▇█"
SPARKS = ((138, 30), (113, 12), (0, 0))
"""(minimum columns of the terminal, width of a sparkline)."""
PROGRESS_COLUMNS = 40
LEAST_ROWS = 4
"""Minimum rows of each table."""
FRAME_ROWS = 12
"""Rows of progress, headings and totals."""
COLUMNS = ("intended", "sent", "received", "missing", "loss", "packets/s", "Mbit/s L2", "latency, µs")
FEW_COLUMNS = ("sent", "received", "loss", "packets/s", "Mbit/s L2", "latency, µs")
"""Columns without room for sparklines."""


def screen(document: LiveDocument, width: int, height: int) -> RenderableType:
    """Shows as many streams and nodes as fit, and the number of the others."""
    sparks = next(columns for least, columns in SPARKS if width >= least)
    room = max(2 * LEAST_ROWS, height - FRAME_ROWS - len(document["warnings"]))
    nodes = min(len(document["nodes"]), max(LEAST_ROWS, room - len(document["streams"])))
    streams = max(LEAST_ROWS, room - nodes)
    parts: list[RenderableType] = [progress(document)]
    if document["streams"]:
        parts.append(_streams(document, streams, sparks))
    if any(node["interface"] for node in document["nodes"]):
        parts.append(_nodes(document, nodes, sparks))
    parts += [
        Text(f"! {warning['text']} (at {warning['at_s']:.0f} s)", style="yellow") for warning in document["warnings"]
    ]
    return Group(*parts)


def line(document: LiveDocument) -> str:
    """Returns progress and totals."""
    if document["sessions"]:
        return _clock(document)
    total = document["total"]
    counted = [f"{count} {name}" for name, count in _counts(total).items()]
    rate = [f"{_rate(_pps(total))} packets/s", f"{_scaled(_bps(total), 1e6)} Mbit/s"]
    latency = [] if total["latency_mean_ns"] is None else [f"latency {_latency(total)} µs"]
    return f"{_clock(document)}: {', '.join([*counted, *rate, *latency])}"


def sparkline(values: Sequence[float | None], columns: int) -> str:
    """Draws values from 0 to the highest, the newest on the right.

    With more values than columns, each bar is the mean of several.
    """
    each = -(-len(values) // columns) or 1
    newest_first = [values[max(0, end - each) : end] for end in range(len(values), 0, -each)]
    means = [_mean(some) for some in reversed(newest_first)]
    highest = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(" " if mean is None else BARS[_level(mean, highest)] for mean in means)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _level(value: float, highest: float) -> int:
    return round(max(0.0, value) / highest * (len(BARS) - 1)) if highest > 0 else 0


def _clock(document: LiveDocument) -> str:
    words = phases.describe(document["phase"])
    if sessions := document["sessions"]:
        return f"{words}, {sessions['done']:,} of {sessions['asked']:,}"
    if document["phase"] != "send":
        return words
    return f"{words}, {document['elapsed_s']:.0f} of {document['expected_s']:.0f} s, {document['left_s']:.0f} s left"


def progress(document: LiveDocument) -> RenderableType:
    shown = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(document["expected_s"], 0.001), completed=_sent_for_s(document), width=PROGRESS_COLUMNS)
    shown.add_row(Text(document["name"], style="bold"), bar, Text(_clock(document)))
    return Group(Text(job.headline(known)), shown) if (known := document.get("job")) else shown


def _sent_for_s(document: LiveDocument) -> float:
    """Returns the elapsed part of the expected time; all of it in the phases after sending."""
    return float(document["expected_s"] - document["left_s"])


def _streams(document: LiveDocument, most: int, sparks: int) -> Table:
    table = _table("stream", sparks)
    for stream in document["streams"][:most]:
        name = escape(stream["stream"]) + (" [dim]background[/]" if stream["group"] == "background" else "")
        table.add_row(name, *_cells(stream, sparks))
    _add_rest(table, len(document["streams"]) - most)
    if len(document["streams"]) > 1:
        table.add_section()
        table.add_row("all", *_cells(document["total"], sparks), style="bold")
    return table


def _nodes(document: LiveDocument, most: int, sparks: int) -> Table:
    """Shows nodes; one whose engine does not report while it runs has the rates of its interface."""
    table = _table("node", sparks)
    for node in document["nodes"][:most]:
        name = f"{escape(node['node'])} {node['role']}" + ("" if node["state"] == "ok" else f" [red]{node['state']}[/]")
        table.add_row(name, *_cells(_with_interface_rates(node), sparks))
    _add_rest(table, len(document["nodes"]) - most)
    return table


def _with_interface_rates(node: NodeFigures) -> NodeFigures:
    """Puts the interface's rates in the rate columns if the engine reports none."""
    transmits, interface = node["role"] == "transmit", node["interface"]
    if not interface or (node["sent_pps"] if transmits else node["received_pps"]) is not None:
        return node
    pps, bps = (interface["tx_pps"], interface["tx_bps"]) if transmits else (interface["rx_pps"], interface["rx_bps"])
    return {**node, "received_pps": pps, "received_bps": bps}


def _table(what: str, sparks: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column(what, no_wrap=True)
    for name in COLUMNS if sparks else FEW_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    if sparks:
        table.add_column("last minute", no_wrap=True, min_width=sparks)
    return table


def _add_rest(table: Table, more: int) -> None:
    if more > 0:
        table.add_row(f"[dim]and {more} more[/]")


def _cells(part: PartFigures, sparks: int) -> list[str]:
    missing, ratio = part["missing_packets"], part["loss_ratio"]
    cells = _counts(part)
    cells["missing"] = f"[red]{cells['missing']}[/]" if missing else cells["missing"]
    cells["loss"] = "–" if ratio is None else f"{ratio:.2%}"
    cells["packets/s"] = _rate(_pps(part))
    cells["Mbit/s L2"] = _scaled(_bps(part), 1e6)
    cells["latency, µs"] = _latency(part)
    if not sparks:
        return [cells[name] for name in FEW_COLUMNS]
    return [*(cells[name] for name in COLUMNS), sparkline(part["last_minute_pps"], sparks)]


def _counts(part: PartFigures) -> dict[str, str]:
    counts = (part["intended_packets"], part["sent_packets"], part["received_packets"], part["missing_packets"])
    return {name: _count(count) for name, count in zip(COLUMNS, counts, strict=False)}


def _latency(part: PartFigures) -> str:
    """Returns the mean, with the clocks' error bound if it is known."""
    mean_ns, bound_ns = part["latency_mean_ns"], part["latency_bound_ns"]
    mean = _scaled(mean_ns, 1e3)
    return mean if bound_ns is None or mean_ns is None else f"{mean} ±{bound_ns / 1e3:,.1f}"


def _pps(part: PartFigures) -> float | None:
    """Returns the received rate if it is known, else the sent rate."""
    return part["sent_pps"] if part["received_pps"] is None else part["received_pps"]


def _bps(part: PartFigures) -> float | None:
    """Returns the received rate if it is known, else the sent rate."""
    return part["sent_bps"] if part["received_bps"] is None else part["received_bps"]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _scaled(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:,.2f}"
