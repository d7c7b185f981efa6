"""BTF, the types of a program, as libbpf keeps them (linux/btf.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_uint32, c_void_p
from typing import Any

KIND_PTR, KIND_STRUCT, KIND_TYPEDEF, KIND_FUNC = 2, 4, 8, 12
CONTEXTS = ("xdp_md", "__sk_buff")
LOW_16 = 0xFFFF
"""In a type's info: a struct's fields, a prototype's arguments, a function's linkage (0 static, 1 global)."""


class Types:
    """`calls`: libbpf; `handle`: its struct btf, which lives as long as its owner."""

    def __init__(self, calls: ctypes.CDLL, handle: int) -> None:
        self._calls, self._handle = calls, c_void_p(handle)

    def struct(self, name: str) -> int | None:
        """The number of a struct; None where there is none of this name."""
        number = int(self._calls.btf__find_by_name_kind(self._handle, name.encode(), KIND_STRUCT))
        return None if number < 0 else number

    def members(self, number: int) -> Iterator[tuple[str, tuple[int, int]]]:
        """Name, and offset and size in bytes, of each field of a struct.

        A struct btf_member for each (name, type, offset in bits) is behind the struct btf_type.
        """
        fields = self._type(number)[1] & LOW_16
        words = self._type(number)[3 : 3 + 3 * fields]
        for name, kind, bits in zip(words[::3], words[1::3], words[2::3], strict=True):
            yield self._text(name), (bits // 8, int(self._calls.btf__resolve_size(self._handle, kind)))

    def linkages(self) -> dict[str, int]:
        """The linkage of each function."""
        return {self._text(function[0]): function[1] & LOW_16 for function in self._functions()}

    def make_static(self) -> None:
        """Gives each function with a context as its first argument static linkage."""
        for function in self._functions():
            if self._takes_context(self._type(function[2])):
                function[1] &= ~LOW_16

    def _functions(self) -> Iterator[Any]:
        for number in range(1, int(self._calls.btf__type_cnt(self._handle))):
            if _kind(words := self._type(number)) == KIND_FUNC:
                yield words

    def _takes_context(self, prototype: Any) -> bool:
        """`prototype`: behind its struct btf_type each argument has a name and a type."""
        if not prototype[1] & LOW_16:
            return False
        words = self._type(prototype[4])
        if _kind(words) != KIND_PTR:
            return False
        while _kind(words := self._type(words[2])) == KIND_TYPEDEF:
            pass
        return self._text(words[0]) in CONTEXTS

    def _type(self, number: int) -> Any:
        """struct btf_type as words: name, info, size or type; then what its kind has."""
        return ctypes.cast(self._calls.btf__type_by_id(self._handle, number), POINTER(c_uint32))

    def _text(self, name: int) -> str:
        return ctypes.string_at(self._calls.btf__name_by_offset(self._handle, name)).decode()


def _kind(words: Any) -> int:
    return int(words[1] >> 24 & 0x1F)
