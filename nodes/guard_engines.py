"""The engines of one task, which a guard prepares, starts, samples, stops and restores together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pktswarm.nodes.engine import Receiver, Sender
from pktswarm.nodes.engines import receiver_class, sender_class
from pktswarm.traffic.counting.samples import Figures
from pktswarm.traffic.errors import EngineError, PktswarmError
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount, SendTask, share_of

Counted = list[SendCount | ReceiveCount]


class Engines:
    """There are none before prepare()."""

    def __init__(self, spool: Path) -> None:
        self.troubles: list[str] = []
        """Errors of stop() and restore(), which go on past them."""
        self._spool = spool
        self._all: list[Sender | Receiver] = []

    def prepare(self, task: SendTask | ReceiveTask) -> None:
        self._all = [*(self._senders(task) if isinstance(task, SendTask) else self._receivers(task))]
        # The first counts, and the kernel checks its program meanwhile: a capture behind it can begin before that.
        for engine in reversed(self._all):
            engine.prepare()
            if isinstance(engine, Receiver):
                engine.start_early()

    def _senders(self, task: SendTask) -> Iterator[Sender]:
        for name in dict.fromkeys(leg.engine for leg in task.legs):
            legs = [leg for leg in task.legs if leg.engine == name]
            yield sender_class(name)(replace(task, legs=legs), self._spool)

    def _receivers(self, task: ReceiveTask) -> Iterator[Receiver]:
        names = task.engine.split("+")
        for name in names:
            yield receiver_class(name)(share_of(name, names, task), self._spool)

    def start(self, at_ns: int) -> None:
        for engine in self._all:
            engine.start(at_ns)

    def set_rate(self, leg: int, rate_pps: float | None) -> None:
        """Raises EngineError where no engine can."""
        for engine in self._all:
            if isinstance(engine, Sender) and any(own.id == leg for own in engine.task.legs):
                engine.set_rate(leg, rate_pps)
                return
        raise EngineError("guard", f"no engine here sends leg {leg}")

    def ready(self) -> bool:
        """Raises EngineError when a receiver has ended."""
        for engine in self._all:
            if isinstance(engine, Receiver) and engine.done():
                self.stop()
                engine.counts()
                raise EngineError(engine.name, "ended before it was stopped")
        return all(engine.ready() for engine in self._all)

    def done(self) -> bool:
        return all(engine.done() for engine in self._all)

    def sample(self) -> dict[int, Figures]:
        """Leg → its counts so far, by the first engine that counts it."""
        legs: dict[int, Figures] = {}
        for engine in reversed(self._all):
            with contextlib.suppress(EngineError, OSError):  # a sample may fail; the counts at the end may not
                legs |= engine.sample()
        return legs

    def counts(self) -> tuple[Counted, list[str]]:
        """The counts, and the problems of engines that have none.

        An engine that fails costs its own counts only. A failure of the only engine, and of the first receiver, is
        raised: a capture beside the first receiver can have taken a part only.
        """
        counts: Counted = []
        problems: list[str] = []
        for engine in self._all:
            try:
                counts += [*engine.counts(), *engine.other_way()]
            except (PktswarmError, OSError, ValueError) as error:
                if len(self._all) == 1 or (isinstance(engine, Receiver) and engine is self._all[0]):
                    raise
                problems.append(str(error) or repr(error))
        return counts, problems

    def captures(self) -> list[Path]:
        return [path for engine in self._all for path in engine.captures()]

    def stop(self) -> None:
        for engine in self._all:
            with self._noted():
                if isinstance(engine, Receiver):
                    engine.last_arrival_ns = self._seen_by_others_ns(engine)
                engine.stop()

    def _seen_by_others_ns(self, asking: Receiver) -> int | None:
        """None where no other engine knows; the asking one then takes its time."""
        for engine in self._all:
            with contextlib.suppress(EngineError, OSError):
                if isinstance(engine, Receiver) and engine is not asking and (at_ns := engine.seen_ns()) is not None:
                    return at_ns
        return None

    def restore(self) -> None:
        for engine in self._all:
            with self._noted():
                engine.restore()

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.troubles.append(str(error) or repr(error))
