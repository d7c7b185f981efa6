"""One node of the lab: a process that makes itself a host of its own and then only holds its namespaces."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pktswarm.lab import bare, links, mirror, namespaces, release, ssh
from pktswarm.lab.plan import CONTROL_INTERFACE, MASTER, TRAFFIC_INTERFACE, Node, Plan

CONTROL_BRIDGE = "control"
CONTROL_MTU = 1500
SWITCH, DUT = "switch", "dut"
N4 = "n4"
INIT_PID = 1
"""The lab's first process, in whose network namespace the control bridge stands."""


@dataclass(frozen=True)
class Wiring:
    """Where a node's cables go, and the tool to tell its number outside of the lab."""

    plan: Plan
    outer_proc: int
    """A handle of the /proc of the one who called `up`."""
    folder: Path
    """Where `up` was called: a user's UPF starts there."""
    switch_pid: int = 0
    mirror: socket.socket | None = None
    """Of a lab with bare nodes: who serves what the master listens for."""


Setup = Callable[[Wiring], dict[str, Any]]


def hold(name: str, wiring: Wiring, setup: Setup, report: Callable[[dict[str, Any]], None]) -> None:
    """Become host `name`, run `setup` in it, report, and wait for the end of the lab."""
    is_bare = any(node.name == name and node.side for node in wiring.plan.nodes) and wiring.plan.bare
    namespaces.set_process_name(f"lab-{name}")
    namespaces.unshare(namespaces.NODE)
    socket.sethostname(name)
    if is_bare:
        bare.enter_root(wiring.plan.bare)
    _mount_own_files(wiring.plan, name)
    if wiring.plan.bare and name == MASTER:
        bare.show_environment()
    facts = setup(wiring)
    # Read through the caller's /proc this link is our number in the caller's PID namespace.
    outer_pid = int(os.readlink("self", dir_fd=wiring.outer_proc))
    os.close(wiring.outer_proc)
    report({"node": name, "pid": os.getpid(), "outer_pid": outer_pid, **facts})
    while True:
        try:
            os.wait()  # sshd, or a UPF that ended
        except ChildProcessError:
            signal.pause()


def set_up_switch(wiring: Wiring) -> dict[str, Any]:
    """Two switches, one for each side. What joins them is the device under test. A UPF's N4 is a third."""
    links.prepare_namespace(quiet=True)
    for side in wiring.plan.sides:
        links.add_bridge(side, wiring.plan.mtu)
    if wiring.plan.upf:
        links.add_bridge(N4, CONTROL_MTU)
    return {}


def set_up_dut(wiring: Wiring) -> dict[str, Any]:
    """The device under test, to begin with one more switch: a port to side a and a port to side b."""
    links.prepare_namespace(quiet=True)
    links.add_bridge("dut", wiring.plan.mtu)
    for side in ("a", "b"):
        port = f"to-{side}"
        links.add_cable(port, links.Socket(wiring.switch_pid, side, "to-dut-" + side), wiring.plan.mtu)
        links.plug(port, "dut")
        if wiring.plan.bottleneck:
            links.add_bottleneck(port, wiring.plan.bottleneck, wiring.plan.mtu)
            release.release_frames(port)
    return {}


def set_up_node(node: Node) -> Setup:
    """A master, transmit or receive node, with its sshd."""

    def setup(wiring: Wiring) -> dict[str, Any]:
        mtu = wiring.plan.mtu
        links.prepare_namespace(quiet=False)
        control = links.Socket(INIT_PID, CONTROL_BRIDGE, node.name)
        links.add_cable(CONTROL_INTERFACE, control, CONTROL_MTU, node.control_mac, quiet=False)
        links.bring_up(CONTROL_INTERFACE, node.address, 24)
        # Those that are asked for share one table of the kernel's, gc_thresh3: 1,024 for all namespaces. Beyond it,
        # with a hundred nodes, connections are tried for ever.
        others = {other.address: other.control_mac for other in wiring.plan.nodes if other != node}
        links.add_neighbours(CONTROL_INTERFACE, others)
        if node.side:
            traffic = links.Socket(wiring.switch_pid, node.side, node.name, live_frames=True)
            links.add_cable(TRAFFIC_INTERFACE, traffic, mtu, node.mac)
            # Without its address, which is for the frames: a kernel that had it would answer test traffic (ICMP,
            # TCP resets, ARP), and those answers would be counted with it.
            links.bring_up(TRAFFIC_INTERFACE)
        if node.group == "master" and wiring.plan.upf:
            links.add_cable(N4, links.Socket(wiring.switch_pid, N4, f"{N4}-{node.name}"), CONTROL_MTU, quiet=False)
            links.bring_up(N4, wiring.plan.upf.smf_ipv4, 24)
            links.add_ipv6(N4, wiring.plan.upf.smf_ipv6)
        facts = {"host_key": ssh.start_sshd(node, is_bare=bool(node.side and wiring.plan.bare))}
        if node.group == "master":
            facts["client_key"] = ssh.make_key("id_ed25519")
            if wiring.mirror:
                mirror.listen(node.address, wiring.mirror)
        return facts

    return setup


def _mount_own_files(plan: Plan, name: str) -> None:
    """A node's own /sys, /run, shared memory and names; the rest of the file system is the machine's."""
    namespaces.mount_sys()
    namespaces.mount_tmpfs("/run")
    if Path("/dev/shm").is_dir():  # noqa: S108 - hosts share no memory
        namespaces.mount_tmpfs("/dev/shm", mode="1777")  # noqa: S108
    ssh.FOLDER.mkdir(mode=0o700)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in plan.nodes)
    _replace(Path("/etc/hosts"), hosts)
    _replace(Path("/etc/hostname"), f"{name}\n")
    _replace(Path("/etc/pam.d/sshd"), ssh.PAM)
    # bash reads it for every command over SSH: that may take long, print something, or change the PATH.
    _replace(Path(pwd.getpwuid(0).pw_dir) / ".bashrc", "")


def _replace(target: Path, text: str) -> None:
    """Show `text` as file `target` in this mount namespace. A file that the machine lacks cannot be shown."""
    if target.exists():
        source = ssh.FOLDER / target.name
        source.write_text(text)
        source.chmod(0o644)
        namespaces.bind(source, target)
