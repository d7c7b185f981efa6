"""The commands of the README, run in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

ROOT = Path(__file__).parents[2]
PKTSWARM = Path(sys.executable).with_name("pktswarm")
EXPLAINED = {"lab": "lab default", "check": "hello", "run": "exit 0: as expected"}
"""What the output of each command has in it."""


def blocks() -> list[list[str]]:
    """The shell blocks of the README: lines without their comments."""
    found = re.findall(r"(?ms)^```sh\n(.*?)^```", (ROOT / "README.md").read_text())
    return [[re.sub(r"\s+# .*", "", line) for line in block.splitlines()] for block in found]


def test_every_block_of_the_readme_is_run_here() -> None:
    install, first = blocks()
    assert install == ["./bootstrap demo", "./bootstrap test"]
    assert [line.split()[2] for line in first] == ["lab", "check", "run", "lab"]


def test_the_first_scenario_runs_as_the_readme_has_it(tmp_path: Path) -> None:
    """In a folder of its own, where `lab up` makes a lab `default` beside any other of that name."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "hosts").mkdir()
    try:
        for line in blocks()[1]:
            words = shlex.split(line)[2:]
            done = subprocess.run(
                [PKTSWARM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            assert EXPLAINED[words[0]] in done.stdout + done.stderr
    finally:
        subprocess.run([PKTSWARM, "lab", "down"], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert len(list(tmp_path.glob("results/*-first/report.html"))) == 1


def test_the_demo_runs() -> None:
    """`./bootstrap demo`; `./bootstrap test` is what runs this."""
    if (ROOT / "hosts/lab-demo.yml").exists():
        pytest.skip("a lab `demo` is up")
    before = set((ROOT / "results").glob("*-demo*"))
    try:
        done = subprocess.run(
            ["./bootstrap", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "exit 0: as expected" in done.stdout and "What to try next" in done.stdout
    finally:
        for folder in set((ROOT / "results").glob("*-demo*")) - before:
            shutil.rmtree(folder)
