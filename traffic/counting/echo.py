"""The data network's echo: how many frames go back, and the structs that kernel/echo.bpf.c shares with its user-space
half, as kernel/echo.h lays them out.
"""

from __future__ import annotations

from ctypes import Structure, c_uint16, c_uint32, c_uint64

from pktswarm.traffic.counting.kernel_structs import RawUserRule

NAME = "echo"
"""Of the engine, in the results."""
MOST_PERCENT = 500
COPIES = 5
"""Of a frame, at most."""
_HUNDRED = 100
_WORD = 0xFFFFFFFF


class RawFlow(Structure):
    """One stream whose frames go back: see struct echo_flow for each figure's meaning."""

    _fields_ = (
        ("received", c_uint64),
        ("left", c_uint64),
        ("due", c_uint64),
        ("made", c_uint64),
        ("sent", c_uint64),
        ("sent_bytes", c_uint64),
        ("dropped", c_uint64),
        ("whole", c_uint16),
        ("part", c_uint16),
        ("stream", c_uint32),
        ("users", RawUserRule),
    )


class EchoSettings(Structure):
    _fields_ = (("alone", c_uint32), ("counted", c_uint32), ("single", c_uint32))


class Unexplained(Structure):
    """What a device said that cannot be: see struct echo_unexplained."""

    _fields_ = (
        ("answers", c_uint64),
        ("sent", c_uint32),
        ("dropped", c_uint32),
        ("pending", c_uint32),
        ("unused", c_uint32),
    )


SHARED: dict[str, type[Structure]] = {
    "echo_flow": RawFlow,
    "echo_settings": EchoSettings,
    "echo_unexplained": Unexplained,
    "user_rule": RawUserRule,
}
"""By the name each has in the object's BTF."""


def copies(number: int, percent: int) -> int:
    """How many times frame `number` of a stream, counted from 0, goes back: as the program in the kernel has it."""
    return _accumulated(_place(number) + 1, percent) - _accumulated(_place(number), percent)


def due(received: int, percent: int) -> int:
    """How many frames go back for so many received: `percent` for each whole hundred, and for what is left of one its
    share, rounded down or up. Of the first hundred always down."""
    begin = received // _HUNDRED * _HUNDRED
    first = _place(begin)
    rest = _accumulated(first + received - begin, percent) - _accumulated(first, percent)
    return begin // _HUNDRED * percent + rest


def _place(number: int) -> int:
    """Where in the accumulator's round a frame is. Each hundred begins at another place, drawn by its number."""
    hundred, rest = divmod(number, _HUNDRED)
    return rest + (_mixed(hundred & _WORD) * _HUNDRED >> 32)


def _mixed(number: int) -> int:
    """murmur3's finalizer; 0 stays 0."""
    number = (number ^ number >> 16) * 0x85EBCA6B & _WORD
    number = (number ^ number >> 13) * 0xC2B2AE35 & _WORD
    return number ^ number >> 16


def _accumulated(frames: int, percent: int) -> int:
    return frames * percent // _HUNDRED
