"""The barriers of a run: the ranks of a group leave each together.

A barrier cannot name a rank that is missing, so it is entered only when all have arrived. A death makes it impossible:
then each rank is released by an order.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pktswarm.master.run.members import DEADLINES_S, Members, Stopped
from pktswarm.traffic.protocol import rank_orders
from pktswarm.traffic.protocol.barrier import AT_ONCE_S
from pktswarm.traffic.protocol.rank0_events import BarrierLeft

ENTER_LEAD_NS = 3_000_000
ROUND_NS = 1_000_000
"""Time for one round of the barrier: a message, and a turn on a processor that several nodes share."""


class GroupBarrier:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._entered: tuple[str, list[int]] | None = None
        """Name and ranks of the barrier that is being left."""
        self.answered_ns = 0
        """How long after the instant to leave it all ranks of the last barrier had reported that they have."""
        members.on_loss = self._on_loss

    def pass_through(self, role: str, name: str, deadline_s: float, rest: Callable[[], None] | None = None) -> None:
        """Waits until each rank of the group has arrived, and has them leave together. Raises Stopped."""
        members = self._members
        members.wait(name, members.group(role), deadline_s, rest)
        group = members.group(role)
        if not group:
            raise Stopped(f"no node of the {role} group is left")
        complete = group == members.wanted(role)
        # All enter at one instant: early ranks must not spin against late ones.
        at_ns = time.monotonic_ns() + ENTER_LEAD_NS
        places = members.places(role, group)
        leave_ns = at_ns + ROUND_NS * (len(places) - 1).bit_length()
        without_mpi = members.world.without_mpi.intersection(group)

        def enter(rank: int) -> rank_orders.Enter:
            instants_ns = members.on_node(rank, at_ns), members.on_node(rank, leave_ns)
            return rank_orders.Enter(name, *instants_ns, places)

        for rank in group:
            if not complete:
                members.send(rank, rank_orders.Release(name))
            elif rank not in without_mpi:
                members.send(rank, enter(rank))
        self._entered = (name, group) if complete else None
        if not members.living.issuperset(group):
            # A rank was found dead just now. Released behind all orders, so that no Enter follows a Release.
            self._release()
        left_ns = self._leave(role, places, name, at_ns) if complete else None
        for rank in sorted(without_mpi) if left_ns is not None else ():
            members.send(rank, rank_orders.Release(name))
        members.wait(f"left {name}", group, DEADLINES_S["barrier"])
        self._entered = None
        self.answered_ns = max(0, time.monotonic_ns() - leave_ns)
        released_ns = time.monotonic_ns() if left_ns is None else left_ns
        members.report(BarrierLeft(role, name, left_ns is not None, released_ns))

    def _leave(self, role: str, places: list[int], name: str, at_ns: int) -> int | None:
        """Returns when the barrier was left; None: a rank died in it, and the others were released."""
        members = self._members
        members.flush()
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        barrier = members.world.barrier(role, places)
        limit_s = DEADLINES_S["barrier"] * members.patience
        deadline = time.monotonic() + limit_s
        while (left_ns := barrier.left_ns(AT_ONCE_S)) is None:
            members.pump()
            if self._entered is None:
                return None
            if time.monotonic() > deadline:
                raise Stopped(f"the barrier {name!r} of the {role} group was not left in {limit_s:.0f} s")
            members.rest()  # a barrier that failed returns at once
        return left_ns

    @property
    def entered(self) -> bool:
        """Whether ranks are in a barrier."""
        return self._entered is not None

    def _on_loss(self, rank: int) -> None:
        if self._entered and rank in self._entered[1]:
            self._release()

    def _release(self) -> None:
        """Releases the ranks that are still in a barrier in which one died."""
        if self._entered is None:
            return
        (name, group), self._entered = self._entered, None
        members = self._members
        for rank in [r for r in group if r in members.living and (r, f"left {name}") not in members.seen]:
            members.send(rank, rank_orders.Release(name))
