"""The Go programs, built once for a test session."""

from __future__ import annotations

from pathlib import Path

import pytest

import go_programs


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `upf` and `smf`."""
    go_programs.need_modules()
    return go_programs.build(tmp_path_factory.mktemp("peers"))


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where associations that were not released are recorded (pktswarm.master.upf.unreleased)."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
