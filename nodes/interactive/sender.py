"""The engine interactive on the side that begins the flows of a trace (docs/interactive.md)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.engine import Sender
from pktswarm.nodes.interactive.ends import NAME, Ends
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount, SendTask


class InteractiveSender(Sender):
    name: ClassVar[str] = NAME

    def __init__(self, task: SendTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._ends = Ends(task.legs, task.interface, spool, task.limit_s, begins=True)

    def prepare(self) -> None:
        self._ends.prepare()
        for end in self._ends.ends:
            end.arm()
        self._ends.wait_ready()

    def start(self, at_ns: int) -> None:
        for end in self._ends.ends:
            end.release(at_ns)

    def done(self) -> bool:
        return not any(end.process.running() for end in self._ends.ends)

    def stop(self) -> None:
        self._ends.stop()

    def captures(self) -> list[Path]:
        return self._ends.captures()

    def restore(self) -> None:
        self._ends.restore()

    def counts(self) -> list[SendCount]:
        return [end.sent() for end in self._ends.ends]

    def other_way(self) -> list[SendCount | ReceiveCount]:
        return [*self._ends.received()]
