"""Names of many hosts in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEAST_RUN = 3
"""Least number of successive names that become a range."""
NUMBERED = re.compile(r"(.*?)(\d+)", re.ASCII)


def compact(names: Iterable[str]) -> str:
    """Lists names, and successive numbers of one name as a range: tx1–tx3, rx1, rx2."""
    runs: list[list[str]] = []
    for name in dict.fromkeys(names):
        if runs and name == _following(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) >= LEAST_RUN else ", ".join(run) for run in runs)


def _following(name: str) -> str:
    """Returns the name with the next number; empty without a number."""
    match = NUMBERED.fullmatch(name)
    return f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}" if match else ""
