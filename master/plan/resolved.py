"""Tasks and files of a run for its nodes, and the choice of each engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pktswarm.master.plan.routed import Played
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.script import Key
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, SendTask
from pktswarm.traffic.replay.ends import Ends
from pktswarm.traffic.schedule import capabilities


@dataclass
class Resolved:
    legs: list[Leg]
    sends: dict[str, SendTask] = field(default_factory=dict)
    receives: dict[str, ReceiveTask] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes | bytearray]]] = field(default_factory=dict)
    """Host → the trace files its transmitter is given."""
    answer_files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Host → the trace files of its receiver, which answers them."""
    reasons: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(stream, sending engine, reason why the preceding engines cannot, host)."""
    notes: list[str] = field(default_factory=list)
    played: dict[tuple[bytes, Key], str] = field(default_factory=dict)
    """The packets of interactive traces: see interactive.refuse_equal."""
    proxy_addresses: dict[str, list[str]] = field(default_factory=dict)
    """Host → the addresses for which it answers, of sessions."""
    routed: Played = field(default_factory=Played)
    """The addresses of flows that a router forwards."""
    ends: dict[int, Ends] = field(default_factory=dict)
    """Leg of a trace that a router forwards → addresses of it and of its instances."""
    moved: dict[str, list[Leg]] = field(default_factory=dict)
    """Host → legs to other hosts that may arrive there after a handover, with their match there."""
    by_user: dict[int, tuple[list[int], list[int]] | None] = field(default_factory=dict)
    """Leg of a trace → intended packets and bytes of each of its users; see Share.by_user."""

    tunnels: dict[int, str] = field(default_factory=dict)
    """Leg of a trace of sessions → address of the UPF that its tunnels lead to."""

    @property
    def connects(self) -> bool:
        """Whether transmitters connect to receivers, which have to listen before."""
        return any(leg.kind == "connections" for leg in self.legs)

    @property
    def choices(self) -> list[str]:
        """One line for each stream and engine: its nodes, and the reason for the choice."""
        groups: dict[tuple[str, str], dict[str, list[str]]] = {}
        for stream, engine, because, host in self.reasons:
            streams = groups.setdefault((engine, because), {})
            streams.setdefault(stream, []).append(host)
        lines = []
        for (engine, because), streams in groups.items():
            hosts = dict.fromkeys(host for names in streams.values() for host in names)
            line = f"{engine} sends {', '.join(streams)} on {', '.join(hosts)}"
            lines.append(f"{line}, because: {because}" if because else line)
        return lines


def choose_engine(leg: Leg, report: dict[str, Any], resolved: Resolved) -> Leg:
    name, reasons = capabilities.choose(leg, report["senders"], report.get("on_request", ()))
    because = "; ".join(reasons)
    if not name:
        raise BadInput(leg.source, f"no engine can send {leg.stream!r} here: {because}", key="engine", value=leg.engine)
    resolved.reasons.append((leg.stream, name, because, leg.source))
    return replace(leg, engine=name)


def play(resolved: Resolved, ends: dict[str, list[str]]) -> None:
    for host, addresses in ends.items():
        resolved.proxy_addresses[host] = list(dict.fromkeys([*resolved.proxy_addresses.get(host, []), *addresses]))
