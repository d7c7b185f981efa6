"""Messages as JSON objects: a dataclass for each, and one decoder for each direction between two parties.

A message is an order (its name is under the key "op") or an event (under "event"). A decoder refuses a name, a field
or a type of a field that it does not know: MessageError.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pktswarm.traffic.errors import MessageError

Json = Mapping[str, object]


@dataclass(frozen=True)
class Message:
    KEY: ClassVar[str]
    NAME: ClassVar[str]


@dataclass(frozen=True)
class Order(Message):
    KEY = "op"


@dataclass(frozen=True)
class Event(Message):
    KEY = "event"


M = TypeVar("M", bound=Message)
T = TypeVar("T")


def to_fields(message: Message) -> dict[str, object]:
    """The JSON object of a message. A field that has its default value is left out."""
    return {message.KEY: message.NAME, **{name: plain(value) for name, value in _given(message)}}


def encode(message: Message, **more: object) -> bytes:
    return json.dumps({**to_fields(message), **more}, separators=(",", ":")).encode()


def plain(value: object) -> object:
    """A value of a message as JSON types."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list) and value and is_dataclass(value[0]):
        return [plain(each) for each in value]
    return value


def to_object(value: object) -> dict[str, object]:
    """A dataclass as a JSON object."""
    return cast("dict[str, object]", plain(value))


class Decoder(Generic[M]):
    """Decodes the messages of one direction. `union`: their types joined by "|"."""

    def __init__(self, union: object) -> None:
        kinds: tuple[type[Message], ...] = get_args(union)
        self._key = kinds[0].KEY
        self._kinds = {kind.NAME: kind for kind in kinds}

    def __call__(self, data: Json) -> M:
        name = data.get(self._key)
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise MessageError(f"unknown {'operation' if self._key == 'op' else 'event'} {name!r}")
        values = {key: value for key, value in data.items() if key != self._key}
        return cast("M", from_fields(kind, values, f"{self._key} {name!r}"))


def parse(data: bytes) -> dict[str, object]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise MessageError(f"a message is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise MessageError("a message must be a JSON object")
    return values


def from_fields(kind: type[T], data: object, where: str) -> T:
    """A dataclass from a JSON object."""
    if not isinstance(data, dict):
        raise MessageError(f"{where}: {data!r} is not an object")
    hints, required = _fields(cast("Hashable", kind))
    if unknown := [name for name in data if name not in hints]:
        raise MessageError(f"{where}: unknown field {unknown[0]!r}")
    if missing := [name for name in required if name not in data]:
        raise MessageError(f"{where}: no field {missing[0]!r}")
    return kind(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in data.items()})


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """The types of a dataclass's fields, and the names of those that have no default."""
    hints = get_type_hints(kind)
    named = fields(kind)
    required = [each.name for each in named if each.default is MISSING and each.default_factory is MISSING]
    return {each.name: hints[each.name] for each in named}, required


def _given(message: Message) -> list[tuple[str, object]]:
    values = [(each, getattr(message, each.name)) for each in fields(message)]
    return [(each.name, value) for each, value in values if each.default is MISSING or value != each.default]


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`. The elements of a list or object of plain values are not looked at."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin in (Union, UnionType):
        return _one_of(inner, value, where)
    if origin is Literal:
        good = value in inner
    elif is_dataclass(hint):
        return from_fields(cast("type[Any]", hint), value, where)
    elif origin is list:
        if isinstance(value, list) and _holds_dataclass(inner[0]):
            return [_value(inner[0], each, where) for each in value]
        good = isinstance(value, list)
    elif origin is dict:
        good = isinstance(value, dict)
    elif hint is float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
    else:
        good = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if not good:
        raise MessageError(f"{where}: {value!r:.80} is not {getattr(hint, '__name__', hint)}")
    return value


def _holds_dataclass(hint: Any) -> bool:
    return is_dataclass(hint) or any(map(is_dataclass, get_args(hint)))


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Of several dataclasses the first whose required fields are all there. {} for an optional one is None."""
    named = tuple(kind for kind in kinds if kind is not NoneType)
    if len(named) < len(kinds) and (value is None or (value == {} and is_dataclass(named[0]))):
        return None
    kinds = named
    if len(kinds) > 1 and isinstance(value, dict):
        kinds = tuple(kind for kind in kinds if set(_fields(kind)[1]) <= set(value)) or kinds
    return _value(kinds[0], value, where)
