"""A device that lets so many packets a second through: tests/lab/police.bpf.c where its frames come in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

HERE = Path(__file__).parent
POLICE = """
import json, struct, sys
from pathlib import Path
from socket import if_nametoindex
from pktswarm.nodes import libbpf
file, interface, *settings = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
with libbpf.BpfObject(file) as program:
    program.set_constants(".rodata.settings", struct.pack("=3Q", *settings))
    program.load()
    program.attach_xdp("police", if_nametoindex(interface), "generic")
    print("ready", flush=True)
    for _ in sys.stdin:
        bursts = program.map("bursts").lookup(bytes(4))
        print(json.dumps([one for one in struct.iter_unpack("=4Q", bursts) if one[0]]), flush=True)
"""


class Burst(NamedTuple):
    """Frames between two pauses of 0.2 s, by the clock that fills the bucket."""

    first_ns: int
    last_ns: int
    came: int
    passed: int


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

    def bursts(self) -> list[Burst]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [Burst(*one) for one in json.loads(self.process.stdout.readline())]

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
