"""The figures of a run as a person sees them: a screen that is drawn again and again, or a line now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pktswarm.master.live.phases import words_of

BARS = "▁▂▃▄▅▆▇█"
SPARKS = ((130, 30), (105, 12), (0, 0))
"""From a terminal of so many columns on: the sparklines' width."""
PROGRESS_COLUMNS = 40
LEAST_ROWS = 4
"""Of each table, however low the terminal is."""
FRAME_ROWS = 12
"""What stands around the rows: progress, headings, totals."""
COLUMNS = ("intended", "sent", "received", "missing", "loss", "kpkt/s", "Mbit/s", "latency µs")
FEW_COLUMNS = ("sent", "received", "loss", "kpkt/s", "Mbit/s", "latency µs")
"""Where there is no room for sparklines."""


def screen(document: dict[str, Any], width: int, height: int) -> RenderableType:
    """As many streams and nodes as fit; the others are told by number."""
    sparks = next(columns for least, columns in SPARKS if width >= least)
    room = max(2 * LEAST_ROWS, height - FRAME_ROWS - len(document["warnings"]))
    nodes = min(len(document["nodes"]), max(LEAST_ROWS, room - len(document["streams"])))
    streams = max(LEAST_ROWS, room - nodes)
    parts: list[RenderableType] = [progress(document)]
    if document["streams"]:
        parts.append(_streams(document, streams, sparks))
    if any(node["interface"] for node in document["nodes"]):
        parts.append(_nodes(document, nodes, sparks))
    parts += [Text(f"! {one['text']} (at {one['at_s']:.0f} s)", style="yellow") for one in document["warnings"]]
    return Group(*parts)


def line(document: dict[str, Any]) -> str:
    """Everything together."""
    if document.get("sessions"):
        return _clock(document)
    total = document["total"]
    counted = [f"{_count(total[f'{name}_packets'])} {name}" for name in ("intended", "sent", "received", "missing")]
    rate = [f"{_scaled(_rate(total, 'pps'), 1e3)} kpkt/s", f"{_scaled(_rate(total, 'bps'), 1e6)} Mbit/s"]
    latency = [] if total["latency_mean_ns"] is None else [f"latency {_latency(total)} µs"]
    return f"{_clock(document)}: {', '.join([*counted, *rate, *latency])}"


def sparkline(values: Sequence[float | None], columns: int) -> str:
    """The newest value on the right; where there are more values than columns each stands for several, by their mean.
    From 0 to the highest."""
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


def _clock(document: dict[str, Any]) -> str:
    words = words_of(document["phase"])
    if sessions := document.get("sessions"):
        return f"{words}, {sessions['done']:,} of {sessions['asked']:,}"
    if document["phase"] != "send":
        return words
    return f"{words}, {document['elapsed_s']:.0f} of {document['expected_s']:.0f} s, {document['left_s']:.0f} s left"


def progress(document: dict[str, Any]) -> Table:
    shown = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(document["expected_s"], 0.001), completed=_sent_for_s(document), width=PROGRESS_COLUMNS)
    shown.add_row(Text(document["name"], style="bold"), bar, Text(_clock(document)))
    return shown


def _sent_for_s(document: dict[str, Any]) -> float:
    """Of the expected time; what follows the sending has none."""
    return float(document["expected_s"] - document["left_s"])


def _streams(document: dict[str, Any], most: int, sparks: int) -> Table:
    table = _table("stream", sparks)
    for one in document["streams"][:most]:
        name = escape(one["stream"]) + (" [dim]background[/]" if one["group"] == "background" else "")
        table.add_row(name, *_cells(one, sparks))
    _tell_rest(table, len(document["streams"]) - most)
    if len(document["streams"]) > 1:
        table.add_section()
        table.add_row("all", *_cells(document["total"], sparks), style="bold")
    return table


def _nodes(document: dict[str, Any], most: int, sparks: int) -> Table:
    """An engine that tells nothing while it runs leaves empty cells; the interface's rates are always there."""
    table = _table("node", sparks)
    for one in document["nodes"][:most]:
        name = f"{escape(one['node'])} {one['role']}" + ("" if one["state"] == "ok" else f" [red]{one['state']}[/]")
        table.add_row(name, *_cells({**one, **_by_interface(one)}, sparks))
    _tell_rest(table, len(document["nodes"]) - most)
    return table


def _by_interface(node: dict[str, Any]) -> dict[str, Any]:
    way, engine = ("tx", "sent") if node["role"] == "transmit" else ("rx", "received")
    told = node["interface"]
    if node[f"{engine}_pps"] is not None or not told:
        return {}
    return {"received_pps": told[f"{way}_pps"], "received_bps": told[f"{way}_bps"]}


def _table(what: str, sparks: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column(what, no_wrap=True)
    for name in COLUMNS if sparks else FEW_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    if sparks:
        table.add_column("last minute", no_wrap=True, min_width=sparks)
    return table


def _tell_rest(table: Table, more: int) -> None:
    if more > 0:
        table.add_row(f"[dim]and {more} more[/]")


def _cells(one: dict[str, Any], sparks: int) -> list[str]:
    missing, ratio = one["missing_packets"], one["loss_ratio"]
    cells = {name: _count(one[f"{name}_packets"]) for name in ("intended", "sent", "received", "missing")}
    cells["missing"] = f"[red]{cells['missing']}[/]" if missing else cells["missing"]
    cells["loss"] = "–" if ratio is None else f"{ratio:.2%}"
    cells["kpkt/s"] = _scaled(_rate(one, "pps"), 1e3)
    cells["Mbit/s"] = _scaled(_rate(one, "bps"), 1e6)
    cells["latency µs"] = _latency(one)
    if not sparks:
        return [cells[name] for name in FEW_COLUMNS]
    return [*(cells[name] for name in COLUMNS), sparkline(one["last_minute_pps"], sparks)]


def _latency(one: dict[str, Any]) -> str:
    """With how far off it may be, where that is known."""
    bound_ns = one["latency_bound_ns"]
    told = _scaled(one["latency_mean_ns"], 1e3)
    return told if bound_ns is None or one["latency_mean_ns"] is None else f"{told} ±{bound_ns / 1e3:,.1f}"


def _rate(one: dict[str, Any], unit: str) -> float | None:
    """Received where that is known, else sent."""
    sent: float | None = one[f"sent_{unit}"]
    received: float | None = one[f"received_{unit}"]
    return sent if received is None else received


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _scaled(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:,.2f}"
