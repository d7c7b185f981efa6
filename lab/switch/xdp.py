"""The lab's learning switches in XDP (kernel/switch.bpf.c): a frame passes one without becoming an skb.

A switch is a Linux bridge whose ports each have the program; the bridge only lists the ports. The program and its
tables live as long as the ports: no process holds them.
"""

from __future__ import annotations

import struct

from pyroute2 import IPRoute

from pktswarm.lab import release
from pktswarm.nodes import libbpf
from pktswarm.traffic.errors import EngineError, PktswarmError

OBJECT = libbpf.OBJECTS / "switch.o"
PROGRAM = "lab_switch"
LEAST_KERNEL = (6, 3)
"""Before it the kernel does not redirect frames of several buffers to a cable."""
MOST_PORTS = 512
"""Interface numbers below it can be ports."""
_NUMBER = struct.Struct("=I")


def missing() -> str:
    """Why the switch cannot work on this machine; empty: it can. Needs root: it loads the program."""
    if why := libbpf.missing():
        return why
    if libbpf.kernel() < LEAST_KERNEL:
        return f"it needs Linux {'.'.join(map(str, LEAST_KERNEL))} or newer"
    try:
        with libbpf.BpfObject(OBJECT) as program:
            program.load()
    except EngineError as error:
        return f"the kernel does not load its program: {error}"
    return ""


def take_over(bridge: str) -> None:
    """Makes the ports of `bridge`, in the network namespace of this process, the ports of a switch in XDP."""
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=bridge)
        ports = [int(link["index"]) for link in netlink.get_links() if link.get_attr("IFLA_MASTER") == index]
    if max(ports, default=0) >= MOST_PORTS:
        raise PktswarmError(f"{bridge}: port number {max(ports)}; a switch in XDP has numbers below {MOST_PORTS}")
    with libbpf.BpfObject(OBJECT) as program:
        program.load()
        # All are ports before the first frame is forwarded.
        for number in map(_NUMBER.pack, ports):
            program.map("ways").update(number, number)
        for port in ports:
            release.attach(port, program.program_fd(PROGRAM))
