"""Run by mpiexec at several sizes: rank 0 is the master, the others alternate between the two roles.

Rank 0 prints one JSON line with what it saw; a rank that sees something wrong ends with an error.
"""

import json
import os
import sys
import time
from pathlib import Path

ROLES = ("transmit", "receive")
PATIENCE_S = 60.0
FILE = bytes(range(256)) * 12345  # several pieces, the last one short


def wait(take, seconds=PATIENCE_S):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (got := take()) is not None:
            return got
        time.sleep(0.0005)
    raise TimeoutError


def master() -> None:
    from master.mpi import World

    world = World()
    ranks = range(1, world.size)
    seen = {"size": world.size, "hello": [], "clocks": [], "files": 0}
    for _ in ranks:
        rank, message = wait(world.receive)
        assert message == {"event": "hello", "rank": rank}
        seen["hello"].append(rank)
    for rank in ranks:
        # One is given up; its answer, which comes all the same, is that of no other.
        assert world.read_clock(rank, 0.0) is None
        world.send(rank, {"op": "ping", "count": 6})
        readings = [world.read_clock(rank, PATIENCE_S) for _ in range(5)]
        seen["clocks"] += [(r[0], r[1], r[3]) for r in readings if r]
        world.send(rank, {"op": "file", "bytes": len(FILE)})
        world.send_bulk(rank, FILE)
        back = bytearray()
        while len(back) < len(FILE):
            back += wait(lambda r=rank: world.receive_piece(r))
        seen["files"] += bytes(back) == FILE
    for role in ROLES:
        if any(ROLES[rank % 2] == role for rank in ranks):
            for rank in ranks:
                if ROLES[rank % 2] == role:
                    world.send(rank, {"op": "enter"})
            world.barrier(role, PATIENCE_S)
    assert world.flush(PATIENCE_S)
    print(json.dumps(seen), flush=True)
    world.finalize()


def node(path: str) -> None:
    from mpi4py import rc

    rc.initialize = False
    from nodes.mpi import Link

    role = ROLES[int(os.environ["PMI_RANK"]) % 2]
    link = Link(role)
    link.send({"event": "hello", "rank": link.rank})
    while True:
        message = wait(link.receive)
        if message["op"] == "ping":
            link.answer_pings(message["count"])
        elif message["op"] == "file":
            data = link.receive_bulk(message["bytes"], PATIENCE_S)
            own = Path(path) / str(link.rank)
            own.write_bytes(data)
            link.send_file(str(own))
        else:
            link.barrier(PATIENCE_S)
            break
    assert link.flush(PATIENCE_S)
    link.finalize()


if __name__ == "__main__":
    master() if os.environ["PMI_RANK"] == "0" else node(sys.argv[1])
