"""Matches of traces, and the refusal of flows that a receiver cannot distinguish."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.plan import interactive, session_traces
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.resolve_connections import matches_between
from pktswarm.master.plan.resolve_traces import ends_of_share, recorded_tags
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting.match import Match, uncountable
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg


def add_trace_matches(resolved: Resolved, plan: Plan, known: dict[str, Host], sessions: Sessions | None) -> None:
    """Set the match of each trace: all frames between its two MACs that match no stream or connection, with its VLAN
    tags if it sets any. A trace of sessions is matched by the addresses or TEIDs of its users."""
    for index, leg in enumerate(resolved.legs):
        if leg.id in plan.trace_sessions and plan.upf is not None and sessions is not None:
            own = plan.shares[leg.id]
            gnb, core = (known[name] for name in ends_of_share(leg, own))
            match = session_traces.match(plan.trace_sessions[leg.id], plan.upf, sessions, gnb, core, own.downlink)
            resolved.legs[index] = replace(leg, match=match.to_data())
        elif leg.kind == "trace" and leg.gateway is not None:
            resolved.legs[index] = replace(leg, match=_behind_router(leg, resolved, known).to_data())
        elif leg.kind == "trace":
            same_pair = [
                o for o in resolved.legs if o.kind == "stream" and (o.source, o.target) == (leg.source, leg.target)
            ]
            others = [*(Match.from_data(o.match) for o in same_pair), *matches_between(resolved, known, leg)]
            match = Match.rest(known[leg.source].mac, known[leg.target].mac, others)
            share = plan.shares.get(leg.id)  # an interactive leg has none
            if share is not None and (tag := share.prepared.settings.tag):
                match = Match(match.mask + b"\xff" * len(tag), match.value + tag, others=match.others)
            elif share is not None:
                match = replace(match, tags=recorded_tags(share))
            resolved.legs[index] = replace(leg, match=match.to_data())


def _behind_router(leg: Leg, resolved: Resolved, known: dict[str, Host]) -> Match:
    """The match of a trace that a router forwards: by its addresses, because the source MAC address is the router's."""
    ends = resolved.ends[leg.id if leg.merged_into is None else leg.merged_into]
    match = Match.of_ends(known[leg.target].mac, ends.sources, ends.targets)
    streams = [other for other in resolved.legs if other.kind == "stream" and other.target == leg.target]
    others = (Match.from_data(other.match) for other in streams)
    return replace(match, others=tuple(dict.fromkeys(other for other in others if match.overlaps(other))))


def refuse_uncountable(legs: list[Leg], mode: str) -> None:
    for leg in legs:
        # Connections have no frames of ours, and the engine interactive counts its legs by their content.
        counted = leg.kind != "connections" and leg.engine != interactive.ENGINE
        if counted and (why := uncountable(Match.from_data(leg.match), mode)):
            raise BadInput(leg.target, f"{leg.stream!r} cannot be counted there: {why}", key="receive.mode", value=mode)


def refuse_indistinguishable(legs: list[Leg], in_sessions: set[int]) -> None:
    """Raise BadInput for two legs whose matches overlap. `in_sessions`: ids of the legs of traces of sessions."""
    legs = [leg for leg in legs if leg.merged_into is None]
    for index, leg in enumerate(legs):
        for other in legs[:index]:
            # Connections differ by port and their frames are not counted; interactive traces differ by content, which
            # refuse_equal compares.
            apart = leg.kind == other.kind == "connections" or leg.engine == other.engine == interactive.ENGINE
            # Frames of sessions differ by stamp: the user ranges of gNBs may be adjacent, so their matches may overlap.
            apart = apart or bool(leg.arrives and (other.arrives or other.id in in_sessions))
            apart = apart or bool(other.arrives and leg.id in in_sessions)
            if leg.target != other.target or apart:
                continue
            if Match.from_data(leg.match).overlaps(Match.from_data(other.match)):
                raise BadInput(
                    leg.target,
                    f"{other.stream!r} and {leg.stream!r} from {leg.source} cannot be distinguished there",
                    key="headers",
                    allowed="streams that differ in an address or port; one trace between two hosts (or interactive)",
                )
