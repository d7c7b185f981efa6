"""Scenarios and inventories that ship with pktswarm, found by name wherever it is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pktswarm.traffic.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
"""The folder of the source, or that of the installed package: both have `configs` and `hosts`."""
CONFIGS, HOSTS = ROOT / "configs", ROOT / "hosts"
DESCRIBED = re.compile(r"^\| (\[[^|]+\.yaml\)) \| (.*?) \|", re.MULTILINE)
"""A row of configs/README.md: its files, and what they contain."""


@dataclass(frozen=True)
class Shipped:
    """`name`: that of the command line. `description`: of an inventory its first comment."""

    name: str
    description: str
    path: Path


def scenario(path: Path) -> Path:
    """Returns `path`, or the shipped scenario of that name where there is no such file."""
    found = None if path.is_file() or path.is_absolute() else _named(str(path))
    return found or path


def _named(name: str) -> Path | None:
    inside = name.removeprefix("./").removeprefix("configs/")
    paths = [CONFIGS / inside, CONFIGS / f"{inside}.yaml"]
    return next((path for path in paths if path.suffix == ".yaml" and ".." not in path.parts and path.is_file()), None)


def everything() -> list[Shipped]:
    """Returns the shipped scenarios, then the shipped inventories."""
    return [*_scenarios(), *_inventories()]


def _scenarios() -> Iterator[Shipped]:
    table = DESCRIBED.findall((CONFIGS / "README.md").read_text())
    rows = {name: contents for files, contents in table for name in re.findall(r"\]\(([^)]+)\)", files)}
    for path in sorted(CONFIGS.rglob("*.yaml"), key=lambda path: (len(path.parts), path)):
        name = path.relative_to(CONFIGS).as_posix()
        yield Shipped(name.removesuffix(".yaml"), rows.get(name, "").replace("`", ""), path)


def _inventories() -> Iterator[Shipped]:
    for path in sorted(HOSTS.glob("*.yml")):
        if not path.name.startswith("lab-") and not path.name.endswith(".upf.yml"):
            lines = path.read_text().splitlines()
            comment = next((line for line in lines if line.startswith("# ")), "")
            yield Shipped(f"hosts/{path.name}", comment.removeprefix("# "), path)


def read(name: str) -> str:
    """Returns the text of a shipped file. Raises BadInput for an unknown name."""
    path = _named(name) or next((one.path for one in _inventories() if one.name == name), None)
    if path is None:
        allowed = "those that pktswarm configs lists"
        raise BadInput("configs", "no shipped file", key="NAME", value=name, allowed=allowed)
    return path.read_text()
