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

LISTED = ["git", "ls-files", "configs/traces/*.pcap*"]
TRACES_SHIPPED = subprocess.run(LISTED, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield build_wheel(tmp_path_factory.mktemp("wheel"))


def test_it_installs_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"pktswarm", f"pktswarm-{pktswarm.__version__}.dist-info"}


def test_it_has_what_the_program_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    parts = [("master", "templates/*"), ("nodes", "bpf/*.o"), ("kernel", "*"), ("traffic", "**/*.py")]
    parts += [("configs", "**/*.yaml"), ("ansible", "**/*.yml"), ("ansible", "[!.]*.*"), (".", "requirements.lock")]
    for folder, pattern in parts:
        files = [path for path in Path(folder).glob(pattern) if path.is_file()]
        assert files and {f"pktswarm/{path}" for path in files} <= names, folder


def test_programs_find_its_types_and_pytest_its_plugin(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    assert {"pktswarm/py.typed", "pktswarm/pytest.py"} <= {*archive.namelist()}
    (entries,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    assert "[pytest11]\npktswarm = pktswarm.pytest" in archive.read(entries).decode()


def test_it_has_inventories_that_ship_and_none_of_a_user(wheel: Path) -> None:
    names = {name.split("/")[-1] for name in zipfile.ZipFile(wheel).namelist() if name.startswith("pktswarm/hosts/")}
    assert names == {"both-roles.yml", "cloud.example.yml", "example.yml", "upf.yml"}
    traces = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("pktswarm/configs/traces/")}
    assert {f"pktswarm/{name}" for name in TRACES_SHIPPED} | {"pktswarm/configs/traces/README.md"} == traces


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


def test_an_installed_pktswarm_packs_the_wheel_again_for_its_nodes(wheel: Path, tmp_path: Path) -> None:
    """`pktswarm provision` from a wheel: there is no source to build from."""
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True, timeout=120)
    program = f"import sys; sys.path.insert(0, {str(target)!r}); from pathlib import Path\n"
    program += "from pktswarm.master.provision import bundle, playbook\n"
    program += "print(bundle.is_source(), bundle.LOCK.is_file(), playbook.LOCK.is_file())\n"
    program += "print(bundle.pack_wheel(Path('.')))"
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False True True", wheel.name]
    packed, built = zipfile.ZipFile(tmp_path / wheel.name), zipfile.ZipFile(wheel)
    assert contents(packed) == contents(built)
    # pip checks the digests of RECORD.
    subprocess.run([*install, "--target", str(tmp_path / "again"), str(tmp_path / wheel.name)], check=True, timeout=120)
    assert (tmp_path / "again/pktswarm/nodes/bpf/send.o").is_file()


def contents(archive: zipfile.ZipFile) -> dict[str, bytes]:
    files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    return {name: data for name, data in files.items() if not name.endswith(".dist-info/RECORD")}
