"""Sends single frames from this node and returns what comes: `python -m pktswarm.nodes.packets`, started over SSH.

One JSON object a line: {"frames": [hex], "seconds": S, "wanted": N} on standard input, {"frames": [hex]} on standard
output, {"problem": TEXT} where the guard refused. First comes {"ready": true, "mtu_bytes": N}. The node is held as for
a run. It ends with standard input, or after LIMIT_S.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from pktswarm.nodes import guard
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.packet_port import MOST_SECONDS
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol import unprivileged
from pktswarm.traffic.protocol.messages import Lines

LIMIT_S = 90
ANSWER_TIMEOUT_S = 5.0 + MOST_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="pktswarm.nodes.packets", description="Send single frames, return what comes."
    )
    parser.add_argument("--interface", required=True)
    parser.add_argument("--mac", required=True)
    parser.add_argument("--address", action="append", default=[], help="an address that this node answers for")
    parser.add_argument("--arp-target", default="", help="an address that is asked for by ARP first")
    parser.add_argument("--user", default="")
    parser.add_argument("--by", default="", help="who holds the node")
    arguments = parser.parse_args()
    signal.alarm(LIMIT_S)
    try:
        pipe = guard.spawn(unprivileged.name(arguments.user))
        _open(pipe, arguments)
    except (EngineError, KeyError) as error:
        _print({"problem": str(error)})
        return 1
    _print({"ready": True, "mtu_bytes": Interface(arguments.interface).mtu})
    _serve(pipe)
    pipe.send({"op": "restore"})
    guard.answer(pipe, "restored", ANSWER_TIMEOUT_S)
    return 0


def _open(pipe: Lines, arguments: argparse.Namespace) -> None:
    pipe.send({"op": "hold", "run": arguments.by, "by": arguments.by})
    if other := guard.answer(pipe, "held", ANSWER_TIMEOUT_S)["by"]:
        raise EngineError("guard", f"the node is held for {other['run']} by {other['by']} since {other['since']}")
    opened = {"interface": arguments.interface, "mac": arguments.mac, "arp_targets": arguments.arp_target}
    pipe.send({"op": "open_port", "addresses": arguments.address, **opened})
    guard.answer(pipe, "port_opened", ANSWER_TIMEOUT_S)


def _serve(pipe: Lines) -> None:
    for line in sys.stdin:
        try:
            pipe.send({"op": "exchange", **json.loads(line)})
            _print({"frames": guard.answer(pipe, "exchanged", ANSWER_TIMEOUT_S)["frames"]})
        except EngineError as error:
            _print({"problem": str(error)})
            return


def _print(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
