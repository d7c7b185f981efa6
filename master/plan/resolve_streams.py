"""Flows of streams with what the nodes report: matches, tunnels, files of records, MTUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.resolved import Resolved, choose_engine, play
from pktswarm.master.plan.session_streams import ends_of, in_tunnels, largest_received_bytes, moved_in_tunnels, to_cut
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.counting import echo, expect, users
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import leg_frames, sequence
from pktswarm.traffic.schedule.fragments import longest_frame_bytes

VLAN_TAG_BYTES = 4


ETHERNET_HEADER_BYTES = 14


def with_match(leg: Leg, reports: dict[str, dict[str, Any]]) -> Leg:
    """The leg with the match of its frames at the receiver, and its users as received."""
    check_mtu(leg, reports)
    templates = leg_frames.templates_as_received(leg)
    first = next(iter(templates.values()))
    match = expect.expected_match(Match.from_template(first), first, leg.expect)
    match = replace(match, length=match.length if len(templates) == 1 else None, stream=leg.id if leg.arrives else None)
    leg = replace(leg, match=match.to_data())
    if not leg.users or leg.arrives:
        return leg
    return replace(leg, users=users.of_template(leg.stream, "users", templates[max(templates)], leg.users.field))


def tunnelled(
    leg: Leg,
    plan: Plan,
    known: dict[str, Host],
    reports: dict[str, dict[str, Any]],
    sessions: Sessions | None,
    resolved: Resolved,
) -> Leg:
    """The flow with the tunnels of the established sessions."""
    if plan.upf is None or sessions is None:
        raise ValueError(f"{leg.stream} is resolved without its sessions")
    tunnels = plan.tunnels[leg.id]
    leg = to_cut(leg, tunnels, {name: report["interface"] for name, report in reports.items()})
    made = in_tunnels(leg, tunnels, plan.upf, sessions, known)
    play(resolved, ends_of(leg, tunnels, plan.upf, known))
    for other in moved_in_tunnels(leg, tunnels, plan.upf, sessions, known):
        resolved.moved.setdefault(other.target, []).append(with_match(other, reports))
        play(resolved, {other.target: [plan.upf.gnbs[tunnels.among[other.target]]]})
    if leg.echo_of is not None:
        resolved.reasons.append((leg.stream, echo.NAME, "", leg.source))
        return with_match(made, reports)
    return with_match(choose_engine(made, reports[leg.source], resolved), reports)


def with_records(leg: Leg, plan: Plan, resolved: Resolved) -> Leg:
    """The leg with the input file of its transmitter: records, or frames for tcpreplay."""
    records = plan.sequences[leg.id]
    files = resolved.files.setdefault(leg.source, [])
    if leg.engine != "tcpreplay":
        files.append((str(leg.sequence_file), sequence.pack(records)))
        return leg
    packets = [Packet(time_ns, data) for time_ns, data in sequence.frames(leg, records)]
    name = f"leg-{leg.id}.pcap"
    files.append((name, write_pcap(packets)))
    timing = Timing(lead_ns=packets[0].time_ns)
    return replace(leg, trace_file=name, timing=timing, duration_s=None)


def check_mtu(leg: Leg, reports: dict[str, dict[str, Any]]) -> None:
    tags = sum(1 for header in leg.frame["headers"] if "vlan" in header or "svlan" in header)
    sent = max(longest_frame_bytes(leg, size) for size in leg_frames.templates_as_sent(leg)) - FCS_BYTES
    # A device that adds headers has an MTU of its own, assumed equal to that of the node on the same side.
    arrives = [] if leg.oversize else [(leg.target, largest_received_bytes(leg) if leg.arrives else sent)]
    for name, length in [(leg.source, sent), *arrives]:
        interface = reports[name]["interface"]
        # Linux allows one VLAN tag beyond the MTU.
        room = interface["mtu"] + ETHERNET_HEADER_BYTES + min(tags, 1) * VLAN_TAG_BYTES
        if length > room:
            raise BadInput(
                name,
                f"a frame of {leg.stream!r} is longer than its MTU of {interface['mtu']} bytes allows",
                key=interface["name"],
                value=length + FCS_BYTES,
                allowed=f"size_bytes up to {room + FCS_BYTES - (length - sent)}" + _in_fragments(leg),
            )


def _in_fragments(leg: Leg) -> str:
    return ", or oversize: inner or outer" if leg.arrives and leg.echo_of is None and not leg.oversize else ""
