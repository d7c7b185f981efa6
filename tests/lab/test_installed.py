"""The product as a user installs it: sdist, wheel, an environment of its own outside the source tree, a run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import pktswarm

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")

SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
WHEEL = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
SCENARIO = """name: installed
streams: [{name: probe, from: transmit, to: receive, size_bytes: 128, rate_pps: 1000, count_packets: 500}]
expect: {loss: 0}
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Readable by the account that ranks run as, which folders of pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="installed-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def command(place: Path) -> Path:
    """The installed `pktswarm`."""
    environment = place / "venv"
    dist = place / "dist"
    dist.mkdir()
    subprocess.run([sys.executable, "-c", SDIST, dist], check=True, capture_output=True)
    (sdist,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "-C", place, "-xf", sdist], check=True)
    (source,) = place.glob("pktswarm-*")
    subprocess.run([sys.executable, "-c", WHEEL, dist], cwd=source, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    copy_locked_packages(environment)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    subprocess.run([str(environment / "bin/python"), "-m", "pip", "check"], check=True, capture_output=True)
    return environment / "bin/pktswarm"


def copy_locked_packages(environment: Path) -> None:
    """The packages of requirements.lock and no others, from the environment of the tests, which has them from pip with
    their digests checked (./bootstrap installs from the same lock): pip would take a minute for them again."""
    for name, version in re.findall(r"(?m)^([\w.-]+)==([\w.]+)", Path("requirements.lock").read_text()):
        package = metadata.distribution(name)
        assert package.version == version, name
        for file in package.files or []:
            source = Path(os.path.normpath(str(package.locate_file(file))))
            target = environment / source.relative_to(sys.prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def run(command: Path, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a folder that has nothing of the source tree."""
    return subprocess.run([command, *words], cwd=place, capture_output=True, text=True, check=False)


def test_an_installed_wheel_checks_and_runs_in_a_lab(command: Path, place: Path) -> None:
    version = run(command, place, "--version")
    assert version.stdout == f"pktswarm {pktswarm.__version__}\n", version.stderr
    (place / "hosts").mkdir()
    (place / "scenario.yaml").write_text(SCENARIO)
    name = f"w{os.getpid()}"
    up = run(command, place, "lab", "up", "--name", name, "--transmit", "1", "--receive", "1")
    try:
        assert up.returncode == 0, up.stderr
        hosts = f"hosts/lab-{name}.yml"
        check = run(command, place, "check", "scenario.yaml", "--hosts", hosts)
        assert check.returncode == 0 and "probe" in check.stdout, check.stderr
        made = run(command, place, "run", "scenario.yaml", "--hosts", hosts)
        assert made.returncode == 0, made.stdout + made.stderr
        assert "500" in made.stdout
        (results,) = (place / "results").iterdir()
        assert (results / "report.html").stat().st_size > 10_000
    finally:
        run(command, place, "lab", "down", "--name", name)
