"""Clones of an skb as a sender: what the engine xdp sends, on any driver (kernel/send_by_tc.h)."""

from __future__ import annotations

from typing import ClassVar

from pktswarm.nodes.senders.ways_out import CLONES, WayOut
from pktswarm.nodes.senders.xdp import XdpSender


class TcSender(XdpSender):
    """The kernel's result for each frame says whether the interface or its qdisc took it."""

    name: ClassVar[str] = CLONES.name
    way: ClassVar[WayOut] = CLONES
