"""Real connections, the listening end. It receives, and sends where blocks go both ways or come down."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.connections import engine
from pktswarm.nodes.engine import Receiver
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask


class SocketReceiver(Receiver):
    name: ClassVar[str] = engine.NAME

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._process = engine.ConnectionProcess("receive", task.interface, task.legs, task.limit_s, spool)

    def prepare(self) -> None:
        self._process.prepare()

    def start(self, at_ns: int) -> None:
        """It listens from prepare() on."""

    def ready(self) -> bool:
        return self._process.ready()

    def done(self) -> bool:
        return self._process.done()

    def stop(self) -> None:
        self._process.stop()

    def restore(self) -> None:
        self._process.restore()

    def counts(self) -> list[ReceiveCount]:
        return [
            ReceiveCount(leg, self.name, 0, connections=count.to_json())
            for leg, count in self._process.counts().items()
        ]
