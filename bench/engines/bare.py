"""Bare live frames: the least that a sender of this kind does, without a rule, a stamp, a pace or a count."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable

from bench.engines.wire import NEAR, OBJECT, Channel
from pktswarm.lab import namespaces
from pktswarm.nodes import libbpf
from pktswarm.nodes.senders.xdp_shares import LARGEST_BATCH

MOST_REPEATS = 2**32 - 1
"""In one call, which lasts until its process is killed: at 20 M frames/s more than three minutes."""


def sending(frame: bytes, core: int) -> Callable[[Channel], None]:
    """A worker's body: sends from "go" until it is told to stop. A child of it makes the one long call."""

    def body(channel: Channel) -> None:
        os.sched_setaffinity(0, {core})
        with libbpf.BpfObject(OBJECT) as program:
            program.load()
            index = socket.if_nametoindex(NEAR)
            program.map("egress").update(bytes(4), index.to_bytes(4, sys.byteorder))
            channel.tell("ready")
            channel.hear()
            child = os.fork()
            if not child:
                _send(program.program_fd("redirect"), frame)
            try:
                channel.hear()
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    return body


def _send(program: int, frame: bytes) -> None:
    try:
        namespaces.die_with_parent()
        libbpf.run_live(program, frame, MOST_REPEATS, LARGEST_BATCH)
    finally:
        os._exit(0)
