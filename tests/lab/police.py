"""A device that lets so many packets a second through: tests/lab/police.bpf.c where its frames come in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

HERE = Path(__file__).parent
POLICE = """
import struct, sys
from pathlib import Path
from socket import if_nametoindex
from pktswarm.nodes import libbpf
file, interface, *settings = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
with libbpf.BpfObject(file) as program:
    program.set_constants(".rodata.settings", struct.pack("=3Q", *settings))
    program.load()
    program.attach_xdp("police", if_nametoindex(interface), "generic")
    print("ready", flush=True)
    sys.stdin.readline()
"""


class Police:
    """Attached while it is entered, in the network namespace of `pid`. A bucket of `depth` packets, full at first;
    of all packets the share `noise` drops before it, by chance."""

    def __init__(self, pid: int, interface: str, rate_pps: int, depth: int, noise: float) -> None:
        gap_ns = 1_000_000_000 // rate_pps
        settings = [gap_ns, gap_ns * depth, int(noise * 2**32)]
        self.command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", POLICE, str(HERE / "police.o")]
        self.command += [interface, *map(str, settings)]

    def __enter__(self) -> Police:
        self.process = subprocess.Popen(
            self.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, cwd=HERE.parents[1]
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError("".join(self.process.communicate(timeout=20)))
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
