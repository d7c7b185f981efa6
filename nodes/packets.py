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

from pktswarm.nodes import guard
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.packet_port import MOST_SECONDS
from pktswarm.traffic.errors import EngineError, MessageError
from pktswarm.traffic.protocol import guard_events as events
from pktswarm.traffic.protocol import guard_orders as orders
from pktswarm.traffic.protocol import unprivileged
from pktswarm.traffic.protocol.codec import from_fields
from pktswarm.traffic.protocol.guard_events import GuardEvent
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
    parser.add_argument("--by", default="", help="the user and host that hold the node")
    arguments = parser.parse_args()
    signal.alarm(LIMIT_S)
    try:
        pipe = guard.spawn(unprivileged.name(arguments.user))
        _open(pipe, arguments)
    except (EngineError, KeyError) as error:
        _print(problem=str(error))
        return 1
    _print(ready=True, mtu_bytes=Interface(arguments.interface).mtu)
    _serve(pipe)
    pipe.send(orders.Restore())
    guard.answer(pipe, events.Restored, ANSWER_TIMEOUT_S)
    return 0


def _open(pipe: Lines[GuardEvent], arguments: argparse.Namespace) -> None:
    pipe.send(orders.Hold(arguments.by, arguments.by))
    if other := guard.answer(pipe, events.Held, ANSWER_TIMEOUT_S).by:
        raise EngineError("guard", f"the node is held for {other.run} by {other.by} since {other.since}")
    neighbours = [arguments.arp_target] if arguments.arp_target else []
    pipe.send(orders.OpenPort(arguments.interface, arguments.mac, arguments.address, neighbours))
    guard.answer(pipe, events.PortOpened, ANSWER_TIMEOUT_S)


def _serve(pipe: Lines[GuardEvent]) -> None:
    for line in sys.stdin:
        try:
            pipe.send(from_fields(orders.Exchange, json.loads(line), "exchange"))
            _print(frames=guard.answer(pipe, events.Exchanged, ANSWER_TIMEOUT_S).frames)
        except (EngineError, MessageError) as error:
            _print(problem=str(error))
            return


def _print(**message: object) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
