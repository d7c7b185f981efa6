"""Frames a second, all contenders alike: what the far end's interface took within a window of the sending."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.engines import bare, ours, peers
from bench.engines.wire import BenchError, Channel, Wire, Worker, sink
from pktswarm.nodes.senders.xdp import XdpSender
from pktswarm.traffic.leg import Leg

BEGIN_S = 20.0
WARM_S = 0.5
UNSEEN_PACKETS = 4096
"""What may lie in rings between a peer's own count and the far end's."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def window(wires: Sequence[Wire], before: Sequence[int], seconds: float) -> list[float]:
    """Packets a second that arrive on each, once they arrive on all."""
    deadline = time.monotonic() + BEGIN_S
    while any(wire.received() == count for wire, count in zip(wires, before, strict=True)):
        if time.monotonic() > deadline:
            raise BenchError(f"nothing arrives after {BEGIN_S} s")
        time.sleep(0.01)
    time.sleep(WARM_S)
    begun = [(time.monotonic(), wire.received()) for wire in wires]
    time.sleep(seconds)
    ended = [(time.monotonic(), wire.received()) for wire in wires]
    if any(last[1] == first[1] for first, last in zip(begun, ended, strict=True)):
        raise BenchError(f"nothing arrived for {seconds} s")
    return [(last[1] - first[1]) / (last[0] - first[0]) for first, last in zip(begun, ended, strict=True)]


def of_ours(wires: Sequence[Wire], leg: Leg, spool: Path, seconds: float, receiving_core: int | None = None) -> float:
    """Stamped, received and measured, each frame; one core for each wire, and for all receivers `receiving_core` if it
    is given. Raises BenchError where one is missing."""
    before = [wire.received() for wire in wires]
    with ExitStack() as stack:
        runs = []
        for core, wire in enumerate(wires):
            folder = spool / f"core{core}"
            folder.mkdir(exist_ok=True)
            runs.append(stack.enter_context(ours.run(wire, leg, folder, core)))
        if receiving_core is not None:
            for wire in wires:
                wire.receive_on(receiving_core)
        for run in runs:
            run.begin()
        rate = sum(window(wires, before, seconds))
        for result in [run.finish(stop=True) for run in runs]:
            result.check()
        return rate


def of_sender(wire: Wire, body: Callable[..., None], seconds: float, end: Callable[[Channel], None] = sink) -> float:
    """A worker that sends, to a far end that only counts; `end`: another one."""
    before = wire.received()
    with Worker("the far end", wire.far, end) as far:
        far.hear()
        with Worker("the sender", wire.near, body) as sender:
            sender.hear()
            sender.tell("go")
            rate = window([wire], [before], seconds)[0]
            sender.tell("stop")
            return rate


def of_trace(wire: Wire, leg: Leg, spool: Path, seconds: float) -> float:
    return of_sender(wire, ours.sending(leg, spool, peers.SENDING_CORE, XdpSender), seconds)


def of_bare(wire: Wire, frame: bytes, seconds: float) -> float:
    return of_sender(wire, bare.sending(frame, peers.SENDING_CORE), seconds)


def of_peer(wire: Wire, peer: peers.Peer, spool: Path, seconds: float) -> float:
    """A program, to a far end that does nothing with the frames."""
    before = wire.received()
    with Worker("the far end", wire.far, peer.far) as far:
        far.hear()
        process = wire.run(peer.name, peer.command, spool, BEGIN_S + seconds + ours.LIMIT_S)
        try:
            rate = window([wire], [before], seconds)[0]
            if not process.running():
                raise BenchError(f"{peer.name} ended before it was stopped: {process.output()[-2000:]}")
        finally:
            process.stop()
        time.sleep(ours.SETTLE_S)
        _compare(peer.name, peer.sent(process.output()), wire.received() - before)
        return rate


def _compare(name: str, sent: int, received: int) -> None:
    """Both counts are told where they are far apart: a ring that was full, or the wrong thing was read."""
    if abs(sent - received) > UNSEEN_PACKETS + sent // 100:
        say(f"  {name} says it sent {sent}, {received} arrived: the arrivals count")
