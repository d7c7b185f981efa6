"""Run by mpiexec at several sizes: rank 0 is the master, the others alternate between the two roles.

With "dies" behind the folder the last rank dies when it is to enter its barrier, and the others give it up. With "late"
the last rank is ready for the end after all others: then it writes "ready" there, and "early" on a signal before that.
Rank 0 writes seen.json there with what it saw; a rank that sees something wrong ends with an error.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from pktswarm.traffic.protocol.rank_events import Started
from pktswarm.traffic.protocol.rank_orders import Enter, Fetch, Leave, Ping, Word

T = TypeVar("T")
ROLES = ("transmit", "receive")
PATIENCE_S = 60.0
DIES, LATE = sys.argv[2:] == ["dies"], sys.argv[2:] == ["late"]
GIVEN_UP_S = 2.0
"""How long the barrier of one that died is waited for; it never ends."""
DEATH_S = 0.5 if DIES else 0.0
"""Before the others enter: messages to the dead one are refused by then."""
LATE_S = 0.5
"""Longer than it takes from the end of the first rank to the signal for the others."""
FILE = bytes(range(256)) * 12345  # several pieces, the last one short


def of_the_dead(role: str, ranks: Sequence[int]) -> bool:
    return DIES and role == ROLES[ranks[-1] % 2]


def wait(take: Callable[[], T | None], seconds: float = PATIENCE_S) -> T:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (got := take()) is not None:
            return got
        time.sleep(0.0005)
    raise TimeoutError


def master(folder: Path) -> None:  # noqa: C901 - the phases of a run, in their order
    from pktswarm.master.run.mpi import World
    from pktswarm.traffic.protocol.anchor import NoAnchor

    world = World(NoAnchor())
    ranks = range(1, world.size)
    files = 0
    hello: list[int] = []
    clocks: list[tuple[int, int, int]] = []
    barriers: dict[str, bool] = {}
    left: dict[int, int] = {}
    for _ in ranks:
        rank, message = wait(world.receive)
        assert message == Started(rank)
        hello.append(rank)
    assert world.all_are_there()
    for rank in ranks:
        # One is given up; its answer, which comes all the same, is that of no other.
        assert world.read_clock(rank, 0.0) is None
        world.send(rank, Ping(6))
        readings = [world.read_clock(rank, PATIENCE_S) for _ in range(5)]
        clocks += [(r[0], r[1], r[3]) for r in readings if r]
        world.send(rank, Fetch(str(len(FILE))))
        world.send_bulk(rank, FILE)
        back = bytearray()
        while len(back) < len(FILE):
            back += wait(partial(world.receive_piece, rank))
        files += bytes(back) == FILE
    for role in ROLES:
        if any(ROLES[rank % 2] == role for rank in ranks):
            members = list(range(1 + sum(ROLES[rank % 2] == role for rank in ranks)))
            for rank in ranks:
                if ROLES[rank % 2] == role:
                    world.send(rank, Enter("", 0, 0, members))
            for _ in range(10 if of_the_dead(role, ranks) else 0):
                time.sleep(DEATH_S / 10)
                world.send(ranks[-1], Word())
            barrier = world.barrier(role, members)
            barriers[role] = barrier.left_ns(GIVEN_UP_S if of_the_dead(role, ranks) else PATIENCE_S) is not None
    if DIES:  # refused for a while, then given up; what is sent to the others behind it arrives all the same
        wait(lambda: world.send(ranks[-1], Word()) is False or None)
    for rank in ranks:
        world.send(rank, Leave(not DIES))
    living = ranks[:-1] if DIES else ranks
    for _ in living:
        rank, event = wait(world.receive)
        assert isinstance(event, Started)
        left[rank] = event.at_ns
    assert DIES or world.flush(PATIENCE_S)
    seen = {"size": world.size, "hello": hello, "clocks": clocks, "files": files, "barriers": barriers, "left": left}
    (folder / "seen").write_text(json.dumps(seen))
    (folder / "seen").rename(folder / "seen.json")
    end(world.finalize, folder)


def end(finalize: Callable[[], None], folder: Path) -> None:
    """MPI's finalize would wait for the dead. Without it the second who ends may take mpiexec along, with all ranks."""
    if DIES:
        wait(lambda: (folder / "seen.json").exists() or None)
        os._exit(0)
    if LATE and os.environ["PMI_RANK"] == str(int(os.environ["PMI_SIZE"]) - 1):
        signal.signal(signal.SIGUSR1, lambda *_: (folder / "early").touch())
        time.sleep(LATE_S)
        (folder / "ready").touch()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # as the anchor does
    finalize()


def node(folder: Path) -> None:
    from mpi4py import rc

    rc.initialize = False
    from pktswarm.nodes.mpi import MpiLink

    role = ROLES[int(os.environ["PMI_RANK"]) % 2]
    link = MpiLink(role)
    link.introduce(Started(link.rank))
    left = False
    while True:
        message = wait(link.receive)
        if isinstance(message, Ping):
            link.answer_pings(message.count, PATIENCE_S)
        elif isinstance(message, Fetch):
            data = link.receive_bulk(int(message.name), PATIENCE_S)
            own = folder / str(link.rank)
            own.write_bytes(data)
            for _ in link.send_file(str(own)):
                time.sleep(0.001)
        elif isinstance(message, Enter):
            if DIES and link.rank == link.world.Get_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(DEATH_S)
            dead = of_the_dead(role, range(link.world.Get_size()))
            left = (
                link.barrier(message.members, message.leave_ns).left_ns(GIVEN_UP_S if dead else PATIENCE_S) is not None
            )
        else:
            break
    link.send(Started(int(left)))
    assert link.flush(PATIENCE_S)
    end(link.finalize, folder)


if __name__ == "__main__":
    (master if os.environ["PMI_RANK"] == "0" else node)(Path(sys.argv[1]))
