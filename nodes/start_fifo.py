"""The gate at which an armed process waits: a FIFO that delivers the instant of its start."""

from __future__ import annotations

import os
from pathlib import Path

from pktswarm.traffic.errors import EngineError


class Gate:
    """`file`: where it stands. The process reads one line: the instant, CLOCK_MONOTONIC in ns."""

    def __init__(self, engine: str, file: Path) -> None:
        self.engine, self.file = engine, file
        self._pipe: int | None = None

    def open(self) -> None:
        """Before the process looks for it."""
        os.mkfifo(self.file, 0o600)
        # Open both ways: it never blocks, and what is written waits for the reader.
        self._pipe = os.open(self.file, os.O_RDWR)

    def release(self, at_ns: int) -> None:
        if self._pipe is None:
            raise EngineError(self.engine, "start before prepare")
        os.write(self._pipe, f"{at_ns}\n".encode())

    def remove(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        self.file.unlink(missing_ok=True)
