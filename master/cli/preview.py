"""`pktswarm preview`: what a scenario would send, without sending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.traffic.errors import BadInput

NS_PER_S = 1_000_000_000
EXAMPLES = """Examples:

pktswarm preview configs/demo.yaml

pktswarm preview configs/demo.yaml --hosts hosts/example.yml --host odroid-t1 --png demo.png

pktswarm preview configs/demo.yaml --stream small --pcap small.pcap --csv data/"""


def preview(
    scenario: Annotated[Path, typer.Argument(help="A scenario, e.g. configs/demo.yaml", show_default=False)],
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="The inventory.", show_default="one made up: tx1, rx1")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Only what this transmitter sends.", show_default="all")] = None,
    stream: Annotated[str | None, typer.Option(help="Only this stream or trace.", show_default="all")] = None,
    bin_s: Annotated[float | None, typer.Option("--bin", help="Width of a bin, s.", show_default="chosen")] = None,
    pcap: Annotated[Path | None, typer.Option(help="Write the frames with their due times, as pcap.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the data of every plot into this folder.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw everything in one picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Show what would be sent: packets and bits over time, sizes, inter-arrival times, users. No host is touched."""
    from pktswarm.master.output import check_picture
    from pktswarm.master.preview import preview as previews
    from pktswarm.master.preview import tables
    from pktswarm.master.results import terminal

    bin_ns = _bin_ns(bin_s)
    check_picture(png, "--png", ".png", "preview")
    check_picture(svg, "--svg", ".svg", "preview")
    source = previews.Source(scenario, hosts)
    legs = source.select(host, stream)
    written = None if pcap is None else previews.write_pcap(source, legs, pcap)
    found = previews.look(source, legs, bin_ns)
    if csv is not None:
        tables.write_csv(csv, found)
    for path in (png, svg):
        if path is not None:
            # matplotlib takes half a second to load.
            from pktswarm.master.preview.plot import draw

            draw(found, path)
    if as_json:
        print(json.dumps({**tables.document(found), "pcap_packets": written}))
        return
    tables.print_preview(terminal.console(), found)
    if written is not None:
        print(f"{pcap}: {written:,} packets")


def _bin_ns(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 1e-9 <= seconds < 1e9:
        raise BadInput("preview", "is no width", key="--bin", value=seconds, allowed="1e-9 to 1e9 seconds")
    return round(seconds * NS_PER_S)
