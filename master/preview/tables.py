"""Output of `pktswarm preview`: tables, JSON, and the data of every plot as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from pktswarm.master.output import figures_table, write_rows
from pktswarm.master.preview.document import (
    ConnectionFigures,
    GapFigures,
    LegFigures,
    PreviewDocument,
    StreamFigures,
)
from pktswarm.master.preview.preview import Connections, Preview, Stream
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.preview.due_frames import Counts, Gaps, Series, Share

TIMES_SHOWN, SIZES_SHOWN, USERS_SHOWN = 10, 8, 10

# --- the terminal ------------------------------------------------------------------------------------------------


def print_preview(console: Console, found: Preview) -> None:
    for print_one in (_print_legs, _print_times, _print_sizes, _print_gaps, _print_users, _print_connections):
        print_one(console, found)
    for leg, why in found.untimed:
        if leg.kind != "connections":
            console.print(f"[yellow]not counted[/]: {escape(leg.stream)} from {escape(leg.source)}: {escape(why)}")
    for note in found.notes:
        console.print(f"note: {escape(note)}")


def _print_legs(console: Console, found: Preview) -> None:
    rates = "rate\npackets\n/s", "peak\npackets\n/s", "rate\nMbit/s\nL2", "peak\nMbit/s\nL2"
    table = figures_table(["stream", "from → to"], ["packets", "MB", "time\ns", *rates])
    for stream in found.streams.values():
        pairs = _by_ends(stream)
        for (source, target), shares in pairs.items():
            cells = _stream_cells(stream) if len(pairs) == 1 else _pair_cells(shares)
            table.add_row(escape(stream.name), escape(f"{source} → {target}"), *cells)
        if len(pairs) > 1:
            table.add_row(escape(stream.name), "all", *_stream_cells(stream))
    if found.streams:
        console.print(table)


def _by_ends(stream: Stream) -> dict[tuple[str, str], list[Share]]:
    """Groups flows by ends; the instances of a trace share theirs."""
    pairs: dict[tuple[str, str], list[Share]] = {}
    for share in stream.shares:
        pairs.setdefault((share.leg.source, share.leg.target), []).append(share)
    return pairs


def _pair_cells(shares: list[Share]) -> list[str]:
    packets, size_bytes = sum(share.packets for share in shares), sum(share.bytes for share in shares)
    seconds = _longest(shares)
    pps, mbps = _per(packets, seconds), _per(8 * size_bytes / 1e6, seconds)
    return [f"{packets:,}", _number(size_bytes / 1e6), _number(seconds), pps, "", mbps, ""]


def _stream_cells(stream: Stream) -> list[str]:
    peak_pps, peak_bps = _peaks(stream.over_time)
    cells = [f"{stream.packets:,}", _number(stream.bytes / 1e6), _number(_longest(stream.shares))]
    pps = _per(stream.packets, _longest(stream.shares))
    mbps = _per(8 * stream.bytes / 1e6, _longest(stream.shares))
    return [*cells, pps, _number(peak_pps), mbps, _number(peak_bps / 1e6)]


def _seconds(gaps: Gaps) -> float | None:
    """Returns the duration: from the first to the last frame, plus one mean gap."""
    return None if gaps.mean_ns is None else (gaps.span_ns + gaps.mean_ns) / 1e9


def _longest(shares: list[Share]) -> float | None:
    return max((seconds for share in shares if (seconds := _seconds(share.gaps)) is not None), default=None)


def _per(amount: float, seconds: float | None) -> str:
    return _number(amount / seconds if seconds else None)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10_000 else f"{value:,.4g}"


def _peaks(series: Series) -> tuple[float, float]:
    """Returns the packets/s and bit/s of the fullest bin."""
    each_s = series.bin_ns / 1e9
    return float(series.packets.max(initial=0)) / each_s, float(series.bits.max(initial=0)) / each_s


def _print_times(console: Console, found: Preview) -> None:
    """Prints the total over time in TIMES_SHOWN rows, each of whole bins."""
    series = total(found)
    if not len(series.packets):
        return
    step = -(-len(series.packets) // TIMES_SHOWN)
    table = figures_table(["time, s"], ["packets", "packets/s", "Mbit/s L2", "peak Mbit/s L2"])
    for first in range(0, len(series.packets), step):
        part = slice(first, first + step)
        packets, bits = series.packets[part], series.bits[part]
        seconds = len(packets) * found.bin_ns / 1e9
        rates = (packets.sum() / seconds, bits.sum() / seconds / 1e6, bits.max() / found.bin_ns * 1e3)
        begin = first * found.bin_ns / 1e9
        table.add_row(f"{begin:.4g} – {begin + seconds:.4g}", f"{packets.sum():,}", *(_number(rate) for rate in rates))
    console.print(table)
    console.print(f"[dim]bins of {found.bin_ns / 1e6:g} ms[/]")


def total(found: Preview) -> Series:
    """Sums all streams."""
    whole = Series(found.bin_ns)
    whole.add_all([stream.over_time for stream in found.streams.values()])
    return whole


def _print_sizes(console: Console, found: Preview) -> None:
    table = figures_table(["stream", "size, bytes"], ["packets", "share"])
    for stream in found.streams.values():
        rows = sizes_of(stream.sizes)
        ordered = sorted(rows, key=lambda row: -row[1])
        for number, (size, packets) in enumerate(sorted(ordered[:SIZES_SHOWN])):
            name = escape(stream.name) if not number else ""
            table.add_row(name, str(size), f"{packets:,}", f"{packets / stream.packets:.1%}")
        if rest := ordered[SIZES_SHOWN:]:
            packets = sum(number for _, number in rest)
            table.add_row("", f"{len(rest)} others", f"{packets:,}", f"{packets / stream.packets:.1%}")
    if found.streams:
        console.print(table)


def sizes_of(counts: Counts) -> list[tuple[int, int]]:
    """Returns (size, packets) of the sizes that occur."""
    return [(size, packets) for size, packets in enumerate(counts.packets.tolist()) if packets]


def _print_gaps(console: Console, found: Preview) -> None:
    table = figures_table(["inter-arrival time, µs", "of"], ["minimum", "mean", "maximum", "cv", "gaps of 0"])
    for name, of, gaps in all_gaps(found):
        if gaps.count:
            figures = (gaps.least_ns or 0, gaps.mean_ns or 0, gaps.largest_ns)
            cells = [f"{figure / 1e3:,.4g}" for figure in figures]
            table.add_row(escape(name), escape(of), *cells, _variation(gaps), f"{gaps.zero:,}")
    if table.row_count:
        console.print(table)


def _variation(gaps: Gaps) -> str:
    return "–" if gaps.variation is None else f"{gaps.variation:.3f}"


def all_gaps(found: Preview) -> Iterator[tuple[str, str, Gaps]]:
    """Yields (name, host, gaps) of each leg, and of all frames of each host."""
    for stream in found.streams.values():
        yield from ((stream.name, share.leg.source, share.gaps) for share in stream.shares)
    for host, gaps in found.hosts.items():
        yield "all", host, gaps


def _print_users(console: Console, found: Preview) -> None:
    table = figures_table(["stream", "user"], ["packets", "MB", "share"])
    for stream in found.streams.values():
        ordered = sorted(stream.users.items(), key=lambda row: -row[1][0])
        for number, (user, (packets, size_bytes)) in enumerate(ordered[:USERS_SHOWN]):
            name = escape(stream.name) if not number else ""
            table.add_row(name, escape(user), f"{packets:,}", _number(size_bytes / 1e6), _share(packets, stream))
        if rest := ordered[USERS_SHOWN:]:
            packets, size_bytes = (sum(row[1][column] for row in rest) for column in (0, 1))
            label = f"{len(rest):,} others"
            table.add_row("", label, f"{packets:,}", _number(size_bytes / 1e6), _share(packets, stream))
    if table.row_count:
        console.print(table)


def _share(packets: int, stream: Stream) -> str:
    return f"{packets / stream.packets:.2%}" if stream.packets else "–"


def _print_connections(console: Console, found: Preview) -> None:
    table = figures_table(["connections", "from – to", "protocol"], ["at once", "blocks", "MB", "Mbit/s"])
    for connections in found.connections:
        leg, shape = connections.leg, connections.leg.connection
        size = _number(None if connections.bytes is None else connections.bytes / 1e6)
        blocks = "–" if connections.blocks is None else f"{connections.blocks:,}"
        ends = f"{leg.source} {_arrow(leg)} {leg.target}"
        cells = [str(shape.connections), blocks, size, _number(_offered_mbps(connections))]
        table.add_row(escape(leg.stream), escape(ends), shape.protocol, *cells)
    if found.connections:
        console.print(table)
        console.print("[dim]blocks of the application by due time; the kernel makes the packets[/]")


def _arrow(leg: Leg) -> str:
    return {"up": "→", "down": "←", "both": "↔"}[leg.connection.direction]


def _offered_mbps(connections: Connections) -> float | None:
    """Returns the offered rate; None without due times."""
    if connections.over_time is None or not len(connections.over_time.bits):
        return None
    seconds = len(connections.over_time.bits) * connections.over_time.bin_ns / 1e9
    return float(connections.over_time.bits.sum()) / seconds / 1e6


# --- JSON --------------------------------------------------------------------------------------------------------


def document(found: Preview) -> PreviewDocument:
    return {
        "name": found.name,
        "bin_s": found.bin_ns / 1e9,
        "duration_s": found.duration_ns / 1e9,
        "packets": sum(stream.packets for stream in found.streams.values()),
        "bytes": sum(stream.bytes for stream in found.streams.values()),
        "streams": [_stream(stream) for stream in found.streams.values()],
        "hosts": [{"host": host, "gaps": _gaps(gaps)} for host, gaps in found.hosts.items()],
        "connections": [_connection(connections) for connections in found.connections],
        "untimed": [{"stream": leg.stream, "from": leg.source, "why": why} for leg, why in found.untimed],
        "notes": found.notes,
    }


def _stream(stream: Stream) -> StreamFigures:
    peak_pps, peak_bps = _peaks(stream.over_time)
    return {
        "name": stream.name,
        "packets": stream.packets,
        "bytes": stream.bytes,
        "peak_pps": peak_pps,
        "peak_bps": peak_bps,
        "packets_in_bins": stream.over_time.packets.tolist(),
        "bits_in_bins": stream.over_time.bits.tolist(),
        "sizes": [{"size_bytes": size, "packets": packets} for size, packets in sizes_of(stream.sizes)],
        "users": [{"user": user, "packets": row[0], "bytes": row[1]} for user, row in stream.users.items()],
        "legs": [_leg(share) for share in stream.shares],
    }


def _leg(share: Share) -> LegFigures:
    leg, seconds = share.leg, _seconds(share.gaps)
    return {
        "leg": leg.id,
        "from": leg.source,
        "to": leg.target,
        "engine": leg.engine,
        "intended_packets": leg.intended_packets,
        "packets": share.packets,
        "bytes": share.bytes,
        "first_ns": share.gaps.first_ns,
        "last_ns": None if share.gaps.first_ns is None else share.gaps.last_ns,
        "rate_pps": share.packets / seconds if seconds else None,
        "rate_bps": 8 * share.bytes / seconds if seconds else None,
        "gaps": _gaps(share.gaps),
    }


def _gaps(gaps: Gaps) -> GapFigures:
    return {
        "gaps": gaps.count,
        "least_ns": gaps.least_ns,
        "mean_ns": gaps.mean_ns,
        "largest_ns": gaps.largest_ns if gaps.count else None,
        "variation": gaps.variation,
        "zero": gaps.zero,
    }


def _connection(connections: Connections) -> ConnectionFigures:
    leg, series = connections.leg, connections.over_time
    return {
        "stream": leg.stream,
        "from": leg.source,
        "to": leg.target,
        "protocol": leg.connection.protocol,
        "connections": leg.connection.connections,
        "direction": leg.connection.direction,
        "blocks": connections.blocks,
        "bytes": connections.bytes,
        "bits_in_bins": None if series is None else series.bits.tolist(),
    }


# --- CSV ---------------------------------------------------------------------------------------------------------


def write_csv(folder: Path, found: Preview) -> None:
    """Writes rates.csv, sizes.csv, gaps.csv, users.csv and connections.csv."""
    files = {
        "rates.csv": ("stream,from_ns,to_ns,packets,bits", _rate_rows(found)),
        "sizes.csv": ("stream,size_bytes,packets", _size_rows(found)),
        "gaps.csv": ("stream,from,from_ns,to_ns,packets", _gap_rows(found)),
        "users.csv": ("stream,user,packets,bytes", _user_rows(found)),
        "connections.csv": ("stream,from,from_ns,to_ns,blocks,bits", _connection_rows(found)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (header, rows) in files.items():
            write_rows(folder / name, header, rows)
    except OSError as error:
        raise BadInput(folder, f"cannot be written: {error.strerror}", key="--csv") from None


def _bins(series: Series) -> Iterator[list[int]]:
    """Yields (from_ns, to_ns, packets, bits)."""
    for number, (packets, bits) in enumerate(zip(series.packets.tolist(), series.bits.tolist(), strict=True)):
        yield [number * series.bin_ns, (number + 1) * series.bin_ns, packets, bits]


def _rate_rows(found: Preview) -> Iterable[list[object]]:
    for stream in found.streams.values():
        yield from ([stream.name, *row] for row in _bins(stream.over_time))


def _size_rows(found: Preview) -> Iterable[list[object]]:
    for stream in found.streams.values():
        yield from ([stream.name, *row] for row in sizes_of(stream.sizes))


def _gap_rows(found: Preview) -> Iterable[list[object]]:
    for name, host, gaps in all_gaps(found):
        yield [name, host, 0, 0, gaps.zero]
        edges = gaps.edges_ns().tolist()
        for low, high, packets in zip(edges, edges[1:], gaps.histogram.tolist(), strict=False):
            if packets:
                yield [name, host, f"{low:.6g}", f"{high:.6g}", packets]


def _user_rows(found: Preview) -> Iterable[list[object]]:
    for stream in found.streams.values():
        yield from ([stream.name, user, *row] for user, row in stream.users.items())


def _connection_rows(found: Preview) -> Iterable[list[object]]:
    for connections in found.connections:
        if connections.over_time is not None:
            yield from ([connections.leg.stream, connections.leg.source, *row] for row in _bins(connections.over_time))
