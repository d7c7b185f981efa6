"""Where the ranks of a run come from: a cluster that stays up, a launch that this command keeps, or a new launch.

The nodes are restored after each run, as always; processes, connections and the hold on the nodes stay. What died
meanwhile costs the next run a launch.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import NamedTuple, Protocol

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.run import signals
from pktswarm.master.run.cluster_lease import Borrowed, Daemon, Lease, OutOfOrder, Report
from pktswarm.master.run.launch import LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S, Launch
from pktswarm.traffic.errors import Busy, PktswarmError
from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import Rank0Event, decode_rank0_event
from pktswarm.traffic.protocol.rank0_orders import Rank0Order

Control = Lines[Rank0Event]


class Launched(Protocol):
    """What a run needs to know of mpiexec."""

    def running(self) -> bool: ...
    def messages(self) -> str: ...
    def diagnose(self, hosts: list[Host] | None = None) -> PktswarmError: ...


class Ranks(NamedTuple):
    """Ranks that came up, and the connection to rank 0. `notes`: for the run's results."""

    launch: Launched
    control: Control
    ranks: list[Rank]
    fresh: bool
    """Launched for this run: they cannot be gone since."""
    notes: list[str]


def launched(inventory: Inventory, wanted: list[Rank], patience: float) -> Ranks:
    """Launch ranks. Raises BadInput naming the host that kept them from coming up."""
    launch = Launch(inventory, wanted, patience)
    try:
        launch.start()
        return Ranks(launch, Lines(launch.accept(LAUNCH_TIMEOUT_S), decode_rank0_event), wanted, True, [])
    except BaseException:
        launch.stop()
        raise


def send_order(control: Control, order: Rank0Order, raw: bytes = b"") -> None:
    """Sends an order to rank 0. Errors are ignored: it may have ended, and its last messages are still to be read."""
    with contextlib.suppress(OSError):
        control.send(order, raw)


class KeptRanks:
    """A context of one command: at its end the ranks leave, or go back to the cluster. `several`: the command makes
    further runs. `waits`: for a cluster that others use; `report` is called with its events meanwhile."""

    def __init__(self, several: bool = True, waits: bool = False, report: Report = lambda event: None) -> None:
        self.several, self.waits, self.report = several, waits, report
        self._ranks: Ranks | None = None
        self._lease: Lease | None = None
        self._notes: list[str] = []

    def __enter__(self) -> KeptRanks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def take(self, inventory: Inventory, wanted: list[Rank], patience: float) -> Ranks:
        """The ranks of a run. Raises BadInput naming the host that keeps them from coming up, and Busy."""
        kept = self._of_the_last_run(inventory.master, wanted, patience)
        if kept is not None:
            return kept
        borrowed = self._of_the_cluster(inventory, wanted, patience)
        if borrowed is not None:
            return borrowed
        found = launched(inventory, wanted, patience)
        self._notes, notes = [], self._notes
        return found._replace(notes=notes)

    def take_others(self, gone: Ranks, inventory: Inventory, wanted: list[Rank], patience: float) -> Ranks:
        """Those that take() returned, `gone`, were gone before the run began."""
        if self._lease is not None:
            self._lease.again()
        found = self.take(inventory, wanted, patience)
        return found._replace(notes=[*gone.notes, *found.notes])

    def give_back(self, ranks: Ranks, whole: bool, patience_s: float) -> None:
        """After a run. `whole`: it was neither stopped nor lost. Ranks that leave restore their nodes first; what is
        left after `patience_s` is ended."""
        if not isinstance(ranks.launch, Launch):
            ranks.control.socket.close()
        elif whole and self.several:
            self._ranks = ranks
        else:
            _end(ranks.launch, patience_s)

    @staticmethod
    def drop(ranks: Ranks) -> None:
        """End at once."""
        ranks.control.socket.close()
        if isinstance(ranks.launch, Launch):
            ranks.launch.stop()

    def let_go(self) -> None:
        if self._ranks is not None:
            self._leave(self._ranks)
            self._ranks = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _of_the_last_run(self, master: Host, wanted: list[Rank], patience: float) -> Ranks | None:
        """None: there are none, not these, or they are gone."""
        ranks, self._ranks = self._ranks, None
        if ranks is None or not isinstance(ranks.launch, Launch):
            return None
        if ranks.launch.inventory.master == master and ranks.ranks == wanted and _is_there(ranks.control):
            with contextlib.suppress(OSError):
                ranks.control.send(rank0_orders.Begin([rank.number for rank in wanted], patience))
                return ranks._replace(fresh=False, notes=[])
        self._leave(ranks)
        return None

    def _of_the_cluster(self, inventory: Inventory, wanted: list[Rank], patience: float) -> Ranks | None:
        """None: there is none, or it cannot start its ranks."""
        if self._lease is None and (daemon := Daemon.of(inventory.path)):
            self._lease = Lease(daemon)
        if self._lease is None:
            return None
        try:
            with signals.interrupting():
                begun = self._lease.begin(inventory, wanted, patience, self.waits, self.report)
        except Busy as busy:
            more = "" if self.waits else "; --wait waits for it"
            raise Busy(f"the cluster of {inventory.path}: {busy}{more}; nothing was sent") from None
        except OutOfOrder as error:
            self._notes.append(f"this run launched ranks of its own: {error}")
            begun = None
        if begun is None:
            self._notes = self._notes or ["this run launched ranks of its own: the cluster ended"]
            self._lease.close()
            self._lease = None
            return None
        control, numbered, notes = begun
        return Ranks(Borrowed(inventory, numbered, patience), control, numbered, False, notes)

    @staticmethod
    def _leave(ranks: Ranks) -> None:
        # The end of the connection is the order to leave.
        ranks.control.socket.close()
        if isinstance(ranks.launch, Launch):
            _end(ranks.launch, LEAVE_TIMEOUT_S * ranks.launch.patience)


def _end(launch: Launch, timeout_s: float) -> None:
    """Wait for the ranks to leave by themselves, then end what is left of them on this host."""
    try:
        launch.wait(timeout_s)
    finally:
        launch.stop()


def _is_there(control: Control) -> bool:
    """Take in what rank 0 sent since the last run: reports that it is alive, or its end."""
    while control.receive(0):
        for _ in control.messages():
            pass
    return not control.closed
