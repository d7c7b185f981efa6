"""What every benchmark ends with: a table, the same as JSON, and exit status 1 when an "at least" does not hold."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """`ours` against `peer`: medians in the unit that `work` names; `ratio` is what is judged.

    `at_least` (or `at_most`) None: told, not judged. `spread`: half the distance from the least to the largest ratio.
    """

    work: str
    ours: float | None
    peer: float | None
    peer_name: str
    ratio: float | None
    spread: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        value = self.ratio if self.ratio is not None else self.ours
        if value is None:
            return self.at_least is None and self.at_most is None
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


def compared(work: str, ours: Sequence[float], peer: Sequence[float], peer_name: str, at_least: float | None) -> Row:
    """Rounds side by side: the ratio of the medians, with the spread of the rounds' own ratios."""
    ratios = [one / other for one, other in zip(ours, peer, strict=True)]
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return Row(work, mine, theirs, peer_name, mine / theirs, (max(ratios) - min(ratios)) / 2, at_least)


def measured(work: str, values: Sequence[float], at_most: float | None = None, at_least: float | None = None) -> Row:
    """A figure with no peer: the median, and half the distance between its quartiles as its spread."""
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    spread = (quartiles[2] - quartiles[0]) / 2
    return Row(work, statistics.median(values), None, "", None, spread, at_least=at_least, at_most=at_most)


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", type=Path, help="write the rows there")
    return made


def finish(rows: Sequence[Row], json_file: Path | None) -> None:
    print(f"{'work':<58} {'ours':>12} {'peer':>12} {'ratio':>7} {'spread':>9} {'wanted':>9}  holds")
    for row in rows:
        wanted = f">= {row.at_least:g}" if row.at_least is not None else ""
        wanted = f"<= {row.at_most:g}" if row.at_most is not None else wanted
        cells = [_cell(row.ours, 12), _cell(row.peer, 12), _cell(row.ratio, 7), _cell(row.spread, 9)]
        print(f"{row.work:<58} {' '.join(cells)} {wanted:>9}  {'yes' if row.holds else 'NO'}")
    if json_file is not None:
        json_file.write_text(json.dumps([{**asdict(row), "holds": row.holds} for row in rows], indent=2) + "\n")
    sys.exit(0 if all(row.holds for row in rows) else 1)


def _cell(value: float | None, width: int) -> str:
    return " " * width if value is None else f"{value:>{width},.4g}"
