"""Requests to the lab's UPF in words, for the command line: `fault downlink drop 1` is
`{"faults": {"downlink": {"drop": [1]}}}`. The UPF checks the limits of each value. A time without a unit is in
milliseconds, as in JSON, that of `restart silent` in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile

from pktswarm.lab.upf.faults import DIRECTIONS, MOST_LISTED, WHERE, N4Faults
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

REQUESTS = ("status", "sessions", "fault", "restart")
NONE = "none"
PACKETS, TIMES, HELD = "packets such as 0 7 10-19", "PACKET=TIME, e.g. 3=20ms", "PACKET=PACKETS, e.g. 9=2"
WHOLE = units.Range(least=0, whole=True)
N4 = {each.name.replace("_", "-"): each.name for each in fields(N4Faults)} | {"delay": "delay_ms"}


@dataclass(frozen=True)
class Kind:
    """A fault of packets. `key`: its key in JSON; `allowed`: the form of its values."""

    key: str
    allowed: str
    read: Callable[[str], list[tuple[int, int]]]
    """Returns pairs of a packet and its value (0 of a list)."""


def order(words: Sequence[str]) -> dict[str, object]:
    """Makes the order of the words of a command line; JSON is taken too. Raises BadInput."""
    if not words:
        return {"status": {}}
    if words[0].lstrip().startswith(("{", "[")):
        return _of_json(" ".join(words))
    name, rest = words[0], list(words[1:])
    if name in ("fault", "faults"):
        return {"faults": _faults(rest)}
    if name == "sessions":
        return {"sessions": {} if not rest else {"after": _whole(_value(rest, "after", "a SEID"), "sessions after")}}
    if name == "restart":
        return {"restart": {} if not rest else {"silent_s": _seconds(_value(rest, "silent", "a time such as 2s"))}}
    if name != "status":
        raise BadInput(WHERE, "unknown request", key="order", value=name, allowed=f"{', '.join(REQUESTS)}, or JSON")
    if rest:
        raise BadInput(WHERE, "superfluous word", key="status", value=rest[0])
    return {"status": {}}


def next_words(words: Sequence[str]) -> list[str]:
    """Returns the words that can follow, for the completion of a shell."""
    if not words:
        return list(REQUESTS)
    if words[0] in ("sessions", "restart") and len(words) == 1:
        return ["after" if words[0] == "sessions" else "silent"]
    if words[0] != "fault":
        return []
    places = [*DIRECTIONS, "n4"]
    place = next((word for word in reversed(words) if word in places), "")
    if not place:
        return [*places, NONE]
    return _kinds(place) if words[-1] == place else [] if words[-1] in _kinds(place) else [*_kinds(place), *places]


def _of_json(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadInput(WHERE, f"invalid JSON ({error})", key="order", value=text) from None
    if not isinstance(given, dict):
        raise BadInput(WHERE, "not an order", key="order", value=text, allowed="an object, or words")
    return given


def _faults(words: list[str]) -> dict[str, dict[str, object]]:
    places = (*DIRECTIONS, "n4")
    if words == [NONE]:
        return {}
    if not words or words[0] not in places:
        raise BadInput(
            WHERE, "no place of a fault", key="fault", value=" ".join(words[:1]), allowed=", ".join((*places, NONE))
        )
    found: dict[str, dict[str, object]] = {}
    while words:
        place = words[0]
        own = list(takewhile(lambda word: word not in places, words[1:]))
        words = words[1 + len(own) :]
        table = found.setdefault(place, {})
        if not own:
            raise BadInput(WHERE, "no fault is named", key=f"fault {place}", allowed=", ".join(_kinds(place)))
        if place == "n4":
            _read_n4(own, table)
        else:
            _read_packets(place, own, table)
    return found


def _kinds(place: str) -> list[str]:
    if place == "n4":
        return [name for name in N4 if "delay-ms" not in name]
    return [name for name in KINDS if name != "wrong-teid" or place == "downlink"]


def _read_n4(words: list[str], table: dict[str, object]) -> None:
    for at in range(0, len(words), 2):
        word = words[at].replace("_", "-")
        if word not in N4:
            raise BadInput(WHERE, "unknown fault", key="fault n4", value=words[at], allowed=", ".join(_kinds("n4")))
        value = _value(words[at : at + 2], words[at], "a value")
        key = f"fault n4 {words[at]}"
        if N4[word] in table:
            raise BadInput(WHERE, "given twice", key=key, value=value, allowed="one value")
        table[N4[word]] = int(_time(value, key, units.MILLISECONDS, WHOLE)) if word == "delay" else _whole(value, key)


def _read_packets(place: str, words: list[str], table: dict[str, object]) -> None:
    while words:
        kind = KINDS.get(words[0].replace("_", "-"))
        if kind is None:
            allowed = ", ".join(_kinds(place))
            raise BadInput(WHERE, "unknown fault", key=f"fault {place}", value=words[0], allowed=allowed)
        values = list(takewhile(lambda word: word.replace("_", "-") not in KINDS, words[1:]))
        key = f"fault {place} {words[0]}"
        if not values:
            raise BadInput(WHERE, "no packet is given", key=key, allowed=kind.allowed)
        pairs = [pair for value in values for pair in _pairs(kind, value, key)]
        if kind.key in table:
            raise BadInput(WHERE, "given twice", key=key, value=values[0], allowed="all packets after one word")
        table[kind.key] = [packet for packet, _ in pairs] if kind.allowed == PACKETS else _by_packet(pairs, key)
        words = words[1 + len(values) :]


def _by_packet(pairs: list[tuple[int, int]], key: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for packet, value in pairs:
        if str(packet) in found:
            raise BadInput(WHERE, "two values for one packet", key=key, value=packet, allowed="one value a packet")
        found[str(packet)] = value
    return found


def _pairs(kind: Kind, value: str, key: str) -> list[tuple[int, int]]:
    try:
        return kind.read(value)
    except units.UnitError as error:
        raise BadInput(WHERE, error.problem, key=key, value=value, allowed=f"{kind.allowed}; {error.allowed}") from None
    except ValueError:
        raise BadInput(WHERE, "not of the form", key=key, value=value, allowed=kind.allowed) from None


def _packets(text: str) -> list[tuple[int, int]]:
    """Reads packets: 7, 10-19, or several with commas."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = range(_decimal(first), _decimal(last if dash else first) + 1)
        if not numbers or len(found) + len(numbers) > MOST_LISTED:
            raise ValueError(part)
        found += [(number, 0) for number in numbers]
    return found


def _delays(text: str) -> list[tuple[int, int]]:
    packet, _, time = text.partition("=")
    return [(_decimal(packet), int(units.parse(time, units.MILLISECONDS, WHOLE)))]


def _held(text: str) -> list[tuple[int, int]]:
    packet, _, packets = text.partition("=")
    return [(_decimal(packet), _decimal(packets))]


KINDS = {
    "drop": Kind("drop", PACKETS, _packets),
    "wrong-teid": Kind("wrong_teid", PACKETS, _packets),
    "delay": Kind("delay_ms", TIMES, _delays),
    "hold": Kind("hold", HELD, _held),
}


def _value(words: Sequence[str], name: str, what: str) -> str:
    """Returns the value of `NAME VALUE`."""
    if len(words) != 2 or words[0] != name:
        raise BadInput(WHERE, f"not {name} and {what}", key=name, value=" ".join(words), allowed=f"{name} VALUE")
    return words[1]


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


def _whole(text: str, key: str) -> int:
    try:
        return _decimal(text)
    except ValueError:
        raise BadInput(WHERE, "not a number", key=key, value=text, allowed="a whole number") from None


def _seconds(text: str) -> float:
    return _time(text, "restart silent", units.SECONDS, units.Range(least=0))


def _time(text: str, key: str, unit: units.Unit, limits: units.Range) -> float:
    try:
        return units.parse(text, unit, limits)
    except units.UnitError as error:
        raise BadInput(WHERE, error.problem, key=key, value=text, allowed=error.allowed) from None
