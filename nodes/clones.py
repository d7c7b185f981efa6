"""Whether clones of an skb leave an interface, which the engine tc sends: one is sent to see.

It is an announcement of the interface's own MAC (nodes.announce), which a switch learns from and nobody answers.
"""

from __future__ import annotations

import ctypes
import os

from pktswarm.nodes import libbpf
from pktswarm.nodes.announce import announcement
from pktswarm.nodes.interface import Interface

TRIES = 1
"""The kernel returns whether it took the frame, so one is enough."""
DROPPED = {1: "its ring or its qdisc dropped the frame", 2: "its qdisc dropped a frame"}
"""NET_XMIT_DROP and NET_XMIT_CN of linux/netdevice.h."""


def trouble(interface: Interface) -> str:
    """Why clones do not leave this interface; empty when they do. Needs root."""
    if not interface.exists() or not interface.carrier:
        return f"{interface.name} is not there, or has no carrier"
    program = libbpf.load_program("clone", clone_to(interface.index), "tc")
    try:
        result, _ = libbpf.run_once(program, announcement(interface.mac))
    finally:
        os.close(program)
    return f"{interface.name}: {why_not(result)}" if result else ""


def why_not(result: int) -> str:
    """`result`: of bpf_clone_redirect, as the unsigned number that a program returns."""
    number = ctypes.c_int32(result).value
    return DROPPED.get(number, f"the kernel refuses clones: {os.strerror(-number)}")


def clone_to(index: int) -> bytes:
    """r2 = index; r3 = 0; call bpf_clone_redirect; exit."""
    return libbpf.instructions((0xB7, 2, index), (0xB7, 3, 0), (0x85, 0, 13), (0x95, 0, 0))
