"""How each user fared in a run: those with the most loss and latency, and those whose rate breaks their MBR.

The MBR of a QER (TS 29.244, 8.2.8, in kbit/s of 1000 bit/s) counts a user's IP packets, without the tunnel around them
and the frame around that (TS 23.401, 4.7.3: the bit stream excluding the GTP-U and IP header of the tunnel). Against it
stands what a user received over the time that was sent in.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pktswarm.master.results.users import Users, Who
from pktswarm.traffic.protocol.task import FCS_BYTES

MOST_WORST = 10
MOST_BEYOND = 1000
"""Users in one answer; how many there are is told in any case."""
ALLOWED_BEYOND = 0.01
"""Of what the MBR lets through: no policer is without a burst. And one packet."""


def report(legs: Sequence[Users]) -> dict[str, Any]:
    """For run.json: {"worst": …, "mbr": …}."""
    return {"worst": worst(legs), "mbr": mbr(legs)}


def lines(told: dict[str, Any]) -> list[str]:
    """Of report(), for the terminal."""
    return [*map(_worst_words, told["worst"]), *map(_mbr_words, told["mbr"])]


# --- the worst -------------------------------------------------------------------------------------------------------


@dataclass
class _Fate:
    """In all streams and traces of a user."""

    lost: int = 0
    sent: int = 0
    mean_ns: float | None = None
    """The longest of his streams'."""

    @property
    def badness(self) -> tuple[float, int, float]:
        return self.lost / self.sent if self.sent else 0.0, self.lost, self.mean_ns or 0.0


def worst(legs: Sequence[Users]) -> list[dict[str, Any]]:
    """Up to MOST_WORST users, the worst first: by the part of their packets that was lost, then by their mean latency.
    A packet too many in one stream makes up for none that is lost in another. Who lost nothing and has no latency is
    not among them."""
    fates: dict[Who, _Fate] = {}
    for one in legs:
        _add(fates, one)
    bad = [who for who, fate in fates.items() if fate.badness > (0.0, 0, 0.0)]
    found = heapq.nlargest(MOST_WORST, bad, key=lambda who: fates[who].badness)
    return [_told(who, fates[who], legs) for who in found]


def _add(fates: dict[Who, _Fate], one: Users) -> None:
    if not _measured(one):
        return
    lost, sent, means = one.lost() or [], one.sent or [], one.latency_means_ns()
    for n, gone in enumerate(lost):
        fate = fates.setdefault(one.who(n), _Fate())
        fate.lost, fate.sent = fate.lost + max(0, gone), fate.sent + sent[n]
        mean_ns = means[n]
        if mean_ns is not None:
            fate.mean_ns = mean_ns if fate.mean_ns is None else max(fate.mean_ns, mean_ns)


def _measured(one: Users) -> bool:
    return one.sent is not None and one.received is not None


def _told(who: Who, fate: _Fate, legs: Sequence[Users]) -> dict[str, Any]:
    rows = [one.row(n) for one in legs if _measured(one) and (n := one.place(who)) is not None]
    longest = [row["latency_max_ns"] for row in rows if row.get("latency_max_ns") is not None]
    return {
        "user": rows[0]["user"],
        "group": who[0],
        "lost_packets": fate.lost,
        "sent_packets": fate.sent,
        "latency_mean_ns": None if fate.mean_ns is None else round(fate.mean_ns),
        "latency_max_ns": max(longest, default=None),
        "streams": rows,
    }


def _worst_words(told: dict[str, Any]) -> str:
    each = [f"{row['stream']} {row['lost_packets']:,} of {row['sent_packets']:,}" for row in told["streams"]]
    text = f"{told['user']} of {told['group']}: {told['lost_packets']:,} of {told['sent_packets']:,} lost"
    text += f" ({', '.join(each)})"
    if told["latency_mean_ns"] is not None:
        text += f", latency {told['latency_mean_ns'] / 1e6:.3f} ms on average, {told['latency_max_ns'] / 1e6:.3f} most"
    return f"fared worst: {text}"


# --- the MBR ---------------------------------------------------------------------------------------------------------


@dataclass
class _Limit:
    """The users of one group in one direction."""

    mbr_bps: float
    packet_bytes: int = 0
    """The largest IP packet that was sent."""
    seconds: float = 0.0
    bits: dict[Who, int] = field(default_factory=dict)
    """Of the IP packets that came to a user."""
    names: dict[Who, str] = field(default_factory=dict)
    measured: bool = True

    @property
    def allowed_bits(self) -> float:
        return self.mbr_bps * self.seconds * (1 + ALLOWED_BEYOND) + 8 * self.packet_bytes

    def take(self, one: Users) -> None:
        seconds = one.sending_s
        if one.received is None or not seconds:
            self.measured = False
            return
        self.seconds = max(self.seconds, seconds)
        self.packet_bytes = max(self.packet_bytes, one.leg.size_bytes - FCS_BYTES - one.session.outer_bytes[0])
        for n in range(one.count):
            who = one.who(n)
            self.bits[who] = self.bits.get(who, 0) + 8 * one.ip_bytes(n)
            if self.bits[who] > self.mbr_bps * self.seconds:
                self.names.setdefault(who, one.name(n))

    def beyond(self) -> list[Who]:
        """The users above it, the furthest first."""
        above = [user for user, bits in self.bits.items() if bits > self.allowed_bits]
        return sorted(above, key=lambda user: -self.bits[user])

    def user(self, user: Who) -> dict[str, Any]:
        rate_bps = self.bits[user] / self.seconds
        return {"user": self.names[user], "rate_bps": round(rate_bps), "beyond": round(rate_bps / self.mbr_bps - 1, 4)}


def mbr(legs: Sequence[Users]) -> list[dict[str, Any]]:
    """For each group with an MBR and direction: how many of its users got more, and by how much, as a part of it."""
    found: dict[tuple[str, str], _Limit] = {}
    for one in legs:
        session = one.fields.session
        if session is not None and session.mbr_bps is not None:
            found.setdefault((one.group, session.direction), _Limit(session.mbr_bps)).take(one)
    return [_limit_told(*key, limit) for key, limit in found.items()]


def _limit_told(group: str, direction: str, limit: _Limit) -> dict[str, Any]:
    told: dict[str, Any] = {"group": group, "direction": direction, "mbr_bps": limit.mbr_bps}
    if not limit.measured:
        return {**told, "users": None}
    beyond = limit.beyond()
    return {
        **told,
        "seconds": round(limit.seconds, 6),
        "users": len(limit.bits),
        "highest_bps": round(max(limit.bits.values()) / limit.seconds),
        "beyond_users": len(beyond),
        "beyond": [limit.user(user) for user in beyond[:MOST_BEYOND]],
    }


def _mbr_words(told: dict[str, Any]) -> str:
    text = f"MBR of {told['group']}, {told['direction']}, {told['mbr_bps'] / 1e6:,.3f} Mbit/s: "
    if told["users"] is None:
        return text + "what its users received was not measured"
    if not told["beyond"]:
        return text + f"none of {told['users']:,} users above, the highest {told['highest_bps'] / 1e6:,.3f} Mbit/s"
    most = told["beyond"][0]
    text += f"{told['beyond_users']:,} of {told['users']:,} users above, most {most['user']} by "
    return text + f"{100 * most['beyond']:,.1f} % ({most['rate_bps'] / 1e6:,.3f} Mbit/s)"
