"""The lock files: each package that they name can be installed by the oldest Python that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

RUN, DEV = "requirements.lock", "requirements-dev.lock"
PINNED = re.compile(r"(?m)^([\w.-]+)==([\w.+!]+)")


def oldest_python() -> str:
    allowed = tomllib.loads(Path("pyproject.toml").read_text())["project"]["requires-python"]
    (oldest,) = SpecifierSet(allowed)
    assert oldest.operator == ">=" and oldest.version == "3.11", "Debian 12 has 3.11.2"
    return oldest.version


def pins(lock: str) -> set[tuple[str, str]]:
    return set(PINNED.findall(Path(lock).read_text()))


def test_the_lock_of_the_tests_has_all_packages_of_the_other() -> None:
    assert len(pins(RUN)) > 20
    assert pins(RUN) <= pins(DEV), "bootstrap installs the tests' alone"


@pytest.mark.parametrize("lock", [RUN, DEV])
def test_the_oldest_python_takes_each_package(lock: str) -> None:
    for name, version in sorted(pins(lock)):
        found = metadata.metadata(name)
        assert found["Version"] == version, f"{name}: not as in {lock}"
        wanted = found["Requires-Python"] or ""
        assert SpecifierSet(wanted).contains(oldest_python()), f"{name} {version} needs Python {wanted}"
