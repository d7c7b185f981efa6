"""Dataclasses that are defined fast."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def plain(kind: type[T]) -> type[T]:
    """A frozen dataclass, compared by its fields, for the modules that a rank loads.

    dataclass(frozen=True) compiles six functions for each class, 0.1 ms each: for the classes of a rank a quarter of
    the time that its modules take. All but __init__() are the same for all classes, and here once.
    """
    for name, function in _SHARED.items():
        if name not in vars(kind) and getattr(kind, name) is getattr(object, name):
            setattr(kind, name, function)
    return dataclass(eq=False, repr=False)(kind)


def _values(instance: Any) -> list[object]:
    return [getattr(instance, each.name) for each in fields(instance) if each.compare]


def _is_equal(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(tuple(_values(self)))


def _show(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set_once(self: object, name: str, value: object) -> None:
    """__init__() sets each field once."""
    if name in vars(self):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {
    "__eq__": _is_equal,
    "__hash__": _hash,
    "__repr__": _show,
    "__setattr__": _set_once,
    "__delattr__": _delete,
}
