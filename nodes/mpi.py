"""All MPI calls of a node. Every wait polls and sleeps: a blocking MPI call would spin a core that may be capturing."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Iterator
from typing import Any

import mpi4py

from pktswarm.nodes.link import MasterGone, Pieces
from pktswarm.traffic.protocol import turns
from pktswarm.traffic.protocol.barrier import Barrier
from pktswarm.traffic.protocol.codec import encode, parse
from pktswarm.traffic.protocol.messages import BULK_BYTES
from pktswarm.traffic.protocol.mpi_wakeup import News
from pktswarm.traffic.protocol.mpich import FAREWELL_S, REFUSED_S, TAG_FAREWELL, give_up_on_the_dead
from pktswarm.traffic.protocol.polling import yield_behind
from pktswarm.traffic.protocol.rank_events import NodeEvent
from pktswarm.traffic.protocol.rank_orders import RankOrder, decode_rank_order

# Loaded at once: a rank that has given up root may not be able to read files later. MPI itself begins in MpiLink().
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

MASTER = 0
TAG_MESSAGE, TAG_BULK, TAG_CLOCK = 1, 2, 3
BULK_PIECES_UNDER_WAY = 8
INTRODUCTION_TIMEOUT_S = 20.0
PR_SET_TIMERSLACK = 29
NODE_COLOUR = {"transmit": 1, "receive": 2}


def versions() -> dict[str, str]:
    """Versions of mpi4py and of the MPI library, the latter from the first line of its version text."""
    return {"mpi4py": mpi4py.__version__, "mpi": MPI.Get_library_version().splitlines()[0].strip("\0 ")}


class MpiLink:
    """This rank's connection to rank 0, and its group's communicator."""

    def __init__(self, role: str) -> None:
        # A sleep that ends 50 us late, as it may by default, would be most of a barrier's skew.
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1))
        with turns.short():
            MPI.Init()
            self.world = MPI.COMM_WORLD
            self.group: MPI.Comm = _split(self.world, role)
        self.rank = self.world.Get_rank()
        self._news = News()
        self._outgoing: list[tuple[MPI.Request, bytes]] = []
        self._pieces = Pieces(lambda: self._take(TAG_BULK), lambda left_s: time.sleep(0.0005))

    def introduce(self, message: NodeEvent) -> None:
        """The first message: when it is out there is a connection, and a master who refuses one is dead."""
        self.send(message)
        self.flush(INTRODUCTION_TIMEOUT_S)
        give_up_on_the_dead()

    def send(self, message: NodeEvent) -> None:
        data = encode(message)
        self._drop_sent()
        self._post(TAG_MESSAGE, data)

    def _post(self, tag: int, data: bytes) -> None:
        """Raises MasterGone when the master has refused it for REFUSED_S."""
        deadline = time.monotonic() + REFUSED_S
        while True:
            try:
                self._outgoing.append((self.world.Isend([data, MPI.BYTE], MASTER, tag), data))
            except MPI.Exception as error:
                if time.monotonic() > deadline:
                    raise MasterGone(str(error)) from None
                time.sleep(0.0005)
            else:
                return

    def receive(self) -> RankOrder | None:
        data = self._take(TAG_MESSAGE)
        return None if data is None else decode_rank_order(parse(data))

    def wait(self, others: Iterable[int], longest_s: float) -> None:
        self._drop_sent()
        # Every call of MPI takes in what has come: no socket is readable any more for an order that came with one.
        if not self.world.Iprobe(MASTER, TAG_MESSAGE):
            self._news.wait(others, longest_s, bool(self._outgoing))

    def receive_bulk(self, size: int, timeout_s: float) -> bytes:
        return self._pieces.receive(size, timeout_s)

    def send_file(self, path: str) -> Iterator[None]:
        with open(path, "rb") as file:  # noqa: PTH123
            while piece := file.read(BULK_BYTES):
                self._post(TAG_BULK, piece)
                while len(self._outgoing) > BULK_PIECES_UNDER_WAY:
                    yield
                    self._drop_sent()

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        self._drop_sent()
        while self._outgoing and time.monotonic() < deadline:
            time.sleep(0.0005)
            self._drop_sent()
        return not self._outgoing

    def barrier(self, members: list[int], leave_ns: int) -> Barrier:
        return Barrier(self.group, members, leave_ns)

    def answer_pings(self, count: int, longest_s: float) -> int:
        deadline = time.monotonic() + longest_s
        last_ns = time.monotonic_ns()
        while count and time.monotonic() < deadline:
            number = self._take(TAG_CLOCK)
            if number is None:
                yield_behind(last_ns)
                continue
            last_ns = time.monotonic_ns()
            self._post(TAG_CLOCK, b"%s %d %d" % (number, last_ns, time.time_ns()))
            count -= 1
        self._drop_sent()
        return count

    def _drop_sent(self) -> None:
        try:
            self._outgoing = [(request, kept) for request, kept in self._outgoing if not request.Test()]
        except MPI.Exception as error:
            raise MasterGone(str(error)) from None

    def finalize(self) -> None:
        self._post(TAG_FAREWELL, b"")
        deadline = time.monotonic() + FAREWELL_S
        while self._take(TAG_FAREWELL) is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.0005)
        while self._take(MPI.ANY_TAG) is not None:
            pass  # MPI_Finalize refuses to end with a message that nobody has taken
        MPI.Finalize()

    def _take(self, tag: int) -> bytes | None:
        status = MPI.Status()
        message = self.world.Improbe(MASTER, tag, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        message.Recv([data, MPI.BYTE])
        return bytes(data)


def _split(world: Any, role: str) -> Any:
    """Two splits, in the same order on every rank: the transmit and the receive communicator, the master in both."""
    groups = {
        name: world.Split(colour if role == name else MPI.UNDEFINED, world.Get_rank())
        for name, colour in NODE_COLOUR.items()
    }
    return groups[role]
