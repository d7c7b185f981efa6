"""Rank 0's silence is counted only while the command line looks for its reports."""

from __future__ import annotations

import time

import pytest

from pktswarm.master.run.silence import LONGEST_S, SilenceTimer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def looks(timer: SilenceTimer, clock: list[float], times: int, every_s: float = 0.1) -> None:
    for _ in range(times):
        clock[0] += every_s
        timer.look(False)


def test_silence_adds_up_until_a_report_comes(clock: list[float]) -> None:
    timer = SilenceTimer()
    looks(timer, clock, round(LONGEST_S / 0.1) - 1)
    assert not timer.is_over(1.0)
    timer.look(True)
    looks(timer, clock, 3)
    assert timer.silent_s == pytest.approx(0.3)
    looks(timer, clock, round(LONGEST_S / 0.1))
    assert timer.is_over(1.0) and not timer.is_over(2.0)


def test_a_command_line_that_stood_still_counts_half_a_second(clock: list[float]) -> None:
    timer = SilenceTimer()
    clock[0] += 3600
    timer.look(False)
    assert timer.silent_s == 0.5 and not timer.is_over(1.0)
