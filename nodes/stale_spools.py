"""What guards have on this node: of those that live, a run under way; of those that died, leftovers.

A guard holds a lock on its spool folder as long as it lives, and its engines work inside that folder. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pktswarm.nodes import changes
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.guard_events import Leftovers, StaleProcess
from pktswarm.traffic.protocol.node_report import Holder

SPOOLS = Path("/var/tmp")  # noqa: S108 - each guard's folder in it has a name of its own
PREFIX = "pktswarm-"
PROC = Path("/proc")


def lock(spool: Path) -> int:
    """A guard's, on its own folder. It goes with the process; engines do not inherit it."""
    handle = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def report(spools: Path, own: Path, interface: str, holder: Holder | None) -> Leftovers:
    """The folders in `spools` except `own`, the processes at work there, the XDP program on `interface`, and the
    settings left changed on this node. `holder`: the run that holds the node.

    Hosts of a lab share a file system: folders, engines and changes of other network namespaces are not reported.
    """
    folders = [path for path in sorted(spools.glob(f"{PREFIX}*")) if path != own and path.is_dir()]
    living = {str(path) for path in folders if _is_locked(path)}
    dead = [path for path in folders if str(path) not in living and not _is_elsewhere(path)]
    processes = [(pid, folder, words) for pid, folder, words in _engines(spools) if folder not in living]
    return Leftovers(
        holder=holder,
        folders=[str(path) for path in dead],
        bytes=sum(_size(path) for path in dead),
        processes=[StaleProcess(pid, command) for pid, folder, command in processes if folder != str(own)],
        xdp_program=_xdp_program(interface),
        changed=[str(change) for path in dead for change in _left_changed(path)],
    )


def mend(spools: Path, own: Path) -> list[str]:
    """Put back what guards that are gone have left changed on this node, and remove their folders; what was done.

    A folder without a record, one that an engine still works in, and one of what could not be put back stay.
    """
    done: list[str] = []
    busy = {folder for _, folder, _ in _engines(spools)}
    for path in sorted(spools.glob(f"{PREFIX}*")):
        if path == own or str(path) in busy or changes.read(path) is None or _is_elsewhere(path):
            continue
        with contextlib.suppress(FileNotFoundError), _taken(path) as dead:
            if dead and _put_back(_left_changed(path), done):
                shutil.rmtree(path)
    return done


def clear(spools: Path, namespaces: set[int]) -> None:
    """Remove the folders of guards whose network namespaces, by inode, have just ended, and these with them."""
    boot = changes.Place.here().boot
    for path in spools.glob(f"{PREFIX}*"):
        if (found := changes.read(path)) and found[0].boot == boot and found[0].namespace in namespaces:
            with contextlib.suppress(FileNotFoundError), _taken(path) as dead:
                if dead:
                    shutil.rmtree(path)


def _put_back(left: list[changes.Change], done: list[str]) -> bool:
    """The last change first. Whether all could be."""
    whole = True
    for one in reversed(left):
        try:
            one.undo()
            done.append(f"{one} was restored: a killed guard had changed it")
        except (EngineError, OSError) as error:
            whole = False
            done.append(f"{one} cannot be restored after a killed guard changed it: {error}")
    return whole


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[bool]:
    """Whether its guard is gone; nobody else mends there meanwhile."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def _is_elsewhere(path: Path) -> bool:
    """Whether the folder belongs to another network namespace of this boot, which may still exist."""
    found, here = changes.read(path), changes.Place.here()
    return found is not None and found[0].boot == here.boot and found[0] != here


def _left_changed(path: Path) -> list[changes.Change]:
    found = changes.read(path)
    return [one for one in found[1] if one.stands()] if found and found[0] == changes.Place.here() else []


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # it has gone meanwhile, as its guard wished
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _engines(spools: Path) -> list[tuple[int, str, str]]:
    """Process, the spool folder it works in (which may be gone), and its command; in this network namespace."""
    found, here = [], (PROC / "self/ns/net").stat().st_ino
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or (entry / "ns/net").stat().st_ino != here:
                continue
            folder = os.readlink(entry / "cwd").removesuffix(" (deleted)")  # noqa: PTH115 - it may be gone
            if folder.startswith(f"{spools}/{PREFIX}"):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append((int(entry.name), folder, words[:200]))
    return found


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _xdp_program(interface: str) -> int:
    """The kernel's number of the program on the interface; 0 where there is none."""
    from pktswarm.nodes import libbpf

    try:
        index = int(Path(f"/sys/class/net/{interface}/ifindex").read_text())
    except OSError:
        return 0
    return 0 if libbpf.missing() else libbpf.attached_program(index)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="pktswarm.nodes.stale_spools",
        description="Remove the folders of guards whose network namespaces have ended.",
    )
    parser.add_argument("namespaces", nargs="+", type=int, help="their inodes")
    clear(SPOOLS, set(parser.parse_args().namespaces))


if __name__ == "__main__":
    main()
