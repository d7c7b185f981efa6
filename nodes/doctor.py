"""Report of a node before any run: `python -m pktswarm.nodes.doctor` prints one JSON document.

It is started over SSH and with a guard, as the ranks are: what would keep a rank from working also fails here.
With `--clock N` it first answers N lines on standard input with its CLOCK_REALTIME, one by one, from which the master
computes the offset between the two clocks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import struct
import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from pktswarm.nodes import guard, health, memory, stale_spools
from pktswarm.nodes.interface import Interface
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol import guard_orders as orders
from pktswarm.traffic.protocol import unprivileged
from pktswarm.traffic.protocol.codec import to_object
from pktswarm.traffic.protocol.guard_events import GuardEvent
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.node_report import InterfaceReport, NodeReport
from pktswarm.traffic.protocol.ptp_reading import PtpReading

ANSWER_TIMEOUT_S = 5.0
ENGINES_NEED = ("setpriv", "unshare", "timeout")


@dataclass(frozen=True)
class Memory:
    """Proportional set sizes of a rank before MPI_Init and of its guard, without a task, and what the host has left;
    bytes."""

    rank_bytes: int
    guard_bytes: int
    available_bytes: int


@dataclass
class ByGuard:
    """The part of the report that needs root."""

    guard_trouble: str = ""
    probed: events.Probed = field(default_factory=lambda: events.Probed({}, []))
    leftovers: events.Leftovers | None = None
    mended: list[str] = field(default_factory=list)
    memory: Memory | None = None
    ptp: PtpReading | None = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="pktswarm.nodes.doctor", description="What this node is and lacks, as JSON.")
    parser.add_argument("--interface", default="", help="the interface under test; left out on a master")
    parser.add_argument("--user", default="")
    parser.add_argument("--master", default="", help="its address on the control network")
    parser.add_argument("--proxy", default="", help="where the master's mpiexec looks for its proxy")
    parser.add_argument("--transmits", action="store_true", help="try the senders on the interface: needs the guard")
    parser.add_argument("--mend", action="store_true", help="put back first what guards that were killed left changed")
    parser.add_argument("--clock", type=int, default=0, metavar="N", help="answer N lines with the time first")
    arguments = parser.parse_args()
    document = report(arguments)
    for _ in range(arguments.clock):
        if not sys.stdin.readline():
            break
        print(time.time_ns(), flush=True)
    print(json.dumps(document))
    return 0


def report(arguments: argparse.Namespace) -> dict[str, object]:
    document: dict[str, object] = {
        "proxy_missing": bool(arguments.proxy) and not os.access(arguments.proxy, os.X_OK),
        "tools_missing": [tool for tool in ENGINES_NEED if not shutil.which(tool)],
        "health": to_object(health.report(stale_spools.SPOOLS)),
    }
    if not arguments.interface:
        return {**document, "versions": _versions()}
    by_guard = _by_guard(arguments)
    node = _node(arguments, by_guard.probed)
    versions = {**node.versions, **_versions()}
    shown = {**to_object(node), "interface": _interface(node.interface), "versions": versions}
    return {**shown, **document, **to_object(by_guard)}


def _versions() -> dict[str, str]:
    own = {"pktswarm": VERSION, "python": platform.python_version(), "word_bits": str(8 * struct.calcsize("P"))}
    try:
        from pktswarm.nodes.mpi import versions

        return {**own, **versions()}
    except (ImportError, RuntimeError, OSError) as error:  # the doctor is there for just that
        return {**own, "mpi_missing": str(error)}


def _by_guard(arguments: argparse.Namespace) -> ByGuard:
    """While another run holds the node nothing is tried on its interface."""
    found = ByGuard()
    try:
        pipe = guard.spawn(unprivileged.name(arguments.user))
        if arguments.mend:
            pipe.send(orders.Mend())
            found.mended = guard.answer(pipe, events.Mended, ANSWER_TIMEOUT_S).mended
        pipe.send(orders.Leftovers(arguments.interface))
        found.leftovers = guard.answer(pipe, events.Leftovers, ANSWER_TIMEOUT_S)
        if arguments.transmits and found.leftovers.holder is None:
            pipe.send(orders.Probe(arguments.interface))
            found.probed = guard.answer(pipe, events.Probed, ANSWER_TIMEOUT_S)
        found.memory = _memory(pipe)
        pipe.send(orders.Ptp())
        found.ptp = guard.answer(pipe, events.Ptp, ANSWER_TIMEOUT_S).reading
        pipe.send(orders.Restore())
        guard.answer(pipe, events.Restored, ANSWER_TIMEOUT_S)
    except KeyError:
        found.guard_trouble = f"there is no account {arguments.user!r}"
    except EngineError as error:
        found.guard_trouble = str(error)
    return found


def _memory(pipe: Lines[GuardEvent]) -> Memory | None:
    """This process takes what a rank does before MPI_Init, once it has loaded the same. None: the kernel does not
    report it."""
    import_module("pktswarm.nodes.rank")
    _versions()  # loads MPI, where there is one
    pipe.send(orders.Memory())
    guard_bytes = guard.answer(pipe, events.Memory, ANSWER_TIMEOUT_S).pss_bytes
    rank_bytes, available_bytes = memory.pss_bytes(), memory.available_bytes()
    if rank_bytes is None or guard_bytes is None or available_bytes is None:
        return None
    return Memory(rank_bytes, guard_bytes, available_bytes)


def _node(arguments: argparse.Namespace, probed: events.Probed) -> NodeReport:
    from pktswarm.nodes import probe

    return probe.report(Interface(arguments.interface), probed, arguments.master)


def _interface(report: InterfaceReport) -> dict[str, object]:
    if not report.exists:
        return to_object(report)
    queues = Path(f"/sys/class/net/{report.name}/queues")
    return {
        **to_object(report),
        "transmit_queues": len(list(queues.glob("tx-*"))),
        "receive_queues": len(list(queues.glob("rx-*"))),
        "offloads": Interface(report.name).offloads(),
    }


if __name__ == "__main__":
    sys.exit(main())
