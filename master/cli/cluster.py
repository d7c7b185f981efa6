"""`pktswarm cluster`: ranks that stay up between commands."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pktswarm.master.cli.defaults import DEFAULT_HOSTS
from pktswarm.master.cli.options import Hosts, Json, Patience, enter_lab, examples
from pktswarm.master.cli.quantity import time_option
from pktswarm.traffic.errors import EXIT_NOT_AS_EXPECTED, PktswarmError
from pktswarm.traffic.protocol.codec import to_object

if TYPE_CHECKING:
    from pktswarm.master.cluster.inventory import Inventory
    from pktswarm.master.run.cluster_lease import Daemon
    from pktswarm.master.run.kept_ranks import KeptRanks
    from pktswarm.traffic.protocol.cluster_events import ClusterEvent, Shown

START_S, POLL_S = 10.0, 0.02
app = typer.Typer(
    help="Keep the processes of the nodes between commands, so that runs start in a fraction of a second.",
    no_args_is_help=True,
)


@app.command(epilog=examples("cluster up", "cluster up --hosts hosts/example.yml --idle 2h"))
def up(
    hosts: Hosts = DEFAULT_HOSTS,
    idle: Annotated[
        float,
        typer.Option(
            "--idle",
            parser=time_option("--idle"),
            metavar="TIME",
            help="The cluster ends when no command has used it for this time.",
            show_default="30min",
        ),
    ] = 1800.0,
    patience: Patience = 1.0,
    preload: Annotated[
        bool,
        typer.Option(
            "--preload/--no-preload",
            help="Keep a process on this host that has the program loaded, for the commands that follow.",
        ),
    ] = True,
) -> None:
    """Start the ranks of all hosts of an inventory, and keep them for the commands that follow.

    run, search, rfc2544, y1564, calibrate and table use a cluster that is up by themselves. The nodes stay in use by
    this user, and are restored after each run as always.

    Exit status: 0 the cluster is up; 2 bad input or a host that cannot be reached; 3 a node is in use.
    """
    from pktswarm.master.cluster import inventory as inventories

    inventory = inventories.load(hosts)
    with _preloading(hosts) if preload else contextlib.nullcontext(_no_cluster) as follow:
        enter_lab(hosts)
        was_there, notes = _with_ranks(hosts, inventory, idle, patience)
        follow(_shown(hosts))
    for note in notes:
        print(note, file=sys.stderr)
    count = sum(len(host.roles) for host in inventory.hosts)
    already = " already" if was_there else ""
    print(f"the cluster of {hosts} is{already} up: {count} ranks on {len(inventory.hosts)} hosts")


@app.command(epilog=examples("cluster status", "cluster status --json"))
def status(hosts: Hosts = DEFAULT_HOSTS, as_json: Json = False) -> None:
    """Report whether a cluster is up, and who uses it.

    Exit status: 0 it is up; 1 it is not; 2 bad input.
    """
    enter_lab(hosts)
    shown = _shown(hosts)
    if as_json:
        print(json.dumps({"hosts_file": str(hosts), "state": "down"} if shown is None else to_object(shown)))
    else:
        print(f"the cluster of {hosts} is not up" if shown is None else _text(hosts, shown))
    raise typer.Exit(EXIT_NOT_AS_EXPECTED if shown is None else 0)


@app.command(epilog=examples("cluster down", "cluster down --now"))
def down(
    hosts: Hosts = DEFAULT_HOSTS,
    now: Annotated[bool, typer.Option("--now", help="Stop the run that uses it.")] = False,
) -> None:
    """End the ranks of a cluster. A cluster that is in use is ended with --now only.

    Exit status: 0 the cluster is not up any more, or was not; 2 bad input; 3 it is in use.
    """
    enter_lab(hosts)
    ended = _end(hosts, now)
    print(f"the cluster of {hosts} is {'down' if ended else 'not up'}")


def kept_ranks(waits: bool, several: bool = True) -> KeptRanks:
    """The ranks of a command; see KeptRanks."""
    from pktswarm.master.run.kept_ranks import KeptRanks

    return KeptRanks(several, waits, _progress)


def held_by(hosts: Path) -> str:
    """The run by which the cluster of this inventory holds its nodes; empty: it holds none."""
    shown = _shown(hosts)
    return "" if shown is None else shown.run


def _with_ranks(hosts: Path, inventory: Inventory, idle_s: float, patience: float) -> tuple[bool, list[str]]:
    """Make sure that there is a daemon and that its ranks are up. Returns whether there was one, and notes."""
    from pktswarm.master.run.cluster_lease import Daemon, Lease

    was_there = Daemon.of(hosts)
    daemon = was_there or _spawned(hosts, idle_s, patience)
    try:
        notes = Lease(daemon).take(inventory, patience, _progress)
    except PktswarmError:
        if was_there is None:
            _end(hosts)
        raise
    finally:
        daemon.close()
    if notes is None:
        raise PktswarmError(f"{hosts}: the cluster ended while its ranks were started")
    return was_there is not None, notes


def _spawned(hosts: Path, idle_s: float, patience: float) -> Daemon:
    from pktswarm.master.run.cluster_lease import Daemon

    command = [sys.executable, "-P", "-m", "pktswarm.master.run.cluster_daemon", "--hosts", str(hosts.resolve())]
    command += ["--idle", str(idle_s), "--patience", str(patience)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, text=True, cwd="/", start_new_session=True
    )
    deadline = time.monotonic() + START_S * patience
    while (daemon := Daemon.of(hosts)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            words = process.communicate()[1].strip().splitlines()
            raise PktswarmError(f"{hosts}: the cluster's daemon does not start: {words[-1] if words else 'no message'}")
        time.sleep(POLL_S)
    return daemon


@contextlib.contextmanager
def _preloading(hosts: Path) -> Iterator[Callable[[Shown | None], None]]:
    """Load the program in a process of its own meanwhile. It must begin before this one enters a lab: the commands that
    follow come from outside. Yields what makes it last as long as a cluster, and waits until it is there."""
    program = "from pktswarm.master.cli.preloaded import main; main()"
    command = [sys.executable, "-P", "-c", program, str(hosts.resolve())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as order, process.stdout as answer:

        def follow(cluster: Shown | None) -> None:
            if cluster is None:
                return
            with contextlib.suppress(BrokenPipeError):  # its end shows in the answer
                os.write(order.fileno(), f"{cluster.pid}\n".encode())
            if not answer.readline() and process.wait():
                print("the program could not be preloaded: commands load it themselves", file=sys.stderr)

        yield follow  # without an order it ends with the pipe


def _no_cluster(cluster: Shown | None) -> None:
    """In place of what _preloading() yields."""


def _progress(event: ClusterEvent) -> None:
    from pktswarm.traffic.protocol.cluster_events import Waiting

    words = f"waiting for the cluster: {event.holder}" if isinstance(event, Waiting) else "starting the ranks …"
    print(words, file=sys.stderr)


def _shown(hosts: Path) -> Shown | None:
    """The daemon's state; None: there is no daemon."""
    from pktswarm.master.run.cluster_lease import Daemon
    from pktswarm.traffic.protocol.cluster_events import Shown
    from pktswarm.traffic.protocol.cluster_orders import Show

    daemon = Daemon.of(hosts)
    if daemon is None:
        return None
    answer = daemon.ask(Show())
    daemon.close()
    return answer if isinstance(answer, Shown) else None


def _end(hosts: Path, now: bool = True) -> bool:
    """Ends the daemon, and waits for that. Returns whether there was one."""
    from pktswarm.master.run.cluster_lease import Daemon
    from pktswarm.traffic.protocol.cluster_events import Refused
    from pktswarm.traffic.protocol.cluster_orders import Down

    daemon = Daemon.of(hosts)
    if daemon is None:
        return False
    answer = daemon.ask(Down(now))
    daemon.close()
    if isinstance(answer, Refused):
        raise PktswarmError(f"{hosts}: {answer.problem}; --now stops it")
    return True


def _text(hosts: Path, shown: Shown) -> str:
    lines = [f"the cluster of {hosts} is {shown.state} (process {shown.pid}, since {shown.since}, {shown.uses} uses)"]
    lines += [f"  {place.host} {place.role}" for place in shown.ranks]
    lines += [f"used by {shown.holder}"] if shown.holder else []
    lines += [f"waiting: {shown.waiting}"] if shown.waiting else []
    lines += [f"no ranks: {shown.trouble}"] if shown.trouble else []
    if not shown.holder:
        lines.append(f"ends after {max(0.0, shown.idle_limit_s - shown.idle_s):,.0f} s more without use")
    return "\n".join(lines)
