"""Devices under test, made by the test: what they do to which frame is listed beforehand.

XdpDevice runs tests/lab/device.bpf.c on the interface where frames come in: it drops frames or flips bits in them, at
any rate. SlowDevice is a loop over packet sockets: it also copies, holds back, delays and cuts frames, at some thousand
a second, and writes down what it passed on, when, in which order.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

from wire import Line

HERE = Path(__file__).parent
NO_STREAM = 0xFFFFFFFF
"""The stream of the frames without a stamp; their number is how many of them came before."""

XDP_DEVICE = """
import json, struct, sys
from pathlib import Path
from socket import if_nametoindex
from pktswarm.nodes import libbpf
file, places, faults = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.stdin.readline())
with libbpf.BpfObject(file) as program:
    program.set_constants(".rodata.places", struct.pack("=4I", *places, *[0] * (4 - len(places))))
    program.load()
    program.map("way_out").update(struct.pack("=I", 0), struct.pack("=I", if_nametoindex("out0")))
    for stream, number, action, offset, flip in faults:
        value = struct.pack("=II8s", action, offset, bytes.fromhex(flip))
        program.map("faults").update(struct.pack("=QII", number, stream, 0), value)
    program.attach_xdp("device", if_nametoindex("in0"), "native")
    print("ready", flush=True)
    sys.stdin.readline()
    done = [program.map("done").lookup(struct.pack("=I", key)) for key in range(4)]
    print(json.dumps([struct.unpack("=Q", one)[0] for one in done]))
"""


class Done(NamedTuple):
    """What an XdpDevice did. `failed`: a listed change did not fit the frame."""

    seen: int
    dropped: int
    changed: int
    failed: int


class XdpDevice:
    """Attached while it is entered. `places`: where a frame's stamp may begin."""

    def __init__(self, line: Line, places: list[int]) -> None:
        self.line, self.places = line, places
        self.faults: dict[tuple[int, int], list[Any]] = {}

    def drop(self, stream: int, number: int) -> None:
        self._list(stream, number, 1, 0, bytes(8))

    def flip(self, stream: int, number: int, offset: int, bits: bytes) -> None:
        """These bits change, from `offset` on; at most 8 bytes, and the frame has as many there."""
        self._list(stream, number, 2, offset, bits.ljust(8, b"\0"))

    def _list(self, stream: int, number: int, action: int, offset: int, flip: bytes) -> None:
        assert (stream, number) not in self.faults, "one fault for one frame"
        self.faults[stream, number] = [stream, number, action, offset, flip.hex()]

    def __enter__(self) -> XdpDevice:
        words = [sys.executable, "-c", XDP_DEVICE, str(HERE / "device.o"), json.dumps(self.places)]
        self.process = _inside(self.line, words)
        _tell(self.process, list(self.faults.values()))
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> Done:
        return Done(*_end(self.process))


@dataclass(frozen=True)
class Passed:
    """One frame that a SlowDevice passed on: CLOCK_MONOTONIC before and after it was handed to the interface."""

    stream: int
    number: int
    stamp_ns: int
    before_ns: int
    after_ns: int


class SlowDevice:
    """Running while it is entered. Several faults of one frame are done in the order they are listed in."""

    def __init__(self, line: Line, places: list[int], delay_ns: int = 0) -> None:
        self.line, self.places, self.delay_ns = line, places, delay_ns
        self.faults: dict[tuple[int, int], list[list[Any]]] = {}

    def drop(self, stream: int, number: int) -> None:
        self._list(stream, number, "drop")

    def copy(self, stream: int, number: int, copies: int = 1) -> None:
        self._list(stream, number, "copy", copies)

    def hold(self, stream: int, number: int, frames: int) -> None:
        """Until so many more frames of its stream have gone by."""
        self._list(stream, number, "hold", frames)

    def delay(self, stream: int, number: int, delay_ns: int) -> None:
        """That one more than the others."""
        self._list(stream, number, "delay", delay_ns)

    def write(self, stream: int, number: int, offset: int, data: bytes) -> None:
        self._list(stream, number, "write", offset, data.hex())

    def cut(self, stream: int, number: int, count: int) -> None:
        """Off its end."""
        self._list(stream, number, "cut", count)

    def untag(self, stream: int, number: int) -> None:
        """Takes out the four bytes behind the addresses: the VLAN tag."""
        self._list(stream, number, "untag")

    def _list(self, stream: int, number: int, *fault: Any) -> None:
        self.faults.setdefault((stream, number), []).append(list(fault))

    def __enter__(self) -> SlowDevice:
        self.process = _inside(self.line, [sys.executable, str(HERE / "slow_device.py")])
        faults = [[*key, each] for key, each in self.faults.items()]
        _tell(self.process, {"places": self.places, "delay_ns": self.delay_ns, "faults": faults})
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> list[Passed]:
        """Once it has nothing left to pass on: what it did, in that order."""
        return [Passed(*one) for one in _end(self.process)]


def _inside(line: Line, words: list[str]) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", line.device, *words]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, cwd=HERE.parents[1])


def _tell(process: subprocess.Popen[str], orders: Any) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(orders) + "\n")
    process.stdin.flush()
    if process.stdout.readline() != "ready\n":
        raise AssertionError("".join(process.communicate(timeout=20)))


def _end(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate("stop\n", timeout=30)
    assert process.returncode == 0, out + err
    return json.loads(out)
