"""Faults that the UPF makes on request: the order, as JSON, and its checks.

```
{"uplink":   {"drop": [0, 7], "delay_ms": {"3": 20}, "hold": {"9": 2}},
 "downlink": {"drop": [], "wrong_teid": [4], …},
 "n4": {"refuse_every": 10, "cause": 75, "lose_request_every": 3, "lose_answer_every": 5, "delay_ms": 100,
        "ignore_mbr_every": 20, "no_end_marker_every": 4}}
```
Packets are numbered from 0 in each direction, from the arrival of the order; only those that would be sent on count.
A packet that is held for n leaves after the n-th packet behind it. "every" k: the k-th, the 2k-th, …; 0: none.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field, fields

from pktswarm.traffic.errors import BadInput

_DROP, _TEID, _DELAY, _HOLD = 1, 2, 3, 4
"""enum fault_action of kernel/upf.h."""
WRONG_BITS = int.from_bytes(b"\x0f\0\0\0", sys.byteorder)
"""Bits that are flipped in the first byte of the TEID, which the data path holds big-endian."""
MOST_LISTED = 65_536
MOST_NUMBER = 2**48
MOST_DELAY_MS = 60_000
DIRECTIONS = ("uplink", "downlink")
WHERE = "lab upf"
Listed = dict[tuple[int, int], tuple[int, int, int]]
"""(direction, number of the packet) → (action, whether held packets follow it, value)."""


@dataclass(frozen=True)
class N4Faults:
    """Faults on N4. `…_every` k: each k-th; 0: none. `cause`: of refused sessions, TS 29.244 8.2.1. A session whose MBR
    is ignored is accepted as any other."""

    refuse_every: int = 0
    cause: int = 64
    lose_request_every: int = 0
    lose_answer_every: int = 0
    delay_ms: int = 0
    ignore_mbr_every: int = 0
    no_end_marker_every: int = 0


@dataclass(frozen=True)
class Faults:
    listed: Listed = field(default_factory=dict)
    n4: N4Faults = field(default_factory=N4Faults)


_N4_MOST = {"cause": 255, "delay_ms": MOST_DELAY_MS}


def read(order: object) -> Faults:
    """Checks an order. Raises BadInput with the key and the allowed values."""
    table = _table(order, (*DIRECTIONS, "n4"), "faults")
    listed: Listed = {}
    for direction, name in enumerate(DIRECTIONS):
        _read_direction(direction, name, table.get(name, {}), listed)
    if len(listed) > MOST_LISTED:
        raise BadInput(WHERE, "too many faults", key="faults", value=len(listed), allowed=f"at most {MOST_LISTED}")
    return Faults(listed, _read_n4(table.get("n4", {})))


def _read_n4(order: object) -> N4Faults:
    table = _table(order, [each.name for each in fields(N4Faults)], "n4")
    numbers = {
        key: _number(value, f"n4.{key}", 64 if key == "cause" else 0, _N4_MOST.get(key, 2**31))
        for key, value in table.items()
    }
    return N4Faults(**numbers)


def _read_direction(direction: int, name: str, given: object, listed: Listed) -> None:
    order = _table(given, ["drop", "delay_ms", "hold"] + ["wrong_teid"] * (name == "downlink"), name)
    for key, action in (("drop", _DROP), ("wrong_teid", _TEID)):
        for number in _list(order.get(key, []), f"{name}.{key}"):
            _put(listed, direction, number, action, WRONG_BITS, f"{name}.{key}")
    for number, value in _pairs(order.get("delay_ms", {}), f"{name}.delay_ms", MOST_DELAY_MS):
        _put(listed, direction, number, _DELAY, value * 1_000_000, f"{name}.delay_ms")
    held = _pairs(order.get("hold", {}), f"{name}.hold", MOST_LISTED)
    for number, value in held:
        _put(listed, direction, number, _HOLD, value, f"{name}.hold")
    for number, value in held:
        action, _, other = listed.get((direction, number + value), (0, 0, 0))
        if action in (_DROP, _DELAY, _HOLD):
            raise BadInput(WHERE, "that packet has a fault of its own", key=f"{name}.hold", value=number)
        listed[direction, number + value] = action, 1, other


def _put(listed: Listed, direction: int, number: int, action: int, value: int, key: str) -> None:
    if (direction, number) in listed:
        raise BadInput(WHERE, "two faults for one packet", key=key, value=number, allowed="one fault a packet")
    listed[direction, number] = action, 0, value


def _list(value: object, key: str) -> list[int]:
    if not isinstance(value, list):
        raise BadInput(WHERE, "not a list", key=key, value=value, allowed="numbers of packets, e.g. [0, 7]")
    return [_number(number, key, 0, MOST_NUMBER) for number in value]


def _pairs(value: object, key: str, most: int) -> list[tuple[int, int]]:
    if not isinstance(value, dict) or not all(str(number).isdecimal() for number in value):
        raise BadInput(WHERE, "not a table", key=key, value=value, allowed='packet to value, e.g. {"3": 20}')
    return [
        (_number(int(number), key, 0, MOST_NUMBER), _number(each, f"{key}.{number}", 1, most))
        for number, each in value.items()
    ]


def _table(order: object, allowed: Collection[str], key: str) -> dict[str, object]:
    if not isinstance(order, dict):
        raise BadInput(WHERE, "not a table", key=key, value=order, allowed=", ".join(allowed))
    for each in order:
        if each not in allowed:
            raise BadInput(WHERE, "unknown key", key=f"{key}.{each}", value=order[each], allowed=", ".join(allowed))
    return order


def _number(value: object, key: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(WHERE, "out of range", key=key, value=value, allowed=f"{least} to {most}")
    return value
