"""The wheel that users and nodes are given: one name, all that the program reads, the sources of its GPL part."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pktswarm
from pktswarm.master.provision.bundle import build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield build_wheel(tmp_path_factory.mktemp("wheel"))


def test_it_installs_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"pktswarm", f"pktswarm-{pktswarm.__version__}.dist-info"}


def test_it_has_what_the_program_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, pattern in (("master", "templates/*"), ("nodes", "bpf/*.o"), ("kernel", "*"), ("traffic", "**/*.py")):
        files = [path for path in Path(folder).glob(pattern) if path.is_file()]
        assert files and {f"pktswarm/{path}" for path in files} <= names, folder


def test_licences_go_with_what_they_cover(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    text = archive.read(metadata).decode()
    assert "Apache-2.0 AND GPL-2.0-only" in text
    assert archive.read("pktswarm/kernel/LICENSE") == Path("kernel/LICENSE").read_bytes()


def test_it_runs_outside_of_the_tree(wheel: Path, tmp_path: Path) -> None:
    """Its files alone, with this environment's dependencies; nothing of this folder is seen."""
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    program = f"import sys; sys.path.insert(0, {str(target)!r}); import pktswarm; print(pktswarm.__file__)\n"
    program += "from pktswarm.master.cli.app import main; sys.argv[1:] = ['--version']; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(target / "pktswarm/__init__.py"), f"pktswarm {pktswarm.__version__}"]
