"""Filters in pcap syntax, compiled by libpcap, which the master and all nodes with netsniff-ng have.

Compiled for an open interface (nodes.receivers.filters) `vlan 10` tests the tag that the kernel keeps beside a frame;
compiled without one it tests the frame, where XDP and a capture file have the tag.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from pktswarm.traffic.capture.cbpf import Instruction, Program
from pktswarm.traffic.capture.constants import LINKTYPE_ETHERNET
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LIBRARY = "libpcap.so.0.8"
WHOLE_FRAME = 65535
ANY_NETMASK = 0xFFFFFFFF


class RawInstruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class RawProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(RawInstruction)))


class _Header(ctypes.Structure):
    """struct pcap_pkthdr."""

    _fields_ = (
        ("seconds", ctypes.c_long),
        ("microseconds", ctypes.c_long),
        ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
    )


def missing() -> str:
    try:
        library()
    except OSError:
        return "libpcap is not installed (apt install libpcap0.8)"
    return ""


def library() -> Any:
    pcap = ctypes.CDLL(LIBRARY)
    pcap.pcap_open_live.restype = pcap.pcap_open_dead.restype = ctypes.c_void_p
    pcap.pcap_geterr.restype = ctypes.c_char_p
    pcap.pcap_open_live.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    pcap.pcap_compile.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32]
    pcap.pcap_offline_filter.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    pcap.pcap_geterr.argtypes = [ctypes.c_void_p]
    pcap.pcap_close.argtypes = [ctypes.c_void_p]
    pcap.pcap_freecode.argtypes = [ctypes.c_void_p]
    return pcap


def link_name(link_type: int) -> str:
    """The name of a link type, `EN10MB` for 1; empty if libpcap has none."""
    find = library().pcap_datalink_val_to_name
    find.restype = ctypes.c_char_p
    found: bytes | None = find(link_type)
    return (found or b"").decode()


def compile_with(handle: int, expression: str, where: object, key: str = "filter") -> Program:
    """Compiles a filter and closes the handle. BadInput with libpcap's message for an invalid filter."""
    pcap, program = library(), RawProgram()
    try:
        if "\0" in expression:  # the end of a C string: libpcap would silently ignore the rest
            raise BadInput(where, "invalid filter: it contains a zero byte", key=key, value=expression)
        if pcap.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, ANY_NETMASK):
            why = pcap.pcap_geterr(handle).decode(errors="replace")
            raise BadInput(where, f"invalid filter: {why}", key=key, value=expression, allowed="see pcap-filter(7)")
        found = [program.instructions[index] for index in range(program.length)]
        return [Instruction(one.code, one.jt, one.jf, one.k) for one in found]
    finally:
        pcap.pcap_freecode(ctypes.byref(program))
        pcap.pcap_close(handle)


def compile_ethernet(expression: str, where: object, key: str = "filter") -> Program:
    """Compiles a filter for Ethernet frames with their tags. BadInput for an invalid filter, or without libpcap."""
    if why := missing():
        raise BadInput(where, why, key=key, value=expression, allowed="no filter, or libpcap on this machine")
    return compile_with(library().pcap_open_dead(LINKTYPE_ETHERNET, WHOLE_FRAME), expression, where, key)


def matches(
    program: Program, data: NDArray[np.uint8], start: NDArray[Any], captured: NDArray[Any], length: NDArray[Any]
) -> NDArray[np.bool_]:
    """Whether each frame in `data` passes, by libpcap's interpreter."""
    import numpy as np

    code = (RawInstruction * len(program))(*(RawInstruction(*one) for one in program))
    compiled, header = RawProgram(len(code), code), _Header()
    run, by_program, by_header = library().pcap_offline_filter, ctypes.byref(compiled), ctypes.byref(header)
    base = data.ctypes.data
    passed = np.zeros(len(start), np.bool_)
    rows = zip(start.tolist(), captured.tolist(), length.tolist(), strict=True)
    for row, (at, header.captured, header.length) in enumerate(rows):
        passed[row] = run(by_program, by_header, base + at)
    return passed
