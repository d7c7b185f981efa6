"""The rows of the table: each measures its contenders in turn, round after round, and judges the medians."""

from __future__ import annotations

import random
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from bench import report
from bench.engines import ours, peers, rates, timing, traces
from bench.engines.rates import say
from bench.engines.wire import BenchError, Wire, Worker, clock
from pktswarm.nodes.senders.xdp import XdpSender
from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import FlowUsers, Leg

SMALL_WANTED = {"testpmd, net_af_xdp": 4, "trafgen": 8, "tcpreplay": 10}
TUNNEL_WANTED = {"trafgen": 6.5, "testpmd, net_af_xdp": 2.5}
RATES_PPS = (10_000, 100_000, 1_000_000)
USERS = 65_536
RECEIVING_CORE = 1
USER_PACKETS = 20_000_000
CALM_S = 3.0
"""A replay at its recorded times may take so much longer than the recording."""


@dataclass
class Bench:
    """What all rows share. `wires`: the second one is for two cores."""

    wires: Sequence[Wire]
    spool: Path
    rounds: int
    window_s: float
    brief: bool = False
    """To see whether it runs: less of everything."""
    _files: dict[str, Path] = field(default_factory=dict)

    @property
    def wire(self) -> Wire:
        return self.wires[0]

    @property
    def paced_s(self) -> float:
        return 1.0 if self.brief else 10.0

    @property
    def user_packets(self) -> int:
        return USER_PACKETS // (20 if self.brief else 1)

    @cached_property
    def made_trace(self) -> list[Packet]:
        return traces.made()

    def file(self, name: str, packets: Callable[[], list[Packet]]) -> Path:
        """A trace in a file, written once."""
        if name not in self._files:
            self._files[name] = traces.write(packets(), self.spool / name)
        return self._files[name]

    def of_peers(self, contenders: Sequence[peers.Peer]) -> dict[str, Callable[[], float]]:
        """Each one's rate."""
        return {peer.name: partial(rates.of_peer, self.wire, peer, self.spool, self.window_s) for peer in contenders}

    def in_turn(self, row: str, contenders: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """A B C, A B C, …: whatever the machine does meanwhile, it does to all."""
        values: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(1, self.rounds + 1):
            for name, measure in contenders.items():
                values[name].append(measure())
                say(f"{row}, round {number} of {self.rounds}: {name} {values[name][-1]:.6g}")
        return values


def spread(values: Sequence[float]) -> float | None:
    """(largest - least) / median; None of a single round, or where the median is 0."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if len(values) > 1 and middle else None


def against(work: str, mine: Sequence[float], theirs: Sequence[float], peer: str, at_least: float | None) -> report.Row:
    """The ratio of the medians; its spread is that of the rounds' own ratios."""
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    one, other = statistics.median(mine), statistics.median(theirs)
    return report.Row(work, one, other, peer, one / other, spread(ratios), at_least)


def against_peers(
    work: str, values: dict[str, list[float]], others: Sequence[peers.Peer], wanted: Mapping[str, float]
) -> list[report.Row]:
    """One row per peer, the fastest first. `wanted`: by the peer's name; the others are shown, not judged."""
    names = sorted((peer.name for peer in others), key=lambda name: -statistics.median(values[name]))
    works = [work, *(f"  the same against {name}" for name in names[1:])]
    return [
        against(work, values["ours"], values[name], name, wanted.get(name))
        for work, name in zip(works, names, strict=True)
    ]


# --- top speed -----------------------------------------------------------------------------------------------------


def small(bench: Bench) -> list[report.Row]:
    """60-byte frames: ours stamped and measured; the others' as they are."""
    leg, wire, seconds = ours.udp(), bench.wire, bench.window_s
    template = build_frame(leg.frame, leg.size_bytes)
    single = bench.file("single.pcap", lambda: [Packet(10**9, template.data)] * 1000)
    others = [
        peers.trafgen_stream(template, bench.spool),
        peers.tcpreplay_top(single),
        peers.testpmd(len(template.data), peers.AF_PACKET),
        peers.testpmd(len(template.data), peers.AF_XDP),
    ]
    values = bench.in_turn(
        "60 bytes",
        {
            "ours": lambda: rates.of_ours([wire], leg, bench.spool, seconds),
            "bare": lambda: rates.of_bare(wire, template.data, seconds),
            **bench.of_peers(others),
        },
    )
    return [
        *against_peers("60-byte UDP, stamped and measured, packets/s", values, others, SMALL_WANTED),
        against("the same against bare live frames", values["ours"], values["bare"], "live frames", 0.7),
    ]


def tunnel(bench: Bench) -> list[report.Row]:
    """1,000 users, each with its own TEID and inner address; the peers send one frame of each, testpmd over af_xdp one
    constant frame of that size."""
    leg = ours.tunnel()
    template = build_frame(leg.frame, leg.size_bytes)
    draw = random.Random(1)  # noqa: S311 - a seed makes it repeatable
    file = bench.file("users.pcap", lambda: [Packet(10**9, template.frame(user, draw)) for user in range(ours.USERS)])
    others = [
        peers.trafgen_stream(template, bench.spool),
        peers.tcpreplay_top(file),
        peers.testpmd_trace(file, ours.USERS, peers.AF_PACKET),
        peers.testpmd(len(template.data), peers.AF_XDP),
    ]
    mine = {"ours": lambda: rates.of_ours([bench.wire], leg, bench.spool, bench.window_s)}
    values = bench.in_turn("GTP-U", {**mine, **bench.of_peers(others)})
    work = f"GTP-U, {ours.USERS:,} users, {leg.size_bytes - 4} bytes, packets/s"
    return against_peers(work, values, others, TUNNEL_WANTED)


def replay(bench: Bench) -> list[report.Row]:
    """A trace's whole payload at top speed, to an end that only counts."""
    file = bench.file("trace.pcap", lambda: bench.made_trace)
    leg = ours.trace(file.name, "top", traces.PACKETS)
    others = [peers.tcpreplay_top(file), peers.testpmd_trace(file, traces.PACKETS, peers.AF_PACKET)]
    mine = {"ours": lambda: rates.of_trace(bench.wire, leg, bench.spool, bench.window_s)}
    values = bench.in_turn("trace at top speed", {**mine, **bench.of_peers(others)})
    return against_peers("trace at top speed, whole payload, packets/s", values, others, {"tcpreplay": 8})


def two_cores(bench: Bench) -> list[report.Row]:
    leg = ours.udp()
    values = bench.in_turn(
        "two cores",
        {
            "two": lambda: rates.of_ours(bench.wires, leg, bench.spool, bench.window_s),
            "one": lambda: rates.of_ours(bench.wires[:1], leg, bench.spool, bench.window_s),
        },
    )
    return [against("two cores on two interfaces, packets/s", values["two"], values["one"], "one on one", 1.95)]


# --- pace ----------------------------------------------------------------------------------------------------------


def once(bench: Bench, leg: Leg) -> ours.Result:
    """A leg from its first frame to its own end."""
    with ours.run(bench.wire, leg, bench.spool, peers.SENDING_CORE) as run:
        run.begin()
        return run.finish(stop=False)


def pace(bench: Bench) -> list[report.Row]:
    """Between the first and the last arrival, by the receiver's own times."""

    def error(rate_pps: int) -> float:
        result = once(bench, ours.udp(rate_pps=float(rate_pps), duration_s=bench.paced_s))
        result.check()
        return abs(result.arrival_pps - rate_pps) / rate_pps

    names = {f"rate error at {rate_pps:,} packets/s over {bench.paced_s:g} s": rate_pps for rate_pps in RATES_PPS}
    measures = {name: (lambda rate_pps=rate_pps: error(rate_pps)) for name, rate_pps in names.items()}
    values = bench.in_turn("pace", measures)
    return [
        report.Row(name, statistics.median(errors), None, "", None, spread(errors), at_most=0.001)
        for name, errors in values.items()
    ]


def trace_times(bench: Bench) -> list[report.Row]:
    recorded = traces.recorded()
    kinds = (
        (f"the recorded trace ({len(recorded)} packets)", "recorded.pcap", recorded),
        (f"{traces.PACKETS:,} packets in {traces.DURATION_NS / 1e9:g} s", "trace.pcap", bench.made_trace),
    )
    return [row for words, name, packets in kinds for row in _trace_times(bench, words, name, packets)]


def _trace_times(bench: Bench, words: str, name: str, packets: list[Packet]) -> list[report.Row]:
    file = bench.file(name, lambda: packets)
    leg = ours.trace(file.name, "original", len(packets))
    replays = (peers.tcpreplay_trace(file), peers.trafgen_trace(file, len(packets)))
    theirs = {peer.name: (lambda peer=peer: _peers_p99(bench, peer, packets)) for peer in replays}
    values = bench.in_turn(f"times of {words}, p99 in us", {"ours": lambda: _our_p99(bench, leg, packets), **theirs})
    mine = statistics.median(values["ours"])
    rows = []
    for peer in theirs:
        ratios = [one / other for one, other in zip(values["ours"], values[peer], strict=True)]
        other = statistics.median(values[peer])
        work = f"{words}: p99 of |sent - recorded|, us"
        rows.append(report.Row(work, mine, other, peer, mine / other, spread(ratios), at_most=0.01))
    return rows


def _our_p99(bench: Bench, leg: Leg, packets: list[Packet]) -> float:
    with Worker("the clock", bench.wire.far, clock(len(packets))) as far:
        far.hear()
        body = ours.sending(leg, bench.spool, peers.SENDING_CORE, XdpSender)
        with Worker("the xdp sender", bench.wire.near, body) as sender:
            sender.hear()
            sender.tell("go")
            sender.hear()
            return _p99_us(bench, far, packets)


def _peers_p99(bench: Bench, peer: peers.Peer, packets: list[Packet]) -> float:
    duration_s = (packets[-1].time_ns - packets[0].time_ns) / 1e9
    with Worker("the clock", bench.wire.far, clock(len(packets))) as far:
        far.hear()
        before = bench.wire.received()
        process = bench.wire.run(peer.name, peer.command, bench.spool, ours.LIMIT_S)
        try:
            deadline = time.monotonic() + duration_s + rates.BEGIN_S + CALM_S
            while process.running() and bench.wire.received() - before < len(packets) and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            process.stop()
        return _p99_us(bench, far, packets)


def _p99_us(bench: Bench, far: Worker, packets: list[Packet]) -> float:
    errors_ns = timing.errors_ns(arrived_ns(bench, far, len(packets)), [packet.time_ns for packet in packets])
    return timing.percentile(errors_ns, 0.99) / 1000


def arrived_ns(bench: Bench, far: Worker, count: int) -> tuple[int, ...]:
    """When each of so many frames arrived, by the far end's clock() (bench/engines/wire.py)."""
    time.sleep(ours.SETTLE_S)
    file = bench.spool / "times"
    far.tell(str(file))
    if (arrived := far.hear()) != count:
        raise BenchError(f"{arrived} frames of {count} arrived")
    return struct.unpack(f"={count}Q", file.read_bytes())


# --- users ---------------------------------------------------------------------------------------------------------


def users(bench: Bench) -> list[report.Row]:
    """20 million frames of 65,536 users, each counted by his address."""
    leg = to_users(USERS, bench.user_packets)
    lost: list[float] = []
    counted: list[bool] = []

    def arrivals(wire: Wire, apart: bool) -> float:
        with ours.run(wire, leg, bench.spool, peers.SENDING_CORE) as run:
            if apart:
                wire.receive_on(RECEIVING_CORE)
            run.begin()
            result = run.finish(stop=False)
        lost.append(result.lost)
        say(f"users: {result.lost} of {result.sent['sent_packets']} lost")
        counted.append(all_counted(result, USERS))
        return result.arrival_pps

    with Wire() as apart:
        contenders = {"apart": lambda: arrivals(apart, True), "together": lambda: arrivals(bench.wire, False)}
        values = bench.in_turn("users", contenders)
    what = f"{USERS:,} users counted" if all(counted) else "users NOT counted (the receiver does not yet)"
    work = f"receiving {bench.user_packets:,} packets, {what}"
    return [
        report.Row(f"{work}: lost, most", max(lost) if all(counted) else None, None, "", None, None, at_most=0),
        _rate("  packets/s, the receiver on a processor of its own", values["apart"], at_least=4e6),
        _rate("  packets/s, sender and receiver on one processor", values["together"]),
    ]


def _rate(work: str, values: Sequence[float], at_least: float | None = None) -> report.Row:
    return report.Row(work, statistics.median(values), None, "", None, spread(values), at_least)


def to_users(users: int, packets: int) -> Leg:
    """60-byte frames to so many addresses, each of which is counted; for one address no users are."""
    addresses: Any = {"increment": ["10.0.0.0", str(IPv4Address((10 << 24) + users - 1))]} if users > 1 else "10.0.0.0"
    headers = [ours.ETHERNET, {"ipv4": {"src": "10.1.0.1", "dst": addresses}}, ours.UDP_HEADERS[2]]
    counted = FlowUsers("ipv4.dst", "dst_ip", 10 << 24, 1, users) if users > 1 else None
    return ours.stream({"headers": headers}, users=counted, count_packets=packets, duration_s=None)


def all_counted(result: ours.Result, users: int) -> bool:
    """Every user was counted as often as frames of his left. Where the far end's ring was full, frames that it refused
    were made up for by the next users', so only the sender can tell."""
    columns = result.received["users"]
    if not columns:
        return False
    sent, received = (_unpacked(column)[:users] for column in (result.sent["users"], columns["packets"]))
    if sent != received or sum(sent) != result.sent["sent_packets"]:
        wrong = sum(one != other for one, other in zip(sent, received, strict=True))
        raise BenchError(f"{wrong} of {users} users have another count than was sent")
    return True


def _unpacked(column: list[int] | str) -> list[int]:
    """A column of users; behind the last user it may have what is nobody's."""
    numbers: list[int] = (
        import_module("pktswarm.traffic.counting.users").unpack(column) if isinstance(column, str) else column
    )
    return numbers


ROWS: dict[str, Callable[[Bench], list[report.Row]]] = {
    "small": small,
    "tunnel": tunnel,
    "replay": replay,
    "pace": pace,
    "times": trace_times,
    "users": users,
    "cores": two_cores,
}
