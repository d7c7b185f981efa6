"""Signalling load while users send: sessions established and deleted (churn), users moved to another gNB (handover).

Both are due at a rate from a given instant on. A procedure that cannot start when it is due (the window is full, no
user is free) starts as soon as it can; `intended` counts those that were due.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.upf import Churn as ChurnSettings
from pktswarm.master.scenario.upf import Handover as HandoverSettings
from pktswarm.master.upf import pfcp_encode
from pktswarm.master.upf.document import N4Document
from pktswarm.master.upf.operations import Delete, Establish, Modify, Operation
from pktswarm.master.upf.pfcp_transport import Request
from pktswarm.master.upf.sessions import ESTABLISHED
from pktswarm.master.upf.smf import Smf
from pktswarm.master.upf.sources import send


class Rate:
    """Due times of `per_s` procedures a second, the first at `start_ns` (monotonic)."""

    def __init__(self, per_s: float) -> None:
        self.period_ns = 1e9 / per_s
        self.start_ns = 2**62
        """Initially beyond any time."""
        self.stop_ns: int | None = None
        self.taken = 0

    @property
    def next_ns(self) -> int | None:
        due_ns = self.start_ns + round(self.taken * self.period_ns)
        return due_ns if self.stop_ns is None or due_ns < self.stop_ns else None

    def stop(self, at_ns: int) -> None:
        """Nothing is due from `at_ns` on; a second call does nothing."""
        self.stop_ns = at_ns if self.stop_ns is None else self.stop_ns

    def due(self, most: int, now_ns: int) -> int:
        """Takes those that are due, at most `most`, and returns their number."""
        count = max(0, min(most, self.intended(now_ns) - self.taken))
        self.taken += count
        return count

    def intended(self, now_ns: int) -> int:
        """Returns the number due before `now_ns`, or before the stop."""
        end_ns = now_ns if self.stop_ns is None else min(now_ns, self.stop_ns)
        if end_ns < self.start_ns:
            return 0
        return int((end_ns - self.start_ns) / self.period_ns) + 1


class Churn:
    """Sessions that are established, modified at half their lifetime and deleted at its end."""

    windowed = True

    def __init__(self, smf: Smf, settings: ChurnSettings) -> None:
        self.sessions = smf.sessions
        self.rate = Rate(settings.sessions_per_s)
        self.lifetime_ns, self.modify = round(settings.lifetime_s * 1e9), settings.modify
        self.free = deque(smf.sessions.rows_of(settings.group).tolist())
        self.users = len(self.free)
        self.establishing = smf.operation(Establish, lambda messages: messages.establishment)
        self.modifying = smf.operation(Modify, lambda messages: messages.modification("forward"))
        self.deleting = smf.operation(Delete, lambda messages: pfcp_encode.session_deletion_request)
        self.establishing.hook, self.modifying.hook = self._established, self._modified
        self.deleting.hook = lambda row, fine, now_ns: self.free.append(row)
        for operation in (self.establishing, self.modifying, self.deleting):
            operation.make_ready(smf.sessions.rows_of(settings.group))
        self._born: dict[int, int] = {}
        self._modify: deque[tuple[int, int]] = deque()
        self._delete: deque[tuple[int, int]] = deque()

    def next_ns(self) -> int | None:
        wanted = [queue[0][0] for queue in (self._modify, self._delete) if queue]
        next_ns = self.rate.next_ns if self.free else None
        return min([*wanted, next_ns] if next_ns is not None else wanted, default=None)

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        made = send(self.deleting, self._due(self._delete, room, now_ns))
        made += send(self.modifying, self._due(self._modify, room - len(made), now_ns))
        count = self.rate.due(min(room - len(made), len(self.free)), now_ns)
        rows = np.array([self.free.popleft() for _ in range(count)], dtype=np.int64)
        return made + send(self.establishing, rows)

    def stop(self) -> None:
        """Establishes no further session, and deletes the existing ones."""
        now_ns = time.monotonic_ns()
        self.rate.stop(now_ns)
        self._delete.extend((now_ns, row) for _, row in self._modify)
        self._modify.clear()
        self._delete = deque((now_ns, row) for _, row in self._delete)
        self.lifetime_ns, self.modify = 0, False

    @property
    def done(self) -> bool:
        return len(self.free) == self.users

    def _due(self, queue: deque[tuple[int, int]], most: int, now_ns: int) -> NDArray[np.int64]:
        rows: list[int] = []
        while queue and queue[0][0] <= now_ns and len(rows) < most:
            rows.append(queue.popleft()[1])
        return np.array(rows, dtype=np.int64)

    def _established(self, row: int, fine: bool, now_ns: int) -> None:
        if not fine:
            # The response lacks something: the UPF holds the session.
            if self.sessions.remote_seid[row]:
                self._delete.appendleft((now_ns, row))
            else:
                self.free.append(row)
        elif self.modify:
            self._born[row] = now_ns
            self._modify.append((now_ns + self.lifetime_ns // 2, row))
        else:
            self._delete.append((now_ns + self.lifetime_ns, row))

    def _modified(self, row: int, fine: bool, now_ns: int) -> None:
        self._delete.append((max(now_ns, self._born.pop(row) + self.lifetime_ns), row))


class Handover:
    """Moves users in turn, each to the next gNB of its IP version."""

    windowed = True

    def __init__(self, smf: Smf, settings: HandoverSettings) -> None:
        self.sessions, self.settings = smf.sessions, settings
        self.home = smf.sessions.gnb.copy()
        """Initial gNB of each session."""
        self.accepted, self.failed = np.zeros((2, smf.sessions.count), dtype=np.int64)
        """Handovers of each session."""
        self.rate = Rate(settings.users_per_s)
        self.rows = deque(smf.sessions.rows_of(settings.group).tolist())
        self.moving = smf.operation(Modify, lambda messages: messages.modification("forward", settings.end_marker))
        self.moving.hook = self._moved
        self.moving.make_ready(smf.sessions.rows_of(settings.group))
        self.moves = (array("q"), array("q"), array("q"))
        """Time of the response (monotonic ns), row and target gNB of each accepted handover."""
        addresses = smf.sessions.gnb_addresses
        kind = addresses[int(smf.sessions.gnb[self.rows[0]])].version
        same = [number for number, address in enumerate(addresses) if address.version == kind]
        self._next = dict(zip(same, [*same[1:], same[0]], strict=True))
        self._before = {gnb: before for before, gnb in self._next.items()}

    def next_ns(self) -> int | None:
        return self.rate.next_ns if self.rows else None

    def take(self, room: int, now_ns: int) -> Sequence[Request]:
        rows = self._standing(self.rate.due(min(room, len(self.rows)), now_ns))
        self.sessions.target[rows] = [self._next[number] for number in self.sessions.gnb[rows].tolist()]
        return send(self.moving, rows)

    def _standing(self, count: int) -> NDArray[np.int64]:
        """Returns the next established sessions, and drops the others from the turn."""
        chosen: list[int] = []
        while self.rows and len(chosen) < count:
            row = self.rows.popleft()
            if self.sessions.state[row] == ESTABLISHED:
                chosen.append(row)
        return np.array(chosen, dtype=np.int64)

    def stop(self) -> None:
        self.rate.stop(time.monotonic_ns())

    @property
    def done(self) -> bool:
        return not self.moving.statistics.outstanding

    def left(self, gnb: int) -> int:
        """Returns the source gNB of a handover to `gnb`."""
        return self._before[gnb]

    def _moved(self, row: int, fine: bool, now_ns: int) -> None:
        self.rows.append(row)
        (self.accepted if fine else self.failed)[row] += 1
        if fine:
            for values, value in zip(self.moves, (now_ns, row, int(self.sessions.gnb[row])), strict=True):
                values.append(value)


class Loads:
    """Churn and handover of a scenario.

    To be created after the association, which decides whether the UPF chooses TEIDs, and before the first session:
    no response is read while messages are encoded (Operation.make_ready).
    """

    def __init__(self, smf: Smf) -> None:
        self.smf = smf
        self.churn = None if smf.upf.churn is None else Churn(smf, smf.upf.churn)
        self.handover = None if smf.upf.handover is None else Handover(smf, smf.upf.handover)

    def start(self, at_ns: int) -> None:
        """Starts the load at `at_ns` (monotonic)."""
        for load in self._running():
            load.rate.start_ns = at_ns
        self.smf.exchange.sources += self._running()

    def close(self, at_ns: int) -> None:
        """Starts no procedure from `at_ns` on; those under way go on. May be called from another thread."""
        for load in self._running():
            load.rate.stop(at_ns)

    def stop(self) -> None:
        """Starts no further procedure; returns when those under way have ended."""
        for load in self._running():
            load.stop()
        self.smf.run(86400, lambda: all(load.done for load in self._running()))
        self.smf.exchange.sources[:] = [load for load in self.smf.exchange.sources if load not in self._running()]

    def _running(self) -> list[Churn | Handover]:
        return [load for load in (self.churn, self.handover) if load is not None]

    def operations(self) -> dict[str, Operation]:
        found: dict[str, Operation] = {}
        if self.churn is not None:
            found |= {
                "churn: establishment": self.churn.establishing,
                "churn: modification": self.churn.modifying,
                "churn: deletion": self.churn.deleting,
            }
        if self.handover is not None:
            found["handover"] = self.handover.moving
        return found

    def add_due(self, document: N4Document) -> None:
        """Adds the number of procedures that were due."""
        now_ns = time.monotonic_ns()
        if self.churn is not None:
            document["churn_intended"] = self.churn.rate.intended(now_ns)
        if self.handover is not None:
            document["handover_intended"] = self.handover.rate.intended(now_ns)
