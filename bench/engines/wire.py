"""Two ends of a veth pair in throwaway namespaces without names, and functions that run inside one of them.

Everything here dies with the benchmark: the namespaces are held by children of it, and so is all that runs in them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from pyroute2 import IPRoute

from pktswarm.lab import links, namespaces
from pktswarm.nodes import libbpf
from pktswarm.nodes.process import EngineProcess
from pktswarm.traffic.errors import PktswarmError

NEAR, FAR = "tx0", "rx0"
NEAR_MAC, FAR_MAC = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
OBJECT = Path(__file__).with_name("wire.o")
ANSWER_S = 120.0
"""A worker that says nothing for so long is taken for hung."""
CLOSE_S = 10.0
TAKEN, SENT = 1, 9
"""Columns of /proc/net/dev: packets."""


class BenchError(PktswarmError):
    """A contender could not be measured."""


class Channel:
    """Lines of JSON between the benchmark and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._buffer = end, b""

    def tell(self, value: Any) -> None:
        self._end.sendall(json.dumps(value).encode() + b"\n")

    def hear(self, timeout_s: float = ANSWER_S) -> Any:
        """The next value; None when there is none for so long. Raises ConnectionError when the other side has gone."""
        self._end.settimeout(timeout_s)
        with contextlib.suppress(TimeoutError):
            while b"\n" not in self._buffer:
                data = self._end.recv(1 << 20)
                if not data:
                    raise ConnectionError
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\n")
            return json.loads(line)
        return None

    def close(self) -> None:
        self._end.close()


class Worker:
    """`body` in a process of its own, inside the namespaces of process `place`. It ends when its channel closes."""

    _ends: ClassVar[set[socket.socket]] = set()
    """The benchmark's ends of all channels."""

    def __init__(self, name: str, place: int | None, body: Callable[[Channel], None]) -> None:
        self.name = name
        self._mine, theirs = socket.socketpair()
        parent = os.getpid()
        self._ends.add(self._mine)
        self._pid = os.fork()
        if not self._pid:
            # A copy of another's channel would keep that one from seeing it close.
            for end in self._ends:
                end.close()
            _live(Channel(theirs), place, body, parent)
        theirs.close()
        self.pid, self._channel = self._pid, Channel(self._mine)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, value: Any) -> None:
        self._channel.tell(value)

    def hear(self, timeout_s: float = ANSWER_S) -> Any:
        """Its next word. Raises BenchError when it failed, with its reason."""
        try:
            word = self._channel.hear(timeout_s)
        except ConnectionError:
            word = None
        if isinstance(word, dict) and "failed" in word:
            raise BenchError(f"{self.name}: {word['failed']}")
        if word is None:
            raise BenchError(f"{self.name}: no answer")
        return word

    def close(self) -> None:
        if not self._pid:
            return
        self._ends.discard(self._mine)
        self._channel.close()
        deadline = time.monotonic() + CLOSE_S
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._pid = 0
                return
            time.sleep(0.01)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0


def _live(channel: Channel, place: int | None, body: Callable[[Channel], None], parent: int) -> NoReturn:
    """The child's whole life. Ctrl-C is the parent's to handle: it closes the channel, and everything is put back."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs started from here would inherit
        namespaces.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        if place is not None:
            namespaces.enter(place, namespaces.NET | namespaces.MOUNT)
        body(channel)
        status = 0
    except ConnectionError:
        status = 0  # the benchmark needs it no more
    except PktswarmError as error:
        _last_word(channel, str(error))
    except BaseException:
        _last_word(channel, traceback.format_exc())
    finally:
        os._exit(status)


def _last_word(channel: Channel, text: str) -> None:
    with contextlib.suppress(OSError):
        channel.tell({"failed": text})


def _hold(channel: Channel) -> None:
    namespaces.unshare(namespaces.NET | namespaces.MOUNT)
    namespaces.mount_sys()
    links.prepare_namespace(quiet=True)
    channel.tell("held")
    channel.hear(1e6)


class Wire:
    """A veth pair: `tx0` in the namespaces of process `near`, `rx0` in those of `far`."""

    def __init__(self) -> None:
        self._holders: list[Worker] = []
        try:
            for name in ("near end", "far end"):
                self._holders.append(Worker(name, None, _hold))
                self._holders[-1].hear()
            self.near, self.far = (holder.pid for holder in self._holders)
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for holder in self._holders:
            holder.close()

    def _connect(self) -> None:
        with Worker("the cable", self.near, self._plug) as worker:
            worker.hear()
        with Worker("the cable", self.far, _up) as worker:
            worker.hear()

    def _plug(self, channel: Channel) -> None:
        """One queue each: frames come one after another, whoever sends."""
        far_end = {"ifname": FAR, "net_ns_pid": self.far, "address": FAR_MAC}
        with IPRoute() as netlink:
            netlink.link("add", ifname=NEAR, kind="veth", address=NEAR_MAC, peer=far_end)
        links.switch_offloads_off(NEAR)
        links.bring_up(NEAR)
        channel.tell("plugged")

    def receive_on(self, core: int) -> None:
        """From now on the far end, which has its program, takes frames on a processor of its own, as another board
        would. Else the sending one does that work too."""
        with Worker("the receiving processor", self.far, lambda channel: _thread_on(core, channel)) as worker:
            worker.hear()

    def received(self) -> int:
        """Frames that the far end has taken so far, by its interface's own counter."""
        return counter(self.far, FAR, TAKEN)

    def came_back(self) -> int:
        """Those that the near end has taken."""
        return counter(self.near, NEAR, TAKEN)

    def run(self, name: str, command: list[str], spool: Path, limit_s: float) -> EngineProcess:
        """A program at the near end; the caller stops it."""
        inside = ["nsenter", f"--net=/proc/{self.near}/ns/net"]
        process = EngineProcess(name, [*inside, *command], spool / f"{name}.out", limit_s)
        process.start()
        return process


def counter(pid: int, interface: str, column: int) -> int:
    """Of an interface in the namespaces of process `pid`: a column of /proc/net/dev."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == interface:
            return int(figures.split()[column])
    raise BenchError(f"{interface} is gone")


def _up(channel: Channel) -> None:
    links.switch_offloads_off(FAR)
    links.bring_up(FAR)
    channel.tell("up")


def _thread_on(core: int, channel: Channel) -> None:
    """Threaded NAPI: the kernel makes a thread for the queue, which can be told its processor. It ends with the
    program, and the next program has another."""
    Path(f"/sys/class/net/{FAR}/threaded").write_text("1")
    threads = queue_threads()
    if not threads:
        raise BenchError(f"the kernel has made no thread for the queue of {FAR}")
    for pid in threads:
        os.sched_setaffinity(pid, {core})
    channel.tell("apart")


def queue_threads() -> set[int]:
    """The kernel's threads that take the far end's frames, by process id."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if path.read_text().startswith(f"napi/{FAR}-"):
                found.add(int(path.parent.name))
    return found


# --- far ends ------------------------------------------------------------------------------------------------------


def sink(channel: Channel) -> None:
    """Counts frames and drops them, in XDP: the cheapest receiver that takes live frames."""
    with libbpf.BpfObject(OBJECT) as program:
        program.load()
        program.attach_xdp("count", _index(FAR), "native")
        channel.tell("ready")
        channel.hear(1e6)


def stack(channel: Channel) -> None:
    """No program at all: frames go up to a host that has no address."""
    channel.tell("ready")
    channel.hear(1e6)


def clock(expected: int) -> Callable[[Channel], None]:
    """Notes when each frame arrives (CLOCK_MONOTONIC); asked for it, tells how many came and writes their times."""

    def body(channel: Channel) -> None:
        with libbpf.BpfObject(OBJECT) as program:
            program.set_entries("times", expected)
            program.load()
            program.attach_xdp("note_time", _index(FAR), "native")
            channel.tell("ready")
            file = channel.hear(1e6)
            arrived = int.from_bytes(program.map(".bss").memory()[:8], "little")
            times = (ctypes.c_uint64 * expected).from_buffer_copy(program.map("times").memory())
            Path(file).write_bytes(bytes(times)[: 8 * min(arrived, expected)])
            channel.tell(arrived)

    return body


def _index(name: str) -> int:
    return socket.if_nametoindex(name)


def versions(packages: list[str]) -> str:
    """As installed: "trafgen 0.6.8-3, …"."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *packages]
    return ", ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())
