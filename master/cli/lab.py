"""`pktswarm lab …`: a whole cluster on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.traffic.errors import BadInput

app = typer.Typer(help="A whole cluster on this machine, in network namespaces.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="Which lab: two can stand side by side.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.command(epilog="Example: pktswarm lab up --transmit 3 --receive 3")
def up(
    name: Name = "default",
    transmit: Annotated[int, typer.Option(help="Transmit nodes.")] = 3,
    receive: Annotated[int, typer.Option(help="Receive nodes.")] = 3,
    mtu: Annotated[int, typer.Option(help="MTU of the traffic network, in bytes.")] = 1500,
    bottleneck: Annotated[str, typer.Option(help="What the device lets through each way, e.g. 100mbit.")] = "",
    bottleneck_queue: Annotated[int, typer.Option(help="Bytes it queues; 20 ms of its rate if left out.")] = 0,
    both_roles: Annotated[bool, typer.Option("--both-roles", help="Every node can send and receive.")] = False,
    dut: Annotated[
        str, typer.Option(help="What is under test: switch, upf (the lab's own), or exec (COMMAND).")
    ] = "switch",
    route: Annotated[list[str] | None, typer.Option(help="A UPF's way, PREFIX=NODE; may come again.")] = None,
    bare: Annotated[
        str, typer.Option(help="Nodes start bare, for `pktswarm provision`: bookworm, trixie, jammy, noble.")
    ] = "",
    command: Annotated[list[str] | None, typer.Argument(help="with --dut exec: a UPF, after --")] = None,
) -> None:
    """Bring up a master, nodes, a switch and a device under test; and write the inventory."""
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
        dut=dut,  # type: ignore[arg-type] # checked there
        command=command or (),
        routes=route or (),
        bare=bare,
    )
    nodes = " ".join(node.name for node in state.plan.nodes)
    print(f"lab {name} is up: {nodes}; inventory {state.inventory}")
    if host := state.plan.upf:
        print(f"UPF: N3 {host.n3_ipv4} and {host.n3_ipv6}, N4 {host.n4_ipv4}, N6 {host.n6_ipv4}; SMF {host.smf_ipv4}")
    for note in state.notes:
        print(f"note: {note}")


@app.command()
def down(name: Name = "default") -> None:
    """Take the lab down; nothing of it stays."""
    from pktswarm import lab

    lab.down(name)
    print(f"lab {name} is down")


@app.command()
def status(name: Name = "default", as_json: Json = False) -> None:
    """Say whether the lab is up, and what is in it. Exit status 1 when it is not."""
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


@app.command("exec", epilog="Example: pktswarm lab exec rx1 -- tcpdump -ni eth1")
def exec_(
    node: Annotated[str, typer.Argument(help="m0, tx1, rx1, …", show_default=False)],
    command: Annotated[list[str], typer.Argument(help="what to run, after --", show_default=False)],
    name: Name = "default",
) -> None:
    """Run a command on a node of the lab."""
    from pktswarm import lab

    raise typer.Exit(lab.run_in(name, node, command))


@app.command(epilog='Example: pktswarm lab upf \'{"faults": {"uplink": {"drop": [0, 7]}}}\'')
def upf(
    order: Annotated[str, typer.Argument(help="JSON: status, sessions, faults or restart")] = '{"status": {}}',
    name: Name = "default",
) -> None:
    """Ask the lab's UPF what it did, or tell it what is to go wrong (docs/lab.md)."""
    from pktswarm import lab

    try:
        wanted = json.loads(order)
    except ValueError as error:
        raise BadInput("lab upf", f"is no JSON ({error})", key="order", value=order) from None
    print(json.dumps(lab.tell_upf(name, wanted), indent=1))


@app.command(epilog="Example: pktswarm lab record --out /tmp/mine.pcapng")
def record(
    name: Annotated[str | None, typer.Option(help="The lab. Left out: default")] = None,
    out: Annotated[Path | None, typer.Option(help="The trace. Left out: configs/traces/lab.pcapng")] = None,
    large: Annotated[
        bool, typer.Option("--large", help="In a lab of its own: a download of 60 MB and a video over UDP.")
    ] = False,
    tcp: Annotated[
        Path | None, typer.Option(help="--large: the download's trace. Left out: configs/traces/large-tcp.pcapng")
    ] = None,
    udp: Annotated[
        Path | None, typer.Option(help="--large: the video's trace. Left out: configs/traces/large-udp.pcapng")
    ] = None,
) -> None:
    """Record a trace in the lab between real programs: HTTPS, DNS, an RTP-like stream, a TCP transfer."""
    from pktswarm.lab import record_large
    from pktswarm.lab.record import record as record_in

    if not large and (given := tcp or udp):
        raise BadInput("lab record", "goes with --large; --out names the small trace", key="tcp, udp", value=str(given))
    if large and (name or out):
        problem = "does not go with --large, which has a lab of its own; --tcp and --udp name its traces"
        raise BadInput("lab record", problem, key="name, out", value=str(name or out))
    if large:
        files = (tcp or record_large.TCP_OUT, udp or record_large.UDP_OUT)
        traces = dict(zip(files, record_large.record_large(*files), strict=True))
    else:
        out = out or Path("configs/traces/lab.pcapng")
        traces = {out: record_in(name or "default", out)}
    for path, trace in traces.items():
        print(f"{path}: {len(trace.packets):,} packets, {trace.size_bytes:,} bytes, {trace.duration_ns / 1e9:.1f} s")


@app.command(epilog="Example: pktswarm lab vm -- uname -r")
def vm(
    command: Annotated[list[str], typer.Argument(help="what to run, after --", show_default=False)],
    cpus: Annotated[int, typer.Option(help="Processors of the machine.")] = 2,
    memory: Annotated[str, typer.Option(help="Its memory.")] = "2G",
    virtio_pair: Annotated[bool, typer.Option(help="Give it two virtio interfaces, connected to each other.")] = False,
) -> None:
    """Run a command in a virtual machine with Debian's kernel, which has pktgen; installs it when first asked for."""
    from pktswarm.lab import vm as machine

    raise typer.Exit(machine.run(command, cpus=cpus, memory=memory, virtio_pair=virtio_pair))
