"""The ranks of a launch, kept between the runs of one command (a search, `run --repeat`, a table).

The nodes are restored after each run, as always; processes, connections and the hold on the nodes stay. What died
meanwhile costs the next run a launch of its own.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import NamedTuple

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.run.launch import Launch
from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import Rank0Event, decode_rank0_event

LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S = 20.0, 5.0
Control = Lines[Rank0Event]


class Ranks(NamedTuple):
    """A launch whose ranks came up, and the connection to rank 0."""

    launch: Launch
    control: Control

    def end(self, timeout_s: float) -> None:
        """Wait for the ranks to leave by themselves, then end what is left of them on this host."""
        try:
            self.launch.wait(timeout_s)
        finally:
            self.launch.stop()


def launched(inventory: Inventory, wanted: list[Rank], patience: float) -> Ranks:
    """Launch ranks. Raises BadInput naming the host that kept them from coming up."""
    launch = Launch(inventory, wanted, patience)
    try:
        launch.start()
        return Ranks(launch, Lines(launch.accept(LAUNCH_TIMEOUT_S), decode_rank0_event))
    except BaseException:
        launch.stop()
        raise


class KeptRanks:
    """A context: at its end the ranks leave."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def __enter__(self) -> KeptRanks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def keep(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def take(self, master: Host, wanted: list[Rank]) -> Ranks | None:
        """Begin a further run with the kept ranks. None: there are none, not these, or they are gone."""
        ranks, self._ranks = self._ranks, None
        if ranks is None:
            return None
        launch = ranks.launch
        if launch.inventory.master == master and launch.ranks == wanted and _is_there(ranks.control):
            with contextlib.suppress(OSError):
                ranks.control.send(rank0_orders.Begin())
                return ranks
        _end(ranks)
        return None

    def let_go(self) -> None:
        if self._ranks is not None:
            _end(self._ranks)
            self._ranks = None


def _is_there(control: Control) -> bool:
    """Take in what rank 0 sent since the last run: reports that it is alive, or its end."""
    while control.receive(0):
        for _ in control.messages():
            pass
    return not control.closed


def _end(ranks: Ranks) -> None:
    # The end of the connection is the order to leave.
    ranks.control.socket.close()
    ranks.end(LEAVE_TIMEOUT_S * ranks.launch.patience)
