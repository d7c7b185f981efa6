"""A rank on a node: `python -m pktswarm.nodes --role transmit --host tx1`. mpiexec starts it, or SSH; it runs
unprivileged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from pktswarm.nodes import guard, node_lock
from pktswarm.nodes.link import Link
from pktswarm.traffic.protocol import anchor, unprivileged
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol import guard_orders as orders
from pktswarm.traffic.protocol.task import Role

ANSWER_TIMEOUT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="pktswarm.nodes", description="One role of one host; the master starts it.")
    parser.add_argument("--role", choices=["transmit", "receive"], required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--user", default="")
    parser.add_argument("--interface", required=True)
    parser.add_argument("--master", required=True, help="its address on the control network")
    parser.add_argument("--run", required=True, help="the run's own name: a node works for one at a time")
    parser.add_argument("--by", required=True, help="whose run it is, for others that want the node meanwhile")
    parser.add_argument("--over", choices=["mpi", "pipes"], default="mpi", help="pipes: standard input and output")
    arguments = parser.parse_args()
    over_mpi = arguments.over == "mpi"
    user = unprivileged.name(arguments.user)
    launcher = anchor.drop(user) if over_mpi else anchor.NoAnchor()
    launcher.hold()
    # The guard comes first: nothing of the rank, above all no MPI, may exist in a fork that keeps root.
    pipe = guard.spawn(user)
    pipe.send(orders.Hold(arguments.run, arguments.by))
    from pktswarm.nodes import probe
    from pktswarm.nodes.interface import Interface
    from pktswarm.nodes.rank import Rank  # all loaded while this still may read the files

    link_to_master = _link(over_mpi)
    interface = Interface(arguments.interface)
    held = guard.answer(pipe, events.Held, node_lock.WAIT_S + ANSWER_TIMEOUT_S)
    probed = events.Probed({}, [])
    if arguments.role == "transmit" and held.by is None:  # a trial would disturb another run
        pipe.send(orders.Probe(arguments.interface))
        probed = guard.answer(pipe, events.Probed, ANSWER_TIMEOUT_S)
    report = replace(probe.report(interface, probed, arguments.master), held_by=held.by, mended=held.mended)
    unprivileged.become(user)
    launcher.hold()
    link = link_to_master(arguments.role)
    return Rank(arguments.role, arguments.host, interface, report, link, pipe, launcher, arguments.master).run()


def _link(over_mpi: bool) -> Callable[[Role], Link]:
    """What makes the way to the master. Its modules are loaded here."""
    if over_mpi:
        from pktswarm.nodes.mpi import MpiLink

        return MpiLink
    from pktswarm.nodes.pipe_link import PipeLink

    return lambda role: PipeLink()


if __name__ == "__main__":
    anchor.leave(main())
