"""From legs to tasks, once the nodes have answered: addresses, engines, frames, matches, shares of traces."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface
from typing import Any

from pktswarm.master.cluster.clock_offsets import Clocks
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan import interactive, session_traces
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.session_streams import ends_of, in_tunnels, largest_received_bytes, moved_in_tunnels, to_cut
from pktswarm.master.plan.shares import Share
from pktswarm.master.scenario.addresses import fill
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.connections.blocks import IP_UDP_BYTES, MOST_PARTS
from pktswarm.traffic.connections.counts import FIRST_PORT
from pktswarm.traffic.counting import echo, expect, users
from pktswarm.traffic.counting.match import Match, uncountable
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.prepare import Endpoint
from pktswarm.traffic.interactive.script import Key
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, ReceiveTask, SendTask
from pktswarm.traffic.replay import files, stamps
from pktswarm.traffic.replay.prepare import Nodes, check_lengths, frames_of
from pktswarm.traffic.schedule import capabilities, leg_frames, sequence
from pktswarm.traffic.schedule.fragments import longest_frame_bytes

VLAN_TAG_BYTES = 4
ETHERNET_HEADER_BYTES = 14


@dataclass
class Resolved:
    legs: list[Leg]
    sends: dict[str, SendTask] = field(default_factory=dict)
    receives: dict[str, ReceiveTask] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes | bytearray]]] = field(default_factory=dict)
    """Host → the trace files its transmitter is given."""
    answer_files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Host → those that its receiver is given, to answer them."""
    reasons: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(stream, the engine that sends it, why those before it do not, host)."""
    notes: list[str] = field(default_factory=list)
    played: dict[tuple[bytes, Key], str] = field(default_factory=dict)
    """The packets of interactive traces: see interactive.refuse_equal."""
    proxy_addresses: dict[str, list[str]] = field(default_factory=dict)
    """Host → the addresses for which it answers."""
    moved: dict[str, list[Leg]] = field(default_factory=dict)
    """Host → legs of other hosts' that may come there too, as it sees them (Leg.also_at)."""
    by_user: dict[int, tuple[list[int], list[int]] | None] = field(default_factory=dict)
    """Leg of a trace → packets and bytes of each of its users in what it is to send: see plan.Share.by_user."""

    tunnels: dict[int, str] = field(default_factory=dict)
    """Leg of a trace of sessions → the UPF's address that its tunnels go to."""

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


def resolve(
    scenario: Scenario,
    plan: Plan,
    hosts: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    clocks: Clocks | None = None,
    sessions: Sessions | None = None,
) -> Resolved:
    """Everything the nodes need. BadInput names the host that cannot do its part. `sessions`: as they stand, where the
    scenario has some.

    `reports`: host → what it told; `offsets_ns`: host → its clock less the master's; `realtime_ns`: host → its
    CLOCK_REALTIME less its CLOCK_MONOTONIC.
    """
    known = {name: _addresses(host, reports[name]) for name, host in hosts.items()}
    resolved = Resolved([])
    for leg in plan.legs:
        if leg.id in plan.tunnels:
            resolved.legs.append(_tunnelled(leg, plan, known, reports, sessions, resolved))
        elif leg.kind == "stream":
            headers = fill(leg.frame["headers"], known[leg.source], known[leg.target])
            chosen = _choose(replace(leg, frame={**leg.frame, "headers": headers}), reports[leg.source], resolved)
            matched = _matched(chosen, reports)
            resolved.legs.append(_sequence(matched, plan, resolved) if matched.sequence_file else matched)
        elif leg.engine == interactive.ENGINE:
            if leg.answers is None:
                back = next(other for other in plan.legs if other.answers == leg.id)
                ring_mib = scenario.receive.ring_mib if scenario.receive.mode == "capture" else 0
                resolved.legs += _interactive([leg, back], plan.plays[leg.id], known, reports, resolved, ring_mib)
        elif leg.kind == "connections":
            chosen = _choose(leg, reports[leg.source], resolved)
            resolved.legs.append(_addressed(chosen, known, reports, scenario.receive.drain_s))
        else:
            share = plan.shares[leg.id]
            chosen = _choose(leg, reports[leg.source], resolved)
            if leg.merged_into is None:
                _check_trace_mtu(leg, share, reports)
                _refuse_tagged_trace(share, scenario.receive.mode)
            through = None
            if leg.id in plan.trace_sessions and leg.merged_into is None:
                share, through = _carried(leg, share, plan, known, sessions, resolved)
            resolved.legs.append(_with_file(chosen, share, known, resolved, through))
    capabilities.check_numbers(resolved.legs)
    _trace_matches(resolved, plan, known, sessions)
    _refuse_uncountable(resolved.legs, scenario.receive.mode)
    _refuse_indistinguishable(resolved.legs, set(plan.trace_sessions))
    _tasks(scenario, plan, resolved, known, reports, clocks or Clocks())
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
    name, reasons = capabilities.choose(leg, report["senders"])
    because = "; ".join(reasons)
    if not name:
        raise BadInput(leg.source, f"no engine can send {leg.stream!r} here: {because}", key="engine", value=leg.engine)
    resolved.reasons.append((leg.stream, name, because, leg.source))
    return replace(leg, engine=name)


# --- streams ----------------------------------------------------------------------------------------------------


def _matched(leg: Leg, reports: dict[str, dict[str, Any]]) -> Leg:
    """The leg with what tells its frames at the receiver."""
    _check_mtu(leg, reports)
    templates = leg_frames.templates_as_received(leg)
    first = next(iter(templates.values()))
    match = expect.expected_match(Match.from_template(first), first, leg.expect)
    match = replace(match, length=match.length if len(templates) == 1 else None, stream=leg.id if leg.arrives else None)
    leg = replace(leg, match=match.to_json())
    if not leg.users or leg.arrives:
        return leg
    return replace(leg, users=users.of_template(leg.stream, "users", templates[max(templates)], leg.users["field"]))


def _tunnelled(
    leg: Leg,
    plan: Plan,
    known: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    sessions: Sessions | None,
    resolved: Resolved,
) -> Leg:
    """With the users' tunnels as they stand."""
    if plan.upf is None or sessions is None:
        raise ValueError(f"{leg.stream} is resolved without its sessions")
    tunnels = plan.tunnels[leg.id]
    leg = to_cut(leg, tunnels, {name: report["interface"] for name, report in reports.items()})
    made = in_tunnels(leg, tunnels, plan.upf, sessions, known)
    _play(resolved, ends_of(leg, tunnels, plan.upf, known))
    for other in moved_in_tunnels(leg, tunnels, plan.upf, sessions, known):
        resolved.moved.setdefault(other.target, []).append(_matched(other, reports))
        _play(resolved, {other.target: [plan.upf.gnbs[tunnels.among[other.target]]]})
    if leg.echo_of is not None:
        resolved.reasons.append((leg.stream, echo.NAME, "", leg.source))
        return _matched(made, reports)
    return _matched(_choose(made, reports[leg.source], resolved), reports)


def _play(resolved: Resolved, ends: dict[str, list[str]]) -> None:
    for host, addresses in ends.items():
        resolved.proxy_addresses[host] = list(dict.fromkeys([*resolved.proxy_addresses.get(host, []), *addresses]))


def _sequence(leg: Leg, plan: Plan, resolved: Resolved) -> Leg:
    """The leg with its records, or its frames, as the file that its transmitter is given."""
    records = plan.sequences[leg.id]
    files = resolved.files.setdefault(leg.source, [])
    if leg.engine != "tcpreplay":
        files.append((str(leg.sequence_file), sequence.pack(records)))
        return leg
    packets = [Packet(time_ns, data) for time_ns, data in sequence.frames(leg, records)]
    name = f"leg-{leg.id}.pcap"
    files.append((name, write_pcap(packets)))
    timing = {"mode": "original", "value": 1.0, "lead_ns": packets[0].time_ns}
    return replace(leg, trace_file=name, timing=timing, duration_s=None)


def _check_mtu(leg: Leg, reports: dict[str, dict[str, Any]]) -> None:
    tags = sum(1 for header in leg.frame["headers"] if "vlan" in header or "svlan" in header)
    sent = max(longest_frame_bytes(leg, size) for size in leg_frames.templates_as_sent(leg)) - FCS_BYTES
    # A device that makes them longer has an MTU of its own, taken for that of the node on the same side.
    arrives = [] if leg.oversize else [(leg.target, largest_received_bytes(leg) if leg.arrives else sent)]
    for name, length in [(leg.source, sent), *arrives]:
        interface = reports[name]["interface"]
        # Linux lets one tag go beyond the MTU, and no more.
        room = interface["mtu"] + ETHERNET_HEADER_BYTES + min(tags, 1) * VLAN_TAG_BYTES
        if length > room:
            raise BadInput(
                name,
                f"a frame of {leg.stream!r} is longer than its MTU of {interface['mtu']} bytes lets through",
                key=interface["name"],
                value=length + FCS_BYTES,
                allowed=f"size_bytes up to {room + FCS_BYTES - (length - sent)}" + _in_fragments(leg),
            )


def _in_fragments(leg: Leg) -> str:
    return ", or oversize: inner or outer" if leg.arrives and leg.echo_of is None and not leg.oversize else ""


# --- connections ------------------------------------------------------------------------------------------------


def _addressed(leg: Leg, known: dict[str, Host], reports: dict[str, dict[str, Any]], drain_s: float) -> Leg:
    """The leg with the addresses and the port that its connections use, and what tells their frames."""
    source, target = known[leg.source], known[leg.target]
    source_ipv4, target_ipv4 = source.socket_ipv4[0], target.socket_ipv4[-1]
    one, two = ip_interface(source_ipv4), ip_interface(target_ipv4)
    if one.ip not in two.network or two.ip not in one.network:
        raise BadInput(target.name, f"not in one network with {source_ipv4}", key="socket_ipv4", value=target_ipv4)
    mtu = min(reports[name]["interface"]["mtu"] for name in (leg.source, leg.target))
    told = {
        "source_ipv4": source_ipv4,
        "target_ipv4": target_ipv4,
        "port": FIRST_PORT + leg.id,
        "datagram_bytes": mtu - IP_UDP_BYTES,
        "drain_s": drain_s,
    }
    if leg.connection["protocol"] == "udp":
        _check_parts(leg, mtu)
    match = Match.of_addresses(source.mac, target.mac, source_ipv4.split("/")[0], target_ipv4.split("/")[0])
    return replace(leg, connection={**leg.connection, **told}, match=match.to_json())


def _check_parts(leg: Leg, mtu: int) -> None:
    """The datagrams of a block are numbered in 16 bits."""
    items = leg.connection.get("items", [])
    largest = max((size for one in items for _, size in one), default=leg.connection["block_bytes"] or 0)
    most = MOST_PARTS * (mtu - IP_UDP_BYTES)
    if largest > most:
        problem = f"a block is more than {MOST_PARTS} datagrams at an MTU of {mtu} bytes"
        raise BadInput(leg.stream, problem, key="block_bytes", value=largest, allowed=f"up to {most}")


def _between(resolved: Resolved, known: dict[str, Host], trace: Leg) -> list[Match]:
    """What the connections of two hosts put between the MACs of a trace, in the trace's direction: also the answers
    of connections that go the other way, and the ARP of both."""
    source, target = known[trace.source], known[trace.target]
    ends = {trace.source, trace.target}
    matches: dict[Match, None] = {}
    for leg in resolved.legs:
        if leg.kind == "connections" and {leg.source, leg.target} == ends:
            there = {leg.source: "source_ipv4", leg.target: "target_ipv4"}
            one, two = (leg.connection[there[name]].split("/")[0] for name in (trace.source, trace.target))
            matches[Match.of_addresses(source.mac, target.mac, one, two)] = None
            matches[Match.of_arp(source.mac, target.mac, one)] = None
    return list(matches)


# --- traces -----------------------------------------------------------------------------------------------------


def _check_trace_mtu(leg: Leg, share: Share, reports: dict[str, dict[str, Any]]) -> None:
    # A UPF puts what goes down into a tunnel; its MTU is taken for that of the node on the same side.
    added = session_traces.added_bytes(share.prepared, share.downlink)
    for name, more in ((leg.source, 0), (leg.target, added)):
        interface = reports[name]["interface"]
        where = f"{name} {interface['name']}" + (f" less {more} bytes of its tunnel" if more > 0 else "")
        check_lengths(share.prepared, share.rows, interface["mtu"] - more, where)


def _carried(
    leg: Leg,
    share: Share,
    plan: Plan,
    known: dict[str, Host],
    sessions: Sessions | None,
    resolved: Resolved,
) -> tuple[Share, Nodes]:
    """What goes through a UPF, by the tunnels as they stand; and between whom."""
    if plan.upf is None or sessions is None:
        raise ValueError(f"{leg.stream} is resolved without its sessions")
    tunnels, (gnb, core) = plan.trace_sessions[leg.id], _ends(leg, share)
    _refuse_without_ipv4(known[core])
    _play(resolved, session_traces.proxy_addresses(tunnels, plan.upf, (gnb, core), known))
    standing = replace(share, prepared=session_traces.as_they_stand(share.prepared, tunnels, sessions))
    if standing.prepared.settings.gtpu is not None and not share.downlink:
        resolved.tunnels[leg.id] = standing.prepared.settings.gtpu.target
    return standing, session_traces.nodes(tunnels, plan.upf, known[gnb], known[core], share.downlink)


def _refuse_tagged_trace(share: Share, mode: str) -> None:
    columns = share.prepared.pieces.columns
    tagged = columns.l3[share.rows] > ETHERNET_HEADER_BYTES
    if share.prepared.settings.tag is None and tagged.any() and mode == "capture":
        raise BadInput(
            share.prepared.parsed.path,
            f"packet {columns.number[share.rows][tagged].min()} has a VLAN tag, and a capture does not keep a trace's "
            "tags",
            key="receive.mode",
            value=mode,
            allowed="count, or one tag for all (vlan)",
        )


def _with_file(leg: Leg, share: Share, known: dict[str, Host], resolved: Resolved, through: Nodes | None = None) -> Leg:
    """The leg with the name of its file: frames between its two nodes, or those that a UPF is between. An instance has
    that of its first one."""
    first = leg.id if leg.merged_into is None else leg.merged_into
    name = f"leg-{first}.pcap"
    pools = _pools(leg, share, known)
    if first == leg.id:
        resolved.by_user[leg.id] = share.by_user(leg.repeat)
        frames = frames_of(share.prepared, share.rows, through or _nodes(leg, share, known), share.downlink)
        stamps.put(frames, first)
        resolved.files.setdefault(leg.source, []).extend(
            [(name, files.pcap_bytes(frames)), (files.rows_name(name), files.row_bytes(frames))]
        )
        if frames.mended:
            told = f"{frames.mended} packets had a wrong checksum in the recording, mended"
            resolved.notes.append(f"{leg.stream} from {leg.source}: {told}")
    return replace(leg, trace_file=name, pools=pools)


def _interactive(
    legs: list[Leg],
    play: interactive.Play,
    known: dict[str, Host],
    reports: dict[str, Any],
    resolved: Resolved,
    ring_mib: int,
) -> list[Leg]:
    """A share that both its nodes play: they are given the same file. `ring_mib` of the captures at both; 0: none."""
    there = _choose(legs[0], reports[legs[0].source], resolved)
    names = (there.source, there.target)
    mtu_bytes = min(reports[name]["interface"]["mtu"] for name in names)
    beginner, answerer = (_endpoint(known[name]) for name in names)
    if ring_mib and (missing := [name for name in names if reports[name]["receivers"]["netsniff-ng"]]):
        resolved.notes.append(f"{there.stream}: no captures, {missing[0]} lacks netsniff-ng")
        ring_mib = 0
    made, ready = interactive.prepared_legs([there, legs[1]], play, mtu_bytes, beginner, answerer, ring_mib)
    interactive.refuse_equal(there, ready, resolved.played)
    file = (f"leg-{there.id}.pcap", write_pcap(ready.packets))
    resolved.files.setdefault(there.source, []).append(file)
    resolved.answer_files.setdefault(there.target, []).append(file)
    resolved.notes += interactive.notes(there, ready)
    return made


def _endpoint(host: Host) -> Endpoint:
    _refuse_without_ipv4(host)
    return Endpoint(host.mac, host.ipv4)


def _nodes(leg: Leg, share: Share, known: dict[str, Host]) -> Nodes:
    ends = [known[name] for name in _ends(leg, share)]
    for host in ends:
        _refuse_without_ipv4(host)
    macs = [bytes.fromhex(host.mac.replace(":", "")) for host in ends]
    return Nodes(*macs, *(ipaddress.IPv4Address(host.ipv4).packed for host in ends))


def _refuse_without_ipv4(host: Host) -> None:
    if not host.ipv4:
        raise BadInput(host.name, "no address known for the trace; give ipv4 in the inventory", key="ipv4")


def _ends(leg: Leg, share: Share) -> tuple[str, str]:
    """The users' node and the servers'."""
    return (leg.target, leg.source) if share.downlink else (leg.source, leg.target)


def _pools(leg: Leg, share: Share, known: dict[str, Host]) -> dict[str, Any]:
    """The leg's pools; a node's own address is a pool of one."""
    user, server = _ends(leg, share)
    own = {"users": {"first": known[user].ipv4, "count": 1}, "servers": {"first": known[server].ipv4, "count": 1}}
    return {**own, **leg.pools}


def _trace_matches(resolved: Resolved, plan: Plan, known: dict[str, Host], sessions: Sessions | None) -> None:
    """A trace's frames are all between its two MACs that no stream claims; a tag that all have is looked at too. One of
    sessions is known by its users."""
    for index, leg in enumerate(resolved.legs):
        if leg.id in plan.trace_sessions and plan.upf is not None and sessions is not None:
            own = plan.shares[leg.id]
            gnb, core = (known[name] for name in _ends(leg, own))
            match = session_traces.match(plan.trace_sessions[leg.id], plan.upf, sessions, gnb, core, own.downlink)
            resolved.legs[index] = replace(leg, match=match.to_json())
        elif leg.kind == "trace":
            same_pair = [
                o for o in resolved.legs if o.kind == "stream" and (o.source, o.target) == (leg.source, leg.target)
            ]
            others = [*(Match.from_json(o.match) for o in same_pair), *_between(resolved, known, leg)]
            match = Match.rest(known[leg.source].mac, known[leg.target].mac, others)
            share = plan.shares.get(leg.id)  # an interactive leg has none
            if share is not None and (tag := share.prepared.settings.tag):
                match = Match(match.mask + b"\xff" * len(tag), match.value + tag, others=match.others)
            resolved.legs[index] = replace(leg, match=match.to_json())


def _refuse_uncountable(legs: list[Leg], mode: str) -> None:
    for leg in legs:
        # Connections have no frames of ours, and the engine interactive counts its legs by their content.
        counted = leg.kind != "connections" and leg.engine != interactive.ENGINE
        if counted and (why := uncountable(Match.from_json(leg.match), mode)):
            raise BadInput(leg.target, f"{leg.stream!r} cannot be counted there: {why}", key="receive.mode", value=mode)


def _refuse_indistinguishable(legs: list[Leg], in_sessions: set[int]) -> None:
    """Two legs that one frame could belong to would be counted wrong without a word. `carried`: traces of sessions."""
    legs = [leg for leg in legs if leg.merged_into is None]
    for index, leg in enumerate(legs):
        for other in legs[:index]:
            # Connections are told apart by their ports, and nobody counts their frames; two interactive traces by
            # their content, which was compared when they were made ready.
            apart = leg.kind == other.kind == "connections" or leg.engine == other.engine == interactive.ENGINE
            # Those of sessions by their stamps, always: gNBs' users may be anybody's neighbours.
            apart = apart or bool(leg.arrives and (other.arrives or other.id in in_sessions))
            apart = apart or bool(other.arrives and leg.id in in_sessions)
            if leg.target != other.target or apart:
                continue
            if Match.from_json(leg.match).overlaps(Match.from_json(other.match)):
                raise BadInput(
                    leg.target,
                    f"{other.stream!r} and {leg.stream!r} from {leg.source} cannot be told apart there",
                    key="headers",
                    allowed="streams that differ in an address or port; one trace between two hosts (or interactive)",
                )


# --- tasks ------------------------------------------------------------------------------------------------------


def _receiving(
    scenario: Scenario, host: str, legs: list[Leg], report: dict[str, Any], no_filter: str
) -> tuple[str, str]:
    """The engine or engines that count on `host`, and why not xdp. BadInput for one that the host lacks.

    `no_filter`: why the scenario's filter cannot be had in XDP.
    """
    frames = [leg for leg in legs if leg.kind != "connections" and leg.engine != interactive.ENGINE]
    names, because = _counting(scenario, host, frames, report, no_filter) if frames else ([], "")
    names += [interactive.ENGINE] if any(leg.engine == interactive.ENGINE for leg in legs) else []
    names += ["socket"] if any(leg.kind == "connections" for leg in legs) else []
    for name in names:
        if missing := report["receivers"][name]:
            raise BadInput(host, f"no engine can receive here: {name}: {missing}", key="receive")
    if frames:
        _refuse_without_xdp(scenario, host, names, because, frames)
    return "+".join(names), f"xdp: {because}" if because else ""


def _counting(
    scenario: Scenario, host: str, legs: list[Leg], report: dict[str, Any], no_filter: str
) -> tuple[list[str], str]:
    """What counts frames."""
    wanted, because = scenario.receive.engine, ""
    if wanted == "auto":
        because = report["receivers"]["xdp"] or no_filter or _unknown_to_xdp(host, legs, report)
        wanted = "netsniff-ng" if because else "xdp"
    return ["xdp", "netsniff-ng"] if wanted == "xdp" and scenario.receive.mode == "capture" else [wanted], because


def _unknown_to_xdp(host: str, legs: list[Leg], report: dict[str, Any]) -> str:
    """Why the receiver xdp cannot tell all legs apart; empty when it can."""
    known = expect.known_by_bytes(legs)
    if report["interface"].get("driver") == "veth" and any(match.outer_tag for _, match in known):
        return "a veth may hand over a VLAN tag beside the frame, where XDP does not see it"
    try:
        expect.rows(host, known)
    except BadInput as error:
        return error.problem
    return ""


def _refuse_without_xdp(scenario: Scenario, host: str, names: list[str], because: str, legs: list[Leg]) -> None:
    """What only the receiver xdp does would otherwise be left out without a word."""
    if "xdp" in names:
        return
    asked = {"receive.capture_every": scenario.receive.capture_every > 1, "clock": scenario.clock == "ptp"}
    asked["receive.capture_filter"] = bool(scenario.receive.capture_filter)
    asked |= {f"streams.{leg.stream}.users": bool(leg.users) for leg in legs if leg.kind == "stream"}
    for key, wanted in asked.items():
        if wanted:
            why = f"only the receiver xdp does that, and it cannot receive here: {because}" if because else ""
            raise BadInput(host, why or "only the receiver xdp does that", key=key, allowed="receive: {engine: xdp}")


def _translated(scenario: Scenario) -> tuple[str, str]:
    """The filter for the receiver xdp, where that is asked for or may be taken; or why there is none."""
    if scenario.receive.capture_filter:
        pcap.compile_ethernet(scenario.receive.capture_filter, "receive.capture_filter")
    if not scenario.receive.filter or scenario.receive.engine == "netsniff-ng":
        return "", ""
    try:
        return ebpf.to_hex(ebpf.translate(pcap.compile_ethernet(scenario.receive.filter, "receive"))), ""
    except BadInput as error:
        if scenario.receive.engine == "xdp":
            raise
        return "", error.problem


def _tasks(
    scenario: Scenario,
    plan: Plan,
    resolved: Resolved,
    known: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    clocks: Clocks,
) -> None:
    filter_program, no_filter = _translated(scenario)
    receiving: dict[tuple[str, str], list[str]] = {}
    for name, host in known.items():
        sent = [leg for leg in resolved.legs if leg.transmitter == name]
        received = [leg for leg in resolved.legs if leg.receiver == name and leg.merged_into is None]
        received += resolved.moved.get(name, [])
        if sent:
            resolved.sends[name] = SendTask(
                interface=host.traffic_interface,
                legs=sent,
                limit_s=plan.limit_s,
                clock="ptp" if scenario.clock == "ptp" else "monotonic",
                mac=host.mac,
                proxy_addresses=[] if received else resolved.proxy_addresses.get(name, []),
                arp_targets=_upf_at(host, plan),
            )
        if received:
            engine, because = _receiving(scenario, name, received, reports[name], no_filter)
            receiving.setdefault((engine, because), []).append(name)
            resolved.receives[name] = ReceiveTask(
                interface=host.traffic_interface,
                mac=host.mac,
                legs=received,
                limit_s=plan.limit_s + 60.0,
                mode=scenario.receive.mode,
                filter=scenario.receive.filter,
                filter_program=filter_program,
                ring_mib=scenario.receive.ring_mib,
                engine=engine,
                tai=scenario.clock == "ptp",
                capture_every=scenario.receive.capture_every,
                capture_filter=scenario.receive.capture_filter,
                proxy_addresses=resolved.proxy_addresses.get(name, []),
                arp_targets=_upf_at(host, plan),
                streams=max(leg.id for leg in resolved.legs) + 1,
                echoes=[leg for leg in resolved.legs if leg.echo_of is not None and leg.source == name],
                **_clock_offsets(name, received, clocks),
            )
    for (engine, because), names in receiving.items():
        line = f"{engine} receives on {', '.join(names)}"
        resolved.notes.append(f"{line}, because: {because}" if because else line)


def _upf_at(host: Host, plan: Plan) -> str:
    """The UPF's address on the side where a host is; empty where it is not known."""
    addresses = {} if plan.upf is None else {"n3": plan.upf.n3, "n6": plan.upf.n6}
    return addresses.get(host.side) or ""


def _clock_offsets(name: str, legs: list[Leg], clocks: Clocks) -> dict[str, dict[str, int]]:
    """Of the transmitters whose clock was read, if this receiver's was."""
    read = {leg.source for leg in legs} & set(clocks.offsets_ns) if name in clocks.offsets_ns else set()
    return {
        "offsets_ns": {source: clocks.between(source, name) for source in read},
        "bounds_ns": {source: clocks.bounds_ns[source] + clocks.bounds_ns[name] for source in read},
        "realtime_ns": {source: clocks.realtime_ns[source] for source in read},
    }
