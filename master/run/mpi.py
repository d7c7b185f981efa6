"""All MPI calls of rank 0. Waits poll and sleep, point to point; barriers are entered only when all have arrived."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import mpi4py

from pktswarm.traffic.protocol import turns
from pktswarm.traffic.protocol.anchor import Launcher
from pktswarm.traffic.protocol.barrier import Barrier
from pktswarm.traffic.protocol.codec import encode, parse
from pktswarm.traffic.protocol.messages import BULK_BYTES
from pktswarm.traffic.protocol.mpi_wakeup import News
from pktswarm.traffic.protocol.mpich import FAREWELL_S, REFUSED_S, TAG_FAREWELL, TRY_AGAIN_S, give_up_on_the_dead
from pktswarm.traffic.protocol.polling import yield_behind
from pktswarm.traffic.protocol.rank_events import NodeEvent, decode_node_event
from pktswarm.traffic.protocol.rank_orders import RankOrder

# Loaded at once: a rank that has given up root may not be able to read files later. MPI itself begins in World().
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

TAG_MESSAGE, TAG_BULK, TAG_CLOCK = 1, 2, 3
ROLE_COLOUR = {"transmit": 1, "receive": 2}


@dataclass
class _Way:
    """To one rank: what waits for it, in order, since it refused the first of it."""

    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    refused_since: float | None = None
    next_try: float = 0.0
    dead: bool = False


class World:
    """Rank 0's side of COMM_WORLD and of the two groups, the master being a member of both."""

    without_mpi: frozenset[int] = frozenset()

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        with turns.short():
            MPI.Init()
            self.world = MPI.COMM_WORLD
            self.size = self.world.Get_size()
            # The same two splits in the same order as on the nodes.
            self.groups = {role: self.world.Split(colour, 0) for role, colour in ROLE_COLOUR.items()}
        self._news = News()
        self._outgoing: list[tuple[MPI.Request, bytes]] = []
        self._coming: dict[int, tuple[MPI.Request, bytearray]] = {}
        """Rank → the piece of a file that it has begun to send."""
        self._ways = [_Way() for _ in range(self.size)]
        self._readings = 0

    def all_are_there(self) -> bool:
        """Releases the launcher once every rank has reported; from then on a rank that refuses a connection is dead.

        Returns False where this MPICH lacks the setting: a send to a dead rank may then never return.
        """
        self._launcher.release()
        self.flush(5.0)
        return give_up_on_the_dead()

    def send(self, rank: int, message: RankOrder) -> bool:
        """False when the rank cannot be reached any more."""
        return self._post(rank, TAG_MESSAGE, encode(message))

    def send_bulk(self, rank: int, data: bytes) -> bool:
        return all(
            self._post(rank, TAG_BULK, data[start : start + BULK_BYTES]) for start in range(0, len(data), BULK_BYTES)
        )

    def receive(self) -> tuple[int, NodeEvent] | None:
        """The next message of any node, or None."""
        taken = self._take(MPI.ANY_SOURCE, TAG_MESSAGE)
        return None if taken is None else (taken[0], decode_node_event(parse(taken[1])))

    def wait(self, others: list[int], longest_s: float) -> None:
        """Until a node, or what is at the other end of a descriptor of `others`, may have said something."""
        self._drop_sent()
        # Every call of MPI takes in what has come: no socket is readable any more for a message that came with one.
        if self.world.Iprobe(MPI.ANY_SOURCE, TAG_MESSAGE):
            return
        # A piece of a file can wait until it is fetched.
        piece_came = self.world.Iprobe(MPI.ANY_SOURCE, TAG_BULK)
        self._news.wait(others, longest_s, self._under_way() or piece_came)

    def receive_piece(self, rank: int) -> bytes | None:
        """The next piece of a file that `rank` sends, or None. Its node may freeze in the midst of a piece: nobody else
        waits for that."""
        if rank not in self._coming:
            if (begun := self._begun(rank, TAG_BULK)) is None:
                return None
            _, message, data = begun
            self._coming[rank] = (message.Irecv([data, MPI.BYTE]), data)
        request, data = self._coming[rank]
        try:
            if not request.Test():
                return None
        except MPI.Exception:  # it died: its piece never comes
            del self._coming[rank]
            return None
        del self._coming[rank]
        return bytes(data)

    def barrier(self, role: str, members: list[int]) -> Barrier:
        """A barrier of the ranks `members` of the group's communicator, entered."""
        return Barrier(self.groups[role], members)

    def read_clock(self, rank: int, timeout_s: float) -> tuple[int, int, int, int] | None:
        """(sent_ns, node's monotonic_ns, node's realtime_ns, received_ns) of one exchange; None if none came.

        Numbered: the answer to a reading that was given up would pass for a fast one to the next, with an old time.
        """
        self._readings += 1
        sent = time.monotonic_ns()
        asked = self._post(rank, TAG_CLOCK, b"%d" % self._readings)
        deadline = sent + int(timeout_s * 1e9)
        while asked and time.monotonic_ns() < deadline and self._push(rank):
            taken = self._take(rank, TAG_CLOCK)
            if taken is None:
                yield_behind(sent)
            else:
                received = time.monotonic_ns()
                number, monotonic_ns, realtime_ns = (int(part) for part in taken[1].split())
                if number == self._readings:
                    return sent, monotonic_ns, realtime_ns, received
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was handed over has left; False when it did not in time."""
        deadline = time.monotonic() + timeout_s
        self._drop_sent()
        while self._under_way() and time.monotonic() < deadline:
            time.sleep(0.0005)
            self._drop_sent()
        return not self._under_way()

    def can_finalize(self) -> bool:
        """MPI's end asks the launcher."""
        return self._launcher.lives

    def finalize(self) -> None:
        self._launcher.finalizing()
        if not self._all_say_farewell():
            return
        for rank in range(1, self.size):
            self._post(rank, TAG_FAREWELL, b"")
        self.flush(FAREWELL_S)
        while self._take(MPI.ANY_SOURCE, MPI.ANY_TAG) is not None:
            pass  # MPI_Finalize refuses to end with a message that nobody has taken
        MPI.Finalize()

    def _all_say_farewell(self) -> bool:
        absent = set(range(1, self.size))
        deadline = time.monotonic() + FAREWELL_S
        while absent and time.monotonic() < deadline:
            if taken := self._take(MPI.ANY_SOURCE, TAG_FAREWELL):
                absent.remove(taken[0])
            else:
                time.sleep(0.0005)
        if absent:
            print(f"no MPI_Finalize: ranks {sorted(absent)} did not reach it in {FAREWELL_S} s", file=sys.stderr)
        return not absent

    def _post(self, rank: int, tag: int, data: bytes) -> bool:
        self._drop_sent()
        way = self._ways[rank]
        if not way.dead:
            way.waiting.append((tag, data))
        return self._push(rank)

    def _push(self, rank: int) -> bool:
        """Hand over to MPI what waits for that rank; False when it is dead."""
        way = self._ways[rank]
        while way.waiting and time.monotonic() >= way.next_try:
            tag, data = way.waiting[0]
            try:
                self._outgoing.append((self.world.Isend([data, MPI.BYTE], rank, tag), data))
            except MPI.Exception:
                self._refused(way)
            else:
                way.waiting.popleft()
                way.refused_since = None
        return not way.dead

    @staticmethod
    def _refused(way: _Way) -> None:
        now = time.monotonic()
        way.refused_since = now if way.refused_since is None else way.refused_since
        way.next_try = now + TRY_AGAIN_S
        if now - way.refused_since > REFUSED_S:
            way.dead = True
            way.waiting.clear()

    def _under_way(self) -> bool:
        return bool(self._outgoing or self._coming) or any(way.waiting for way in self._ways)

    def _drop_sent(self) -> None:
        self._outgoing = [(request, kept) for request, kept in self._outgoing if not _finished(request)]
        for rank, way in enumerate(self._ways):
            if way.waiting:
                self._push(rank)

    def _take(self, rank: int, tag: int) -> tuple[int, bytes] | None:
        if (begun := self._begun(rank, tag)) is None:
            return None
        source, message, data = begun
        message.Recv([data, MPI.BYTE])
        return source, bytes(data)

    def _begun(self, rank: int, tag: int) -> tuple[int, MPI.Message, bytearray] | None:
        """Whose message has begun to come, and where to put it."""
        status: Any = MPI.Status()
        message = self.world.Improbe(rank, tag, status)
        return None if message is None else (status.Get_source(), message, bytearray(status.Get_count(MPI.BYTE)))


def _finished(request: MPI.Request) -> bool:
    """Gone out, or never will: what was on its way to a rank that died ends in an error."""
    try:
        return bool(request.Test())
    except MPI.Exception:
        return True
