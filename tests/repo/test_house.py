"""The repository keeps its own promises: who imports whom, what ships loads, what the README says runs."""

import ast
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

FORBIDDEN = {
    "traffic": {
        "master",
        "nodes",
        "lab",
        "mpi4py",
        "subprocess",
        "pydantic",
        "rich",
        "typer",
        "jinja2",
        "prometheus_client",
    },
    "nodes": {"master", "lab", "pydantic", "rich", "typer", "jinja2", "matplotlib", "prometheus_client"},
    "master": {"nodes"},
    "lab": {"nodes"},
}
ALLOWED = {Path("lab/upf"): {"nodes"}, Path("lab/switch"): {"nodes"}}
"""The lab's UPF and its switches are on hosts of their own: they load XDP and read interfaces by what a node has for
that."""


def modules(package: str) -> list[Path]:
    return sorted(Path(package).rglob("*.py"))


@cache
def modules_imported(path: Path) -> set[str]:
    """Dotted names; of `from pktswarm import lab`: pktswarm.lab."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "pktswarm":
            names |= {f"pktswarm.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def imported(path: Path) -> set[str]:
    """The packages: of pktswarm its own, of others the top-level one."""
    return {name.removeprefix("pktswarm.").split(".")[0] for name in modules_imported(path)}


def test_the_only_import_name_is_pktswarm() -> None:
    """A module that is imported under two names exists twice, and an isinstance() of the two fails."""
    files = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout.split()
    assert len(files) > 400
    for name in files:
        bare = {one.split(".")[0] for one in modules_imported(Path(name))} & FORBIDDEN.keys()
        assert not bare, f"{name} imports {bare}"


OWN_NAMES = ("tests/repo/test_house.py", "ansible/roles/pktswarm/defaults/main.yml")
"""This page, and what gives back the settings of a node with an older version."""


def test_no_text_names_a_module_by_a_bare_name() -> None:
    """Engines are loaded by such names, and programs started: an editable installation would find either name."""
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    bare = re.compile(r"(?:-m[\", ]+|(?<![\"'])[\"'])(?:master|nodes|traffic|lab)\.[a-z_]+[.:\"', ]")
    for name in files:
        path = Path(name)
        if path.suffix in {".py", ".yml", ".j2", ".sh"} or name in {"bootstrap", ".ci/run"}:
            found = [one for one in bare.findall(path.read_text()) if not re.search(r"\.(csv|pcapng|pcap|conf)", one)]
            assert not found or name in OWN_NAMES, f"{name}: {found}"


SHIPPED = ("kernel", "configs", "ansible", "hosts", "requirements.lock")
"""Data of the package."""


def test_the_package_is_made_of_the_folders() -> None:
    links = {path.name: path.readlink() for path in Path("pktswarm").iterdir() if path.is_symlink()}
    assert links == {name: Path("..") / name for name in [*FORBIDDEN, *SHIPPED]}


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_nobody_imports_what_is_not_theirs(package: str) -> None:
    assert modules(package), f"{package} has no modules: is the test run from the project's root?"
    for path in modules(package):
        assert not imported(path) & FORBIDDEN[package] - ALLOWED.get(path.parent, set()), path


@pytest.mark.parametrize("package", ["master", "nodes"])
def test_mpi_stands_in_one_module_on_each_side(package: str) -> None:
    users = {path.name for path in modules(package) if "mpi4py" in imported(path)}
    assert users == {"mpi.py"}


def test_locks_pin_every_package_with_hashes() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock"):
        text = Path(lock).read_text()
        assert not re.search(r"^--", text, re.M), "an option of the machine where the lock was made"
        packages = re.findall(r"^[a-z][^\n]*$", text, re.M)
        assert packages
        for package in packages:
            assert re.match(r"[a-z0-9_.-]+==[^ ]+ .*\\$", package), package
        assert text.count("--hash=sha256:") >= len(packages)


@pytest.mark.parametrize("path", ["bootstrap", "CONTRIBUTING.md", "master/provision/playbook.py"])
def test_a_lock_is_installed_without_a_look_at_newer_releases(path: str) -> None:
    """Pip before 24.1 asks for the newest release of a dependency with extras, which no lock has."""
    installs = [line for line in Path(path).read_text().splitlines() if "--require-hashes" in line]
    assert installs
    assert all("--no-deps" in line for line in installs)


def test_nothing_names_a_machine_or_a_registry() -> None:
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    assert files
    for name in files:
        path = Path(name)
        if (
            path.suffix in {".pcap", ".pcapng", ".o", ".png"}
            or not path.is_file()
            or name == "tests/repo/test_house.py"
        ):
            continue
        text = path.read_text(errors="replace")
        assert not re.search(r"/work/main|pypi\.org|files\.pythonhosted|deb\.debian\.org", text), name


@pytest.mark.parametrize(
    ("words", "message"),
    [(["dmeo"], "dmeo? Known are: demo, check, test"), (["demo", "--fast"], "--fast? demo takes no more")],
)
def test_bootstrap_refuses_words_that_it_does_not_know(words: list[str], message: str) -> None:
    done = subprocess.run(["./bootstrap", *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and message in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("python", "found"), [("/bin/true", ""), ("/nonexistent/python3", ""), ("old", ", not 3.9.18")]
)
def test_bootstrap_refuses_what_is_no_python_or_too_old(python: str, found: str, tmp_path: Path) -> None:
    if python == "old":
        python = str(tmp_path / "python3")
        Path(python).write_text('#!/bin/sh\necho "3.9.18 (main, ...) [GCC 12.2.0] /usr"\n')
        Path(python).chmod(0o755)
    environment = {**os.environ, "PYTHON": python}
    done = subprocess.run(["./bootstrap"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bootstrap: PYTHON = {python}: must be Python 3.11 or newer{found}\n"


def test_every_scenario_that_ships_is_told_of() -> None:
    page = Path("configs/README.md").read_text()
    shipped = [str(path.relative_to("configs")) for path in Path("configs").rglob("*.yaml")]
    assert len(shipped) > 10
    assert set(re.findall(r"\]\(([^)]+\.yaml)\)", page)) == set(shipped)


def test_every_failure_has_its_test() -> None:
    folder = Path("tests/lab")
    listed = re.findall(
        r"(\S+\.py)::(\w+)", ast.get_docstring(ast.parse((folder / "test_failures.py").read_text())) or ""
    )
    assert len(listed) > 20
    for file, name in listed:
        defined = ast.walk(ast.parse((folder / file).read_text()))
        assert name in {one.name for one in defined if isinstance(one, ast.FunctionDef)}, f"{file}: {name}"
