"""Rank 0 between runs: which run begins next, and when the ranks leave.

Ranks serve one command line, which may make several runs, or a cluster that stays up (master.run.cluster_daemon): then
each run has a connection of its own, and the ranks leave when the daemon is gone.
"""

from __future__ import annotations

import contextlib
import socket
import time

from pktswarm.master.run.conductor import Conductor
from pktswarm.master.run.members import DEADLINES_S, Members, Stopped, World
from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.garbage import give_back
from pktswarm.traffic.protocol import rank_orders
from pktswarm.traffic.protocol.messages import Lines, peer
from pktswarm.traffic.protocol.rank0_events import Lost, Occupied, StandbyEvent, Standing
from pktswarm.traffic.protocol.rank0_orders import Begin, Rank0Order, Stop, decode_rank0_order
from pktswarm.traffic.protocol.task import Role

FIRST_ORDER_S = 2.0
"""Timeout for the first order of a connection."""
Control = Lines[Rank0Order]


def serve_command(world: World, control: Control, roles: dict[int, Role], patience: float) -> bool:
    """The runs of the command line that launched the ranks. Returns whether all ranks lived to the end."""
    members = Members(world, control, roles, patience)
    while Conductor(members).conduct() and (begin := _next_begin(members)):
        members = _members_of(begin, world, control, roles)
    return members.all_alive


def _next_begin(members: Members) -> Begin | None:
    """Waits for the order of a further run, while the ranks receive Word. None: there is none, or a rank is lost; the
    others leave."""
    members.stopping = False
    try:
        while members.given.begin is None and members.all_alive:
            members.pump()
            members.rest()
    except (Stopped, MessageError):
        members.stopping = True
    if members.given.begin is None or not members.all_alive:
        members.let_go()
        return None
    return members.given.begin


def _members_of(begin: Begin, world: World, control: Control, roles: dict[int, Role]) -> Members:
    members = Members(world, control, roles, begin.patience, begin.ranks)
    members.enforce_silence = True
    for rank in members.active():
        members.send(rank, rank_orders.Again())
    return members


class Standby:
    """The ranks of a cluster that stays up. `daemon` leads to its daemon, whose end is theirs; runs connect to the
    abstract socket `name`, if they are of the user `owner` or root."""

    def __init__(
        self, world: World, daemon: Control, roles: dict[int, Role], name: str, owner: int, patience: float
    ) -> None:
        self.world, self.daemon, self.roles, self.patience = world, daemon, roles, patience
        self.owners = {0, owner}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"\0{name}")
        self.listener.listen(8)
        self.listener.setblocking(False)

    def serve(self) -> bool:
        """Serves runs until the daemon is gone or orders the end, or a rank is lost. Returns whether all lived."""
        members = self._waiting()
        try:
            self._meet(members)
            while members.all_alive:
                self._report(Standing())
                give_back()
                control, begin = self._next_run(members)
                self._report(Occupied())
                run, kept = self._conduct(control, begin)
                if not kept:
                    return run.all_alive
                members = self._waiting()
        except (Stopped, MessageError):
            members.stopping = True
        members.let_go()
        return members.all_alive

    def _waiting(self) -> Members:
        """The ranks without a run."""
        members = Members(self.world, self.daemon, self.roles, self.patience)
        members.enforce_silence = True
        members.others = [self.listener.fileno()]
        return members

    def _meet(self, members: Members) -> None:
        """Raises Stopped unless all ranks come up."""
        members.enforce_silence = False
        if members.wait("hello", members.active(), DEADLINES_S["hello"]):
            raise Stopped("not every node came up")
        self.world.all_are_there()
        members.enforce_silence = True
        # Their guards remove their folders: a node is as found before its first run, too.
        for rank in members.active():
            members.send(rank, rank_orders.Finish(whole=True, kept=True))
        members.wait("restored", members.active(), DEADLINES_S["restore"])

    def _next_run(self, members: Members) -> tuple[Control, Begin]:
        """Raises Stopped when the daemon ends, or a rank is lost."""
        while members.all_alive:
            members.pump()
            if (control := self._accept()) is None:
                members.rest()
            elif begin := self._first_order(control, members):
                return control, begin
            else:
                control.socket.close()
        raise Stopped("a rank is lost")

    def _accept(self) -> Control | None:
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return None
        if peer(connection).uid in self.owners:
            return Lines(connection, decode_rank0_order)
        connection.close()
        return None

    def _first_order(self, control: Control, members: Members) -> Begin | None:
        """None where it is not the beginning of a run: the connection is of no use."""
        deadline = time.monotonic() + FIRST_ORDER_S
        while time.monotonic() < deadline and not control.closed:
            control.receive(0.01)
            try:
                for order, _ in control.messages():
                    return order if isinstance(order, Begin) and set(order.ranks) <= set(self.roles) else None
            except MessageError:
                return None
            members.pump()
        return None

    def _conduct(self, control: Control, begin: Begin) -> tuple[Members, bool]:
        """Conducts a run. Returns its members, and whether they have stayed."""
        members = _members_of(begin, self.world, control, self.roles)
        members.others = [self.daemon.socket.fileno()]
        members.look_elsewhere = self._look_at_daemon
        kept = Conductor(members, stays=True).conduct()
        control.socket.close()
        for rank, why in members.losses.items():
            self._report(Lost(rank, why, 0.0, 0))
        return members, kept

    def _report(self, event: StandbyEvent) -> None:
        """A daemon that is gone is noticed by the end of its connection."""
        with contextlib.suppress(OSError):
            self.daemon.send(event)

    def _look_at_daemon(self) -> None:
        """Raises Stopped when the cluster is taken down."""
        while self.daemon.receive(0):
            pass
        orders = [order for order, _ in self.daemon.messages()]
        if self.daemon.closed or any(isinstance(order, Stop) for order in orders):
            raise Stopped("the cluster is taken down")
