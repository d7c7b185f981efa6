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
            redirect = program.program_fd("redirect")
            make_long_call(channel, lambda: libbpf.run_live(redirect, frame, MOST_REPEATS, LARGEST_BATCH))

    return body


def make_long_call(channel: Channel, call: Callable[[], object]) -> None:
    """Makes a call in a child from "go" on, and kills it at the next word."""
    channel.tell("ready")
    channel.hear()
    child = os.fork()
    if not child:
        try:
            namespaces.die_with_parent()
            call()
        finally:
            os._exit(0)
    try:
        channel.hear()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
