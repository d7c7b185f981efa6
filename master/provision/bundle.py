"""The archive for a node: the lock file's wheels for its Python and machine, and pktswarm's wheel.

`python -m pktswarm.master.provision.bundle --python 3.13 --machine x86_64`, on the master, prints a Bundle as JSON.
Without `--machine` the archive has pktswarm's wheel only: the node's distribution has the rest.
Wheels are downloaded once to `~/.cache/pktswarm`, and checked against the lock file's hashes there and on the node.
pktswarm's wheel is built once for each state of the source, for all Pythons and machines. An installed pktswarm has no
source: its wheel is packed again from its files.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, version
from pathlib import Path
from typing import TypedDict

from pktswarm.traffic.errors import EngineError, PktswarmError

SOURCE = Path(__file__).resolve().parents[2]
LOCK = SOURCE / "requirements.lock"
PACKAGE = "pktswarm"
FOLDERS = (PACKAGE, "traffic", "nodes", "master", "lab", "kernel", "configs", "ansible", "hosts")
PARTS = (*FOLDERS, "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
"""Sources of the wheel; it is built from a copy, as a build leaves files beside its source."""
NOT_SOURCE = ("__pycache__", "large-*.pcapng", "lab-*.yml", "*.capacity.json", "*.upf.yml")
"""Files and folders in those that a user's work makes."""
OF_INSTALLER = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""Files of a dist-info folder that the installer writes."""
GLIBCS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "manylinux_2_12")
"""Tags of wheels that run on the oldest supported release, Ubuntu 22.04 with glibc 2.35."""
SAME_TIME = "1577836800"
"""Time of the files in a wheel (2020), for reproducible wheels."""


class Bundle(TypedDict):
    """`digest`: of the contents; a node that has the same is not changed. `mpich`: its version."""

    path: str
    digest: str
    wheel: str
    mpich: str


def bundle(python: str, machine: str | None) -> Bundle:
    """Makes the archive; for no machine one without the lock file's wheels. Raises EngineError with pip's output."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = _own_wheel()
        folder = cache() / (f"cp{python.replace('.', '')}-{machine}" if machine else "own")
        folder.mkdir(exist_ok=True)
        locked = [*_fetch(folder, python, machine).glob("*.whl"), LOCK] if machine else []
        files = sorted([*locked, own], key=lambda path: path.name)
        digest = _digest(files)
        path = folder / f"bundle-{digest[:16]}.tar"
        if not path.exists():
            for old in folder.glob("bundle*.tar"):
                old.unlink()
            _pack(files, path)
        return {"path": str(path), "digest": digest, "wheel": own.name, "mpich": _pinned("mpich")}


def _own_wheel() -> Path:
    """Returns pktswarm's wheel, built if there is none of this state of the source."""
    folder = cache() / f"own-{_state_of_source()[:16]}"
    if not folder.is_dir():
        for old in cache().glob("own-*"):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            making = Path(scratch) / "made"
            making.mkdir()
            wheel = build_wheel if is_source() else pack_wheel
            shutil.move(wheel(Path(scratch)), making)
            making.rename(folder)
    return next(folder.glob("pktswarm-*.whl"))


def is_source() -> bool:
    """Whether this pktswarm runs from its source, and not as an installed package."""
    return (SOURCE / "pyproject.toml").is_file()


def _state_of_source() -> str:
    """Returns a digest of all sources of the wheel, and of setuptools' version; of a package of its files."""
    if not is_source():
        return hashlib.sha256(str(distribution(PACKAGE).read_text("RECORD")).encode()).hexdigest()
    parts = [SOURCE / name for name in PARTS]
    files = [path for part in parts for path in sorted(part.rglob("*") if part.is_dir() else [part])]
    lines = [f"setuptools {version('setuptools')}\n"]
    for path in files:
        if path.is_file() and not any(path.match(one) or path.parent.match(one) for one in NOT_SOURCE):
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(SOURCE)}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pktswarm" / "wheels"


def _fetch(folder: Path, python: str, machine: str) -> Path:
    """Returns the folder of the lock file's wheels, downloaded if there is none."""
    wheels = folder / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    if wheels.is_dir():
        return wheels
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    making = wheels.with_suffix(".making")
    abi = f"cp{python.replace('.', '')}"
    command = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(LOCK), "-d", str(making)]
    command += ["--python-version", python, "--implementation", "cp", "--abi", abi, "--abi", "abi3", "--abi", "none"]
    for glibc in GLIBCS:
        command += ["--platform", f"{glibc}_{machine}"]
    _pip(command)
    making.rename(wheels)
    return wheels


def build_wheel(scratch: Path) -> Path:
    """Builds pktswarm's wheel in `scratch` from a copy of the source."""
    source = scratch / "source"
    source.mkdir()
    for name in PARTS:
        part = SOURCE / name
        if part.is_dir():  # keeps the package's links to the other folders
            shutil.copytree(part, source / name, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
        else:
            shutil.copy2(part, source / name)
    _pip(["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(scratch), str(source)])
    return next(scratch.glob("pktswarm-*.whl"))


def pack_wheel(scratch: Path) -> Path:
    """Packs the files of the installed pktswarm as a wheel in `scratch`."""
    installed = distribution(PACKAGE)
    tag = re.search(r"^Tag: (\S+)", str(installed.read_text("WHEEL")), re.MULTILINE)
    if tag is None:
        raise PktswarmError(f"{PACKAGE} {installed.version}: the installed package has no tag in WHEEL")
    path = scratch / f"{PACKAGE}-{installed.version}-{tag[1]}.whl"
    record = f"{PACKAGE}-{installed.version}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _installed_files(installed):
            archive.writestr(_entry(name), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
        archive.writestr(_entry(record), "".join([*lines, f"{record},,\n"]))
    return path


def _installed_files(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that its wheel had."""
    for file in sorted(installed.files or ()):
        of_installer = file.parent.name.endswith(".dist-info") and file.name in OF_INSTALLER
        if file.parts[0] != ".." and file.suffix != ".pyc" and not of_installer:
            yield file.as_posix(), file.read_binary()


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry of 2020, with the mode of a plain file."""
    entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": SAME_TIME}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise EngineError("pip", f"{arguments[0]} failed", "\n".join(done.stderr.strip().splitlines()[-5:]))


def _pack(files: list[Path], path: Path) -> None:
    draft = path.with_suffix(".draft")
    with tarfile.open(draft, "w") as archive:
        for file in files:
            archive.add(file, f"bundle/{file.name}")
    draft.replace(path)


def _digest(files: list[Path]) -> str:
    """Returns a digest of names and contents, without the archive's times."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _pinned(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", LOCK.read_text(), re.MULTILINE)
    if not found:
        raise PktswarmError(f"{LOCK}: no package {package}")
    return found[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="pktswarm.master.provision.bundle", description="Makes the archive for a node."
    )
    parser.add_argument("--python", required=True, help="Python of the node, such as 3.13")
    parser.add_argument("--machine", help="machine of the node, such as x86_64; left out: pktswarm's wheel only")
    arguments = parser.parse_args()
    try:
        print(json.dumps(bundle(arguments.python, arguments.machine)))
    except PktswarmError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
