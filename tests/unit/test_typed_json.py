"""Dataclasses as JSON and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import (
    AddressPool,
    Arrival,
    ConnectionShape,
    FlowUsers,
    Leg,
    MatchData,
    Oversize,
    ReceivedField,
    SessionUsers,
    Shift,
    Timing,
)
from pktswarm.traffic.protocol.task import ReceiveTask, leg_from_json, receive_task_from_json, to_json
from pktswarm.traffic.typed_json import decode, encode


@dataclass(frozen=True)
class Inner:
    WRITTEN: ClassVar[tuple[str, ...]] = ("kind",)
    kind: Literal["a", "b"] = "a"
    pair: tuple[int, int] = (0, 0)
    text: str | None = None


@dataclass(frozen=True)
class Outer:
    number: int
    rate: float | None = None
    inner: Inner | None = None
    named: dict[str, Inner] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    free: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Outer(1), {"number": 1}),
        (Outer(1, 2), {"number": 1, "rate": 2}),
        (Outer(1, inner=Inner(pair=(3, 4))), {"number": 1, "inner": {"kind": "a", "pair": [3, 4]}}),
        (Outer(1, named={"x": Inner("b", text="t")}), {"number": 1, "named": {"x": {"kind": "b", "text": "t"}}}),
        (Outer(1, rows=[[1, 2]], free={"x": None}), {"number": 1, "rows": [[1, 2]], "free": {"x": None}}),
    ],
)
def test_a_dataclass_travels_as_json(value: Outer, data: dict[str, Any]) -> None:
    assert encode(value) == data
    assert decode(Outer, data, "file") == value


def test_an_empty_object_of_an_optional_table_is_none() -> None:
    assert decode(Outer, {"number": 1, "inner": {}}, "file") == Outer(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "file = []: not an object"),
        ({"number": 1, "nmber": 2}, "file: nmber: unknown field (allowed: number, rate, inner, named, rows, free)"),
        ({}, "file: number: missing"),
        ({"number": "1"}, "file: number = '1': wrong type (allowed: int)"),
        ({"number": True}, "file: number = True: wrong type (allowed: int)"),
        ({"number": 1, "rate": "fast"}, "file: rate = 'fast': wrong type (allowed: float)"),
        ({"number": 1, "inner": {"kind": "c"}}, "file: inner.kind = 'c': unknown value (allowed: a, b)"),
        ({"number": 1, "inner": {"pair": [1]}}, "file: inner.pair = [1]: not 2 values"),
        ({"number": 1, "inner": {"pair": 1}}, "file: inner.pair = 1: not a list"),
        ({"number": 1, "named": {"x": {"y": 1}}}, "file: named.x.y: unknown field (allowed: kind, pair, text)"),
        ({"number": 1, "named": 5}, "file: named = 5: not an object"),
    ],
)
def test_wrong_data_is_refused_with_its_place(data: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        decode(Outer, data, "file")
    assert str(caught.value) == message


def test_an_unknown_field_of_a_flow_or_a_task_is_named() -> None:
    leg = Leg(0, "s", "a", "b", "stream")
    with pytest.raises(BadInput, match=r"^flow: colour: unknown field"):
        leg_from_json({**leg.to_json(), "colour": "red"})
    with pytest.raises(BadInput, match=r"^flow: frame.colour: unknown field"):
        leg_from_json({**leg.to_json(), "frame": {"colour": 1}})
    task = to_json(ReceiveTask("eth1", "", [leg], 9.0))
    task["legs"][0]["colour"] = "red"
    with pytest.raises(BadInput, match=r"^receive task: legs\.colour: unknown field"):
        receive_task_from_json(task)


SESSION = SessionUsers("web", "gnb1", "down", None, (14, 58))
TABLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "match": (
        MatchData("rest", "ff", "0a", others=(MatchData("stream", ranges=((1, 2, 3, 4),)),)),
        {
            **{"kind": "rest", "mask": "ff", "value": "0a", "length": None, "ranges": [], "stream": None},
            "others": [
                {"kind": "stream", "mask": "", "value": "", "length": None, "others": [], "stream": None}
                | {"ranges": [[1, 2, 3, 4]]}
            ],
        },
    ),
    "timing": (Timing(lead_ns=5), {"mode": "original", "value": 1.0, "lead_ns": 5}),
    "arrives": (Arrival([{"udp": {"src": 1}}]), {"headers": [{"udp": {"src": 1}}], "added_bytes": 0}),
    "oversize": (Oversize("inner", None, (0, 9)), {"by": "inner", "mtu_bytes": None, "ids": [0, 9]}),
    "frame": ({"headers": [{"udp": {}}], "payload": {}},) * 2,
    "connection": (
        ConnectionShape("udp", 2, block_bytes=9, blocks=3, items=[[(5, 9), (7, 9)], []], port=20_000),
        {
            **{"protocol": "udp", "connections": 2, "direction": "up", "block_bytes": 9, "period_ns": None},
            **{"blocks": 3},
            **{"duration_ns": None, "pace_bps": None, "congestion": None, "nodelay": False},
            **{"send_buffer_bytes": None, "background": False, "items": [[[5, 9], [7, 9]], []], "port": 20_000},
        },
    ),
    "shift": (Shift(teid=3), {"teid": 3}),
    "pools": ({"users": AddressPool("10.0.0.1", 2)}, {"users": {"first": "10.0.0.1", "count": 2}}),
    "users": (
        FlowUsers("ipv6.src", "src_ip", 4, 2, 8, 64, 1, ReceivedField("gtpu.teid", "teid", 1, 1), SESSION),
        {
            **{"field": "ipv6.src", "by": "src_ip", "first": 4, "step": 2, "count": 8, "shift": 64, "low": 1},
            "received": {"field": "gtpu.teid", "by": "teid", "first": 1, "step": 1},
            **{"group": "web", "gnb": "gnb1", "direction": "down", "mbr_bps": None, "outer_bytes": [14, 58]},
        },
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_a_flow_keep_their_keys(name: str) -> None:
    """They are those of run.json, format_version 2."""
    value, data = TABLES[name]
    leg = Leg(0, "s", "a", "b", "stream", **{name: value})
    written = leg.to_json()
    assert written[name] == data
    assert leg_from_json(json.loads(json.dumps(written))) == leg


def test_tables_that_a_flow_lacks_are_empty_objects() -> None:
    leg = Leg(0, "s", "a", "b", "stream")
    assert all(leg.to_json()[name] == {} for name in TABLES)
    assert leg_from_json(leg.to_json()) == leg
