"""The engine interactive on the side that answers: receives a trace and sends its answers (docs/interactive.md)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.engine import Receiver
from pktswarm.nodes.interactive.ends import NAME, Ends
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount


class InteractiveReceiver(Receiver):
    name: ClassVar[str] = NAME

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._ends = Ends(task.legs, task.interface, spool, task.limit_s, begins=False)

    def prepare(self) -> None:
        self._ends.prepare()

    def start(self, at_ns: int) -> None:
        for end in self._ends.ends:
            end.arm()

    def ready(self) -> bool:
        return self._ends.ready()

    def done(self) -> bool:
        return any(end.process.started and not end.process.running() for end in self._ends.ends)

    def stop(self) -> None:
        self._ends.stop()

    def captures(self) -> list[Path]:
        return self._ends.captures()

    def restore(self) -> None:
        self._ends.restore()

    def counts(self) -> list[ReceiveCount]:
        return self._ends.received()

    def other_way(self) -> list[SendCount | ReceiveCount]:
        return [end.sent() for end in self._ends.ends]
