"""The Go programs beside this file: `upf` and `smf`, built into a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OLDEST_GO = (1, 19)
"""Debian 12's."""
DOWNLOAD_S, BUILD_S = 120, 300
UNREACHABLE = re.compile(
    r"dial tcp|no such host|connection re|i/o timeout|TLS handshake|module lookup disabled|: [45]\d\d "
)


def go(*words: str, seconds: float = BUILD_S) -> subprocess.CompletedProcess[str]:
    """Runs the go command on the module here: no other toolchain is downloaded, and nothing in go.mod changes."""
    settings = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0", "GOWORK": "off"}
    environment = {"HOME": str(Path.home()), **os.environ, **settings}
    return subprocess.run(
        ["go", *words], cwd=HERE, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def need_modules() -> None:
    """Skips where there is no Go, an older one than needed, or no way to the modules. A module with another checksum
    is a failure."""
    if shutil.which("go") is None:
        pytest.skip("no Go here (Debian: golang-go)")
    version = go("env", "GOVERSION").stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < OLDEST_GO:
        pytest.skip(f"Go {OLDEST_GO[0]}.{OLDEST_GO[1]} is needed, this is {version}")
    try:
        done = go("list", "-deps", "./...", seconds=DOWNLOAD_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the Go modules did not come within {DOWNLOAD_S} s")
    assert "SECURITY ERROR" not in done.stderr, done.stderr
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the Go modules cannot be had: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def build(folder: Path) -> Path:
    done = go("build", "-o", f"{folder}/", "./...")
    assert done.returncode == 0, done.stderr
    return folder
