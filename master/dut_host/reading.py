"""Reads the counters of the device's host: from /proc in a lab, over SSH if the inventory has `dut`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pktswarm.master.cluster import ssh
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.dut_host.counters import FILES, MISSED, PROC, SYS, Reading, parse, split_lines
from pktswarm.traffic.errors import PktswarmError

GLOB = f"{SYS}*{MISSED}"
COMMAND = ["sh", "-c", f"grep -H '' {' '.join(PROC + name for name in FILES)} {GLOB}"]
"""The only command on a real device's host. A missing file makes its exit status 2."""
SSH_LIMIT_S = 15.0
NOT_IN_LAB = ("n4", "dut")
"""N4 has no user packets. The bridge counts forwarded frames as dropped, as its host does not take them."""

Finish = Callable[[float], Reading]
"""Waits for a reading, at most for so many seconds. Raises PktswarmError."""


class Source(Protocol):
    """`left_out`: interfaces without packets of the run; `interfaces`: the only ones, if given."""

    host: str
    interfaces: tuple[str, ...]
    left_out: tuple[str, ...]

    def begin(self) -> Finish: ...


def source_of(inventory: Inventory) -> Source | None:
    """Returns None if the device's host is not read."""
    if inventory.dut is not None and inventory.dut.ssh:
        return OverSsh(inventory, inventory.dut.ssh, inventory.dut.user, inventory.dut.interfaces)
    return InLab(inventory.path) if inventory.variables.get("pktswarm_lab") else None


@dataclass
class InLab:
    """The host `dut` of a lab; this process is in the namespace of its master."""

    path: Path
    host: str = "dut"
    interfaces: tuple[str, ...] = ()
    left_out: tuple[str, ...] = NOT_IN_LAB

    def begin(self) -> Finish:
        """Reads immediately."""
        reading = self._read()
        return lambda _: reading

    def _read(self) -> Reading:
        from pktswarm import lab

        try:
            folder = lab.network_files(self.path, self.host)
            files = {name: (folder / name).read_text() for name in FILES if (folder / name).exists()}
            root = folder.with_name("root")
            missed = {f"/{path.relative_to(root)}": path.read_text() for path in root.glob(GLOB.lstrip("/"))}
            return _parsed({**files, **missed})
        except OSError as error:
            raise PktswarmError(f"cannot be read: {error.strerror}") from None


class OverSsh:
    """A real device's host, by one read-only command."""

    def __init__(self, inventory: Inventory, host: str, user: str, interfaces: tuple[str, ...]) -> None:
        # The login of the nodes is not the device's.
        self._inventory = replace(inventory, variables={**inventory.variables, "pktswarm_login": user})
        self.host, self.interfaces = host, interfaces
        self.left_out: tuple[str, ...] = ()

    def begin(self) -> Finish:
        command = ssh.command(self._inventory, Host(self.host, self.host, ()), COMMAND)
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            raise PktswarmError(f"cannot start ssh: {error.strerror}") from None
        return lambda limit_s: self._finish(process, limit_s)

    @staticmethod
    def _finish(process: subprocess.Popen[str], limit_s: float) -> Reading:
        with process:
            try:
                output, words = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise PktswarmError(f"no response within {limit_s:.0f} s") from None
        files = split_lines(output)
        if not files:
            last = words.strip().splitlines()[-1:] or ["no output"]
            raise PktswarmError(ssh.unreachable(process.returncode, words) or last[0])
        return _parsed(files)


def _parsed(files: dict[str, str]) -> Reading:
    try:
        return parse(files)
    except (ValueError, IndexError) as error:
        raise PktswarmError(f"unknown format of its counters: {error}") from None
