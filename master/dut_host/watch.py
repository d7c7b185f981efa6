"""Two readings of the device's host, before packets are sent and after the drain. A failure is a note of the run."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.master.dut_host.counters import Drops, Reading, between
from pktswarm.master.dut_host.reading import SSH_LIMIT_S, Finish, Source
from pktswarm.traffic.errors import PktswarmError


@dataclass(frozen=True)
class HostDrops:
    """`device`: UPF, or device. `drops`: None if a reading failed, for the reason in `problem`."""

    device: str
    host: str
    drops: Drops | None
    problem: str = ""


class DutHost:
    """`source`: None if the host is not read."""

    def __init__(self, source: Source | None, device: str) -> None:
        self._source, self._device = source, device
        self._before: Reading | None = None
        self._after: Finish | None = None
        self._problem = ""

    def before(self) -> None:
        """Reads and waits."""
        if self._source is None:
            return
        try:
            self._before = self._source.begin()(SSH_LIMIT_S)
        except PktswarmError as error:
            self._problem = f"before packets were sent: {error}"

    def after(self) -> None:
        """Starts the second reading, without waiting. A second call does nothing."""
        if self._source is None or self._before is None or self._after is not None:
            return
        try:
            self._after = self._source.begin()
        except PktswarmError as error:
            self._problem, self._before = f"after packets were sent: {error}", None

    def finish(self, limit_s: float = SSH_LIMIT_S) -> HostDrops | None:
        """Waits for the second reading. Returns None if the host is not read, or nothing was sent."""
        if self._source is None:
            return None
        self.after()
        if self._before is None or self._after is None:
            return self._found(None, self._problem) if self._problem else None
        try:
            after = self._after(limit_s)
        except PktswarmError as error:
            return self._found(None, f"after packets were sent: {error}")
        return self._found(between(self._before, after, self._source.interfaces, self._source.left_out))

    def _found(self, drops: Drops | None, problem: str = "") -> HostDrops:
        return HostDrops(self._device, "" if self._source is None else self._source.host, drops, problem)
