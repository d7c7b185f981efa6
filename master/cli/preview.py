"""`pktswarm preview`: the traffic that a scenario would send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.options import BinWidth, Json, PlotData, Png, ScenarioFile, Svg, examples, nanoseconds

COMMAND = "preview"
EXAMPLES = examples(
    "preview configs/demo.yaml",
    "preview configs/demo.yaml --hosts hosts/example.yml --host odroid-t1 --png demo.png",
    "preview configs/demo.yaml --stream small --pcap small.pcap --csv data/",
)


def preview(
    scenario: ScenarioFile,
    hosts: Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            help="Inventory file.",
            show_default="two made-up hosts, tx1 and rx1",
            autocompletion=complete.inventories,
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Show the packets of this transmitter only.", show_default="all")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(help="Show this stream or trace only.", show_default="all", autocompletion=complete.streams),
    ] = None,
    bin_s: BinWidth = None,
    pcap: Annotated[
        Path | None, typer.Option(help="Write the frames with their due times into this pcap file.")
    ] = None,
    csv: PlotData = None,
    png: Png = None,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Show the traffic that a scenario would send: packets and bits over time, sizes, gaps, users; nothing is sent."""
    from pktswarm.master.output import check_picture
    from pktswarm.master.preview import preview as previews
    from pktswarm.master.preview import tables
    from pktswarm.master.results import terminal

    bin_ns = nanoseconds(COMMAND, "--bin", bin_s, "bin width")
    check_picture(png, "--png", ".png", COMMAND)
    check_picture(svg, "--svg", ".svg", COMMAND)
    source = previews.Source(scenario, hosts)
    legs = source.select(host, stream)
    written = None if pcap is None else previews.write_pcap(source, legs, pcap)
    traffic = previews.look(source, legs, bin_ns)
    if csv is not None:
        tables.write_csv(csv, traffic)
    for path in (png, svg):
        if path is not None:
            # Loading matplotlib takes 0.5 s.
            from pktswarm.master.preview.plot import draw

            draw(traffic, path)
    if as_json:
        print(json.dumps({**tables.document(traffic), "pcap_packets": written}))
        return
    tables.print_preview(terminal.console(), traffic)
    if written is not None:
        print(f"{pcap}: {written:,} packets")
