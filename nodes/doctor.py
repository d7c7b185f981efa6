"""What a node tells of itself before any run: `python -m pktswarm.nodes.doctor` prints one JSON document.

Started over SSH as the ranks are, and with a guard as they have: so what would keep a rank from working is met here.
With `--clock N` it first answers N lines on standard input with its CLOCK_REALTIME, one by one: the one who asks
works out how far apart the two clocks are.
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
from pathlib import Path
from typing import Any

from pktswarm.nodes import guard, health, stale_spools
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol import unprivileged
from pktswarm.traffic.protocol.messages import Lines

ANSWER_TIMEOUT_S = 5.0
ENGINES_NEED = ("setpriv", "unshare", "timeout")


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


def report(arguments: argparse.Namespace) -> dict[str, Any]:
    by_guard = _by_guard(arguments) if arguments.interface else {}
    shown = _interface(arguments, by_guard["unfit"]) if arguments.interface else {}
    return {
        **shown,
        "versions": {**shown.get("versions", {}), **_versions()},
        "proxy_missing": bool(arguments.proxy) and not os.access(arguments.proxy, os.X_OK),
        "tools_missing": [tool for tool in ENGINES_NEED if not shutil.which(tool)],
        "health": health.report(stale_spools.SPOOLS),
        **by_guard,
    }


def _versions() -> dict[str, str]:
    own = {"pktswarm": VERSION, "python": platform.python_version(), "word_bits": str(8 * struct.calcsize("P"))}
    try:
        from pktswarm.nodes.mpi import versions

        return {**own, **versions()}
    except (ImportError, RuntimeError, OSError) as error:  # the doctor is there for just that
        return {**own, "mpi_missing": str(error)}


def _by_guard(arguments: argparse.Namespace) -> dict[str, Any]:
    """What only root sees. While another run has the node nothing is tried on its interface."""
    found: dict[str, Any] = {"guard_trouble": "", "unfit": {}, "leftovers": None, "mended": []}
    try:
        user = unprivileged.name(arguments.user)
        pipe = guard.spawn(user)
        if arguments.mend:
            found["mended"] = _ask(pipe, "mend", "mended", arguments.interface)["mended"]
        found["leftovers"] = _ask(pipe, "leftovers", "leftovers", arguments.interface)
        if arguments.transmits and not found["leftovers"]["holder"]:
            found["unfit"] = _ask(pipe, "probe", "probed", arguments.interface)["unfit"]
        pipe.send({"op": "restore"})
        guard.answer(pipe, "restored", ANSWER_TIMEOUT_S)
    except KeyError:
        found["guard_trouble"] = f"there is no account {arguments.user!r}"
    except EngineError as error:
        found["guard_trouble"] = str(error)
    return found


def _ask(pipe: Lines, op: str, event: str, interface: str) -> dict[str, Any]:
    pipe.send({"op": op, "interface": interface})
    return guard.answer(pipe, event, ANSWER_TIMEOUT_S)


def _interface(arguments: argparse.Namespace, unfit: dict[str, str]) -> dict[str, Any]:
    from pktswarm.nodes import probe
    from pktswarm.nodes.interface import Interface

    interface = Interface(arguments.interface)
    shown = probe.report(interface, unfit, arguments.master)
    if shown["interface"]["exists"]:
        queues = Path(f"/sys/class/net/{arguments.interface}/queues")
        shown["interface"] |= {
            "transmit_queues": len(list(queues.glob("tx-*"))),
            "receive_queues": len(list(queues.glob("rx-*"))),
            "offloads": interface.offloads(),
        }
    return shown


if __name__ == "__main__":
    sys.exit(main())
