"""An end of the user plane, reached over SSH (nodes.packets): the gNB's node or one of the data network."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import IO, Self, TypedDict, cast

from pktswarm.master.cluster import ssh
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.traffic.errors import PktswarmError

START_TIMEOUT_S = 20.0
ANSWER_GRACE_S = 10.0
END_TIMEOUT_S = 5.0


class Reply(TypedDict, total=False):
    """A line of nodes.packets: `mtu_bytes` first, then `frames` (hexadecimal) for each request, or `problem`."""

    mtu_bytes: int
    frames: list[str]
    problem: str


class End:
    """A context. All methods raise PktswarmError with the host's name on failure or timeout."""

    def __init__(self, inventory: Inventory, host: Host, arp_targets: dict[str, str]) -> None:
        """`arp_targets`: IP version → the UPF's address to resolve first."""
        self.host, self.mac = host, host.mac
        self.mtu_bytes = 0
        python = host.python or sys.executable
        addresses = [address for address in (host.ipv4, host.ipv6) if address]
        remote = [
            python,
            "-P",
            "-m",
            "pktswarm.nodes.packets",
            "--interface",
            host.traffic_interface,
            "--mac",
            host.mac,
        ]
        remote += [part for address in addresses for part in ("--address", address)]
        remote += [
            "--arp-target",
            arp_targets.get("4", ""),
            "--user",
            host.user,
            "--by",
            f"upf probe of {inventory.path.name}",
        ]
        self._process = subprocess.Popen(
            ssh.command(inventory, host, remote),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._python = python
        self._buffer = b""

    def __enter__(self) -> Self:
        try:
            self.mtu_bytes = int(self._read(START_TIMEOUT_S)["mtu_bytes"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def exchange(self, frames: list[bytes], seconds: float, wanted: int = 1) -> list[bytes]:
        """Sends `frames`; returns frames received since the last call, once there are `wanted` or after `seconds`."""
        line = json.dumps({"frames": [frame.hex() for frame in frames], "seconds": seconds, "wanted": wanted})
        try:
            stdin = _pipe(self._process.stdin)
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError:
            raise PktswarmError(f"{self.host.name}: connection lost") from None
        return [bytes.fromhex(frame) for frame in self._read(seconds + ANSWER_GRACE_S)["frames"]]

    def close(self) -> None:
        """Ends the program on the node, which restores the node first."""
        try:
            self._process.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        except (OSError, ValueError):
            self._process.kill()
            self._process.wait()

    def _read(self, seconds: float) -> Reply:
        stdout = _pipe(self._process.stdout)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise PktswarmError(f"{self.host.name}: no response within {seconds:.0f} s")
            data = stdout.read1(1 << 16)  # type: ignore[attr-defined]  # a BufferedReader
            if not data:
                raise PktswarmError(f"{self.host.name}: {self._error_output()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message = cast(Reply, json.loads(line))
        if "problem" in message:
            raise PktswarmError(f"{self.host.name}: {message['problem']}")
        return message

    def _error_output(self) -> str:
        words = _pipe(self._process.stderr).read().decode(errors="replace")
        return ssh.trouble(self._process.wait(END_TIMEOUT_S), words, self._python)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
