"""The counts of a flow's users: rows of users.csv, sums, a line for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pktswarm.master.results.document_rows import UserRow
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.tally import not_received
from pktswarm.traffic.leg import FlowUsers, Leg, SessionUsers
from pktswarm.traffic.protocol.task import FCS_BYTES

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
    "handovers",
    "failed_handovers",
]
UserKey = tuple[str, str, int]
"""Group (or stream, where there is none), gNB, and number."""
NO_USER = "other"
"""The `user` of the row for frames in which the field has no user's value."""


@dataclass
class Users:
    """The users of one leg. `sent` and `received` (traffic.counting.users.COLUMNS) are in the order of Leg.users; None:
    not measured."""

    leg: Leg
    stamped: bool = False
    sent: list[int] | None = None
    received: dict[str, list[int]] | None = None
    sent_bytes: list[int] | None = None
    """With FCS, where frames are not of one size."""
    malformed: bool = False
    """The sender's column does not have one count per user."""
    seconds: float | None = None
    """From the leg's first frame to its last, by its sender."""
    echoes: Users | None = None
    """The users whose packets this leg returns: it has no sending times of its own."""
    moves: tuple[list[int], list[int]] | None = None
    """Accepted and failed handovers of each user, where users move."""
    shift_ns: int = 0
    """Correction of every latency by the clock readings after the run."""
    timed: bool = True
    """False where a clock behind the latencies was set during the run."""

    @property
    def count(self) -> int:
        return self.fields.count

    @property
    def fields(self) -> FlowUsers:
        if self.leg.users is None:
            raise ValueError(f"the users of {self.leg.stream} are not counted")
        return self.leg.users

    @property
    def session(self) -> SessionUsers:
        if self.fields.session is None:
            raise ValueError(f"{self.leg.stream} has no sessions")
        return self.fields.session

    def take_sent(self, column: str | Sequence[int] | None) -> None:
        """A column without one count per user is not a measurement, and is a doubt."""
        counts = None if column is None else users.unpack(column)
        self.sent = counts if counts is not None and len(counts) == self.count else None
        self.malformed = counts is not None and self.sent is None

    def take_due(self, packets: list[int], size_bytes: list[int], sent: int | None) -> None:
        """Takes a trace's schedule as the sent counts, where the whole trace was sent."""
        if sent == sum(packets):
            self.sent, self.sent_bytes = packets, size_bytes

    def take_received(self, columns: Mapping[str, str | list[int]] | None, stamped: bool) -> None:
        self.stamped = stamped
        self.received = None if columns is None else {name: users.unpack(text) for name, text in columns.items()}
        if self.received is not None:  # only a counter that reads stamps has this column
            self.received.setdefault("damaged", [0] * len(self.received["packets"]))

    def lost(self) -> list[int] | None:
        """Lost packets of each user: sent less the distinct sequence numbers received, or less all packets received
        where frames have no numbers."""
        if self.sent is None or self.received is None:
            return None
        if not self.stamped:
            return [sent - received for sent, received in zip(self.sent, self.received["packets"], strict=False)]
        columns = zip(self.sent, self.received["distinct"], self.received["damaged"], strict=False)
        return [not_received(*counts) for counts in columns]

    @property
    def group(self) -> str:
        """The group of the users, which several streams can share; the stream where there is none."""
        return self.leg.stream if self.fields.session is None else self.fields.session.group

    def key(self, n: int) -> UserKey:
        """Identifies a user in all streams. With sessions the number is its index at its gNB: a user can have two
        addresses."""
        if self.fields.session is not None:
            return self.group, self.fields.session.gnb, n
        return self.group, "", self.fields.first + n * self.fields.step

    def place(self, key: UserKey) -> int | None:
        """The index of a user in this leg; None: not one of its users."""
        group, gnb, number = key
        if (group, gnb) != (self.group, "" if self.fields.session is None else self.fields.session.gnb):
            return None
        first, step = (0, 1) if gnb else (self.fields.first, self.fields.step)
        n, rest = divmod(number - first, step)
        return n if not rest and 0 <= n < self.count else None

    def name(self, n: int) -> str:
        return users.named(self.fields, n)

    @property
    def sending_s(self) -> float | None:
        """Duration of sending, with the gap behind the last frame."""
        if self.echoes is not None:
            return self.echoes.sending_s
        packets = sum(self.sent or [])
        return None if self.seconds is None or packets < 2 else self.seconds * packets / (packets - 1)

    def latency_means_ns(self) -> list[float | None]:
        if self.received is None or not self.timed:
            return [None] * self.count
        pairs = zip(self.received["latency_sum_ns"], self.received["latencies"], strict=True)
        return [total / frames + self.shift_ns if frames else None for total, frames in pairs]

    def ip_bytes(self, n: int) -> int:
        """Received bytes of user n's own IP packets, with sessions. In a stream of one size every packet has the size
        as sent; where sizes differ, a tunnel of a group with a QFI is assumed to carry a PDU session container."""
        if self.received is None:
            raise ValueError("received packets were not counted")
        packets = self.received["packets"][n]
        as_sent, as_received = self.session.outer_bytes
        if self.leg.kind == "stream" and not self.leg.sizes:
            return int(packets * (self.leg.size_bytes - FCS_BYTES - as_sent))
        return int(self.received["bytes"][n] - packets * as_received)

    @property
    def unassigned(self) -> int:
        """Received packets of the leg that belong to no user."""
        return 0 if self.received is None else self.received["packets"][self.count]

    def rows(self) -> Iterator[UserRow]:
        """One for each user, and one for packets of no user if there are any; bytes count the FCS."""
        lost = self.lost()
        for n in range(self.count):
            yield self._row(n, lost)
        if self.unassigned:
            yield cast(UserRow, {**self._ends, "user": NO_USER, **self._received(self.count)})

    def row(self, n: int) -> UserRow:
        return self._row(n, self.lost())

    def _row(self, n: int, lost: list[int] | None) -> UserRow:
        counts = {**self._moved(n), **self._sent(n), **self._received(n)}
        own = {"user": self.name(n), "lost_packets": None if lost is None else lost[n]}
        return cast(UserRow, {**self._ends, **own, **counts})

    @property
    def _ends(self) -> dict[str, str | int | None]:
        return {"stream": self.leg.stream, "from": self.leg.source, "to": self.leg.to}

    def _moved(self, n: int) -> dict[str, int]:
        return {} if self.moves is None else {"handovers": self.moves[0][n], "failed_handovers": self.moves[1][n]}

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
        counts = {name: column[n] for name, column in self.received.items()}
        values: dict[str, int | None] = {
            "received_packets": counts["packets"],
            "received_bytes": counts["bytes"] + FCS_BYTES * counts["packets"],
        }
        if counts["latencies"] and self.timed:
            values["latency_min_ns"] = counts["latency_min_ns"] + self.shift_ns
            values["latency_max_ns"] = counts["latency_max_ns"] + self.shift_ns
            values["latency_mean_ns"] = round(counts["latency_sum_ns"] / counts["latencies"] + self.shift_ns)
        return values

    def doubts(self, sent: int | None, received: int | None) -> list[str]:
        """Sums over the users that differ from the leg's counts."""
        sums = [
            ("sent", None if self.sent is None else sum(self.sent), sent),
            ("received", None if self.received is None else sum(self.received["packets"]), received),
        ]
        stream = f"{self.leg.stream} from {self.leg.source}"
        malformed = f"{stream}: the sender reported no count of sent packets for each of its {self.count} users"
        return [malformed] * self.malformed + [
            f"{stream}: {word} packets of its users add up to {total}, the stream has {counted}"
            for word, total, counted in sums
            if None not in (total, counted) and total != counted
        ]


def line(legs: Sequence[Users]) -> str:
    """One stream for the terminal: how many of its users received traffic, and how many lost packets."""
    stream, counted = legs[0].leg.stream, [leg for leg in legs if leg.received is not None]
    if not counted:
        return f"{stream}: its users were not counted"
    receiving = sum(1 for leg in counted for n in range(leg.count) if leg.received and leg.received["packets"][n])
    users_counted = sum(leg.count for leg in counted)
    text = f"{stream}: {receiving:,} of {users_counted:,} users received traffic, {_losses(counted)}"
    unassigned = sum(leg.unassigned for leg in counted)
    return text + (f"; {unassigned:,} packets of no user" if unassigned else "")


def _losses(legs: Sequence[Users]) -> str:
    if any(leg.sent is None for leg in legs):
        return "packets sent per user were not counted"
    losses = [(lost, leg, n) for leg in legs for n, lost in enumerate(leg.lost() or []) if lost > 0]
    if not losses:
        return "none lost packets"
    most, leg, n = max(losses, key=lambda entry: entry[0])
    return f"{len(losses):,} lost packets, the worst {leg.name(n)}: {most:,} of {(leg.sent or [])[n]:,} lost"
