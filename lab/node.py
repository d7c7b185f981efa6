"""One node of the lab: a process that becomes a host of its own, and then holds its namespaces."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pktswarm.lab import bare, links, mirror, namespaces, release, ssh
from pktswarm.lab.messages import NodeUp
from pktswarm.lab.plan import CONTROL_INTERFACE, MASTER, TRAFFIC_INTERFACE, Node, Plan
from pktswarm.lab.switch import xdp

CONTROL_BRIDGE = "control"
CONTROL_MTU = 1500
SWITCH, DUT = "switch", "dut"
N4 = "n4"
INIT_PID = 1
"""The lab's first process, which has the control bridge in its network namespace."""


@dataclass(frozen=True)
class Wiring:
    """The surroundings of a node: the plan, and the processes that its cables lead to."""

    plan: Plan
    outer_proc: int
    """A handle of the /proc of `up`, which shows process numbers outside of the lab."""
    folder: Path
    """The working directory of `up`, in which a user's UPF starts."""
    switch_pid: int = 0
    mirror: socket.socket | None = None
    """In a lab with bare nodes: the socket to the process that serves the mirror."""

    @property
    def is_xdp(self) -> bool:
        """Whether the sides' switches are in XDP: all that is plugged into them takes live frames."""
        return self.plan.switch == "xdp"

    def socket(self, side: str, port: str, live_frames: bool = False) -> links.Socket:
        """The socket for a new port of a side's switch."""
        queues = (os.cpu_count() or 1) if self.is_xdp else 1
        return links.Socket(self.switch_pid, side, port, live_frames, queues)


@dataclass(frozen=True)
class Facts:
    """The results of a node's setup: public keys, and what the node lacks."""

    host_key: str = ""
    client_key: str = ""
    notes: list[str] = field(default_factory=list)


Setup = Callable[[Wiring], Facts]


def hold(name: str, wiring: Wiring, setup: Setup, report: Callable[[NodeUp], None]) -> None:
    """Becomes host `name`, runs `setup` in it, reports, and waits for the end of the lab."""
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
    # Read through the caller's /proc, this link is this process's number in the caller's PID namespace.
    outer_pid = int(os.readlink("self", dir_fd=wiring.outer_proc))
    os.close(wiring.outer_proc)
    report(NodeUp(name, os.getpid(), outer_pid, facts.host_key, facts.client_key, facts.notes))
    while True:
        try:
            os.wait()  # sshd, or a UPF that ended
        except ChildProcessError:
            signal.pause()


def set_up_switch(wiring: Wiring) -> Facts:
    """Makes two switches, one for each side, which the device under test connects; a third for a UPF's N4."""
    links.prepare_namespace(quiet=True)
    for side in wiring.plan.sides:
        links.add_bridge(side, wiring.plan.mtu)
    if wiring.plan.upf:
        links.add_bridge(N4, CONTROL_MTU)
    return Facts()


def set_up_dut(wiring: Wiring) -> Facts:
    """Makes the device under test: a switch with a port to side a and a port to side b."""
    links.prepare_namespace(quiet=True)
    links.add_bridge(DUT, wiring.plan.mtu)
    for side in ("a", "b"):
        port, socket = f"to-{side}", wiring.socket(side, "to-dut-" + side)
        links.add_cable(port, socket, wiring.plan.mtu, queues=socket.queues)
        links.plug(port, DUT)
        if wiring.plan.bottleneck:
            links.add_bottleneck(port, wiring.plan.bottleneck, wiring.plan.mtu)
            release.release_frames(port)
    if wiring.plan.dut_switch == "xdp":
        xdp.take_over(DUT)
    return Facts()


def set_up_node(node: Node) -> Setup:
    """Makes a master, transmit or receive node, with its sshd."""

    def setup(wiring: Wiring) -> Facts:
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
            traffic = wiring.socket(node.side, node.name, live_frames=True)
            links.add_cable(TRAFFIC_INTERFACE, traffic, mtu, node.mac, live_frames=wiring.is_xdp)
            # Without the address that frames use: the kernel would answer test traffic to it (ICMP, TCP resets,
            # ARP), and the answers would be counted.
            links.bring_up(TRAFFIC_INTERFACE)
        if node.group == "master" and wiring.plan.upf:
            links.add_cable(N4, links.Socket(wiring.switch_pid, N4, f"{N4}-{node.name}"), CONTROL_MTU, quiet=False)
            links.bring_up(N4, wiring.plan.upf.smf_ipv4, 24)
            links.add_ipv6(N4, wiring.plan.upf.smf_ipv6)
        host_key = ssh.start_sshd(node, is_bare=bool(node.side and wiring.plan.bare))
        if node.group != "master":
            return Facts(host_key)
        client_key = ssh.make_key("id_ed25519")
        if wiring.mirror:
            mirror.listen(node.address, wiring.mirror)
        return Facts(host_key, client_key)

    return setup


def _mount_own_files(plan: Plan, name: str) -> None:
    """Mounts a node's own /sys, /run, shared memory and names; the rest of the file system is the machine's."""
    namespaces.mount_sys()
    namespaces.mount_tmpfs("/run")
    if Path("/dev/shm").is_dir():  # noqa: S108 - hosts share no memory
        namespaces.mount_tmpfs("/dev/shm", mode="1777")  # noqa: S108
    ssh.FOLDER.mkdir(mode=0o700)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in plan.nodes)
    _replace(Path("/etc/hosts"), hosts)
    _replace(Path("/etc/hostname"), f"{name}\n")
    _replace(Path("/etc/pam.d/sshd"), ssh.PAM)
    # bash reads it for every command over SSH: the machine's may be slow, print, or change the PATH.
    _replace(Path(pwd.getpwuid(0).pw_dir) / ".bashrc", "")


def _replace(target: Path, text: str) -> None:
    """Replaces file `target` by `text` in this mount namespace; does nothing if the machine lacks the file."""
    if target.exists():
        source = ssh.FOLDER / target.name
        source.write_text(text)
        source.chmod(0o644)
        namespaces.bind(source, target)
