"""The command line, called in the process of the test."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from pktswarm.master.cli import app

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """A call of the command line without a process, which spares its imports: for commands that enter no namespace."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["pktswarm", *map(str, arguments)])
        interrupt = signal.getsignal(signal.SIGINT)
        status: object = 0
        try:
            app.main()
        except SystemExit as end:
            status = end.code or 0
        finally:
            signal.signal(signal.SIGINT, interrupt)
        assert isinstance(status, int), status
        return subprocess.CompletedProcess([str(each) for each in arguments], status, *capsys.readouterr())

    return call
