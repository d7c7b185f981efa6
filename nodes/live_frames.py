"""Whether XDP live frames really leave an interface, which some drivers accept and drop: a few are sent to see.

They are announcements of the interface's own MAC (nodes.announce), which a switch learns from and nobody answers.
"""

from __future__ import annotations

import os
import time

from pktswarm.nodes import libbpf, xdp_features
from pktswarm.nodes.announce import announcement
from pktswarm.nodes.interface import Interface
from pktswarm.traffic.errors import EngineError

TRIES = 3
NEEDS_PROGRAM = ("igc", "i40e", "ice", "fec")
"""Drivers that take live frames only while an XDP program is attached, by their sources: before Linux 6.3 the kernel
does not report it."""
_PASS = libbpf.instructions((0xB7, 0, libbpf.XDP_PASS), (0x95, 0, 0))
"""r0 = XDP_PASS; exit."""
CHANGES_FRAMES, KEPT_KERNEL = ("virtio_net",), (6, 4)
"""Drivers that put a header before the frame they are given, and the first kernel that restores it before it uses the
frame again: before, the second use of each is longer and begins elsewhere."""
ARRIVAL_S = 1.0
"""Time limit for sent frames (on veth: taken by its other end) to appear in the counter, on a busy machine too."""


def trouble(interface: Interface) -> str:
    """Why live frames do not leave this interface; empty when they do. Needs root."""
    if not interface.exists() or not interface.carrier:
        return f"{interface.name} is not there, or has no carrier"
    return takes_none(interface) or _try(interface)


def needs_program(interface: Interface) -> bool:
    """Whether the driver takes live frames only while an XDP program is attached, and none is."""
    bits = xdp_features.features(interface.index)
    if bits is None:
        needs = interface.driver in NEEDS_PROGRAM
    else:
        needs = bool(bits & xdp_features.NATIVE) and not bits & xdp_features.TAKES_FRAMES and interface.driver != "veth"
    return needs and not _are_damaged(interface) and not libbpf.attached_program(interface.index)


def attach_pass(interface: Interface) -> libbpf.BpfLink:
    """Attaches a program that passes every frame on. It is detached with the link, or with this process.

    Raises EngineError where the driver refuses it.
    """
    program = libbpf.load_program("pass", _PASS)
    try:
        return libbpf.BpfLink(libbpf.attach_program(program, interface.index, "native"))
    except EngineError as error:
        what = f"its driver {interface.driver} takes no XDP program with an MTU of {interface.mtu}"
        raise EngineError("xdp", f"{interface.name}: {what} ({error})") from None
    finally:
        os.close(program)  # the link holds it


def takes_none(interface: Interface) -> str:
    """Why the driver takes no live frames; empty if it does, or if the kernel (before 6.3) does not report it."""
    if _are_damaged(interface):
        return f"{interface.name}: Linux before 6.4 damages live frames for its driver {interface.driver}"
    if needs_program(interface):
        problem = "takes live frames only while an XDP program is attached to the interface"
        return f"{interface.name}: its driver {interface.driver} {problem}"
    bits = xdp_features.features(interface.index)
    if bits is None or bits & xdp_features.TAKES_FRAMES:
        return ""
    if interface.driver == "veth":
        return f"{interface.name}: its other end takes no live frames (ethtool -K … gro on, or an XDP program there)"
    if bits & xdp_features.NATIVE:
        problem = "takes no live frames, though an XDP program is attached to the interface"
        return f"{interface.name}: its driver {interface.driver} {problem}"
    return f"{interface.name}: its driver {interface.driver} has no native XDP"


def _are_damaged(interface: Interface) -> bool:
    return interface.driver in CHANGES_FRAMES and libbpf.kernel() < KEPT_KERNEL


def _try(interface: Interface) -> str:
    before = interface.counters().tx_packets
    program = libbpf.load_program("redirect", _redirect_to(interface.index))
    try:
        for _ in range(TRIES):
            libbpf.run_live(program, announcement(interface.mac), repeat=1, batch=1)
    finally:
        os.close(program)
    deadline = time.monotonic() + ARRIVAL_S
    while interface.counters().tx_packets < before + TRIES:
        if time.monotonic() > deadline:
            what = f"its driver {interface.driver} drops them, or does not count them"
            return f"{interface.name}: live frames do not increase its counter of sent packets: {what}"
        time.sleep(0.001)
    return ""


def _redirect_to(index: int) -> bytes:
    """r1 = index; r2 = 0; call bpf_redirect; exit."""
    return libbpf.instructions((0xB7, 1, index), (0xB7, 2, 0), (0x85, 0, 23), (0x95, 0, 0))
