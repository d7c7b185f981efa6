"""Handovers of users between gNBs: the requests to the UPF, the end markers received at the gNBs they left, and their
loss beside that of the users that stayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.document_handover import EndMarkers, HandoverLoss, HandoverResult
from pktswarm.master.results.users import Users
from pktswarm.master.upf.moves import Moves

FATES = {"moved": "users that moved", "failed": "users with failed handovers", "stayed": "users that stayed"}
"""The users by their handovers: some accepted; none accepted, some failed; none."""


def report(
    moves: Moves,
    users: Sequence[Users],
    proxy_addresses: Mapping[str, Sequence[str]],
    nodes: Iterable[NodeState],
    gathered_ns: int | None,
) -> HandoverResult:
    """`users`: of all streams; `proxy_addresses`: host → the addresses it answers for; `gathered_ns`: when the
    counts of the nodes were requested."""
    pairs = [pair for each in moves.by_user.values() for pair in zip(*each, strict=True)]
    fates = Counter(_fate(*pair) for pair in pairs)
    return {
        "group": moves.group,
        "intended": moves.intended,
        "requested": moves.requested,
        "accepted": len(moves.accepted),
        "failures": moves.failures,
        "users": {fate: fates[fate] for fate in FATES},
        "end_markers": _end_markers(moves, proxy_addresses, nodes, gathered_ns) if moves.end_marker else None,
        "lost": _lost(users),
    }


def _fate(accepted: int, failed: int) -> str:
    return "moved" if accepted else "failed" if failed else "stayed"


def _end_markers(
    moves: Moves, proxy_addresses: Mapping[str, Sequence[str]], nodes: Iterable[NodeState], gathered_ns: int | None
) -> EndMarkers:
    """Counts end markers of accepted handovers away from gNBs that nodes emulate. `asked`: requested before the counts
    were; `came`: received at the gNB that was left, in its tunnel there; `not_looked_for`: of other handovers;
    `others`: received without a request."""
    played = {node.rank.host.name: node.played for node in nodes if node.played is not None}
    hosts = {address: host for host, own in proxy_addresses.items() if host in played for address in own}
    seen = Counter({(host, int(teid)): n for host, count in played.items() for teid, n in count.ended.items()})
    asked = Counter(
        (hosts[move.left], move.teid)
        for move in moves.accepted
        if move.left in hosts and (gathered_ns is None or move.at_ns < gathered_ns)
    )
    came = (asked & seen).total()
    return {
        "asked": asked.total(),
        "came": came,
        "others": sum(count.counts.get("end_marker", 0) for count in played.values()) - came,
        "not_looked_for": len(moves.accepted) - asked.total(),
    }


def _lost(users: Sequence[Users]) -> dict[str, dict[str, HandoverLoss | None]]:
    """Direction → fate → loss over all streams. None: not measured."""
    losses: dict[str, dict[str, HandoverLoss | None]] = {}
    for leg in users:
        if leg.moves is not None:
            by_fate = losses.setdefault(leg.session.direction, {})
            for fate in FATES:
                by_fate[fate] = _added(by_fate.get(fate, {"users": 0, "lost_packets": 0, "sent_packets": 0}), leg, fate)
    return losses


def _added(so_far: HandoverLoss | None, leg: Users, fate: str) -> HandoverLoss | None:
    """A surplus packet of one user does not offset a lost one of another."""
    lost, sent = leg.lost(), leg.sent
    if so_far is None or lost is None or sent is None or leg.moves is None:
        return None
    chosen = [n for n, pair in enumerate(zip(*leg.moves, strict=True)) if _fate(*pair) == fate]
    return {
        "users": so_far["users"] + len(chosen),
        "lost_packets": so_far["lost_packets"] + sum(max(0, lost[n]) for n in chosen),
        "sent_packets": so_far["sent_packets"] + sum(sent[n] for n in chosen),
    }


def lines(result: HandoverResult) -> list[str]:
    """The report for the terminal."""
    users, due = result["users"], result["intended"]
    text = f"handover of {result['group']}: {result['accepted']:,} of {result['requested']:,} requests accepted"
    text += f" ({due:,} intended)" if due != result["requested"] else ""
    text += f", {users['moved']:,} of {sum(users.values()):,} users moved"
    first = f"{text}; {_describe_end_markers(result['end_markers'])}"
    return [first] + [_describe_loss(direction, by_fate) for direction, by_fate in result["lost"].items()]


def _describe_end_markers(markers: EndMarkers | None) -> str:
    if markers is None:
        return "no end markers were requested"
    text = f"{markers['came']:,} of {markers['asked']:,} end markers arrived at the gNBs that users left"
    text += f", {markers['others']:,} others" if markers["others"] else ""
    return text + (f", {markers['not_looked_for']:,} not counted" if markers["not_looked_for"] else "")


def _describe_loss(direction: str, by_fate: dict[str, HandoverLoss | None]) -> str:
    each = []
    for fate, name in FATES.items():
        loss = by_fate[fate]
        if loss is None:
            each.append(f"loss of {name} not measured")
        elif loss["users"]:
            each.append(f"{name} ({loss['users']:,}) lost {loss['lost_packets']:,} of {loss['sent_packets']:,} packets")
    return f"handover, {direction}: {'; '.join(each)}"
