"""Run by mpiexec with two ranks, the master and a node: a message comes with a call of MPI that is for something else.

No socket is readable for it any more when its reader is to wait for messages. Each rank writes into the folder, as its
number, whether it slept then.
"""

import os
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pktswarm.traffic.protocol.rank_events import Started
from pktswarm.traffic.protocol.rank_orders import Word

FOLDER = Path(sys.argv[1])
OTHER_TAG = 99
LIMIT_S = 60.0


class Recorder:
    """In place of News: whether the rank would sleep."""

    def __init__(self) -> None:
        self.slept = False

    def wait(self, others: Iterable[int], longest_s: float, under_way: bool = False) -> None:
        self.slept = True


def take_in(end: Any, rank: int) -> None:
    """Have MPI take a message in, without receiving it, and then the rank wait for messages."""
    sockets = end._news._mpi_sockets()
    assert sockets
    assert select.select(sockets, [], [], LIMIT_S)[0]
    while select.select(sockets, [], [], 0.05)[0]:
        end.world.Iprobe(tag=OTHER_TAG)
    end._news = Recorder()
    end.wait([], LIMIT_S)
    (FOLDER / str(rank)).write_text(str(end._news.slept))


def until(end: Any) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while (message := end.receive()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return message


def master() -> None:
    from pktswarm.master.run.mpi import World
    from pktswarm.traffic.protocol.anchor import NoAnchor

    world = World(NoAnchor())
    assert until(world) == (1, Started(1))
    assert world.all_are_there()
    world.send(1, Word())
    assert world.flush(LIMIT_S)
    take_in(world, 0)
    assert until(world) == (1, Started(2))
    world.finalize()


def node() -> None:
    from mpi4py import rc

    rc.initialize = False
    from pktswarm.nodes.mpi import MpiLink

    link = MpiLink("transmit")
    link.introduce(Started(1))
    take_in(link, 1)
    assert until(link) == Word()
    link.send(Started(2))
    assert link.flush(LIMIT_S)
    link.finalize()


if __name__ == "__main__":
    (master if os.environ["PMI_RANK"] == "0" else node)()
