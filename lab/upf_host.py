"""The device under test as the host of a UPF: interfaces N3, N4 and N6, kernel settings, and the program.

docs/upf.md describes the needs of real UPFs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import AF_INET, AF_INET6

from pyroute2 import IPRoute

from pktswarm.lab import links, namespaces, release, ssh
from pktswarm.lab.node import CONTROL_MTU, N4, Facts, Wiring
from pktswarm.lab.plan import Node, Plan, Upf
from pktswarm.lab.router import OWN_LINK_LOCAL, forward
from pktswarm.traffic.errors import PktswarmError

N3, N6 = "n3", "n6"
LOG, ORDERS = ssh.FOLDER / "upf.log", ssh.UPF_ORDERS
"""On the UPF's host: the output of its program, and the socket for orders to the lab's own (docs/lab.md)."""
READY_TIMEOUT_S = 60.0
NOT_WEIGHTED = "the UPF's program has the same CPU weight as senders and receivers, and may lack processor time"
GRACE_S = 0.5
"""A command that fails within this time fails the lab."""
NICE = -10
"""Nine times the weight of another program, so that a UPF in user space gets a processor beside polling senders. No
higher, and no real-time class: the kernel's threads that move its packets need the processor too."""


def set_up_upf(wiring: Wiring) -> Facts:
    """Connects N3 and N6 to the sides' switches and N4 to the master, sets forwarding, neighbours and routes, then
    starts the program."""
    plan, upf = wiring.plan, wiring.plan.upf
    assert upf is not None
    links.prepare_namespace(quiet=False)
    forward()
    for interface, mac, ipv4 in ((N3, upf.n3_mac, upf.n3_ipv4), (N6, upf.n6_mac, upf.n6_ipv4)):
        _add_side(wiring, interface, mac, ipv4)
    # The kernel solicits neighbours from the link-local address.
    links.add_ipv6(N3, upf.n3_ipv6, OWN_LINK_LOCAL)
    links.add_cable(N4, links.Socket(wiring.switch_pid, N4, f"{N4}-upf"), CONTROL_MTU, quiet=False)
    links.bring_up(N4, upf.n4_ipv4)
    links.add_ipv6(N4, upf.n4_ipv6)
    _add_ways(plan, upf)
    return Facts(notes=_start(upf, wiring.folder))


def _add_side(wiring: Wiring, interface: str, mac: str, ipv4: str) -> None:
    """The switch's port has an XDP program: with one it takes what XDP redirects to it, and at once what XDP_TX sends.

    The kernel makes no IPv6 address of its own.
    """
    port = f"{interface}-upf"
    socket = wiring.socket(interface, port)
    links.add_cable(interface, socket, wiring.plan.mtu, mac, quiet=False, live_frames=wiring.is_xdp)
    links.write_setting(f"ipv6/conf/{interface}/addr_gen_mode", "1", optional=True)
    links.bring_up(interface, ipv4)
    with namespaces.network_of(wiring.switch_pid):
        release.release_frames(port)


def _add_ways(plan: Plan, upf: Upf) -> None:
    """Adds every node as a permanent neighbour, by its addresses and a link-local one, and the routes."""
    nodes = {node.name: node for node in plan.nodes if node.side}
    first = next(node for node in nodes.values() if node.side == N6)
    ways = [("0.0.0.0/0", first), ("::/0", first), *((route.prefix, nodes[route.node]) for route in upf.routes)]
    ways += [(f"{node.ipv6}/128", node) for node in nodes.values() if node.side == N6]
    for node in nodes.values():
        links.add_neighbours(node.side, dict.fromkeys((node.ipv4, node.ipv6, link_local(node)), node.mac))
    with IPRoute() as netlink:
        index = {side: netlink.link_lookup(ifname=side)[0] for side in (N3, N6)}
        for prefix, node in ways:
            is_ipv4 = ipaddress.ip_network(prefix).version == 4
            hop = node.ipv4 if is_ipv4 else link_local(node)
            family = AF_INET if is_ipv4 else AF_INET6
            netlink.route("add", family=family, dst=prefix, gateway=hop, oif=index[node.side])


def link_local(node: Node) -> str:
    return f"fe80::{node.ipv4.rpartition('.')[2]}"


def _start(upf: Upf, folder: Path) -> list[str]:
    """Starts the program, which ends with the lab; returns what it lacks.

    Raises PktswarmError with its output if it fails at once.
    """
    if not upf.command:
        _start_own(upf)
        return []
    namespaces.mount("bpf", "/sys/fs/bpf", "bpf", namespaces.MS_NOSUID | namespaces.MS_NODEV | namespaces.MS_NOEXEC)
    with contextlib.suppress(ValueError, OSError):  # a machine may forbid it; the UPF then reports it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with LOG.open("wb") as log, _weighted() as notes:
        process = subprocess.Popen(
            upf.command,
            cwd=folder,
            env={**os.environ, **environment(upf)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        notes += weigh_session(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(GRACE_S)
        if status:
            raise PktswarmError(f"the UPF's command ended with exit status {status}: {_last_output()}")
    return notes


@contextlib.contextmanager
def _weighted() -> Iterator[list[str]]:
    """Processes started inside have NICE. The list has the reason if they do not."""
    notes: list[str] = []
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except PermissionError as error:
        notes.append(f"{NOT_WEIGHTED} ({error.strerror})")
    try:
        yield notes
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def weigh_session(pid: int, proc: Path = Path("/proc")) -> list[str]:
    """Sets NICE on the session of a process: with autogroups (sched(7)) nice values only count within a session.

    Returns the reason if that fails. A kernel without autogroups has no such file.
    """
    try:
        (proc / str(pid) / "autogroup").write_text(str(NICE))
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{NOT_WEIGHTED} (its session: {error.strerror})"]
    return []


def _start_own(upf: Upf) -> None:
    command = [sys.executable, "-P", "-m", "pktswarm.lab.upf", upf.n4_ipv4, upf.n4_ipv6, str(ORDERS)]
    with LOG.open("wb") as log:
        process = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
    if not ready or process.stdout.readline() != b"ready\n":
        raise PktswarmError(f"the UPF did not start: {_last_output()}")


def environment(upf: Upf) -> dict[str, str]:
    """Returns the environment variables for the program of a user."""
    return {
        **{"N3_INTERFACE": N3, "N4_INTERFACE": N4, "N6_INTERFACE": N6},
        **{"N3_IPV4": upf.n3_ipv4, "N4_IPV4": upf.n4_ipv4, "N6_IPV4": upf.n6_ipv4, "SMF_IPV4": upf.smf_ipv4},
        **{"N3_IPV6": upf.n3_ipv6, "N4_IPV6": upf.n4_ipv6, "SMF_IPV6": upf.smf_ipv6},
    }


def _last_output() -> str:
    return LOG.read_text(errors="replace").strip()[-2000:] or "no output"
