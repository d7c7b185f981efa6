"""`pktswarm lab`: a cluster of nodes on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.options import Json, examples
from pktswarm.master.cli.quantity import quantity
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

app = typer.Typer(help="Run a cluster of nodes on this machine, in network namespaces.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Option(
        "--name",
        help="Name of the lab, 1 to 20 of a-z, 0-9 and -; several labs can run at once.",
        autocompletion=complete.labs,
    ),
]

Mtu = Annotated[
    int,
    typer.Option(
        parser=quantity("--mtu", units.BYTES, units.Range(whole=True)),
        metavar="SIZE",
        help="MTU of the traffic network, bytes, 576 to 9000, or with a unit: 9k.",
    ),
]
Queue = Annotated[
    int,
    typer.Option(
        parser=quantity("--bottleneck-queue", units.BYTES, units.Range(whole=True)),
        metavar="SIZE",
        help="Queue of the bottleneck, bytes, or with a unit: 64KiB; 0: 20 ms at its rate.",
    ),
]


@app.command(epilog=examples("lab up --transmit 3 --receive 3", "lab up --transmit 1 --receive 1 --bottleneck 40mbit"))
def up(
    name: Name = "default",
    transmit: Annotated[int, typer.Option(help="Number of transmit nodes, 1 to 120.")] = 3,
    receive: Annotated[int, typer.Option(help="Number of receive nodes, 1 to 120.")] = 3,
    mtu: Mtu = 1500,
    bottleneck: Annotated[
        str, typer.Option(help="Rate limit of the device in each direction, 64kbit to 10gbit; default: none.")
    ] = "",
    bottleneck_queue: Queue = 0,
    both_roles: Annotated[bool, typer.Option("--both-roles", help="Give every node both roles.")] = False,
    dut: Annotated[
        str, typer.Option(help="Device under test: switch, router, upf (the lab's own UPF), or exec (COMMAND).")
    ] = "switch",
    switch: Annotated[
        str,
        typer.Option(help="The lab's switches: xdp (fast), or bridge (for tc, nftables and captures on its ports)."),
    ] = "",
    route: Annotated[
        list[str] | None, typer.Option(help="Route of the device to a node, PREFIX=NODE; repeatable.")
    ] = None,
    bare: Annotated[
        str,
        typer.Option(
            help="Start bare nodes of this release, for `pktswarm provision`: bookworm, trixie, jammy, noble."
        ),
    ] = "",
    command: Annotated[list[str] | None, typer.Argument(help="Command of a UPF, for --dut exec, after --.")] = None,
) -> None:
    """Start a lab (a master, nodes, a switch and a device under test), and write its inventory."""
    from pktswarm import lab
    from pktswarm.lab.plan import rate_bps

    rate = rate_bps(bottleneck) if bottleneck else 0
    state = lab.up(
        name,
        transmit,
        receive,
        mtu=mtu,
        bottleneck_bps=rate,
        queue_bytes=bottleneck_queue,
        both_roles=both_roles,
        dut=dut,  # type: ignore[arg-type] # lab.up checks it
        command=command or (),
        routes=route or (),
        bare=bare,
        switch=switch or None,  # type: ignore[arg-type] # lab.up checks it
    )
    nodes = " ".join(node.name for node in state.plan.nodes)
    print(f"lab {name} is up: {nodes}; inventory {state.inventory}")
    if host := state.plan.upf:
        print(f"UPF: N3 {host.n3_ipv4} and {host.n3_ipv6}, N4 {host.n4_ipv4}, N6 {host.n6_ipv4}; SMF {host.smf_ipv4}")
    if router := state.plan.router:
        ports = [f"side {side} {router.ipv4[side]} and {router.ipv6[side]}" for side in router.ipv4]
        print(f"router: {', '.join(ports)}")
    for note in state.notes:
        print(f"note: {note}")


@app.command(epilog=examples("lab down", "lab down --name mine"))
def down(name: Name = "default") -> None:
    """Stop a lab, and remove everything that it created."""
    from pktswarm import lab

    lab.down(name)
    print(f"lab {name} is down")


@app.command(epilog=examples("lab status", "lab status --json"))
def status(name: Name = "default", as_json: Json = False) -> None:
    """Report whether a lab is up, and its processes.

    Exit status: 0 up; 1 not up.
    """
    from pktswarm import lab

    answer = lab.status(name)
    if as_json:
        print(json.dumps(answer))
    elif answer["up"]:
        nodes = ", ".join(f"{node} {pid}" for node, pid in sorted(answer["pids"].items()))
        print(f"lab {name} is up; inventory {answer['inventory']}\nprocesses: keeper {answer['keeper_pid']}, {nodes}")
    else:
        print(f"lab {name} is not up: {answer['why']}")
    raise typer.Exit(0 if answer["up"] else 1)


@app.command("exec", epilog=examples("lab exec rx1 -- tcpdump -ni eth1"))
def exec_(
    node: Annotated[str, typer.Argument(help="Node: m0 (the master), tx1, rx1, …", show_default=False)],
    command: Annotated[list[str], typer.Argument(help="Command and its arguments, after --.", show_default=False)],
    name: Name = "default",
) -> None:
    """Run a command on a node of a lab, and exit with its status."""
    from pktswarm import lab

    raise typer.Exit(lab.run_in(name, node, command))


@app.command(epilog=examples("lab switch", "lab switch --json"))
def switch(name: Name = "default", as_json: Json = False) -> None:
    """Show the stations that the switches of a lab have learned, and the frames that came in at each port."""
    from rich.console import Console
    from rich.table import Table

    from pktswarm import lab

    found = lab.switches(name)
    if as_json:
        print(json.dumps(found))
        return
    heads = ("forwarded", "flooded", "filtered", "discarded", "dropped")
    ports = Table("switch", "port", *heads, title="frames that came in at a port, and that it dropped")
    stations = Table("switch", "VLAN", "MAC", "port", "age, s", title="stations")
    for one in found:
        for port in one["ports"]:
            counts = (port["forwarded"], port["flooded"], port["filtered"], port["discarded"], port["dropped"])
            ports.add_row(one["switch"], port["port"], *(f"{count:,}" for count in counts))
        for station in one["stations"]:
            vlan = str(station["vlan"] or "untagged")
            stations.add_row(one["switch"], vlan, station["mac"], station["port"], f"{station['age_s']:.0f}")
    console = Console()
    console.print(ports)
    console.print(stations)


def _upf_words(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a request to the UPF of a lab."""
    from pktswarm.lab.upf import words

    return [word for word in words.next_words(ctx.params.get("order") or []) if word.startswith(incomplete)]


@app.command(
    epilog=examples(
        "lab upf",
        "lab upf sessions after 1000",
        "lab upf fault downlink drop 1",
        "lab upf fault uplink drop 0 7 delay 3=20ms n4 refuse-every 10 cause 75",
        "lab upf fault none",
        "lab upf restart silent 2s",
        'lab upf \'{"faults": {"uplink": {"drop": [0, 7]}}}\'',
    )
)
def upf(
    order: Annotated[
        list[str] | None,
        typer.Argument(
            help="status; sessions, or sessions after SEID; restart, or restart silent TIME; fault none; "
            "fault uplink, downlink or n4, then FAULT VALUE…, repeatable; or the request as JSON.",
            show_default="status",
            autocompletion=_upf_words,
        ),
    ] = None,
    name: Name = "default",
) -> None:
    """Query the UPF of a lab, or set the faults that it simulates: from now on these and no others (docs/lab.md)."""
    from pktswarm import lab
    from pktswarm.lab.upf import words

    print(json.dumps(lab.order_upf(name, words.order(order or [])), indent=1))


@app.command(epilog=examples("lab record --out /tmp/mine.pcapng"))
def record(
    name: Annotated[str | None, typer.Option(help="Name of the lab.", show_default="default")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Trace file to write.", show_default="configs/traces/lab.pcapng")
    ] = None,
    large: Annotated[
        bool, typer.Option("--large", help="Record a 60 MB download and a UDP video, in a separate lab.")
    ] = False,
    tcp: Annotated[
        Path | None,
        typer.Option(help="With --large: trace of the download.", show_default="configs/traces/large-tcp.pcapng"),
    ] = None,
    udp: Annotated[
        Path | None,
        typer.Option(help="With --large: trace of the video.", show_default="configs/traces/large-udp.pcapng"),
    ] = None,
) -> None:
    """Record a trace of real programs in a lab: HTTPS, DNS, an RTP-like stream, a TCP transfer."""
    from pktswarm.lab import record_large
    from pktswarm.lab.record import record as record_in

    if not large and (given := tcp or udp):
        raise BadInput(
            "lab record", "requires --large; --out names the small trace", key="--tcp, --udp", value=str(given)
        )
    if large and (name or out):
        problem = "excluded by --large, which has a separate lab; --tcp and --udp name its traces"
        raise BadInput("lab record", problem, key="--name, --out", value=str(name or out))
    if large:
        files = (tcp or record_large.TCP_OUT, udp or record_large.UDP_OUT)
        traces = dict(zip(files, record_large.record_large(*files), strict=True))
    else:
        out = out or Path("configs/traces/lab.pcapng")
        traces = {out: record_in(name or "default", out)}
    for path, trace in traces.items():
        print(f"{path}: {len(trace.packets):,} packets, {trace.size_bytes:,} bytes, {trace.duration_ns / 1e9:.1f} s")


@app.command(epilog=examples("lab vm -- uname -r", "lab vm --pair e1000e -- ip link", "lab vm --icount -- date"))
def vm(
    command: Annotated[list[str], typer.Argument(help="Command and its arguments, after --.", show_default=False)],
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Number of processors; default: 2, with --icount 1.", show_default=False)
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory, with unit K, M or G.")] = "2G",
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL", help="Add two emulated interfaces, connected to each other: e1000e, e1000, …; repeatable."
        ),
    ] = None,
    icount: Annotated[
        bool,
        typer.Option(
            "--icount", help="The machine's clocks count its instructions: load of this machine cannot hold it up."
        ),
    ] = False,
) -> None:
    """Run a command in a virtual machine with Debian's kernel, which has pktgen; the first call installs it."""
    from pktswarm.lab import vm as machine

    raise typer.Exit(machine.run(command, cpus=cpus, memory=memory, pairs=pair or (), icount=icount))
