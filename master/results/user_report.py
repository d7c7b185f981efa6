"""Results of single users: those with the most loss and latency, and those whose rate exceeds their MBR.

The MBR of a QER (TS 29.244, 8.2.8, in kbit/s of 1000 bit/s) counts the IP packets of a user, without the tunnel and the
frame around them (TS 23.401, 4.7.3: the bit stream excluding the GTP-U and IP header of the tunnel). The measured rate
is what the user received, divided by the time of sending.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from pktswarm.master.results.document_rows import MbrResult, UserAboveMbr, UsersResult, WorstUser
from pktswarm.master.results.users import UserKey, Users
from pktswarm.traffic.protocol.task import FCS_BYTES

MOST_WORST = 10
MOST_BEYOND = 1000
"""Users listed above their MBR; `beyond_users` is the number of all."""
ALLOWED_BEYOND = 0.01
"""Accepted excess, as a share of the MBR: policers pass bursts. One packet is accepted in addition."""


def report(legs: Sequence[Users]) -> UsersResult:
    return {"worst": worst(legs), "mbr": mbr(legs)}


def lines(result: UsersResult) -> list[str]:
    """The report for the terminal."""
    return [*map(_describe_worst, result["worst"]), *mbr_lines(result)]


def mbr_lines(result: UsersResult) -> list[str]:
    """A line for each group with an MBR, and direction."""
    return [_describe_mbr(each) for each in result["mbr"]]


# --- worst users -----------------------------------------------------------------------------------------------------


@dataclass
class _Sums:
    """The counts of one user over all streams and traces."""

    lost: int = 0
    sent: int = 0
    mean_ns: float | None = None
    """The highest mean latency of its streams."""

    @property
    def badness(self) -> tuple[float, int, float]:
        return self.lost / self.sent if self.sent else 0.0, self.lost, self.mean_ns or 0.0


def worst(legs: Sequence[Users]) -> list[WorstUser]:
    """Up to MOST_WORST users, the worst first: by loss ratio, then by mean latency. A surplus packet in one stream does
    not offset a lost one in another. Users without loss and latency are left out."""
    sums: dict[UserKey, _Sums] = {}
    for leg in legs:
        _add(sums, leg)
    bad = [user for user, its_sums in sums.items() if its_sums.badness > (0.0, 0, 0.0)]
    ranked = heapq.nlargest(MOST_WORST, bad, key=lambda user: sums[user].badness)
    return [_worst_user(user, sums[user], legs) for user in ranked]


def _add(sums: dict[UserKey, _Sums], leg: Users) -> None:
    if not _measured(leg):
        return
    lost, sent, means = leg.lost() or [], leg.sent or [], leg.latency_means_ns()
    for n, packets in enumerate(lost):
        user = sums.setdefault(leg.key(n), _Sums())
        user.lost, user.sent = user.lost + max(0, packets), user.sent + sent[n]
        mean_ns = means[n]
        if mean_ns is not None:
            user.mean_ns = mean_ns if user.mean_ns is None else max(user.mean_ns, mean_ns)


def _measured(leg: Users) -> bool:
    return leg.sent is not None and leg.received is not None


def _worst_user(user: UserKey, sums: _Sums, legs: Sequence[Users]) -> WorstUser:
    rows = [leg.row(n) for leg in legs if _measured(leg) and (n := leg.place(user)) is not None]
    longest = [ns for row in rows if (ns := row.get("latency_max_ns")) is not None]
    return {
        "user": rows[0]["user"],
        "group": user[0],
        "lost_packets": sums.lost,
        "sent_packets": sums.sent,
        "latency_mean_ns": None if sums.mean_ns is None else round(sums.mean_ns),
        "latency_max_ns": max(longest, default=None),
        "streams": rows,
    }


def _describe_worst(user: WorstUser) -> str:
    each = [f"{row['stream']} {row['lost_packets']:,} of {row['sent_packets']:,}" for row in user["streams"]]
    text = f"{user['user']} of {user['group']}: {user['lost_packets']:,} of {user['sent_packets']:,} packets lost"
    text += f" ({', '.join(each)})"
    if user["latency_mean_ns"] is not None and user["latency_max_ns"] is not None:
        text += f", latency mean {user['latency_mean_ns'] / 1e6:.3f} ms, maximum {user['latency_max_ns'] / 1e6:.3f} ms"
    return f"worst user: {text}"


# --- the MBR ---------------------------------------------------------------------------------------------------------


@dataclass
class _Limit:
    """The users of one group in one direction."""

    mbr_bps: float
    packet_bytes: int = 0
    """The size of the largest IP packet sent."""
    seconds: float = 0.0
    bits: dict[UserKey, int] = field(default_factory=dict)
    """User → bits of the IP packets that it received."""
    names: dict[UserKey, str] = field(default_factory=dict)
    measured: bool = True

    @property
    def allowed_bits(self) -> float:
        return self.mbr_bps * self.seconds * (1 + ALLOWED_BEYOND) + 8 * self.packet_bytes

    def take(self, leg: Users) -> None:
        seconds = leg.sending_s
        if leg.received is None or not seconds:
            self.measured = False
            return
        self.seconds = max(self.seconds, seconds)
        self.packet_bytes = max(self.packet_bytes, leg.leg.size_bytes - FCS_BYTES - leg.session.outer_bytes[0])
        for n in range(leg.count):
            user = leg.key(n)
            self.bits[user] = self.bits.get(user, 0) + 8 * leg.ip_bytes(n)
            if self.bits[user] > self.mbr_bps * self.seconds:
                self.names.setdefault(user, leg.name(n))

    def beyond(self) -> list[UserKey]:
        """The users above the limit, the highest rate first."""
        above = [user for user, bits in self.bits.items() if bits > self.allowed_bits]
        return sorted(above, key=lambda user: -self.bits[user])

    def user(self, user: UserKey) -> UserAboveMbr:
        rate_bps = self.bits[user] / self.seconds
        return {"user": self.names[user], "rate_bps": round(rate_bps), "beyond": round(rate_bps / self.mbr_bps - 1, 4)}


def mbr(legs: Sequence[Users]) -> list[MbrResult]:
    """For each group with an MBR, and direction: the users above it, and by how much."""
    limits: dict[tuple[str, str], _Limit] = {}
    for leg in legs:
        session = leg.fields.session
        if session is not None and session.mbr_bps is not None:
            limits.setdefault((leg.group, session.direction), _Limit(session.mbr_bps)).take(leg)
    return [_mbr_result(*key, limit) for key, limit in limits.items()]


def _mbr_result(group: str, direction: str, limit: _Limit) -> MbrResult:
    if not limit.measured:
        return {"group": group, "direction": direction, "mbr_bps": limit.mbr_bps, "users": None}
    beyond = limit.beyond()
    return {
        "group": group,
        "direction": direction,
        "mbr_bps": limit.mbr_bps,
        "seconds": round(limit.seconds, 6),
        "users": len(limit.bits),
        "highest_bps": round(max(limit.bits.values()) / limit.seconds),
        "beyond_users": len(beyond),
        "beyond": [limit.user(user) for user in beyond[:MOST_BEYOND]],
    }


def _describe_mbr(result: MbrResult) -> str:
    text = f"MBR of {result['group']}, {result['direction']}, {result['mbr_bps'] / 1e6:,.3f} Mbit/s: "
    if result["users"] is None:
        return text + "the rates of its users were not measured"
    if not result["beyond"]:
        highest = f"highest rate {result['highest_bps'] / 1e6:,.3f} Mbit/s"
        return text + f"none of {result['users']:,} users above, {highest}"
    most = result["beyond"][0]
    text += f"{result['beyond_users']:,} of {result['users']:,} users above, the most {most['user']} by "
    return text + f"{100 * most['beyond']:,.1f} % ({most['rate_bps'] / 1e6:,.3f} Mbit/s)"
