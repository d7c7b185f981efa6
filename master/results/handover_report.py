"""Users that moved to other gNBs in a run: what was asked of the UPF, the end markers that came to the gNBs they left,
and what they lost beside those that stayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.results.users import Users
from pktswarm.master.upf.moves import Moves

if TYPE_CHECKING:
    pass

FATES = {"moved": "users that moved", "failed": "those whose moves failed", "stayed": "those that stayed"}
"""By handovers of a user: some accepted; none accepted, some failed; none."""


# --- what came of it -------------------------------------------------------------------------------------------------


def report(
    moves: Moves,
    users: Sequence[Users],
    proxy_addresses: Mapping[str, Sequence[str]],
    nodes: Iterable[NodeState],
    gathered_ns: int | None,
) -> dict[str, Any]:
    """For run.json. `users`: of all streams; `proxy_addresses`: host → the addresses it answered for; `gathered_ns`:
    when the
    nodes were asked for what they had seen."""
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
) -> dict[str, int]:
    """Of the moves away from gNBs that nodes played, answered before these were asked: `asked`, and how many came, each
    to the gNB that was left and in the tunnel there. Those of other moves are `not_looked_for`; `others` came although
    none was asked for there."""
    told = {node.rank.host.name: node.played for node in nodes if node.played is not None}
    hosts = {address: host for host, own in proxy_addresses.items() if host in told for address in own}
    seen = Counter({(host, int(teid)): n for host, one in told.items() for teid, n in one.ended.items()})
    asked = Counter(
        (hosts[move.left], move.teid)
        for move in moves.accepted
        if move.left in hosts and (gathered_ns is None or move.at_ns < gathered_ns)
    )
    came = (asked & seen).total()
    return {
        "asked": asked.total(),
        "came": came,
        "others": sum(one.counts.get("end_marker", 0) for one in told.values()) - came,
        "not_looked_for": len(moves.accepted) - asked.total(),
    }


def _lost(users: Sequence[Users]) -> dict[str, dict[str, dict[str, int] | None]]:
    """Direction → fate → users, and packets lost and sent, of all streams together. None: not measured."""
    found: dict[str, dict[str, dict[str, int] | None]] = {}
    for one in users:
        if one.moves is not None:
            way = found.setdefault(one.session.direction, {})
            for fate in FATES:
                way[fate] = _added(way.get(fate, {"users": 0, "lost_packets": 0, "sent_packets": 0}), one, fate)
    return found


def _added(so_far: dict[str, int] | None, one: Users, fate: str) -> dict[str, int] | None:
    """A packet too many of one user makes up for none that another lost."""
    lost, sent = one.lost(), one.sent
    if so_far is None or lost is None or sent is None or one.moves is None:
        return None
    chosen = [n for n, pair in enumerate(zip(*one.moves, strict=True)) if _fate(*pair) == fate]
    return {
        "users": so_far["users"] + len(chosen),
        "lost_packets": so_far["lost_packets"] + sum(max(0, lost[n]) for n in chosen),
        "sent_packets": so_far["sent_packets"] + sum(sent[n] for n in chosen),
    }


def lines(told: dict[str, Any]) -> list[str]:
    """Of report(), for the terminal."""
    users, due = told["users"], told["intended"]
    text = f"handover of {told['group']}: {told['accepted']:,} of {told['requested']:,} moves done"
    text += f" ({due:,} were due)" if due != told["requested"] else ""
    text += f", {users['moved']:,} of {sum(users.values()):,} users moved"
    made = [f"{text}; {_end_marker_words(told['end_markers'])}"]
    return made + [_lost_words(way, fates) for way, fates in told["lost"].items()]


def _end_marker_words(told: dict[str, int] | None) -> str:
    if told is None:
        return "no end markers were asked for"
    text = f"{told['came']:,} of {told['asked']:,} end markers came to the gNBs that they left"
    text += f", {told['others']:,} others" if told["others"] else ""
    return text + (f", {told['not_looked_for']:,} were not looked for" if told["not_looked_for"] else "")


def _lost_words(way: str, fates: dict[str, dict[str, int] | None]) -> str:
    each = []
    for fate, words in FATES.items():
        one = fates[fate]
        if one is None:
            each.append(f"what {words} lost was not measured")
        elif one["users"]:
            each.append(f"{words} ({one['users']:,}) lost {one['lost_packets']:,} of {one['sent_packets']:,} packets")
    return f"handover, {way}: {'; '.join(each)}"
