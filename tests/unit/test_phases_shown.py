"""The phases of a run, where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pktswarm.master.live.watch import Watch


@pytest.mark.parametrize(("quiet", "shown"), [(False, "sending …\nfinished\n"), (True, "")])
def test_a_quiet_console_shows_none(quiet: bool, shown: str) -> None:
    watch = Watch.__new__(Watch)
    watch.console = Console(file=io.StringIO(), quiet=quiet)
    watch._print_phase("send")
    watch._print_phase("over")
    assert isinstance(watch.console.file, io.StringIO)
    assert watch.console.file.getvalue() == shown
