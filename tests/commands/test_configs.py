"""Shipped scenarios by name, man pages, and what the shell completes, from any folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PKTSWARM = str(Path(sys.executable).with_name("pktswarm"))
CONFIGS = Path("configs").resolve()
INVENTORY = "lab-a.yml"


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PKTSWARM, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def completed(folder: Path, line: str) -> list[str]:
    """The values that bash offers at the end of the line."""
    words = line.split(" ")
    environment = {**os.environ, "_PKTSWARM_COMPLETE": "complete_bash", "COMP_WORDS": line}
    environment["COMP_CWORD"] = str(len(words) - 1)
    done = subprocess.run(
        [PKTSWARM], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_every_shipped_scenario_is_listed_with_its_contents(tmp_path: Path) -> None:
    lines = call(tmp_path, "configs").stdout.splitlines()
    names = {line.split()[0] for line in lines}
    files = {path.relative_to(CONFIGS).as_posix().removesuffix(".yaml") for path in CONFIGS.rglob("*.yaml")}
    assert names == files | {f"hosts/{name}.yml" for name in ("both-roles", "cloud.example", "example", "upf")}
    assert all(len(line.split()) > 3 for line in lines), "a scenario is not in configs/README.md"


@pytest.mark.parametrize("name", ["first", "first.yaml", "configs/first.yaml", "./configs/first"])
def test_a_shipped_scenario_is_found_by_name(name: str, tmp_path: Path) -> None:
    done = call(tmp_path, "check", name)
    assert done.returncode == 0 and "hello" in done.stdout
    assert done.stderr == f"pktswarm: {Path(name)}: no such file here, taking the shipped {CONFIGS / 'first.yaml'}\n"


def test_the_trace_of_a_shipped_scenario_is_found(tmp_path: Path) -> None:
    assert call(tmp_path, "check", "demo").returncode == 0


def test_a_file_of_the_folder_comes_first(tmp_path: Path) -> None:
    text = call(tmp_path, "configs", "first").stdout
    assert text == (CONFIGS / "first.yaml").read_text()
    (tmp_path / "first.yaml").write_text(text.replace("hello", "mine"))
    done = call(tmp_path, "check", "first.yaml")
    assert done.returncode == 0 and "mine" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("name", ["fist", "../configs/first", "README.md", str(CONFIGS / "fist.yaml")])
def test_another_name_is_a_file_that_does_not_exist(name: str, tmp_path: Path) -> None:
    done = call(tmp_path, "check", name)
    assert done.returncode == 2 and done.stderr == f"pktswarm: {name}: there is no such file\n"
    done = call(tmp_path, "configs", name)
    assert done.returncode == 2 and re.fullmatch(
        r"pktswarm: configs: NAME = '.*': no shipped file \(allowed: those that pktswarm configs lists\)\n", done.stderr
    )


def test_an_inventory_is_printed(tmp_path: Path) -> None:
    text = call(tmp_path, "configs", "hosts/example.yml").stdout
    assert text == Path("hosts/example.yml").read_text()


# ---- man pages


def test_the_man_page_of_every_command_is_accepted_by_groff(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    done = call(tmp_path, "man", "--folder", "man1")
    pages = sorted((tmp_path / "man1").iterdir())
    assert done.returncode == 0 and len(pages) > 25
    for path in pages:
        shown = subprocess.run(
            [groff, "-man", "-Tutf8", "-P-c", "-ww", path], capture_output=True, text=True, timeout=60, check=False
        )
        assert shown.returncode == 0 and shown.stderr == "", path.name
        assert path.stem.upper() in shown.stdout and "\nSYNOPSIS" in re.sub("_?.\b", "", shown.stdout), path.name


def test_a_man_page_has_what_the_help_has(tmp_path: Path) -> None:
    page = call(tmp_path, "man", "lab", "up").stdout
    assert page.startswith('.TH PKTSWARM-LAB-UP 1 "" "pktswarm ')
    assert ".B \\-\\-bottleneck " in page and "pktswarm lab up \\-\\-transmit 3 \\-\\-receive 3" in page
    page = call(tmp_path, "man", "recount").stdout
    assert ".SH EXIT STATUS\n.PP\n0 the counts agree; 1 they differ; 2 bad input." in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lab", "sideways"), "COMMAND = 'lab sideways': unknown command"),
        (("run", "--folder", "x"), "COMMAND = 'run': excluded by --folder"),
        (("--folder", "file"), "--folder = 'file': not a folder"),
    ],
)
def test_a_wrong_word_of_man_is_named(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call(tmp_path, "man", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr


# ---- completion


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / INVENTORY).write_text("")
    (tmp_path / "hosts/mine.yml").write_text("")
    (tmp_path / "hosts/lab-a.upf.yml").write_text("")
    for name in ("20260101T120000Z-demo", "20260102T120000Z-demo"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "run.json").write_text("{}")
    (tmp_path / "results/20260103T120000Z-mine-search").mkdir()
    (tmp_path / "results/20260103T120000Z-mine-search/job.json").write_text("{}")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nstreams:\n"
        + "".join(
            f"  - {{name: {name}, from: a, to: b, rate_pps: 10, duration_s: 1, "
            "size_bytes: 100, headers: [ethernet: {}, ipv4: {}, udp: {src: 1, dst: 2}]}\n"
            for name in ("voice", "video")
        )
    )
    (tmp_path / "broken.yaml").write_text("streams: [")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("pktswarm run mi", ["mine.yaml"]),
        ("pktswarm check upf/e", ["upf/echo"]),
        ("pktswarm run mine.yaml --hosts hosts/l", ["hosts/lab-a.yml"]),
        ("pktswarm doctor --hosts hosts/", ["hosts/lab-a.yml", "hosts/mine.yml"]),
        ("pktswarm lab down --name ", ["a"]),
        ("pktswarm search mine.yaml --stream vo", ["voice"]),
        ("pktswarm preview mine.yaml --stream ", ["voice", "video"]),
        ("pktswarm search broken.yaml --stream ", []),
        ("pktswarm report results/2", ["results/20260102T120000Z-demo", "results/20260101T120000Z-demo"]),
        ("pktswarm compare results/20260101T120000Z-demo results/20260102", ["results/20260102T120000Z-demo"]),
        ("pktswarm search mine.yaml --resume results/2", ["results/20260103T120000Z-mine-search"]),
        ("pktswarm configs hosts/e", ["hosts/example.yml"]),
    ],
)
def test_the_shell_completes(line: str, values: list[str], folder: Path) -> None:
    offered = completed(folder, line)
    assert [one for one in offered if not one.endswith("/")] == values
