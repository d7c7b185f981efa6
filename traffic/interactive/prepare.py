"""The preparation of a trace's share for interactive replay, in which each side has its own sender.

Flows, addresses, ports, cutting and checksums are those of traffic.replay; here packets are assigned to their sides.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.script import script_of
from pktswarm.traffic.replay import prepare as replay
from pktswarm.traffic.replay.prepare import Nodes, Settings
from pktswarm.traffic.replay.prepare import Prepared as Trace

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Endpoint:
    """A node's addresses. IPv6 ones are made from the IPv4 address: fd00::a.b.c.d."""

    mac: str
    ipv4: str

    @property
    def mac_bytes(self) -> bytes:
        return bytes.fromhex(self.mac.replace(":", ""))


@dataclass
class Prepared:
    """`packets` are in the order of time, from the trace's start; a frame's source MAC is that of its side."""

    packets: list[Packet]
    forward: int
    """Number of packets of the side that begins the flows."""
    cut: int
    """Frames that had been merged from several segments."""
    mended: int
    left_out: dict[str, int]
    """Reason → packets."""


def load(files: Sequence[Path], mtu_bytes: int | None = None, interface: str = "") -> Trace:
    """Loads the trace of these files, cut to the MTU if that is known.

    BadInput for packets that are longer than the MTU of `interface` and cannot be cut.
    """
    if mtu_bytes is None:
        return replay.prepare(files, Settings(files[0]))
    trace = replay.prepare(files, Settings(files[0], oversize="cut", mtu_bytes=mtu_bytes))
    if trace.pieces.too_long:
        long = f"{trace.pieces.too_long} packets are longer than the MTU of {interface}, {mtu_bytes} bytes"
        raise BadInput(trace.parsed.path, f"{long} and cannot be cut: the interface needs a larger MTU")
    return trace


def prepare(trace: Trace, flows: Integers, beginner: Endpoint, answerer: Endpoint) -> Prepared:
    """A share of the trace: the flows with these numbers. The beginner takes the side of each flow's first packet."""
    mine, begins = np.isin(trace.flow, flows), beginning(trace)
    packets: dict[int, Packet] = {}
    mended = 0
    for side, sender, target in ((begins, beginner, answerer), (~begins, answerer, beginner)):
        rows = np.flatnonzero(mine & side)
        frames = replay.frames_of(trace, rows, _nodes(sender, target))
        mended += frames.mended
        for at, (row, time_ns) in enumerate(zip(rows.tolist(), frames.time_ns.tolist(), strict=True)):
            packets[row] = Packet(time_ns, frames.frame(at))
    script = script_of([packets[row] for row in sorted(packets)], beginner.mac)
    ready = [Packet(item.time_ns, item.frame) for item in script.items]
    cut = int(np.count_nonzero(mine & trace.pieces.last & (trace.pieces.index > 0)))
    return Prepared(ready, sum(item.forward for item in script.items), cut, mended, script.left_out)


def beginning(trace: Trace) -> Flags:
    """Whether each packet is from the side that sent the first packet of its flow."""
    _, first, flow = np.unique(trace.flow, return_index=True, return_inverse=True)
    return np.asarray(trace.channel == trace.channel[first[flow]])


def _nodes(sender: Endpoint, target: Endpoint) -> Nodes:
    addresses = (ipaddress.IPv4Address(end.ipv4).packed for end in (sender, target))
    return Nodes(sender.mac_bytes, target.mac_bytes, *addresses)
