"""The lock files: each package that they name can be installed by the oldest Python that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

PINNED = re.compile(r"(?m)^([\w.-]+)==([\w.+!]+)")
LOCKS = ("requirements.lock", "requirements-dev.lock")


def oldest_python() -> str:
    allowed = tomllib.loads(Path("pyproject.toml").read_text())["project"]["requires-python"]
    (oldest,) = SpecifierSet(allowed)
    assert oldest.operator == ">=" and oldest.version == "3.11", "Debian 12 has 3.11.2"
    return oldest.version


@pytest.mark.parametrize("lock", LOCKS)
def test_the_oldest_python_takes_each_package(lock: str) -> None:
    pins = PINNED.findall(Path(lock).read_text())
    assert len(pins) > 20
    for name, version in pins:
        found = metadata.metadata(name)
        assert found["Version"] == version, f"{name}: not as in {lock}"
        wanted = found["Requires-Python"] or ""
        assert SpecifierSet(wanted).contains(oldest_python()), f"{name} {version} needs Python {wanted}"
