"""Files of a results folder: new folders, atomic replacement of text, CSV tables, UTC."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path


def new_folder(results: Path, name: str) -> Path:
    """Makes `results/<UTC time>-<name>`; a further one of the same second gets a number at its end."""
    results.mkdir(parents=True, exist_ok=True)
    stamped = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{name}"
    for number in range(1, 1000):
        path = results / (stamped if number == 1 else f"{stamped}-{number}")
        try:
            path.mkdir(mode=0o755)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(results / stamped)


def write_csv(path: Path, columns: list[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Writes a table, complete or not at all. None is an empty cell."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    temporary.replace(path)


def replace_text(path: Path, text: str) -> None:
    """Replaces the content of a file; a reader sees the old or the new text, never a part."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text)
    temporary.replace(path)


def utc(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z"
