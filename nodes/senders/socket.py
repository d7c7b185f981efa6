"""Real connections, the connecting end. It sends, and receives where blocks go both ways or come down."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.connections import engine
from pktswarm.nodes.engine import Sender
from pktswarm.traffic.protocol.task import SendCount, SendTask


class SocketSender(Sender):
    name: ClassVar[str] = engine.NAME

    def __init__(self, task: SendTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._process = engine.ConnectionProcess("transmit", task.interface, task.legs, task.limit_s, spool)
        self._started_ns: int | None = None

    def prepare(self) -> None:
        self._process.prepare()

    def ready(self) -> bool:
        if self._process.done():
            self._process.counts()
        return self._process.ready()

    def start(self, at_ns: int) -> None:
        self._started_ns = at_ns
        self._process.release(at_ns)

    def done(self) -> bool:
        return self._process.done()

    def stop(self) -> None:
        self._process.stop()

    def restore(self) -> None:
        self._process.restore()

    def counts(self) -> list[SendCount]:
        return [
            SendCount(leg, self.name, 0, started_ns=self._started_ns, connections=count.to_json())
            for leg, count in self._process.counts().items()
        ]
