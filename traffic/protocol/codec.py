"""Messages as JSON objects: a dataclass for each, and one decoder for each direction between two parties.

A message is an order (its name is under the key "op") or an event (under "event"). A decoder refuses a name, a field
or a type of a field that it does not know: MessageError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import ClassVar, Generic, TypeVar, cast, get_args

from pktswarm.traffic import typed_json
from pktswarm.traffic.errors import BadInput, MessageError
from pktswarm.traffic.plain import plain

Json = Mapping[str, object]
T = TypeVar("T")


@plain
class Message:
    KEY: ClassVar[str]
    NAME: ClassVar[str]

    def __hash__(self) -> int:
        return hash(self.NAME)


@plain
class Order(Message):
    KEY = "op"


@plain
class Event(Message):
    KEY = "event"


M = TypeVar("M", bound=Message)


def to_fields(message: Message) -> dict[str, object]:
    """The JSON object of a message. A field that has its default value is left out."""
    return {
        message.KEY: message.NAME,
        **{name: typed_json.encode(value, whole=True) for name, value in _given(message)},
    }


def encode(message: Message, **more: object) -> bytes:
    return json.dumps({**to_fields(message), **more}, separators=(",", ":")).encode()


def to_object(value: object) -> dict[str, object]:
    """A dataclass as a JSON object."""
    return cast("dict[str, object]", typed_json.encode(value, whole=True))


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
        return cast("M", from_fields(kind, values, f"{self._key} {name}"))


def parse(data: bytes) -> dict[str, object]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise MessageError(f"a message is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise MessageError("a message must be a JSON object")
    return values


def from_fields(kind: type[T], data: object, where: str) -> T:
    """A dataclass from a JSON object. Raises MessageError."""
    try:
        return typed_json.decode(kind, data, where)
    except BadInput as error:
        raise MessageError(str(error)) from None


def _given(message: Message) -> list[tuple[str, object]]:
    values = [(each, getattr(message, each.name)) for each in fields(message)]
    return [(each.name, value) for each, value in values if each.default is MISSING or value != each.default]
