"""Bare nodes: each has a Debian root of its own, made by `debootstrap`, with sshd and nothing else.

All labs share one root, below CACHE; each node has an overlay on it, whose changes are in memory and end with the node.
A node is a chroot without isolation: its root user is the machine's.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - names are looked up when the machine's Python files are out of sight
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

from pktswarm.lab import namespaces
from pktswarm.traffic.errors import BadInput, PktswarmError

CACHE = Path("/var/cache/pktswarm")
UBUNTU = ("jammy", "noble")
SUITES = ("bookworm", "trixie", *UBUNTU)
UBUNTU_KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
PACKAGES = "openssh-server"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
ENVIRONMENT = Path("/opt/pktswarm")
"""The virtual environment that `pktswarm provision` makes on a node."""
PLACE = Path("/run")
"""Mount point of a node's overlay, before the chroot."""


def check(lab: str, suite: str) -> None:
    """Raises BadInput for an unknown suite, or if a tool to make its root is not installed."""
    if suite not in SUITES:
        raise BadInput(f"lab {lab}", "unknown release", key="bare", value=suite, allowed=", ".join(SUITES))
    if not shutil.which("debootstrap"):
        raise BadInput(f"lab {lab}", "debootstrap not installed (apt install debootstrap)", key="bare", value=suite)
    if suite in UBUNTU and not (root_of(suite).is_dir() or UBUNTU_KEYRING.exists()):
        problem = f"Ubuntu's keys are not here: {UBUNTU_KEYRING}, of its package ubuntu-keyring"
        raise BadInput(f"lab {lab}", problem, key="bare", value=suite)


def root_of(suite: str) -> Path:
    return CACHE / f"bare-{suite}"


def make_root(suite: str) -> Path:
    """Returns the root of `suite`, made on first use in one to two minutes, from debootstrap's default mirror.

    Raises PktswarmError with the end of debootstrap's output, and removes the partial root.
    """
    root = root_of(suite)
    if root.is_dir():
        return root
    print(f"lab: making a root of {suite} in {root}, once; this takes a minute or two", file=sys.stderr)
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    making = root.with_name(f"{root.name}.making-{os.getpid()}")
    # In namespaces of its own: its mounts and processes end with it.
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *_debootstrap(suite, making)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        words = process.communicate()[0].decode(errors="replace")
        if process.returncode != 0:
            raise PktswarmError(f"debootstrap {suite} failed: {' / '.join(words.strip().splitlines()[-5:])}")
        (making / "etc/hosts").touch()
        _add_updates(suite, making / "etc/apt/sources.list")
        making.replace(root)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.rmtree(making, ignore_errors=True)
    return root


def _debootstrap(suite: str, target: Path) -> list[str]:
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}"]
    if suite not in UBUNTU:
        return [*command, suite, str(target)]
    # Most of what a node needs is in its universe. The default mirror; and the script that all its releases share,
    # because debootstrap may be older than the release.
    return [*command, "--components=main,universe", suite, str(target), "", "gutsy"]


def _add_updates(suite: str, sources: Path) -> None:
    """Writes the package sources of an installed Ubuntu, for jammy's Python 3.11 (--extra-suites fails)."""
    if suite in UBUNTU:
        lines = [line for line in sources.read_text().splitlines() if line.startswith("deb ")]
        more = [line.replace(f" {suite} ", f" {suite}-{part} ") for line in lines for part in ("updates", "security")]
        sources.write_text("\n".join([*lines, *more, ""]))


def enter_root(suite: str) -> None:
    """Enters the root of `suite`, with an overlay for the changes of this process. Needs a mount namespace."""
    namespaces.mount_tmpfs(str(PLACE))
    upper, work, root = (PLACE / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir()
    options = f"lowerdir={root_of(suite)},upperdir={upper},workdir={work}"
    namespaces.mount("overlay", str(root), "overlay", options=options)
    _make_devices(root / "dev")
    os.chroot(root)
    os.chdir("/")
    namespaces.mount_proc()


def show_environment() -> None:
    """Shows this Python's environment, on the lab's master, at the path that it has on the nodes."""
    upper, work = (PLACE / name for name in ("opt-upper", "opt-work"))
    for folder in (upper, work):
        folder.mkdir()
    options = f"lowerdir={ENVIRONMENT.parent},upperdir={upper},workdir={work}"
    namespaces.mount("overlay", str(ENVIRONMENT.parent), "overlay", options=options)
    ENVIRONMENT.mkdir(exist_ok=True)
    namespaces.bind(Path(sys.prefix), ENVIRONMENT)


def _make_devices(folder: Path) -> None:
    """Makes the few devices that programs expect; none of the machine's disks."""
    namespaces.mount("tmpfs", str(folder), "tmpfs", namespaces.MS_NOSUID, "mode=0755")
    for name, numbers in DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        (folder / name).chmod(0o666)
    for name in ("shm", "pts"):
        (folder / name).mkdir()
    namespaces.mount("devpts", str(folder / "pts"), "devpts", namespaces.MS_NOSUID, "newinstance,ptmxmode=0666")
    (folder / "ptmx").symlink_to("pts/ptmx")
    (folder / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")
