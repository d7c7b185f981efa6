"""The SMF in a thread of its own: it answers the UPF and generates load while the master does other work."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from pktswarm.master.upf.smf import Smf

LONGEST_WAIT_NS = 20_000_000


class Background:
    """`with Background(smf): …`. Inside, other threads only read `smf` and add sources; a failure is raised at the end.

    The thread inherits the network namespace of the thread that starts it.
    """

    def __init__(self, smf: Smf) -> None:
        self.smf = smf
        self.problem: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="smf", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.problem is not None and value is None:
            raise self.problem

    def stop(self) -> None:
        """Ends the thread; `smf` is the caller's again."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.is_set() and self.smf.alive:
                self.smf.exchange.step(time.monotonic_ns() + LONGEST_WAIT_NS)
        except BaseException as problem:
            self.problem = problem
