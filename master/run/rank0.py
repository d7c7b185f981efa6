"""Rank 0, started by mpiexec on the master: `python -m pktswarm.master.run.rank0 --control SOCKET --user NAME`."""

from __future__ import annotations

import argparse
import json
import os
import socket

from pktswarm.master.run.all_ranks import AllRanks
from pktswarm.master.run.mpi import World
from pktswarm.master.run.standby import Standby, serve_command
from pktswarm.traffic.protocol import anchor, unprivileged
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.pipe_channel import PipeChannel
from pktswarm.traffic.protocol.rank0_orders import decode_rank0_order


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="pktswarm.master.run.rank0", description="The master's rank; started by mpiexec."
    )
    parser.add_argument("--control", required=True, help="abstract Unix socket of the command line")
    parser.add_argument("--roles", required=True, help="JSON list: the role of rank 1, 2, …")
    parser.add_argument("--without-mpi", default="[]", help="JSON list: the ranks behind pipes, handed over by CONTROL")
    parser.add_argument("--user", default="")
    parser.add_argument("--standby", default="", help="abstract Unix socket for the runs of a cluster that stays up")
    parser.add_argument("--owner", type=int, default=0, help="user ID that may begin them, besides root")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every deadline")
    arguments = parser.parse_args()
    user = unprivileged.name(arguments.user)
    launcher = anchor.drop(user)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + arguments.control)
    pipes = take_pipes(connection, json.loads(arguments.without_mpi))
    unprivileged.become(user)
    launcher.hold()
    roles = dict(enumerate(json.loads(arguments.roles), start=1))
    world = AllRanks(World(launcher), pipes, len(roles))
    control = Lines(connection, decode_rank0_order)
    if arguments.standby:
        whole = Standby(world, control, roles, arguments.standby, arguments.owner, arguments.patience).serve()
    else:
        whole = serve_command(world, control, roles, arguments.patience)
    if not whole:
        os._exit(0)  # MPI's finalize would wait for the dead
    world.finalize()
    return 0


def take_pipes(control: socket.socket, ranks: list[int]) -> dict[int, PipeChannel]:
    """The channels of the ranks without MPI, whose descriptors come first on the control socket (Launch.accept)."""
    if not ranks:
        return {}
    _, descriptors, _, _ = socket.recv_fds(control, 1, 2 * len(ranks))
    pairs = zip(descriptors[::2], descriptors[1::2], strict=True)
    return {rank: PipeChannel(*pair) for rank, pair in zip(ranks, pairs, strict=True)}


if __name__ == "__main__":
    anchor.leave(main())
