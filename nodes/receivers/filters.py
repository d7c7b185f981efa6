"""Compiles a user's pcap expression with libpcap for one interface, as the kernel runs it.

Compiled with the interface open, `vlan 10` looks at the tag that the kernel keeps beside the frame; netsniff-ng itself
compiles without it, and then sees inner tags only.
"""

from __future__ import annotations

import ctypes

from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.capture.cbpf import Program
from pktswarm.traffic.errors import EngineError

_ERROR_BYTES = 256


def compile_filter(expression: str, interface: str) -> Program:
    """Raises BadInput with libpcap's message for an invalid filter, EngineError if the interface cannot be opened."""
    problem = ctypes.create_string_buffer(_ERROR_BYTES)
    handle = pcap.library().pcap_open_live(interface.encode(), pcap.WHOLE_FRAME, 0, 0, problem)
    if not handle:
        raise EngineError("libpcap", f"{interface} cannot be opened: {problem.value.decode(errors='replace')}")
    return pcap.compile_with(handle, expression, interface)
