"""Dataclasses as JSON and back. BadInput names an unknown field, a missing one, and a value of a wrong type."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from pktswarm.traffic.errors import BadInput

Json = Mapping[str, object]
T = TypeVar("T")
_PLAIN: dict[object, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}
"""A type in JSON → the types of values that it takes."""


def encode(value: Any, whole: bool = False) -> Any:
    """A value as plain JSON types. Of a dataclass a field that has its default is left out, unless the class names it
    in `WRITTEN`, or `whole` asks for all."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        if whole:
            return {each.name: encode(getattr(value, each.name), whole) for each in fields(value)}
        return fields_to_json(value)
    if isinstance(value, Mapping):
        return {name: encode(each, whole) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        # A list can have a million numbers, and nothing is to be done about them.
        is_plain = not value or isinstance(value[0], (int, float, str, NoneType))
        return list(value) if is_plain else [encode(each, whole) for each in value]
    return value


def fields_to_json(value: Any, whole: bool = False) -> dict[str, Any]:
    """The fields of a dataclass; `whole`: those that have their default too."""
    written: Sequence[str] = getattr(value, "WRITTEN", ())
    given = ((each, getattr(value, each.name)) for each in fields(value))
    return {
        each.name: encode(content)
        for each, content in given
        if whole or each.name in written or content != _default(each)
    }


def _default(field: Any) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def decode(kind: type[T], data: object, where: object, key: str = "") -> T:
    """A dataclass from JSON. `where` and `key`: the place of `data`, for messages."""
    own: Callable[[object, object, str], T] | None = getattr(kind, "from_json", None)
    if own is not None:
        return own(data, where, key)
    return decode_fields(kind, data, where, key)


def decode_fields(kind: type[T], data: object, where: object, key: str = "") -> T:
    """As decode(), for a class whose own from_json() changes the data first."""
    data = _mapping(data, where, key)
    types, required = _fields(cast("Hashable", kind))
    if unknown := [name for name in data if name not in types]:
        raise BadInput(where, "unknown field", key=_below(key, unknown[0]), allowed=", ".join(types))
    if missing := [name for name in required if name not in data]:
        raise BadInput(where, "missing", key=_below(key, missing[0]))
    return kind(**{name: _value(types[name], value, where, _below(key, name)) for name, value in data.items()})


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """The types of a dataclass's fields, and the names of those without a default."""
    hints, all_fields = get_type_hints(kind), fields(kind)
    required = [each.name for each in all_fields if each.default is MISSING and each.default_factory is MISSING]
    return {each.name: hints[each.name] for each in all_fields}, required


def _below(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _value(hint: Any, value: Any, where: object, key: str) -> Any:
    if hint in (Any, object):
        return value
    if is_dataclass(hint):
        return decode(cast("type[Any]", hint), value, where, key)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of(inner, value, where, key)
    if origin is Literal:
        if value not in inner:
            raise BadInput(where, "unknown value", key=key, value=value, allowed=", ".join(map(str, inner)))
        return value
    if is_typeddict(hint):
        if unknown := [name for name in _mapping(value, where, key) if name not in get_type_hints(hint)]:
            raise BadInput(where, "unknown field", key=_below(key, unknown[0]), allowed=", ".join(get_type_hints(hint)))
        return value
    if origin in (list, tuple, Sequence):
        return _sequence(origin, inner, value, where, key)
    if origin is not None:
        return {
            name: _value(inner[1], each, where, _below(key, name)) for name, each in _mapping(value, where, key).items()
        }
    _check_plain((hint,), value, where, key)
    return value


def _mapping(value: object, where: object, key: str) -> Json:
    if not isinstance(value, Mapping):
        raise BadInput(where, "not an object", key=key, value=value)
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, where: object, key: str) -> Any:
    """A union. An empty object where an optional dataclass is expected is None. Of several dataclasses it is the first
    whose required fields are all there."""
    rest = tuple(kind for kind in kinds if kind is not NoneType)
    if len(rest) < len(kinds) and (value is None or (value == {} and is_dataclass(rest[0]))):
        return None
    if is_dataclass(rest[0]) and isinstance(value, Mapping):
        rest = tuple(kind for kind in rest if set(_fields(kind)[1]) <= set(value))[:1] or rest[:1]
    if len(rest) == 1:
        return _value(rest[0], value, where, key)
    _check_plain(rest, value, where, key)
    return value


def _sequence(origin: Any, inner: tuple[Any, ...], value: Any, where: object, key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise BadInput(where, "not a list", key=key, value=value)
    if origin is tuple and inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise BadInput(where, f"not {len(inner)} values", key=key, value=value)
        return tuple(_value(hint, each, where, key) for hint, each in zip(inner, value, strict=True))
    if inner[0] in _PLAIN and set(map(type, value)) <= set(_PLAIN[inner[0]]):  # a list can have a million numbers
        return tuple(value) if origin is tuple else list(value)
    rows = get_args(inner[0]) if get_origin(inner[0]) is tuple else ()
    if set(rows) == {int} and _are_rows(value, len(rows)):
        return tuple(map(tuple, value)) if origin is tuple else list(map(tuple, value))
    made = (_value(inner[0], each, where, key) for each in value)
    return tuple(made) if origin is tuple else list(made)


def _are_rows(value: Sequence[Any], length: int) -> bool:
    """Whether a list has only rows of `length` integers: checked as a whole for speed."""
    if not set(map(type, value)) <= {list, tuple} or not set(map(len, value)) <= {length}:
        return False
    return set(map(type, chain.from_iterable(value))) <= {int}


def _check_plain(kinds: tuple[Any, ...], value: object, where: object, key: str) -> None:
    """bool is a subclass of int, and no number here."""
    taken = tuple(each for kind in kinds for each in _PLAIN.get(kind, (kind,)))
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in taken):
        allowed = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise BadInput(where, "wrong type", key=key, value=value, allowed=allowed)
