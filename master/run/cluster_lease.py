"""The command line's side of a cluster that stays up: finds its daemon, and borrows its ranks."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.run.cluster_socket import digest, name_of
from pktswarm.master.run.launch import LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S, who
from pktswarm.traffic.errors import EXIT_INCOMPLETE, Busy, PktswarmError
from pktswarm.traffic.protocol import cluster_events as events
from pktswarm.traffic.protocol.cluster_events import ClusterEvent, decode_cluster_event
from pktswarm.traffic.protocol.cluster_orders import ClusterOrder, Take
from pktswarm.traffic.protocol.messages import Lines, peer
from pktswarm.traffic.protocol.rank0_events import Rank0Event, decode_rank0_event
from pktswarm.traffic.protocol.rank0_orders import Begin

ANSWER_S = 2 * LAUNCH_TIMEOUT_S + LEAVE_TIMEOUT_S
"""Timeout for an answer of the daemon, which may have to end ranks and launch others first."""
Report = Callable[[ClusterEvent], None]


class OutOfOrder(PktswarmError):
    """The cluster cannot start its ranks, or does not answer."""

    def __init__(self, problem: str, status: int = EXIT_INCOMPLETE) -> None:
        super().__init__(problem)
        self.exit_status = status


def _quiet(event: ClusterEvent) -> None:
    pass


class Daemon:
    """A connection to the daemon of an inventory."""

    def __init__(self, lines: Lines[ClusterEvent]) -> None:
        self.lines = lines

    @classmethod
    def of(cls, path: Path) -> Daemon | None:
        """None: there is none."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(f"\0{name_of(path)}")
        except OSError:
            connection.close()
            return None
        if peer(connection).uid != os.geteuid():
            connection.close()
            return None
        return cls(Lines(connection, decode_cluster_event))

    def ask(self, order: ClusterOrder, report: Report = _quiet, patience: float = 1.0) -> ClusterEvent | None:
        """The answer to an order; None: the daemon ended. `report`: called with the events that come before it. Raises
        OutOfOrder when there is none in time."""
        with contextlib.suppress(OSError):
            self.lines.send(order)
        deadline = time.monotonic() + ANSWER_S * patience
        waits = False
        while not self.lines.closed and (waits or time.monotonic() < deadline):
            self.lines.receive(0.5)
            for event, _ in self.lines.messages():
                if not isinstance(event, events.Waiting | events.Starting):
                    return event
                waits = isinstance(event, events.Waiting)
                deadline = time.monotonic() + ANSWER_S * patience
                report(event)
        if not self.lines.closed:
            raise OutOfOrder("the cluster's daemon does not answer; `pktswarm cluster down` ends it")
        return None

    def close(self) -> None:
        self.lines.socket.close()


class Borrowed:
    """Stands for the launch of borrowed ranks, which is the daemon's."""

    def __init__(self, inventory: Inventory, ranks: list[Rank], patience: float) -> None:
        self.inventory, self.ranks, self.patience = inventory, ranks, patience

    def running(self) -> bool:
        return True

    def messages(self) -> str:
        return ""

    def diagnose(self, hosts: list[Host] | None = None) -> PktswarmError:
        return PktswarmError("the cluster's ranks ended before the run began; see `pktswarm cluster status`")


class Lease:
    """The use of a cluster until close(), by one run after another."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._granted: events.Granted | None = None
        self._gone = ""
        """The socket of ranks that began no run."""

    def begin(
        self, inventory: Inventory, wanted: list[Rank], patience: float, waits: bool, report: Report = _quiet
    ) -> tuple[Lines[Rank0Event], list[Rank], list[str]] | None:
        """Begins a run. Returns the connection to rank 0, the wanted ranks with the cluster's numbers, and notes; None
        where the daemon has ended. Raises Busy, and OutOfOrder."""
        notes: list[str] = []
        for _ in range(2):
            if self._granted is None and (granted := self._take(inventory, patience, waits, report)):
                self._granted, notes = granted, granted.notes
            if self._granted is None:
                return None
            if numbered := _numbered(wanted, self._granted.ranks):
                with contextlib.suppress(OSError):
                    return (
                        _connected(self._granted.control, [rank.number for rank in numbered], patience),
                        numbered,
                        notes,
                    )
            self.again()
        return None

    def take(self, inventory: Inventory, patience: float, report: Report = _quiet) -> list[str] | None:
        """Makes sure that the ranks are up. Returns notes, or None where the daemon has ended."""
        self._granted = self._take(inventory, patience, waits=True, report=report)
        return None if self._granted is None else self._granted.notes

    def _take(self, inventory: Inventory, patience: float, waits: bool, report: Report) -> events.Granted | None:
        order = Take(who(), _command(), digest(inventory), waits, self._gone)
        answer = self._daemon.ask(order, report, patience)
        if isinstance(answer, events.Refused):
            raise Busy(answer.problem) if answer.busy else OutOfOrder(answer.problem, answer.status)
        return answer if isinstance(answer, events.Granted) else None

    def again(self) -> None:
        """The ranks that were lent are gone."""
        self._gone = "" if self._granted is None else self._granted.control
        self._granted = None

    def close(self) -> None:
        self._daemon.close()


def _numbered(wanted: list[Rank], places: Sequence[events.Place]) -> list[Rank]:
    """Empty where a wanted rank is not among them."""
    numbers = {(place.host, place.role): number for number, place in enumerate(places, start=1)}
    found = [numbers.get(rank.place) for rank in wanted]
    return [replace(rank, number=number) for rank, number in zip(wanted, found, strict=True) if number is not None]


def _connected(control: str, ranks: list[int], patience: float) -> Lines[Rank0Event]:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"\0{control}")
        lines = Lines(connection, decode_rank0_event)
        lines.send(Begin(ranks, patience))
    except OSError:
        connection.close()
        raise
    return lines


def _command() -> str:
    """This command line, for others that want the cluster meanwhile."""
    words = ["pktswarm", *sys.argv[1:]]
    return f"{shlex.join(words)[:200]}, process {os.getpid()}"
