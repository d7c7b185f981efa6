"""The data network's echo: number of echoed frames, and the structs of kernel/echo.h."""

from __future__ import annotations

from ctypes import Structure, c_uint16, c_uint32, c_uint64

from pktswarm.traffic.counting.kernel_structs import RawUserRule

NAME = "echo"
"""Name of the engine in the results."""
MOST_PERCENT = 500
COPIES = 5
"""Maximum number of copies of a frame."""
_HUNDRED = 100
_WORD = 0xFFFFFFFF


class RawFlow(Structure):
    """struct echo_flow: a stream whose frames are echoed."""

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
    """struct echo_unexplained: impossible results of a device."""

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
"""Name in the object's BTF → struct."""


def copies(number: int, percent: int) -> int:
    """Number of echoes of frame `number` (from 0) of a stream, equal to that of the kernel program."""
    return _accumulated(_place(number) + 1, percent) - _accumulated(_place(number), percent)


def due(received: int, percent: int) -> int:
    """Number of echoes of `received` frames: `percent` for each whole hundred, and the share of the rest, rounded down
    or up; in the first hundred always down."""
    begin = received // _HUNDRED * _HUNDRED
    first = _place(begin)
    rest = _accumulated(first + received - begin, percent) - _accumulated(first, percent)
    return begin // _HUNDRED * percent + rest


def _place(number: int) -> int:
    """A frame's place in the accumulator. Each hundred begins at another place, drawn by its number."""
    hundred, rest = divmod(number, _HUNDRED)
    return rest + (_mixed(hundred & _WORD) * _HUNDRED >> 32)


def _mixed(number: int) -> int:
    """murmur3's finalizer; 0 stays 0."""
    number = (number ^ number >> 16) * 0x85EBCA6B & _WORD
    number = (number ^ number >> 13) * 0xC2B2AE35 & _WORD
    return number ^ number >> 16


def _accumulated(frames: int, percent: int) -> int:
    return frames * percent // _HUNDRED
