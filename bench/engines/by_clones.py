"""The engine tc beside its peers on a veth pair without XDP at either end: the far end's stack drops the frames."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench import report
from bench.engines import ours, peers, rates, traces
from bench.engines.bare import make_long_call
from bench.engines.rows import Bench, against, against_peers
from bench.engines.wire import NEAR, Channel
from pktswarm.nodes import clones, libbpf
from pktswarm.nodes.senders.tc import TcSender
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Leg

ROW = "tc"
BETTER, OF_BARE = 1.3, 0.6
MOST_REPEATS = 2**31 - 1


def rows(bench: Bench, name: str = ROW, ring: Sequence[str] = peers.LARGE_RING) -> list[report.Row]:
    """Stamped frames of tc, the peers' as they are. `name`: of the row, before that of the work. `ring`: trafgen's."""
    small, tunnel, trace = ours.udp(), ours.tunnel(), ours.trace("trace.pcap", "top", traces.PACKETS)
    template, tunnelled = (build_frame(leg.frame, leg.size_bytes) for leg in (small, tunnel))
    draw = random.Random(1)  # noqa: S311 - a seed makes it repeatable
    single = bench.file("single.pcap", lambda: [Packet(10**9, template.data)] * 1000)
    users = bench.file("users.pcap", lambda: [Packet(10**9, tunnelled.frame(n, draw)) for n in range(ours.USERS)])
    played = bench.file("trace.pcap", lambda: bench.made_trace)
    of_small = [peers.trafgen_stream(template, bench.spool, ring), peers.tcpreplay_top(single)]
    of_tunnel = [peers.trafgen_stream(tunnelled, bench.spool, ring), peers.tcpreplay_top(users)]
    return [
        *_work(bench, f"{name}: 60-byte UDP, stamped", small, of_small, template.data),
        *_work(bench, f"{name}: GTP-U, {ours.USERS:,} users", tunnel, of_tunnel),
        *_work(bench, f"{name}: trace at top speed, whole payload", trace, [peers.tcpreplay_top(played)]),
    ]


def _work(
    bench: Bench, work: str, leg: Leg, others: Sequence[peers.Peer], bare: bytes | None = None
) -> list[report.Row]:
    """`bare`: the frame of a loop of bpf_clone_redirect alone, to compare with."""
    others = [replace(peer, far=peers.stack) for peer in others]
    contenders: dict[str, Callable[[], float]] = {"ours": lambda: _rate(bench, sending(bench, leg))}
    if bare is not None:
        contenders["bare"] = lambda: _rate(bench, bare_clones(bare))
    values = bench.in_turn(work, contenders | bench.of_peers(others))
    found = against_peers(f"{work}, packets/s", values, others, dict.fromkeys((peer.name for peer in others), BETTER))
    if bare is not None:
        found.append(against("  the same against bare clones", values["ours"], values["bare"], "clones", OF_BARE))
    return found


def _rate(bench: Bench, body: Callable[[Channel], None]) -> float:
    return rates.of_sender(bench.wire, body, bench.window_s, peers.stack)


def sending(bench: Bench, leg: Leg) -> Callable[[Channel], None]:
    return ours.sending(replace(leg, engine="tc"), bench.spool, peers.SENDING_CORE, TcSender)


def bare_clones(frame: bytes) -> Callable[[Channel], None]:
    """A worker's body: a child of it sends from "go" to "stop"."""

    def body(channel: Channel) -> None:
        os.sched_setaffinity(0, {peers.SENDING_CORE})
        program = libbpf.load_program("bare", clones.clone_to(socket.if_nametoindex(NEAR)), "tc")
        make_long_call(channel, lambda: libbpf.run_clones(program, frame, MOST_REPEATS))

    return body
