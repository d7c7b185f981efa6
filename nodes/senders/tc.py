"""Clones of an skb as a sender: what the engine xdp sends, on any driver (kernel/send_by_tc.h)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.interface import Interface
from pktswarm.nodes.plain_queue import PlainQueue
from pktswarm.nodes.senders import xdp_run
from pktswarm.nodes.senders.ways_out import CLONES, WayOut
from pktswarm.nodes.senders.xdp import XdpSender
from pktswarm.traffic.protocol.task import SendTask


class TcSender(XdpSender):
    """The kernel's result for each frame says whether the interface or its qdisc took it."""

    name: ClassVar[str] = CLONES.name
    way: ClassVar[WayOut] = CLONES

    def __init__(self, task: SendTask, spool: Path, most_repeats: int = xdp_run.MOST_REPEATS) -> None:
        super().__init__(task, spool, most_repeats)
        self._queue = PlainQueue(Interface(task.interface), spool)

    def prepare(self) -> None:
        super().prepare()
        self._queue.begin()

    def restore(self) -> None:
        try:
            super().restore()
        finally:
            self._queue.restore()
