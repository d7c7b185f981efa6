"""Dataclasses as JSON and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
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
    task = to_json(ReceiveTask("eth1", "", [leg], 9.0))
    task["legs"][0]["colour"] = "red"
    with pytest.raises(BadInput, match=r"^receive task: legs\.colour: unknown field"):
        receive_task_from_json(task)
