"""What each engine needs of a node: asked of all of them on every node, so nothing is loaded that only an engine needs.

Each gives the reason why the engine is missing, with how to mend it; empty when it is there. They need no root.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from pathlib import Path

from pktswarm.nodes import libbpf
from pktswarm.nodes.process import missing_tool
from pktswarm.traffic.capture import filter as pcap

LIVE_FRAMES_KERNEL = (5, 18)
"""The first whose test runs send live frames, and with bpf_xdp_load_bytes, by which frames are counted."""
CLONES_KERNEL = (5, 10)
"""The oldest kernel for which the engine tc is written."""
SENDER, COUNTER = libbpf.OBJECTS / "send.o", libbpf.OBJECTS / "count.o"
CLONER, PLAIN_CLONER = libbpf.OBJECTS / "send_tc.o", libbpf.OBJECTS / "send_tc_plain.o"
PLAIN_COUNTER = libbpf.OBJECTS / "count_plain.o"
"""The counter without tail calls."""
INTERPRETED = ("armv6l", "armv7l")
"""Machines for which the kernel compiles no program that has functions. It interprets it, and then takes neither a
callback (bpf_loop()) nor a tail call in it."""

COMPILED_ONLY = "CONFIG_BPF_JIT_ALWAYS_ON=y"
CONFIGURATION, BOOT = Path("/proc/config.gz"), Path("/boot")


def nothing() -> str:
    return ""


def xdp_sender() -> str:
    if libbpf.kernel() < LIVE_FRAMES_KERNEL:
        return f"Linux {libbpf.kernel()[0]}.{libbpf.kernel()[1]} has no XDP live frames (5.18 has)"
    return callbacks() or _object(SENDER)


def callbacks() -> str:
    machine = os.uname().machine
    return f"the kernel of {machine} does not compile a program with callbacks" if machine in INTERPRETED else ""


def tail_calls() -> str:
    """Why the counter cannot call another program; empty: it can."""
    machine = os.uname().machine
    return f"the kernel of {machine} takes no tail call in a program with functions" if machine in INTERPRETED else ""


def functions() -> str:
    """Why the kernel runs no program with functions: it compiles none, and was built without the interpreter. Empty
    where its configuration cannot be read."""
    machine = os.uname().machine
    if machine not in INTERPRETED or COMPILED_ONLY not in _configuration():
        return ""
    return f"the kernel of {machine} compiles no program with functions, and interprets none ({COMPILED_ONLY})"


def _configuration() -> list[str]:
    for path in (CONFIGURATION, BOOT / f"config-{os.uname().release}"):
        with contextlib.suppress(OSError, EOFError):
            data = path.read_bytes()
            return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace").splitlines()
    return []


def tc_sender() -> str:
    if libbpf.kernel() < CLONES_KERNEL:
        return f"it needs Linux 5.10, this is {libbpf.kernel()[0]}.{libbpf.kernel()[1]}"
    return functions() or _object(CLONER)


def _object(program: Path) -> str:
    if not program.exists():
        return f"nodes/bpf/{program.name} is not there (kernel/build.sh compiles it)"
    return libbpf.missing()


def counter() -> Path:
    return PLAIN_COUNTER if tail_calls() else COUNTER


def xdp_receiver(program: Path | None = None) -> str:
    program = program or counter()
    if why := functions() or libbpf.missing():
        return why
    if not program.exists():
        return f"{program.name} is not there (kernel/build.sh compiles it)"
    return "" if libbpf.kernel() >= LIVE_FRAMES_KERNEL else f"it needs kernel 5.18, this is {os.uname().release}"


def trafgen() -> str:
    return missing_tool("trafgen", "netsniff-ng")


def tcpreplay() -> str:
    return missing_tool("tcpreplay", "tcpreplay")


def netsniff() -> str:
    return missing_tool("netsniff-ng", "netsniff-ng") or pcap.missing()


def sockets() -> str:
    return missing_tool("ip", "iproute2")
