"""The archive for a node: the lock file's wheels for its Python and machine, and pktswarm's wheel.

`python -m pktswarm.master.provision.bundle --python 3.13 --machine x86_64`, on the master, prints a Bundle as JSON.
Wheels are downloaded once to `~/.cache/pktswarm`, and checked against the lock file's hashes there and on the node.
pktswarm's wheel is built once for each state of the source, for all Pythons and machines.
"""

from __future__ import annotations

import argparse
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
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from pktswarm.traffic.errors import EngineError, PktswarmError

SOURCE = Path(__file__).resolve().parents[2]
LOCK = SOURCE / "requirements.lock"
PACKAGE = "pktswarm"
PARTS = (PACKAGE, "traffic", "nodes", "master", "lab", "kernel", "pyproject.toml", "README.md", "LICENSE")
"""Sources of the wheel; it is built from a copy, as a build leaves files beside its source."""
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


def bundle(python: str, machine: str) -> Bundle:
    """Makes the archive. Raises EngineError with pip's output."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = _own_wheel()
        folder = cache() / f"cp{python.replace('.', '')}-{machine}"
        folder.mkdir(exist_ok=True)
        wheels = _fetch(folder, python, machine)
        files = sorted([*wheels.glob("*.whl"), LOCK, own], key=lambda path: path.name)
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
            shutil.move(build_wheel(Path(scratch)), making)
            making.rename(folder)
    return next(folder.glob("pktswarm-*.whl"))


def _state_of_source() -> str:
    """Returns a digest of all sources of the wheel, and of setuptools' version."""
    parts = [SOURCE / name for name in PARTS]
    files = [path for part in parts for path in sorted(part.rglob("*") if part.is_dir() else [part])]
    lines = [f"setuptools {version('setuptools')}\n"]
    for path in files:
        if path.is_file() and path.parent.name != "__pycache__":
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
            shutil.copytree(part, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(part, source / name)
    _pip(["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(scratch), str(source)])
    return next(scratch.glob("pktswarm-*.whl"))


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
    parser.add_argument("--machine", required=True, help="machine of the node, such as x86_64")
    arguments = parser.parse_args()
    try:
        print(json.dumps(bundle(arguments.python, arguments.machine)))
    except PktswarmError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
