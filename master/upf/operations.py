"""Session procedures (establishment, modification, usage query, deletion), and the effect of their responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.upf.pfcp_decode import ACCEPTED, NO_ASSOCIATION, Answer, Header, Usage
from pktswarm.master.upf.pfcp_transport import Exchange, Request
from pktswarm.master.upf.sessions import (
    DELETED,
    DOWNLINK,
    ESTABLISHED,
    LOST,
    REFUSED,
    TOTAL,
    UNANSWERED,
    UPLINK,
    Sessions,
)
from pktswarm.master.upf.statistics import Statistics
from pktswarm.master.upf.template import Template, big_endian

Hook = Callable[[int, bool, int], None]


class Operation:
    """One kind of request for any session, with a message template for each group, made on first use."""

    name = ""

    def __init__(
        self, exchange: Exchange, sessions: Sessions, statistics: Statistics, encode: Callable[[int], Template]
    ) -> None:
        self.exchange, self.sessions, self.statistics, self.encode = exchange, sessions, statistics, encode
        self.hook: Hook = lambda row, fine, now_ns: None
        """Called on a session's response or timeout, with row, whether it is accepted, and time."""
        self.forgotten: Callable[[], None] = lambda: None
        """Called when the UPF refuses with the cause NO_ASSOCIATION."""
        self._templates: dict[int, Template] = {}

    def requests(self, rows: NDArray[np.int64]) -> list[Request]:
        """Returns one request for each row."""
        self.make_ready(rows)
        self.prepare(rows)
        made: list[Request] = []
        groups = self.sessions.group[rows]
        changes = np.flatnonzero(np.diff(groups)) + 1
        for part in np.split(rows, changes):
            made += self._render(part)
        return made

    def sending(self, count: int) -> None:
        """Counts requests that are about to be sent."""
        if not self.statistics.requested:
            self.statistics.first_ns = time.monotonic_ns()
        self.statistics.requested += count

    def make_ready(self, rows: NDArray[np.int64]) -> None:
        """Encodes the templates of these sessions.

        It takes 0.1 s for each group, in which no response is read: to be called before the first request, as
        response times would include it.
        """
        for number in np.unique(self.sessions.group[rows]).tolist():
            if number not in self._templates:
                self._templates[number] = self.encode(number)

    def prepare(self, rows: NDArray[np.int64]) -> None:
        """Sets the columns that the messages are rendered from."""

    def _render(self, rows: NDArray[np.int64]) -> list[Request]:
        template = self._templates[int(self.sessions.group[rows[0]])]
        sequences = self.exchange.sequences(len(rows))
        columns = {**self.sessions.columns(rows), "sequence": big_endian(sequences, 3)}
        view = memoryview(template.render(columns, len(rows)).data).cast("B")
        length = len(template.bytes)
        starts = range(0, len(rows) * length, length)
        return [
            Request(sequence, view[at : at + length], self, row)
            for sequence, row, at in zip(sequences.tolist(), rows.tolist(), starts, strict=True)
        ]

    def answered(self, request: Request, header: Header, answer: Answer, now_ns: int) -> None:
        row = request.row
        self.statistics.response.add(now_ns - request.first_ns)
        self.statistics.last_ns = now_ns
        if answer.cause != ACCEPTED:
            self._refused(row, answer.description)
            self.refused(row, answer)
            self.hook(row, False, now_ns)
            if answer.cause == NO_ASSOCIATION:
                self.forgotten()
            return
        if self.sessions.row_of(header.seid or 0) != row:
            self.statistics.other_seid += 1
        problem = self.accepted(row, answer)
        if problem:
            self._refused(row, problem)
        else:
            self.statistics.accepted += 1
        self.hook(row, not problem, now_ns)

    def _refused(self, row: int, words: str) -> None:
        group = self.sessions.upf.groups[int(self.sessions.group[row])]
        self.statistics.failures[f"group {group.name}: {words}"] += 1

    def failed(self, request: Request, words: str, now_ns: int) -> None:
        self._refused(request.row, words)
        self.statistics.last_ns = now_ns
        self.unanswered(request.row)
        self.hook(request.row, False, now_ns)

    def repeated(self, request: Request) -> None:
        self.statistics.repeated += 1

    def late(self, request: Request, header: Header, answer: Answer) -> None:
        self.statistics.late += 1

    def accepted(self, row: int, answer: Answer) -> str:
        """Takes the response; returns what it lacks, or an empty text."""
        return ""

    def refused(self, row: int, answer: Answer) -> None: ...

    def unanswered(self, row: int) -> None: ...

    def take_usage(self, row: int, usage: Sequence[Usage] | None) -> None:
        for report in usage or ():
            add_usage(self.sessions, row, report)


def add_usage(sessions: Sessions, row: int, usage: Usage) -> None:
    sessions.usage_reports[row] += 1
    for bit, values, volume in (
        (UPLINK, sessions.uplink_bytes, usage.uplink_bytes),
        (DOWNLINK, sessions.downlink_bytes, usage.downlink_bytes),
        (TOTAL, sessions.total_bytes, usage.total_bytes),
    ):
        if volume is not None:
            values[row] += np.uint64(volume)
            sessions.measured[row] |= bit


class Establish(Operation):
    name = "establishment"

    def prepare(self, rows: NDArray[np.int64]) -> None:
        again = rows[self.sessions.state[rows] != 0]
        self.sessions.generation[again] += np.uint64(1)
        # The header's SEID is 0: the UPF's is not known yet (7.2.2.4.2).
        self.sessions.remote_seid[rows] = 0

    def accepted(self, row: int, answer: Answer) -> str:
        sessions = self.sessions
        if answer.remote_seid is None:
            sessions.state[row] = REFUSED
            return "accepted without an F-SEID"
        sessions.remote_seid[row] = answer.remote_seid
        problem = self._chosen(row, answer)
        sessions.state[row] = REFUSED if problem else ESTABLISHED
        return problem

    def _chosen(self, row: int, answer: Answer) -> str:
        """Takes what the UPF chose; returns what the response lacks."""
        sessions = self.sessions
        group = sessions.upf.groups[int(sessions.group[row])]
        if group.first_teid == "choose":
            at_v4 = sessions.gnb_addresses[sessions.gnb[row]].version == 4
            if answer.teid is None or (answer.upf_v4 if at_v4 else answer.upf_v6) is None:
                return "accepted without the F-TEID that the UPF was to choose"
            sessions.uplink_teid[row] = answer.teid
            sessions.upf_v4[row] = answer.upf_v4 or 0
            if answer.upf_v6 is not None:
                sessions.upf_v6[row] = np.frombuffer(answer.upf_v6, dtype=np.uint8)
        if group.ue_addresses == "choose":
            v4, v6 = group.families()
            if (v4 and answer.ue_v4 is None) or (v6 and answer.ue_v6 is None):
                return "accepted without the UE address that the UPF was to choose"
            sessions.ue_v4[row] = answer.ue_v4 or 0
            if answer.ue_v6 is not None:
                sessions.ue_v6[row] = np.frombuffer(answer.ue_v6, dtype=np.uint8)
        return ""

    def refused(self, row: int, answer: Answer) -> None:
        self.sessions.state[row] = REFUSED

    def unanswered(self, row: int) -> None:
        self.sessions.state[row] = UNANSWERED

    def late(self, request: Request, header: Header, answer: Answer) -> None:
        """Keeps the SEID of a session that failed here but exists at the UPF: it is deleted at the end."""
        self.statistics.late += 1
        row = request.row
        if answer.remote_seid is not None and self.sessions.row_of(header.seid or 0) == row:
            self.sessions.remote_seid[row] = answer.remote_seid


class Modify(Operation):
    name = "modification"

    def accepted(self, row: int, answer: Answer) -> str:
        self.sessions.gnb[row] = self.sessions.target[row]
        self.take_usage(row, answer.usage)
        return ""

    def refused(self, row: int, answer: Answer) -> None:
        self.sessions.target[row] = self.sessions.gnb[row]

    def unanswered(self, row: int) -> None:
        self.sessions.target[row] = self.sessions.gnb[row]


class Delete(Operation):
    name = "deletion"

    def accepted(self, row: int, answer: Answer) -> str:
        self.sessions.state[row] = DELETED
        self.take_usage(row, answer.usage)
        return ""

    def unanswered(self, row: int) -> None:
        if self.sessions.state[row] != DELETED:
            self.sessions.state[row] = LOST
