"""A user's pcap expression compiled by libpcap for one interface, as the kernel will run it.

libpcap is there wherever netsniff-ng is. Compiled with the interface open, `vlan 10` looks at the tag that the kernel
keeps beside the frame; netsniff-ng itself compiles without it, and then sees inner tags only.
"""

from __future__ import annotations

import ctypes
from typing import Any

from traffic.bpf import Instruction, Program
from traffic.errors import BadInput, EngineError

_ERROR_BYTES = 256
_WHOLE_FRAME = 65535
_ANY_NETMASK = 0xFFFFFFFF


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction)))


def missing_libpcap() -> str:
    try:
        _libpcap()
    except OSError:
        return "libpcap is not installed (apt install libpcap0.8)"
    return ""


def compile_filter(expression: str, interface: str) -> Program:
    """Raises BadInput with libpcap's own words when it is no filter, EngineError if the interface cannot be opened."""
    pcap = _libpcap()
    problem = ctypes.create_string_buffer(_ERROR_BYTES)
    handle = pcap.pcap_open_live(interface.encode(), _WHOLE_FRAME, 0, 0, problem)
    if not handle:
        raise EngineError("libpcap", f"{interface} cannot be opened: {problem.value.decode(errors='replace')}")
    program = _Program()
    try:
        if pcap.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, _ANY_NETMASK):
            why = pcap.pcap_geterr(handle).decode(errors="replace")
            raise BadInput(
                interface, f"not a filter: {why}", key="filter", value=expression, allowed="see pcap-filter(7)"
            )
        found = [program.instructions[index] for index in range(program.length)]
        return [Instruction(one.code, one.jt, one.jf, one.k) for one in found]
    finally:
        pcap.pcap_freecode(ctypes.byref(program))
        pcap.pcap_close(handle)


def _libpcap() -> Any:
    pcap = ctypes.CDLL("libpcap.so.0.8")
    pcap.pcap_open_live.restype = ctypes.c_void_p
    pcap.pcap_geterr.restype = ctypes.c_char_p
    pcap.pcap_open_live.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    pcap.pcap_compile.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_uint32,
    ]
    pcap.pcap_geterr.argtypes = [ctypes.c_void_p]
    pcap.pcap_close.argtypes = [ctypes.c_void_p]
    pcap.pcap_freecode.argtypes = [ctypes.c_void_p]
    return pcap
