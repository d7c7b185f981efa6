"""The device under test: name, version and settings in the inventory (`pktswarm_dut`), labels on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from pktswarm.master.cluster.names import ADDRESS, INTERFACE, NAME
from pktswarm.traffic.errors import BadInput

KEY = "all.vars.pktswarm_dut"
KEYS = ("name", "version", "settings", "ssh", "user", "interfaces")
LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ /-]{0,62}")
LONGEST_TEXT = 200
TEXT = f'a text of 1 to {LONGEST_TEXT} characters; quote numbers: "1.10"'
LABEL = f"KEY=VALUE: a key of 1 to 63 letters, digits, spaces, . _ / -, and a value of 1 to {LONGEST_TEXT} characters"
NO_LABELS: Mapping[str, str] = {}
Setting = str | int | float | bool


class DutEntry(TypedDict):
    """The device under test in result documents: `dut`. A field is missing where it is not given."""

    name: NotRequired[str]
    version: NotRequired[str]
    settings: NotRequired[dict[str, Setting]]
    labels: NotRequired[dict[str, str]]
    """`--label` of the command."""


@dataclass(frozen=True)
class Dut:
    """The device under test in the inventory.

    `ssh`: its host, which a run may read over SSH; empty: it is not read. `interfaces`: those whose drops count, or
    all.
    """

    name: str = ""
    version: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    ssh: str = ""
    user: str = ""
    interfaces: tuple[str, ...] = ()


def parse(path: Path, given: Mapping[str, object]) -> Dut:
    """Read `pktswarm_dut`. Raises BadInput."""
    if unknown := sorted(map(str, set(given) - set(KEYS))):
        raise BadInput(path, "unknown key", key=f"{KEY}.{unknown[0]}", allowed=", ".join(KEYS))
    if not given:
        raise BadInput(path, "is empty", key=KEY, allowed=", ".join(KEYS))
    return Dut(
        _text(path, "name", given),
        _text(path, "version", given),
        _settings(path, given.get("settings", {})),
        *_host(path, given),
    )


def labels(command: str, texts: Iterable[str]) -> dict[str, str]:
    """Read the values of `--label`. Raises BadInput."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not LABEL_KEY.fullmatch(name) or not _is_text(value):
            raise BadInput(command, "not a label", key="--label", value=text, allowed=LABEL)
        if name in found:
            raise BadInput(command, f"{name} is given twice", key="--label", value=text)
        found[name] = value
    return found


def entry(dut: Dut | None, labels: Mapping[str, str] = NO_LABELS) -> DutEntry | None:
    """Return the device for a result document; None: nothing is known of it."""
    found: DutEntry = {}
    if dut is not None and dut.name:
        found["name"] = dut.name
    if dut is not None and dut.version:
        found["version"] = dut.version
    if dut is not None and dut.settings:
        found["settings"] = dict(dut.settings)
    if labels:
        found["labels"] = dict(labels)
    return found or None


def facts(dut: DutEntry | None) -> list[tuple[str, str]]:
    """Return name and value of each fact about a device, for reports."""
    if dut is None:
        return []
    named = [("name", dut.get("name", "")), ("version", dut.get("version", ""))]
    listed = [*((key, value) for key, value in named if value), *dut.get("settings", {}).items()]
    return [*((key, _shown(value)) for key, value in listed), *dut.get("labels", {}).items()]


def line(dut: DutEntry | None) -> str:
    """Return the facts about a device in one line; empty: nothing is known of it."""
    return ", ".join(f"{key} {value}" for key, value in facts(dut))


def _shown(value: Setting) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and value.isprintable()


def _text(path: Path, name: str, given: Mapping[str, object]) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or not _is_text(value):
        raise BadInput(path, "cannot be used", key=f"{KEY}.{name}", value=value, allowed=TEXT)
    return value


def _settings(path: Path, value: object) -> dict[str, Setting]:
    key, allowed = f"{KEY}.settings", "a mapping of names to texts and numbers, like {queue: 64k}"
    if not isinstance(value, dict):
        raise BadInput(path, "must be a mapping", key=key, value=value, allowed=allowed)
    for name, each in value.items():
        if not _is_text(name) or not (isinstance(each, (int, float)) or _is_text(each)):
            raise BadInput(path, "cannot be used", key=f"{key}.{name}", value=each, allowed=allowed)
    return value


def _host(path: Path, given: Mapping[str, object]) -> tuple[str, str, tuple[str, ...]]:
    """Return `ssh`, `user` and `interfaces`."""
    wanted = [name for name in ("user", "interfaces") if name in given]
    if wanted and "ssh" not in given:
        raise BadInput(path, "is missing", key=f"{KEY}.ssh", allowed=f"a host name or an address, with {wanted[0]}")
    patterns = {"ssh": (ADDRESS, "a host name or an address"), "user": (NAME, "an account name")}
    texts = []
    for name, (pattern, allowed) in patterns.items():
        text, may_be_empty = given.get(name, ""), name == "user" or name not in given
        if not isinstance(text, str) or not (pattern.fullmatch(text) or (may_be_empty and not text)):
            raise BadInput(path, "cannot be used", key=f"{KEY}.{name}", value=text, allowed=allowed)
        texts.append(text)
    interfaces = given.get("interfaces", [])
    if not isinstance(interfaces, list) or not all(isinstance(i, str) and INTERFACE.fullmatch(i) for i in interfaces):
        allowed = "a list of interfaces like [n3, n6]"
        raise BadInput(path, "cannot be used", key=f"{KEY}.interfaces", value=interfaces, allowed=allowed)
    return texts[0], texts[1], tuple(interfaces)
