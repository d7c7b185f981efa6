"""A rank on a node: `python -m nodes --role transmit --host tx1`. mpiexec starts it; it runs unprivileged."""

from __future__ import annotations

import argparse
import sys

from nodes import guard
from traffic import account

PROBE_TIMEOUT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="nodes", description="One role of one host; started by mpiexec.")
    parser.add_argument("--role", choices=["transmit", "receive"], required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--user", default="")
    parser.add_argument("--interface", required=True)
    arguments = parser.parse_args()
    user = account.name(arguments.user)
    # The guard comes first: nothing of the rank, above all no MPI, may exist in a fork that keeps root.
    pipe = guard.spawn(user)
    transmits = arguments.role == "transmit"
    if transmits:
        pipe.send({"op": "probe", "interface": arguments.interface})
    from nodes import probe
    from nodes.interface import Interface
    from nodes.rank import Rank  # all loaded while this still may read the files

    interface = Interface(arguments.interface)
    report = probe.report(interface, guard.answer(pipe, "probed", PROBE_TIMEOUT_S)["unfit"] if transmits else {})
    account.become(user)
    return Rank(arguments.role, arguments.host, interface, report, pipe).run()


if __name__ == "__main__":
    sys.exit(main())
