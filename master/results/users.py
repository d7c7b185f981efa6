"""The users of a leg: what was sent to and received from each: rows of users.csv, sums, a line for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
Who = tuple[str, str, int]
"""Group (or stream, where there is none), gNB, and number."""
NOBODY = "other"
"""Stands in place of a user's value: the leg's frames in which the field has none that a user has."""


@dataclass
class Users:
    """Of one leg. `sent` and `received` (traffic.counting.users.COLUMNS) are in the order of Leg.users; None: not
    measured."""

    leg: Leg
    stamped: bool = False
    sent: list[int] | None = None
    received: dict[str, list[int]] | None = None
    sent_bytes: list[int] | None = None
    """With FCS, where frames are not of one size."""
    broken: bool = False
    seconds: float | None = None
    """From the leg's first frame to its last, as its sender has it."""
    echoes: Users | None = None
    """What comes back here: it has no times of sending of its own."""
    moves: tuple[list[int], list[int]] | None = None
    """Of each, where they move: accepted handovers, and failed ones."""
    shift_ns: int = 0
    """What the clocks, read again after the run, say that every latency is longer."""
    timed: bool = True
    """Not where a clock that their latencies stand on was set meanwhile."""

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
        """A column that is not one figure a user is no measurement but a doubt."""
        told = None if column is None else users.unpack(column)
        self.sent = told if told is not None and len(told) == self.count else None
        self.broken = told is not None and self.sent is None

    def take_due(self, packets: list[int], size_bytes: list[int], sent: int | None) -> None:
        """Of a trace: what its schedule has of each user is what was sent, where all of it was sent."""
        if sent == sum(packets):
            self.sent, self.sent_bytes = packets, size_bytes

    def take_received(self, columns: Mapping[str, str | list[int]] | None, stamped: bool) -> None:
        self.stamped = stamped
        self.received = None if columns is None else {name: users.unpack(text) for name, text in columns.items()}
        if self.received is not None:  # only a counter that reads stamps has damaged ones
            self.received.setdefault("damaged", [0] * len(self.received["packets"]))

    def lost(self) -> list[int] | None:
        """Of each user: sent less the distinct numbers that came, or less all that came where there are no numbers."""
        if self.sent is None or self.received is None:
            return None
        if not self.stamped:
            return [sent - came for sent, came in zip(self.sent, self.received["packets"], strict=False)]
        columns = zip(self.sent, self.received["distinct"], self.received["damaged"], strict=False)
        return [not_received(*one) for one in columns]

    @property
    def group(self) -> str:
        """Whose users they are: streams of a group of sessions have the same ones."""
        return self.leg.stream if self.fields.session is None else self.fields.session.group

    def who(self, n: int) -> Who:
        """The same in all streams: of sessions his place at his gNB, for he may have two addresses."""
        if self.fields.session is not None:
            return self.group, self.fields.session.gnb, n
        return self.group, "", self.fields.first + n * self.fields.step

    def place(self, who: Who) -> int | None:
        """Which of this leg's users it is; None: of none."""
        group, gnb, number = who
        if (group, gnb) != (self.group, "" if self.fields.session is None else self.fields.session.gnb):
            return None
        first, step = (0, 1) if gnb else (self.fields.first, self.fields.step)
        n, rest = divmod(number - first, step)
        return n if not rest and 0 <= n < self.count else None

    def name(self, n: int) -> str:
        return users.named(self.fields, n)

    @property
    def sending_s(self) -> float | None:
        """So long the leg was sent: each frame with the gap behind it."""
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
        """Of sessions: what user n received in IP packets of his own. Frames of a stream of one size tell it by
        themselves; where sizes differ, a tunnel of a group with a QFI is taken to have its PDU session container."""
        if self.received is None:
            raise ValueError("what was not received has no size")
        packets = self.received["packets"][n]
        as_sent, as_received = self.session.outer_bytes
        if self.leg.kind == "stream" and not self.leg.sizes:
            return int(packets * (self.leg.size_bytes - FCS_BYTES - as_sent))
        return int(self.received["bytes"][n] - packets * as_received)

    @property
    def nobodys(self) -> int:
        return 0 if self.received is None else self.received["packets"][self.count]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each user, and one for what is no user's if there is any; bytes count the FCS."""
        lost = self.lost()
        for n in range(self.count):
            yield {**self._ends, **self._own(n, lost)}
        if self.nobodys:
            yield {**self._ends, "user": NOBODY, **self._received(self.count)}

    def row(self, n: int) -> dict[str, Any]:
        """Of one user."""
        return {**self._ends, **self._own(n, self.lost())}

    @property
    def _ends(self) -> dict[str, str]:
        return {"stream": self.leg.stream, "from": self.leg.source, "to": self.leg.to}

    def _own(self, n: int, lost: list[int] | None) -> dict[str, Any]:
        return {
            "user": self.name(n),
            "lost_packets": None if lost is None else lost[n],
            **self._moved(n),
            **self._sent(n),
            **self._received(n),
        }

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
        one = {name: column[n] for name, column in self.received.items()}
        told: dict[str, int | None] = {
            "received_packets": one["packets"],
            "received_bytes": one["bytes"] + FCS_BYTES * one["packets"],
        }
        if one["latencies"] and self.timed:
            told["latency_min_ns"] = one["latency_min_ns"] + self.shift_ns
            told["latency_max_ns"] = one["latency_max_ns"] + self.shift_ns
            told["latency_mean_ns"] = round(one["latency_sum_ns"] / one["latencies"] + self.shift_ns)
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
    return f"{len(losing):,} with loss, the worst {one.name(n)}: {most:,} of {(one.sent or [])[n]:,} lost"
