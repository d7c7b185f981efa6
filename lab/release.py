"""Makes the device under test a separate host to the senders' kernels.

A frame that crosses namespaces on a cable still belongs to the socket that sent it, as long as nothing copies it: its
kernel then takes the queue of a bottleneck two hosts away for its own interface's, and holds the sender back before
anything is lost (TCP small queues, a full send buffer). Real cards give a frame back when it is on the wire. Here an
XDP program that lets everything pass does: for it, the receiving end of a cable copies each frame.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

from pyroute2 import IPRoute

from pktswarm.traffic.errors import PktswarmError

_BPF_PROG_LOAD, _TYPE_XDP, _HAS_FRAGS = 5, 6, 1 << 5
_SYSCALL = {"x86_64": 321, "aarch64": 280, "armv7l": 386, "riscv64": 280}
_XDP_PASS = 2
_NATIVE = 1 << 2
_PROGRAM = struct.pack("=BBhi", 0xB7, 0, 0, _XDP_PASS) + struct.pack("=BBhi", 0x95, 0, 0, 0)
"""r0 = XDP_PASS; exit."""


def release_frames(port: str) -> None:
    """Detaches frames arriving at `port`, the end of a cable, from the socket of their sender."""
    program = _load()
    try:
        with IPRoute() as netlink:
            (index,) = netlink.link_lookup(ifname=port)
        attach(index, program)
    finally:
        os.close(program)


def attach(index: int, program: int) -> None:
    """Attaches the XDP program with descriptor `program` to interface `index`, which then holds it."""
    with IPRoute() as netlink:
        xdp = {"attrs": [["IFLA_XDP_FD", program], ["IFLA_XDP_FLAGS", _NATIVE]]}
        netlink.link("set", index=index, IFLA_XDP=xdp)


def _load() -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise PktswarmError(f"no number of the system call bpf for {platform.machine()}")
    code, licence = ctypes.create_string_buffer(_PROGRAM), ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQIIQII16s",
        _TYPE_XDP,
        len(_PROGRAM) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0,
        0,
        0,
        0,
        _HAS_FRAGS,
        b"release",
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = int(libc.syscall(number, _BPF_PROG_LOAD, attributes, len(attributes)))
    if program < 0:
        raise PktswarmError(f"the kernel rejected the XDP program: {os.strerror(ctypes.get_errno())}")
    return program
