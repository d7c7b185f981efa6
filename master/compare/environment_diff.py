"""What else differs between two sides: the scenario, the nodes and their versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pktswarm.master.compare.run_sets import Compared, Side

NOTHING, THERE = "–", "there"
NODE = ("kernel", "machine", "cpus", "python", "pktswarm")
INTERFACE = ("name", "driver", "speed_mbps")
Told = dict[str, Any]
"""{"key", "first", "other"}: where they differ, and how."""


def scenarios(one: Compared, other: Compared) -> list[Told]:
    return _differences(_settings(one.document), _settings(other.document))


def nodes(one: Compared, other: Compared) -> list[Told]:
    """Hosts with their roles, kernels, drivers, versions; and the engine of each stream."""
    return _differences(_nodes(one.document), _nodes(other.document))


def within(side: Side) -> list[str]:
    """Where the runs of a side are not the same run again."""
    first, *others = side.runs
    told = []
    for run in others:
        keys = [each["key"] for each in (*scenarios(first, run), *nodes(first, run))]
        if keys:
            told.append(f"{run.path.name} is no repetition of {first.path.name}: they differ in {', '.join(keys)}")
    return told


def _settings(document: dict[str, Any]) -> dict[str, Any]:
    return dict(_flat("", document.get("scenario", {})))


def _nodes(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rank in document.get("ranks", {}).values():
        where = f"{rank.get('host')} ({rank.get('role')})"
        found |= {f"{where}: {name}": rank.get(name) for name in NODE}
        found |= {f"{where}: {name}": rank.get("interface", {}).get(name) for name in INTERFACE}
    for row in document.get("rows", []):
        found[f"engine of {row['stream']}, {row['from']} → {row['to']}"] = row.get("engine")
    return found


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`streams.small.rate_pps`: parts of a list go by their names where they have them."""
    before = f"{key}." if key else ""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flat(f"{before}{name}", part)
    elif isinstance(value, list) and any(isinstance(part, (dict, list)) for part in value):
        for number, part in enumerate(value):
            name = part.get("name", number) if isinstance(part, dict) else number
            yield f"{before}{name}", THERE
            yield from _flat(f"{before}{name}", part)
    else:
        yield key, value


def _differences(first: dict[str, Any], other: dict[str, Any]) -> list[Told]:
    """A key that is there on one side alone has NOTHING on the other; an empty one is as none."""
    keys = dict.fromkeys([*first, *other])
    empty: tuple[object, ...] = (None, {}, [])
    pairs = ((key, first.get(key), other.get(key)) for key in keys)
    differ = [
        {"key": key, "first": _word(one), "other": _word(two)}
        for key, one, two in pairs
        if one != two and not (one in empty and two in empty)
    ]
    whole = tuple(f"{one['key']}." for one in differ if THERE in one.values())
    return [one for one in differ if not one["key"].startswith(whole)]


def _word(value: Any) -> str:
    return NOTHING if value in (None, {}, []) else str(value)
