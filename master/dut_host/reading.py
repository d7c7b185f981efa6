"""Reads the counters of the device's host: of a lab from /proc, of a real device over SSH if the inventory says so."""

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
"""All that is run on a real device's host. A file that is missing there makes its exit status 2."""
SSH_LIMIT_S = 15.0
NOT_IN_LAB = ("n4", "dut")
"""N4 carries no packets of users. The bridge counts as dropped what it passes on, which its own host has no use for."""

Finish = Callable[[float], Reading]
"""Waits for what was begun, at most for so many seconds. Raises PktswarmError with the reason."""


class Source(Protocol):
    """`left_out`: interfaces whose drops are none of the run's packets; `interfaces`: the only ones, if given."""

    host: str
    interfaces: tuple[str, ...]
    left_out: tuple[str, ...]

    def begin(self) -> Finish: ...


def source_of(inventory: Inventory) -> Source | None:
    """None where the device's host is not to be read."""
    if inventory.dut is not None:
        return OverSsh(inventory, inventory.dut.ssh, inventory.dut.user, inventory.dut.interfaces)
    return InLab(inventory.path) if inventory.variables.get("pktswarm_lab") else None


@dataclass
class InLab:
    """The host `dut` of a lab whose master this process has entered."""

    path: Path
    host: str = "dut"
    interfaces: tuple[str, ...] = ()
    left_out: tuple[str, ...] = NOT_IN_LAB

    def begin(self) -> Finish:
        """Reads at once."""
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
        # The account that nodes are logged in as is not the device's.
        self._inventory = replace(inventory, variables={**inventory.variables, "pktswarm_login": user})
        self.host, self.interfaces = host, interfaces
        self.left_out: tuple[str, ...] = ()

    def begin(self) -> Finish:
        command = ssh.command(self._inventory, Host(self.host, self.host, ()), COMMAND)
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            raise PktswarmError(f"ssh could not be started: {error.strerror}") from None
        return lambda limit_s: self._finish(process, limit_s)

    @staticmethod
    def _finish(process: subprocess.Popen[str], limit_s: float) -> Reading:
        with process:
            try:
                output, words = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise PktswarmError(f"did not answer within {limit_s:.0f} s") from None
        files = split_lines(output)
        if not files:
            last = words.strip().splitlines()[-1:] or ["no output"]
            raise PktswarmError(ssh.unreachable(process.returncode, words) or last[0])
        return _parsed(files)


def _parsed(files: dict[str, str]) -> Reading:
    try:
        return parse(files)
    except (ValueError, IndexError) as error:
        raise PktswarmError(f"its counters have another form than Linux's: {error}") from None
