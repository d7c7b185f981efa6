"""The users of a leg: what was sent to and received from each: rows of users.csv, sums, a line for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from traffic import users
from traffic.task import FCS_BYTES, Leg

COLUMNS = [
    "stream",
    "user",
    "from",
    "to",
    "sent_packets",
    "received_packets",
    "lost_packets",
    "sent_bytes",
    "received_bytes",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_max_ns",
]
NOBODY = "other"
"""Stands in place of a user's value: the leg's frames in which the field has none that a user has."""


@dataclass
class Users:
    """Of one leg. `sent` and `received` (traffic.users.COLUMNS) are in the order of Leg.users; None: not measured."""

    leg: Leg
    stamped: bool = False
    sent: list[int] | None = None
    received: dict[str, list[int]] | None = None
    sent_bytes: list[int] | None = None
    """With FCS, where frames are not of one size."""
    broken: bool = False

    @property
    def count(self) -> int:
        return int(self.leg.users["count"])

    def take_sent(self, column: str | Sequence[int] | None) -> None:
        """A column that is not one figure a user is no measurement but a doubt."""
        told = None if column is None else users.unpack(column)
        self.sent = told if told is not None and len(told) == self.count else None
        self.broken = told is not None and self.sent is None

    def take_due(self, packets: list[int], size_bytes: list[int], sent: int | None) -> None:
        """Of a trace: what its schedule has of each user is what was sent, where all of it was sent."""
        if sent == sum(packets):
            self.sent, self.sent_bytes = packets, size_bytes

    def take_received(self, columns: dict[str, str] | None, stamped: bool) -> None:
        self.stamped = stamped
        self.received = None if columns is None else {name: users.unpack(text) for name, text in columns.items()}

    def lost(self) -> list[int] | None:
        """Of each user: sent less the distinct numbers that came, or less all that came where there are no numbers."""
        if self.sent is None or self.received is None:
            return None
        came = self.received["distinct" if self.stamped else "packets"]
        return [sent - here for sent, here in zip(self.sent, came, strict=False)]

    @property
    def nobodys(self) -> int:
        return 0 if self.received is None else self.received["packets"][self.count]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each user, and one for what is no user's if there is any; bytes count the FCS."""
        lost, ends = self.lost(), {"stream": self.leg.stream, "from": self.leg.source, "to": self.leg.target}
        for n, value in enumerate(users.values(self.leg.users)):
            own = {"user": value, "lost_packets": None if lost is None else lost[n]}
            yield {**ends, **own, **self._sent(n), **self._received(n)}
        if self.nobodys:
            yield {**ends, "user": NOBODY, **self._received(self.count)}

    def _sent(self, n: int) -> dict[str, int | None]:
        if self.sent is None:
            return {}
        if self.sent_bytes is not None:
            return {"sent_packets": self.sent[n], "sent_bytes": self.sent_bytes[n]}
        one_size = not self.leg.sizes and "imix_weights" not in self.leg.options
        sent_bytes = self.sent[n] * self.leg.size_bytes if one_size else None
        return {"sent_packets": self.sent[n], "sent_bytes": sent_bytes}

    def _received(self, n: int) -> dict[str, int | None]:
        if self.received is None:
            return {}
        one = {name: column[n] for name, column in self.received.items()}
        told: dict[str, int | None] = {
            "received_packets": one["packets"],
            "received_bytes": one["bytes"] + FCS_BYTES * one["packets"],
        }
        if one["latencies"]:
            told["latency_min_ns"], told["latency_max_ns"] = one["latency_min_ns"], one["latency_max_ns"]
            told["latency_mean_ns"] = round(one["latency_sum_ns"] / one["latencies"])
        return told

    def doubts(self, sent: int | None, received: int | None) -> list[str]:
        """Where the users' figures do not add up to the leg's."""
        told = [
            ("sent", None if self.sent is None else sum(self.sent), sent),
            ("received", None if self.received is None else sum(self.received["packets"]), received),
        ]
        stream = f"{self.leg.stream} from {self.leg.source}"
        broken = [f"{stream}: what was sent is not told for each of its {self.count} users"] if self.broken else []
        return broken + [
            f"{stream}: its users' {word} packets add up to {total}, the stream has {whole}"
            for word, total, whole in told
            if None not in (total, whole) and total != whole
        ]


def line(legs: Sequence[Users]) -> str:
    """Of one stream, for the terminal: how many were counted, how many lost something, who lost most."""
    stream, counted = legs[0].leg.stream, [one for one in legs if one.received is not None]
    if not counted:
        return f"{stream}: its users were not counted"
    heard = sum(1 for one in counted for n in range(one.count) if one.received and one.received["packets"][n])
    text = f"{stream}: {sum(one.count for one in counted):,} users counted, {heard:,} heard, {_losses(counted)}"
    nobodys = sum(one.nobodys for one in counted)
    return text + (f"; {nobodys:,} packets of no user" if nobodys else "")


def _losses(legs: Sequence[Users]) -> str:
    losses = [(lost, one, n) for one in legs for n, lost in enumerate(one.lost() or [])]
    if any(one.sent is None for one in legs):
        return "what was sent to each was not"
    losing = [entry for entry in losses if entry[0] > 0]
    if not losing:
        return "none with loss"
    most, one, n = max(losing, key=lambda entry: entry[0])
    value = users.notation(one.leg.users["field"], one.leg.users["first"] + n * one.leg.users["step"])
    return f"{len(losing):,} with loss, the worst {value}: {most:,} of {(one.sent or [])[n]:,} lost"
