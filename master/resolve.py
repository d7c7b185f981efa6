"""From legs to tasks, once the nodes have answered: addresses, engines, frames, matches, shares of traces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from master.fill import fill
from master.inventory import Host, Inventory
from master.plan import Plan
from master.scenario import Scenario
from traffic import engines
from traffic.errors import BadInput
from traffic.match import Match, uncountable
from traffic.task import FCS_BYTES, Leg, ReceiveTask, Role, SendTask
from traffic.traces import VLAN_TYPES, Endpoint, Packet, check_mtu, rewrite, write_pcap
from traffic.traces import Trace as Recorded

VLAN_TAG_BYTES = 4
ETHERNET_HEADER_BYTES = 14


@dataclass(frozen=True)
class Rank:
    """One MPI process: `number` in COMM_WORLD, one role of one host."""

    number: int
    host: Host
    role: Role


@dataclass
class Resolved:
    legs: list[Leg]
    sends: dict[str, SendTask] = field(default_factory=dict)
    receives: dict[str, ReceiveTask] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Host → the trace files its transmitter is given."""
    reasons: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(stream, the engine that sends it, why those before it do not, host)."""
    notes: list[str] = field(default_factory=list)

    @property
    def choices(self) -> list[str]:
        """Which engine sends what, on which nodes, and why that one: a line each."""
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


def ranks(inventory: Inventory, legs: tuple[Leg, ...]) -> list[Rank]:
    """One rank for each (host, role) that has work, transmitters first; rank 0 is the master's and not among them."""
    busy: dict[Role, set[str]] = {"transmit": {leg.source for leg in legs}, "receive": {leg.target for leg in legs}}
    pairs = [(host, role) for role, names in busy.items() for host in inventory.hosts if host.name in names]
    return [Rank(number, host, role) for number, (host, role) in enumerate(pairs, start=1)]


def resolve(
    scenario: Scenario,
    plan: Plan,
    hosts: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    offsets_ns: dict[str, int] | None = None,
) -> Resolved:
    """Everything the nodes need. BadInput names the host that cannot do its part.

    `reports`: host → what it told; `offsets_ns`: host → its clock less the master's.
    """
    known = {name: _addresses(host, reports[name]) for name, host in hosts.items()}
    resolved = Resolved([])
    for leg in plan.legs:
        if leg.kind == "stream":
            headers = fill(leg.frame["headers"], known[leg.source], known[leg.target])
            chosen = _choose(replace(leg, frame={**leg.frame, "headers": headers}), reports[leg.source], resolved)
            resolved.legs.append(_matched(chosen, reports))
        else:
            chosen = _choose(leg, reports[leg.source], resolved)
            _check_trace_mtu(leg, plan, reports)
            _refuse_tagged_trace(plan.recorded[leg.stream], scenario.receive.mode)
            resolved.legs.append(_share(chosen, plan.shares[leg.id], known, resolved))
    _trace_matches(resolved, known)
    _refuse_uncountable(resolved.legs, scenario.receive.mode)
    _refuse_indistinguishable(resolved.legs)
    _tasks(scenario, plan, resolved, known, reports, offsets_ns or {})
    return resolved


def _addresses(host: Host, report: dict[str, Any]) -> Host:
    """The host with what its inventory leaves out read from the node."""
    interface = report["interface"]
    if not interface["exists"]:
        raise BadInput(host.name, "the host has no such interface", key="traffic_interface", value=interface["name"])
    if not interface["carrier"]:
        raise BadInput(
            host.name, "the interface is down or has no link", key="traffic_interface", value=interface["name"]
        )
    if host.mac and host.mac != interface["mac"]:
        raise BadInput(host.name, f"the interface's is {interface['mac']}", key="mac", value=host.mac)
    return replace(host, mac=interface["mac"], ipv4=host.ipv4 or interface["ipv4"] or "")


def _choose(leg: Leg, report: dict[str, Any], resolved: Resolved) -> Leg:
    name, reasons = engines.choose(leg, report["senders"])
    because = "; ".join(reasons)
    if not name:
        raise BadInput(leg.source, f"no engine can send {leg.stream!r} here: {because}", key="engine", value=leg.engine)
    resolved.reasons.append((leg.stream, name, because, leg.source))
    return replace(leg, engine=name)


# --- streams ----------------------------------------------------------------------------------------------------


def _matched(leg: Leg, reports: dict[str, dict[str, Any]]) -> Leg:
    """The leg with what tells its frames at the receiver."""
    templates = engines.templates_as_sent(leg)
    _check_mtu(leg, max(templates) - FCS_BYTES, leg.frame["headers"], reports)
    match = Match.from_template(next(iter(templates.values())))
    return replace(leg, match=(match if len(templates) == 1 else replace(match, length=None)).to_json())


def _check_mtu(leg: Leg, length: int, headers: list[dict[str, Any]], reports: dict[str, dict[str, Any]]) -> None:
    tags = sum(1 for header in headers if "vlan" in header or "svlan" in header)
    for name in (leg.source, leg.target):
        interface = reports[name]["interface"]
        # Linux lets one tag go beyond the MTU, and no more.
        room = interface["mtu"] + ETHERNET_HEADER_BYTES + min(tags, 1) * VLAN_TAG_BYTES
        if length > room:
            raise BadInput(
                name,
                f"a frame of {leg.stream!r} is longer than its MTU of {interface['mtu']} bytes lets through",
                key=interface["name"],
                value=length + FCS_BYTES,
                allowed=f"size_bytes up to {room + FCS_BYTES}",
            )


# --- traces -----------------------------------------------------------------------------------------------------


def _check_trace_mtu(leg: Leg, plan: Plan, reports: dict[str, dict[str, Any]]) -> None:
    for name in (leg.source, leg.target):
        interface = reports[name]["interface"]
        check_mtu(plan.recorded[leg.stream], interface["mtu"], f"{name} {interface['name']}")


def _refuse_tagged_trace(trace: Recorded, mode: str) -> None:
    tagged = [number for number, packet in enumerate(trace.packets, 1) if packet.data[12:14] in VLAN_TYPES]
    if tagged and mode == "capture":
        raise BadInput(
            trace.path,
            f"packet {tagged[0]} has a VLAN tag, and a capture does not keep a trace's tags",
            key="receive.mode",
            value=mode,
            allowed="count",
        )


def _share(leg: Leg, packets: list[Packet], known: dict[str, Host], resolved: Resolved) -> Leg:
    """The leg's packets readdressed to its two nodes, as the file that its transmitter is given."""
    rewritten = rewrite(packets, _endpoint(known[leg.source]), _endpoint(known[leg.target]))
    name = f"leg-{leg.id}.pcap"
    resolved.files.setdefault(leg.source, []).append((name, write_pcap(rewritten.packets)))
    told = {
        "had a wrong checksum in the recording, mended": rewritten.mended,
        "are not IP: only their MACs were changed": rewritten.opaque,
    }
    resolved.notes += [f"{leg.stream} from {leg.source}: {n} packets {what}" for what, n in told.items() if n]
    if rewritten.moved_flows:
        resolved.notes.append(f"{leg.stream} from {leg.source}: {rewritten.moved_flows} flows got another port")
    return replace(leg, trace_file=name)


def _endpoint(host: Host) -> Endpoint:
    if not host.ipv4:
        raise BadInput(host.name, "no address known for the trace; give ipv4 in the inventory", key="ipv4")
    return Endpoint(host.mac, host.ipv4)


def _trace_matches(resolved: Resolved, known: dict[str, Host]) -> None:
    """A trace's frames are all between its two MACs that no stream claims."""
    for index, leg in enumerate(resolved.legs):
        if leg.kind == "trace":
            same_pair = [
                o for o in resolved.legs if o.kind == "stream" and (o.source, o.target) == (leg.source, leg.target)
            ]
            match = Match.rest(
                known[leg.source].mac, known[leg.target].mac, [Match.from_json(o.match) for o in same_pair]
            )
            resolved.legs[index] = replace(leg, match=match.to_json())


def _refuse_uncountable(legs: list[Leg], mode: str) -> None:
    for leg in legs:
        if why := uncountable(Match.from_json(leg.match), mode):
            raise BadInput(leg.target, f"{leg.stream!r} cannot be counted there: {why}", key="receive.mode", value=mode)


def _refuse_indistinguishable(legs: list[Leg]) -> None:
    """Two legs that one frame could belong to would be counted wrong without a word."""
    for index, leg in enumerate(legs):
        for other in legs[:index]:
            if leg.target == other.target and Match.from_json(leg.match).overlaps(Match.from_json(other.match)):
                raise BadInput(
                    leg.target,
                    f"{other.stream!r} and {leg.stream!r} from {leg.source} cannot be told apart there",
                    key="headers",
                    allowed="streams that differ in an address or port; one trace between two hosts",
                )


# --- tasks ------------------------------------------------------------------------------------------------------


def _receiving(scenario: Scenario, host: str, legs: list[Leg], report: dict[str, Any]) -> str:
    """The engine or engines that count on `host`. BadInput for one that the host lacks."""
    wanted = scenario.receive.engine
    if wanted == "auto":
        wanted = "xdp" if all(leg.engine == "xdp" for leg in legs) and not scenario.receive.filter else "netsniff-ng"
    names = ["xdp", "netsniff-ng"] if wanted == "xdp" and scenario.receive.mode == "capture" else [wanted]
    for name in names:
        if missing := report["receivers"][name]:
            raise BadInput(host, f"no engine can receive here: {name}: {missing}", key="receive")
    return "+".join(names)


def _tasks(
    scenario: Scenario,
    plan: Plan,
    resolved: Resolved,
    known: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    offsets_ns: dict[str, int],
) -> None:
    for name, host in known.items():
        sent = [leg for leg in resolved.legs if leg.source == name]
        received = [leg for leg in resolved.legs if leg.target == name]
        if sent:
            resolved.sends[name] = SendTask(host.traffic_interface, sent, plan.limit_s)
        if received:
            resolved.receives[name] = ReceiveTask(
                interface=host.traffic_interface,
                mac=host.mac,
                legs=received,
                limit_s=plan.limit_s + 60.0,
                mode=scenario.receive.mode,
                filter=scenario.receive.filter,
                ring_mib=scenario.receive.ring_mib,
                engine=_receiving(scenario, name, received, reports[name]),
                offsets_ns={
                    leg.source: offsets_ns[leg.source] - offsets_ns[name]
                    for leg in received
                    if leg.source in offsets_ns and name in offsets_ns
                },
            )
