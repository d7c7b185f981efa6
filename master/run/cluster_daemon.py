"""The daemon of a cluster that stays up: `python -m pktswarm.master.run.cluster_daemon --hosts FILE`.

It launches the ranks of all roles of all hosts when the first command line wants them, lends them to one command line
after another (rank 0 then serves that one directly), and launches them anew for the next one when they are gone. It
ends at SIGTERM, at an order, when nobody has used it for `--idle` seconds, or when its inventory is gone; the ranks
end with it, and their guards restore the nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.cluster.ranks import Rank, all_ranks
from pktswarm.master.run import signals
from pktswarm.master.run.cluster_socket import digest, name_of
from pktswarm.master.run.launch import LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S, Launch
from pktswarm.traffic.errors import MessageError, PktswarmError
from pktswarm.traffic.protocol import cluster_events as events
from pktswarm.traffic.protocol.cluster_orders import ClusterOrder, Down, Show, Take, decode_cluster_order
from pktswarm.traffic.protocol.messages import Lines, peer
from pktswarm.traffic.protocol.rank0_events import Lost, Occupied, StandbyEvent, Standing, decode_standby_event
from pktswarm.traffic.protocol.rank_events import Hello

LOOK_EVERY_S = 0.5
"""Interval between two looks at the time, at mpiexec and at the inventory."""


@dataclass
class _Client:
    """A command line."""

    lines: Lines[ClusterOrder]
    take: Take | None = None
    since: str = ""

    def send(self, event: events.ClusterEvent) -> None:
        with contextlib.suppress(OSError):
            self.lines.send(event)

    def __str__(self) -> str:
        return "" if self.take is None else f"{self.take.by} ({self.take.command}), since {self.since}"


@dataclass
class _Standing:
    """Ranks that came up. `control` leads to rank 0, which begins runs on the abstract socket `name`."""

    launch: Launch
    control: Lines[StandbyEvent]
    name: str
    free: bool = False
    trouble: str = ""
    mended: list[str] = field(default_factory=list)

    def take(self) -> None:
        """Take in what rank 0 reported."""
        while self.control.receive(0):
            with contextlib.suppress(MessageError):
                for event, _ in self.control.messages():
                    self._take(event)

    def _take(self, event: StandbyEvent) -> None:
        match event:
            case Standing():
                self.free = True
            case Occupied():
                self.free = False
            case Lost(rank, problem):
                self.trouble = self.trouble or f"{self._host(rank)}: {problem}"
            case Hello(rank=rank, report=report) if report.held_by:
                held = report.held_by
                self.trouble = f"{self._host(rank)}: in use by {held.by} since {held.since}"
            case Hello(host=host, report=report) if report.mended:
                self.mended += [f"{host}: {text}" for text in report.mended]

    def _host(self, rank: int) -> str:
        found = self.launch.ranks[rank - 1]
        return f"{found.host.name} ({found.role})"

    def end(self) -> None:
        # The end of the connection is the order to leave.
        self.control.socket.close()
        try:
            self.launch.wait(LEAVE_TIMEOUT_S * self.launch.patience)
        finally:
            self.launch.stop()


class Daemon:
    def __init__(self, path: Path, idle_limit_s: float, patience: float) -> None:
        """Raises OSError where there is a daemon for this inventory, BadInput for one that cannot be read."""
        self.path, self.idle_limit_s, self.patience = path, idle_limit_s, patience
        self.inventory: Inventory = inventories.load(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"\0{name_of(path)}")
        self.listener.listen(16)
        self.listener.setblocking(False)
        self.clients: list[_Client] = []
        self.queue: deque[_Client] = deque()
        self.holder: _Client | None = None
        self.standing: _Standing | None = None
        self.since, self.uses = _now(), 0
        self.used_s = time.monotonic()
        self.trouble = ""
        self.ending = False

    def serve(self) -> None:
        """Until it ends. The clients see that by the end of their connections."""
        try:
            while not self._is_over():
                self._wait()
                self._look_at_ranks()
                self._accept()
                for client in list(self.clients):
                    self._take_orders(client)
                self._lend()
        finally:
            if self.standing is not None:
                self.standing.end()

    def end(self, *_: object) -> None:
        """The handler of the signals that end it."""
        self.ending = True

    def _is_over(self) -> bool:
        idle = self.holder is None and not self.queue and time.monotonic() - self.used_s > self.idle_limit_s
        return self.ending or idle or not self.path.exists()

    def _wait(self) -> None:
        sockets = [self.listener, *(client.lines.socket for client in self.clients)]
        sockets += [self.standing.control.socket] if self.standing else []
        select.select(sockets, [], [], LOOK_EVERY_S)

    # --- ranks --------------------------------------------------------------------------------------------------

    def _look_at_ranks(self) -> None:
        if self.standing is None:
            return
        self.standing.take()
        if self.standing.control.closed:
            self._drop_ranks()

    def _drop_ranks(self) -> None:
        """They are gone, or of no use."""
        self.trouble = (self.standing and self.standing.trouble) or "its ranks ended"
        self._end_ranks()

    def _end_ranks(self) -> None:
        if self.standing is not None:
            self.standing.end()
            self.standing = None

    def _launch(self) -> _Standing:
        """Raises PktswarmError with the reason why the ranks do not stand."""
        name = "pktswarm-" + secrets.token_hex(16)
        launch = Launch(self.inventory, all_ranks(self.inventory), self.patience, standby=name)
        try:
            launch.start()
            standing = _Standing(launch, Lines(launch.accept(LAUNCH_TIMEOUT_S), decode_standby_event), name)
        except BaseException:
            launch.stop()
            raise
        deadline = time.monotonic() + LAUNCH_TIMEOUT_S * self.patience
        while not standing.free and not standing.control.closed and time.monotonic() < deadline:
            select.select([standing.control.socket], [], [], LOOK_EVERY_S)
            standing.take()
        if standing.free and not standing.trouble:
            return standing
        standing.end()
        raise PktswarmError(standing.trouble) if standing.trouble else launch.diagnose()

    # --- clients ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self.listener.accept()
                if peer(connection).uid in (0, os.geteuid()):
                    self.clients.append(_Client(Lines(connection, decode_cluster_order)))
                else:
                    connection.close()

    def _take_orders(self, client: _Client) -> None:
        while client.lines.receive(0):
            pass
        try:
            for order, _ in client.lines.messages():
                self._obey(client, order)
        except MessageError as error:
            client.send(events.Refused(str(error)))
            client.lines.closed = True
        if client.lines.closed:
            self._forget(client)

    def _forget(self, client: _Client) -> None:
        client.lines.socket.close()
        self.clients.remove(client)
        if client in self.queue:
            self.queue.remove(client)
        if client is self.holder:
            self.holder, self.used_s = None, time.monotonic()

    def _obey(self, client: _Client, order: ClusterOrder) -> None:
        match order:
            case Take():
                self._queue(client, order)
            case Show():
                client.send(self._shown())
            case Down(now):
                if self.holder is not None and not now:
                    client.send(events.Refused(f"in use by {self.holder}", busy=True))
                else:
                    self.ending = True

    def _queue(self, client: _Client, take: Take) -> None:
        client.take = take
        if self.standing is not None and take.gone == self.standing.name:
            self.standing.take()
            self._drop_ranks()
        if client is self.holder:
            self.holder = None
            self.queue.appendleft(client)
        elif self.holder is None and not self.queue:
            self.queue.append(client)
        elif take.waits:
            self.queue.append(client)
            client.send(events.Waiting(str(self.holder or self.queue[0])))
        else:
            client.send(events.Refused(f"in use by {self.holder or self.queue[0]}", busy=True))

    def _lend(self) -> None:
        """Lends the ranks to the next in the queue, if they are there and free, or can be started."""
        if self.holder is not None or not self.queue:
            return
        if self.standing is not None and not self.standing.free:
            return
        client = self.queue.popleft()
        assert client.take is not None
        try:
            notes = self._follow_inventory(client.take)
            if self.standing is None:
                client.send(events.Starting())
                notes += [f"the cluster's ranks were started anew: {self.trouble}"] if self.trouble else []
                self.standing = self._launch()
                self.trouble, notes = "", [*notes, *self.standing.mended]
        except PktswarmError as error:
            self.trouble = str(error)
            client.send(events.Refused(f"the cluster's ranks do not start: {error}", error.exit_status))
            return
        self.holder, client.since = client, _now()
        self.uses += 1
        client.send(events.Granted(self.standing.name, self._places(), notes))

    def _follow_inventory(self, take: Take) -> list[str]:
        """Reads the inventory anew if the client has read another one, and ends the ranks of the former. Returns notes.

        Raises PktswarmError if the client's is yet another one: a host of the same name can be another machine there.
        """
        if take.inventory == digest(self.inventory):
            return []
        self.inventory = inventories.load(self.path)
        if take.inventory != digest(self.inventory):
            raise PktswarmError(f"{self.path} has changed since it was read")
        if self.standing is None:
            return []
        self._end_ranks()
        return [f"the cluster's ranks were started anew: {self.path} has changed"]

    def _places(self) -> list[events.Place]:
        return [events.Place(rank.host.name, rank.role) for rank in self._ranks()]

    def _ranks(self) -> list[Rank]:
        return [] if self.standing is None else self.standing.launch.ranks

    def _shown(self) -> events.Shown:
        idle_s = 0.0 if self.holder else time.monotonic() - self.used_s
        return events.Shown(
            str(self.path),
            "in use" if self.holder else "up" if self.standing else "without ranks",
            "" if self.standing is None else self.standing.launch.run,
            os.getpid(),
            self.since,
            self._places(),
            str(self.holder or ""),
            len(self.queue),
            self.uses,
            self.idle_limit_s,
            round(idle_s, 3),
            self.trouble,
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="pktswarm.master.run.cluster_daemon", description="Keeps the ranks of a cluster; see `pktswarm cluster`."
    )
    parser.add_argument("--hosts", type=Path, required=True)
    parser.add_argument("--idle", type=float, required=True, help="seconds")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every deadline")
    arguments = parser.parse_args()
    signals.adopt_orphans()
    try:
        daemon = Daemon(arguments.hosts, arguments.idle, arguments.patience)
    except OSError:
        return 0  # another one was faster
    with signals.handled(daemon.end):
        daemon.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
