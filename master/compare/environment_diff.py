"""Differences between two sides other than figures: scenario, nodes, versions and engines."""

from __future__ import annotations

from collections.abc import Iterator

from pktswarm.master.compare.document import SettingDifference
from pktswarm.master.compare.figures import objects
from pktswarm.master.compare.run_sets import Compared, Side
from pktswarm.traffic.typed_json import Json

NOTHING, THERE = "–", "there"
OPTIONS = ("asked", "streams", "medium_l1_bps", "form", "seconds", "wiring", "hold_s", "expect")
"""Keys of documents beside a run's that say what was measured."""
NODE = ("kernel", "machine", "cpus", "python", "pktswarm")
INTERFACE = ("name", "driver", "speed_mbps")


def scenarios(first: Compared, other: Compared) -> list[SettingDifference]:
    return _differences(_settings(first), _settings(other))


def nodes(first: Compared, other: Compared) -> list[SettingDifference]:
    """Compares hosts with their roles, kernels, drivers and versions, and the engine of each stream."""
    return _differences(_nodes(first.environment), _nodes(other.environment))


def devices(first: Compared, other: Compared) -> list[SettingDifference]:
    """Compares name, version, settings and labels of the devices under test."""
    return _differences(_device(first.document), _device(other.document))


def is_described(run: Compared) -> bool:
    """Returns whether anything is known of the device under test."""
    return bool(_device(run.document))


def _device(document: Json) -> Json:
    return dict(_flat("", dut)) if (dut := document.get("dut")) else {}


def within(side: Side) -> list[str]:
    """Returns a line for each run that is not a repetition of the first run of its side."""
    first, *others = side.runs
    lines = []
    for run in others:
        keys = [each["key"] for each in (*scenarios(first, run), *nodes(first, run), *devices(first, run))]
        if keys:
            lines.append(f"{run.path.name} is not a repetition of {first.path.name}: they differ in {', '.join(keys)}")
    return lines


def _settings(run: Compared) -> Json:
    """Returns the scenario of a run; of another command its options, and the scenario of its first run."""
    found = dict(_flat("", run.environment.get("scenario", {})))
    options = [pair for name in OPTIONS for pair in _flat(name, run.document.get(name))]
    return found | {key: value for key, value in options if value is not None}


def _nodes(document: Json) -> Json:
    found: dict[str, object] = {}
    ranks = document.get("ranks")
    for rank in objects(list(ranks.values()) if isinstance(ranks, dict) else []):
        where, interface = f"{rank.get('host')} ({rank.get('role')})", rank.get("interface")
        found |= {f"{where}: {name}": rank.get(name) for name in NODE}
        if not isinstance(interface, dict):
            interface = {}
        found |= {f"{where}: {name}": interface.get(name) for name in INTERFACE}
    for row in objects(document.get("rows")):
        found[f"engine of {row['stream']}, {row['from']} → {row['to']}"] = row.get("engine")
    return found


def _flat(key: str, value: object) -> Iterator[tuple[str, object]]:
    """Yields dotted keys (`streams.small.rate_pps`); an item of a list is keyed by its name, else by its number."""
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


def _differences(first: Json, other: Json) -> list[SettingDifference]:
    """Compares values. A missing key is NOTHING, and equal to an empty value."""
    keys = dict.fromkeys([*first, *other])
    empty: tuple[object, ...] = (None, {}, [])
    pairs = ((key, first.get(key), other.get(key)) for key in keys)
    differ: list[SettingDifference] = [
        {"key": key, "first": _text(ours), "other": _text(theirs)}
        for key, ours, theirs in pairs
        if ours != theirs and not (ours in empty and theirs in empty)
    ]
    whole = tuple(f"{each['key']}." for each in differ if THERE in (each["first"], each["other"]))
    return [each for each in differ if not each["key"].startswith(whole)]


def _text(value: object) -> str:
    return NOTHING if value in (None, {}, []) else str(value)
