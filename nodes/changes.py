"""What a guard changes on its node, written down before it is changed.

The record stands in the guard's folder, as RECORD, and goes with it. A guard that is killed leaves both: the next
run's guard, or `pktswarm doctor --mend`, restores what the record lists, and `pktswarm doctor` reports it.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from dataclasses import asdict
from pathlib import Path

from pktswarm.nodes import qdisc, tune
from pktswarm.nodes.interface import Interface
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.plain import plain

RECORD, QDISC = "changed.json", "qdisc"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SO_NETNS_COOKIE = 71  # asm-generic/socket.h, Linux 5.14


@plain
class Place:
    """Where a record holds: settings of an interface end with its network namespace, and all of them at a boot.

    `namespace` is the inode in /proc, which another may get later; `cookie` is unique in a boot, and 0 before
    Linux 5.14.
    """

    boot: str
    namespace: int
    cookie: int

    @staticmethod
    def here() -> Place:
        return Place(_BOOT_ID.read_text().strip(), Path("/proc/self/ns/net").stat().st_ino, _cookie())


@plain
class Change:
    """`name`: QDISC or an offload of `interface`, which has `index`; where that is "", a file. `made`: "" is an
    engine's own."""

    interface: str
    index: int
    name: str
    was: str
    made: str

    def __str__(self) -> str:
        of = f"{self.name} of {self.interface}" if self.interface else self.name
        return f"{of} (was {self.was.strip()})"

    def now(self) -> str:
        """Empty where there is no such thing any more."""
        try:
            if not self.interface:
                return Path(self.name).read_text()
            interface = Interface(self.interface)
            if interface.index != self.index:
                return ""
            return qdisc.root(interface.name) if self.name == QDISC else on_off(interface.offload(self.name))
        except (OSError, EngineError):
            return ""

    def stands(self) -> bool:
        """Whether it is still as the guard made it: what somebody has set since is not touched."""
        now = self.now()
        return now not in ("", self.was) and self.made in ("", now) and not tune.keeps(self.interface)

    def undo(self) -> None:
        """Raises EngineError or OSError where the node does not take it."""
        if self.name == QDISC:
            qdisc.remove_root(self.interface)
        elif self.interface:
            Interface(self.interface).set_offload(self.name, self.was == on_off(True))
        else:
            Path(self.name).write_text(self.was)


def on_off(on: bool) -> str:
    return "on" if on else "off"


def of_offload(interface: Interface, name: str, was: bool) -> Change:
    """Returns the change of an offload that is about to be switched."""
    return Change(interface.name, interface.index, name, on_off(was), on_off(not was))


def of_qdisc(interface: Interface, was: str, made: str) -> Change:
    """Returns the change of the kernel's own root discipline, which comes back when another one is removed."""
    return Change(interface.name, interface.index, QDISC, was, made)


def of_file(path: Path, was: str) -> Change:
    """Returns the change of a setting that an engine may change by itself."""
    return Change("", 0, str(path), was, "")


def begin(folder: Path) -> None:
    """An empty record: it says to which node the folder belongs."""
    _write(folder, Place.here(), [])


def write_down(folder: Path, *changes: Change) -> None:
    """On the disk when this returns."""
    _write(folder, Place.here(), [*_made(folder), *changes])


def read(folder: Path) -> tuple[Place, list[Change]] | None:
    """None: no record that can be read (a guard's folder of before 2026-11 has none), or not our own: anybody may make
    a folder of that name where guards have theirs."""
    try:
        if not ours(folder):
            return None
        document = json.loads((folder / RECORD).read_text())
        return Place(**document["place"]), [Change(**one) for one in document["changes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ours(folder: Path) -> bool:
    """Made by this account, and a folder indeed."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _made(folder: Path) -> list[Change]:
    found = read(folder)
    return found[1] if found else []


def _write(folder: Path, place: Place, changes: list[Change]) -> None:
    """In one step: half a record would be none."""
    draft = folder / f"{RECORD}.draft"
    with draft.open("w") as file:
        file.write(json.dumps({"place": asdict(place), "changes": [asdict(one) for one in changes]}))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / RECORD)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cookie() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            return int(struct.unpack("=Q", one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))[0])
        except OSError:
            return 0
