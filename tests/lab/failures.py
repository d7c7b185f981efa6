"""What can happen to a run, done to a cluster in the lab; and what its report must agree with afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from pktswarm import lab
from pktswarm.lab import namespaces
from pktswarm.lab.switch import xdp
from run_cluster import Cluster, network_of, pids_of
from running import received_packets, sent_packets


class InLab(Protocol):
    """A cluster whose nodes are network namespaces of a lab."""

    state: lab.LabState


Packets = dict[str, tuple[int, int]]
"""Of each node: sent and received by its traffic interface."""


def inside(cluster: InLab, node: str, *command: str) -> str:
    """What a command prints in the network of a node, or of the lab's switch."""
    words = ["nsenter", f"--net=/proc/{cluster.state.keeper.pids[node]}/ns/net", *command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextmanager
def control_link_cut(cluster: Cluster, node: str) -> Iterator[None]:
    inside(cluster, node, "ip", "link", "set", "ctl0", "down")
    try:
        yield
    finally:
        inside(cluster, node, "ip", "link", "set", "ctl0", "up")


@contextmanager
def traffic_link_down(cluster: Cluster, node: str) -> Iterator[None]:
    """At the switch, so that the node sees its carrier go."""
    inside(cluster, "switch", "ip", "link", "set", node, "down")
    try:
        yield
    finally:
        inside(cluster, "switch", "ip", "link", "set", node, "up")


@contextmanager
def slow_control_link(cluster: Cluster, node: str, rate: str) -> Iterator[None]:
    """What the node sends over it waits; nothing is lost."""
    inside(cluster, node, *f"tc qdisc add dev ctl0 root tbf rate {rate} burst 32k limit 64m".split())
    try:
        yield
    finally:
        inside(cluster, node, *"tc qdisc del dev ctl0 root".split())


@contextmanager
def flooding_switch(cluster: Cluster) -> Iterator[None]:
    """It forgets which node is where, and learns no more: every frame goes to all."""
    ports = [node for node in cluster.nodes() if node != "m0"]
    with bridging_switch(cluster):
        for port in ports:
            inside(cluster, "switch", *f"ip link set {port} type bridge_slave learning off fdb_flush".split())
        try:
            yield
        finally:
            for port in ports:
                inside(cluster, "switch", *f"ip link set {port} type bridge_slave learning on".split())


@contextmanager
def bridging_switch(cluster: InLab) -> Iterator[None]:
    """The kernel's bridges forward in place of the switches in XDP, if there are any: XDP passes by what the kernel has
    at a port."""
    if cluster.state.plan.switch == "bridge":
        yield
        return
    switches = {"switch": cluster.state.plan.sides, "dut": ("dut",)}
    for host in switches:
        for link in json.loads(inside(cluster, host, *"ip -json link show type veth".split())):
            inside(cluster, host, *f"ip link set {link['ifname']} xdp off".split())
    try:
        yield
    finally:
        for host, bridges in switches.items():
            with namespaces.network_of(cluster.state.keeper.pids[host]):
                for bridge in bridges:
                    xdp.take_over(bridge)


@contextmanager
def disk_full(cluster: Cluster, node: str, folder: str = "var/tmp") -> Iterator[None]:
    """Where its guard writes captures, if nothing else is said."""
    path = cluster.nodes()[node] / folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 12)) == 1 << 12:
                pass
        except OSError:
            pass
    try:
        yield
    finally:
        path.unlink()


def shrink_disk(cluster: Cluster, node: str, mebibytes: int) -> None:
    """So that it can be full: until then it has half of the machine's memory."""
    root = f"--mount=/proc/{cluster.state.keeper.pids[node]}/ns/mnt"
    command = ["nsenter", root, "mount", "-o", f"remount,size={mebibytes}M", "/var/tmp"]
    subprocess.run(command, check=True, capture_output=True)


def engines(cluster: Cluster, node: str, program: str) -> list[int]:
    """The engine's processes on a node, without those that start and limit it."""
    pids = pids_of(program, network_of(cluster, node))
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == program]


@contextmanager
def speaks_otherwise(cluster: Cluster, node: str, program: str, word: str, other: str) -> Iterator[None]:
    """On one node a program says `other` where it says `word`, as another version of it might."""
    path, folder = shutil.which(program), cluster.folder / "otherwise"
    assert path is not None
    folder.mkdir()
    shutil.copy2(path, folder / program)
    wrapper = folder / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{folder / program} "$@" 2>&1 | sed s/{word}/{other}/\n')
    wrapper.chmod(0o755)
    assert lab.run_in(cluster.hosts, node, ["mount", "--bind", str(wrapper), path]) == 0
    try:
        yield
    finally:
        assert lab.run_in(cluster.hosts, node, ["umount", path]) == 0


def launchers(cluster: Cluster, node: str) -> list[int]:
    """mpiexec's proxy on a node."""
    pids = pids_of("hydra_pmi_proxy", network_of(cluster, node))
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith("hydra_pmi_proxy")]


def logins(cluster: Cluster, node: str) -> list[int]:
    """The SSH daemon's processes for who is logged in on a node; it goes on listening without them."""
    return [pid for pid in pids_of("sshd: ", network_of(cluster, node)) if "@" in command_of(pid)]


def everything_of_a_run(cluster: Cluster, node: str) -> list[int]:
    """All that a node would lose with its power, but for the lab's own."""
    found = [pids_of(words, network_of(cluster, node)) for words in ("-m pktswarm.nodes --role ", "hydra_pmi_proxy")]
    return [*{pid for pids in found for pid in pids}, *logins(cluster, node)]


def go_dark(cluster: Cluster, node: str, up: bool = False) -> None:
    """Both of its links: no word of what happens there gets out."""
    for link in ("ctl0", "eth1"):
        inside(cluster, node, "ip", "link", "set", link, "up" if up else "down")


def power_off(cluster: Cluster, node: str) -> None:
    """Its processes end, its network namespace with them, and its cables; the lab is one node short from then on."""
    go_dark(cluster, node)
    send_signal(pids_of("", network_of(cluster, node)), signal.SIGKILL)


def guards(cluster: Cluster, node: str) -> list[int]:
    pids = pids_of("-m pktswarm.nodes --role ", network_of(cluster, node))
    return [pid for pid in pids if Path(f"/proc/{pid}").stat().st_uid == 0 and os.getsid(pid) == pid]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def send_signal(pids: list[int], number: signal.Signals) -> None:
    """Signals every process that still exists; one may have ended with another before."""
    reached = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            reached += 1
    assert reached, "there is no such process"


# --- what the interfaces counted -----------------------------------------------------------------------------------


def packets(cluster: Cluster) -> Packets:
    """As the kernel counts them, apart from the run."""
    pids = cluster.state.keeper.pids
    return {node: (sent_packets(pids[node]), received_packets(pids[node])) for node in cluster.nodes() if node != "m0"}


def disagreements(document: dict[str, Any], before: Packets, after: Packets, flooded: bool = False) -> list[str]:
    """Where the sums of the report are not what the interfaces counted, node by node; of nodes with counts.

    A receiver takes besides the frames what the other receivers announce. `flooded`: and, where a link was down or a
    node is gone, what a switch sends everywhere because it forgot a port.
    """
    found = []
    change = {node: (after[node][0] - before[node][0], after[node][1] - before[node][1]) for node in after}
    for node, (tx, rx) in change.items():
        sent = _sum(document, "from", node, "sent_packets")
        received = _sum(document, "to", node, "received_packets")
        announced = sum(other_tx for other, (other_tx, _) in change.items() if other[:2] == "rx" and other != node)
        if sent is not None and sent != tx:
            found.append(f"{node}: the report says {sent} sent, the interface {tx}")
        if received is not None and (received > rx if flooded else received + announced != rx):
            found.append(f"{node}: the report says {received} received, the interface {rx}, {announced} announcements")
    for row in document["rows"]:
        known = (row["sent_packets"], row["received_packets"], row["lost_packets"])
        if None not in known and row["lost_packets"] != row["sent_packets"] - row["received_packets"]:
            found.append(f"{row['stream']} from {row['from']}: sent, received and lost are {known}")
    return found


def _sum(document: dict[str, Any], end: str, node: str, figure: str) -> int | None:
    figures = [row[figure] for row in document["rows"] if row[end] == node]
    return None if not figures or None in figures else sum(figures)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
