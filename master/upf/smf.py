"""The SMF: one association with one UPF, its heartbeats, and the sessions of the scenario's groups (docs/upf.md).

All work is done inside `run` and its callers; between two calls the UPF gets no response. `background.Background` calls
`run` in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.upf import Group, Upf
from pktswarm.master.scenario.upf_features import names as feature_names
from pktswarm.master.scenario.upf_profile import Numbered
from pktswarm.master.upf import pfcp_decode, pfcp_encode
from pktswarm.master.upf.document import EventRow
from pktswarm.master.upf.operations import Delete, Establish, Modify, Operation, add_usage
from pktswarm.master.upf.pfcp_decode import ACCEPTED, NO_ASSOCIATION, NO_CONTEXT, Answer, Header
from pktswarm.master.upf.pfcp_encode import Action, GroupMessages, Own
from pktswarm.master.upf.pfcp_transport import Exchange
from pktswarm.master.upf.sessions import ESTABLISHED, LOST, Sessions
from pktswarm.master.upf.sources import Bulk, Heartbeats, Queue, Single
from pktswarm.master.upf.statistics import Statistics
from pktswarm.master.upf.template import Template, Values
from pktswarm.master.upf.unreleased import Record
from pktswarm.traffic.errors import BadInput

NTP_TO_UNIX_S = 2_208_988_800
MOST_TO_ASSOCIATE_S = 4.5
"""An N4 address without a response is reported within 5 s, whatever T1 and N1 are."""
KEPT_ANSWERS = 4096
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True)
class Event:
    """An event of the association.

    kind: associated, profiled, replaced, waited, numbered, restarted, gone, forgotten, released, unreleased, report.
    """

    unix_ns: int
    kind: str
    words: str

    def to_json(self) -> EventRow:
        return {"unix_ns": self.unix_ns, "kind": self.kind, "words": self.words}


class Smf:
    """A context that deletes sessions and releases the association at its end, whatever ends it."""

    def __init__(self, where: Path, upf: Upf) -> None:
        self.where, self.upf = (
            where,
            upf.model_copy(deep=True),
        )  # a copy: _number() sets TEIDs that the UPF does not choose
        self.exchange = Exchange(where, upf, self._serve)
        self.exchange.silent = self._stop_on_silence
        address = self.exchange.address
        self.own = Own(address, upf.node_id or address, int(time.time()) + NTP_TO_UNIX_S)
        self._record = Record(address, upf.n4)
        self.sessions = Sessions(self.upf)
        self.events: list[Event] = []
        self.upf_stamp: int | None = None
        self.upf_node_id = ""
        self.features = b""
        self.alive = False
        self.heartbeats_answered = 0
        self.notified: Callable[[int], None] = self._forward
        self.progress: Callable[[int, int], None] = lambda done, asked: None
        """Called twice a second during a procedure of many sessions, with the sessions answered and all of them."""
        self._next_progress = 0.0
        self._groups = [GroupMessages(self.upf, group, self.own) for group in self.upf.groups]
        self._served: dict[tuple[int, int], bytes] = {}
        self._heartbeat = Template(lambda values: pfcp_encode.heartbeat_response(self.own, _sequence(values)))
        self._report = {cause: _report_template(cause) for cause in (ACCEPTED, NO_CONTEXT)}
        self.heartbeats = Heartbeats(self.exchange, self._encoder(pfcp_encode.heartbeat_request), upf.heartbeat_s)
        self.heartbeats.stamp = self._stamp
        self.establishing = self.operation(Establish, lambda messages: messages.establishment)
        self.deleting = self.operation(Delete, lambda messages: pfcp_encode.session_deletion_request)
        self.modifying = {
            action: self.operation(Modify, lambda messages, action=action: messages.modification(action))  # type: ignore[misc] # mypy cannot infer the lambda
            for action in ("forward", "buffer", "notify")
        }
        self.paging = Queue(self.modifying["forward"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            self.exchange.close()

    def associate(self) -> None:
        """Sets up the association.

        Raises BadInput without a response, on a refusal, and if the UPF lacks a feature that a group needs.
        """
        before = self._record.read()
        answer = self._set_up()
        self.upf_stamp, self.upf_node_id = answer.recovery_stamp, answer.node_id
        self.features, self.alive = answer.features, True
        self._add_event("associated", f"with {self.upf_node_id or self.upf.n4}")
        if before is not None and (left_s := before.left_s(self.upf_stamp)):
            self._outlast(left_s)
        self._show_stamp()
        self._keep_record()
        self._note_profile()
        self._check_features()
        self.exchange.sources.append(self.paging)

    def _note_profile(self) -> None:
        profile = self.upf.found_profile
        if profile is None:
            return
        self._add_event("profiled", f"profile {self.upf.profile}: {profile.describe()}")
        if other := profile.of_another(self.upf_node_id, feature_names(self.features)):
            self._add_event("profiled", f"profile {self.upf.profile} is {other}; make it again with pktswarm upf probe")

    def _set_up(self) -> Answer:
        """Returns the response that accepts the association; after a refusal, releases it and requests it once more."""
        answer = self._ask_for_association()
        if answer.cause == ACCEPTED:
            return answer
        refused = answer.description
        if self._single(pfcp_encode.association_release_request, MOST_TO_ASSOCIATE_S).answer is not None:
            answer = self._ask_for_association()
        if answer.cause != ACCEPTED:
            words = f"the UPF refuses the association with {self.own.node_id}: {refused}; "
            raise BadInput(self.where, words + self._without_sessions(), key="upf.n4", value=self.upf.n4)
        self._add_event("replaced", f"the UPF held a previous association ({refused}): released and set up again")
        return answer

    def _ask_for_association(self) -> Answer:
        started_ns = time.monotonic_ns()
        attempt = self._single(pfcp_encode.association_setup_request, MOST_TO_ASSOCIATE_S)
        if attempt.answer is not None:
            return attempt.answer
        seconds = (time.monotonic_ns() - started_ns) / 1e9
        words = f"no response to {self.exchange.counts.sent} Association Setup Request(s) with Node ID "
        words += f"{self.own.node_id}, sent from {self.own.address} to UDP port {self.upf.n4_port} "
        words += f"in {seconds:.1f} s ({attempt.problem or self.exchange.trouble or 'no answer'}); "
        raise BadInput(self.where, words + self._without_sessions(), key="upf.n4", value=self.upf.n4)

    def _without_sessions(self) -> str:
        return f"no session of group {', '.join(group.name for group in self.upf.groups)} established"

    def _single(self, encode: Callable[[Own, int], bytes], most_s: float | None = None) -> Single:
        """Sends one request outside of any session, and returns its outcome."""
        attempt = Single(self.exchange, self._encoder(encode))
        self.exchange.sources.append(attempt)
        self.exchange.run(lambda: attempt.done, most_s)
        if attempt in self.exchange.sources:  # unless the UPF is lost meanwhile
            self.exchange.sources.remove(attempt)
        return attempt

    def _outlast(self, left_s: float) -> None:
        """Waits until the UPF cannot delete the association for heartbeats that an earlier run left unanswered.

        That is when one of its heartbeats is answered, or after `left_s`, when the association is set up once more.
        """
        began = time.monotonic()
        self.exchange.run(lambda: self.heartbeats_answered > 0, left_s)
        if not self.heartbeats_answered:
            self._set_up()
        waited_s = time.monotonic() - began
        words = f"waited {waited_s:.1f} s: the UPF may hold an association that an earlier run did not release"
        self._add_event("waited", words)

    def _show_stamp(self) -> None:
        """Exchanges a heartbeat before there is a session.

        A UPF that holds a previous association (open5gs) reads the recovery time stamp in heartbeats only, and deletes
        all sessions if it is a new one.
        """
        self.heartbeats.due_ns = 0
        self.exchange.sources.append(self.heartbeats)
        beats = self.heartbeats.statistics
        self.exchange.run(lambda: not self.alive or (beats.requested > 0 and not beats.outstanding))

    def _keep_record(self) -> None:
        if self.upf_stamp is not None:
            self._record.write(self.upf_stamp)

    def _check_features(self) -> None:
        """Numbers TEIDs and users that the UPF does not choose; BadInput if the file has `choose`."""
        for index, group in enumerate(self.upf.groups):
            if group.first_teid == "choose" and not self._chooses_teids(group):
                if "first_teid" in group.model_fields_set or self.upf.numbering_lacks(group):
                    raise self._lacking(index, "first_teid", "FTUP: it does not choose TEIDs")
                self._number(index, group)
            if group.ue_addresses == "choose" and not self._chooses("ue_addresses"):
                if "ue_addresses" in group.model_fields_set:
                    raise self._lacking(index, "ue_addresses", "UEIP: it does not choose UE addresses")
                self._number_users(index, group)

    def _chooses(self, what: Numbered) -> bool:
        """Returns whether the UPF announces to choose TEIDs (FTUP) or addresses (UEIP), and does (its profile)."""
        announced = pfcp_decode.chooses_ue_addresses if what == "ue_addresses" else pfcp_decode.chooses_teids
        return announced(self.features) and what not in self.upf.numbered

    def _chooses_teids(self, group: Group) -> bool:
        over_ipv6 = ":" in self.upf.gnbs[self.upf.gnbs_of(group)[0]]
        return self._chooses("teids") and not (over_ipv6 and not self._chooses("teids_ipv6"))

    def _number_users(self, index: int, group: Group) -> None:
        try:
            self.upf.number_users(index)
        except ValueError as problem:
            raise BadInput(self.where, str(problem), key=f"upf.groups.{index}.ue_addresses") from None
        self.sessions.fill(index, group)
        ends = [f"{pool.address(0)} to {pool.address(group.sessions - 1)}" for pool in group.pools()]
        words = f"group {group.name}: the UPF does not choose UE addresses (UEIP): numbered from {', '.join(ends)}"
        self._add_event("numbered", words)

    def _lacking(self, index: int, key: str, words: str) -> BadInput:
        group = self.upf.groups[index]
        problem = f"group {group.name}: the UPF does not announce the feature {words}"
        allowed = "numbers"
        if key == "first_teid" and (needed := self.upf.numbering_lacks(group)):
            allowed = f"numbers, with {needed}"
        return BadInput(self.where, problem, key=f"upf.groups.{index}.{key}", value="choose", allowed=allowed)

    def _number(self, index: int, group: Group) -> None:
        group.first_teid = self.upf.next_teid()
        self.sessions.fill(index, group)
        last = group.first_teid + group.sessions - 1
        words = f"group {group.name}: the UPF does not choose TEIDs (FTUP): numbered from {group.first_teid} to {last}"
        self._add_event("numbered", words)

    def establish(self, rows: NDArray[np.int64] | None = None) -> Statistics:
        """Establishes all sessions but those of churn, as fast as the window allows; then their groups' `modify`."""
        chosen = self.lasting() if rows is None else rows
        self._bulk(self.establishing, chosen)
        for number, group in enumerate(self.upf.groups):
            if group.modify is not None:
                here = chosen[self.sessions.group[chosen] == number]
                self.modify(here[self.sessions.state[here] == ESTABLISHED], group.modify)
        return self.establishing.statistics

    def lasting(self) -> NDArray[np.int64]:
        """Rows of the groups that are established before the traffic starts."""
        churning = self.upf.churn.group if self.upf.churn else None
        parts = [self.sessions.rows_of(group.name) for group in self.upf.groups if group.name != churning]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def modify(self, rows: NDArray[np.int64], action: Action) -> Statistics:
        if action == "notify" and self.alive:
            self.paging.operation.make_ready(rows)
        self._bulk(self.modifying[action], rows)
        return self.modifying[action].statistics

    def run(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Serves the UPF, sends heartbeats and the sources' requests, until `done` or the loss of the UPF."""
        self.exchange.run(lambda: done() or not self.alive, seconds)

    def delete(self) -> Statistics:
        """Deletes every session that the UPF holds, and takes the usage reports of the responses."""
        self._bulk(self.deleting, self.sessions.held())
        return self.deleting.statistics

    def end(self) -> None:
        """Deletes sessions and releases the association. A second call does nothing."""
        self.exchange.sources[:] = [self.heartbeats] if self.alive else []
        if self.alive:
            self.exchange.run(lambda: not self.exchange.outstanding, self.upf.t1_s * self.upf.n1)
        if self.alive:
            self.delete()
        if self.alive:
            self.alive = False  # no session is left to lose by a timeout or a restart
            self._release()

    def _release(self) -> None:
        """Releases the association. Failure is not an error: the sessions are deleted, and many UPFs lack it."""
        self.exchange.sources.clear()
        if not self.upf.association_release:
            self._add_event(
                "unreleased", "association not released: according to its profile the UPF does not implement it"
            )
            return
        attempt = self._single(pfcp_encode.association_release_request)
        if attempt.answer is None:
            self._add_event(
                "unreleased", f"Association Release Request: {attempt.problem}; the sessions were deleted before"
            )
        elif attempt.answer.cause != ACCEPTED:
            self._add_event("unreleased", f"Association Release Request refused: {attempt.answer.description}")
        else:
            self._add_event("released", "the association")
            self._record.remove()

    def _bulk(self, operation: Operation, rows: NDArray[np.int64]) -> None:
        if not self.alive or not len(rows):
            return
        operation.make_ready(rows)
        bulk = Bulk(operation, rows)
        self.exchange.sources.append(bulk)

        def over() -> bool:
            left = bulk.unsent + operation.statistics.outstanding
            if time.monotonic() >= self._next_progress:
                self._next_progress = time.monotonic() + PROGRESS_EVERY_S
                self.progress(len(rows) - left, len(rows))
            return not self.alive or not left

        self.exchange.run(over)
        if bulk in self.exchange.sources:
            self.exchange.sources.remove(bulk)

    def operation(self, kind: type[Operation], message: Callable[[GroupMessages], Callable[..., bytes]]) -> Operation:
        def encode(number: int) -> Template:
            return Template(message(self._groups[number]))

        made = kind(self.exchange, self.sessions, Statistics(), encode)
        made.forgotten = self._forgotten
        return made

    def _encoder(self, encode: Callable[[Own, int], bytes]) -> Callable[[int], bytes]:
        return lambda sequence: encode(self.own, sequence)

    def _serve(self, header: Header, data: memoryview, length: int) -> bytes | None:
        """Returns the response to a request of the UPF; the same for a retransmission, whose report counts once."""
        key = (header.kind, header.sequence)
        if header.kind == pfcp_decode.HEARTBEAT_REQUEST:
            self.heartbeats_answered += 1
            if self.alive:
                self._keep_record()
            self._stamp(pfcp_decode.answer(data, length, header.body).recovery_stamp)
            return _patched(self._heartbeat, header.sequence)
        if key not in self._served:
            reply = self._reply(header, data, length)
            if reply is None:
                return None
            if len(self._served) >= KEPT_ANSWERS:
                del self._served[next(iter(self._served))]
            self._served[key] = reply
        return self._served[key]

    def _reply(self, header: Header, data: memoryview, length: int) -> bytes | None:
        if header.kind == pfcp_decode.SESSION_REPORT_REQUEST:
            return self._take_report(header, data, length)
        if header.kind == pfcp_decode.ASSOCIATION_SETUP_REQUEST:
            self._stamp(pfcp_decode.answer(data, length, header.body).recovery_stamp)
            return pfcp_encode.association_setup_response(self.own, header.sequence, ACCEPTED)
        if header.kind == pfcp_decode.ASSOCIATION_UPDATE_REQUEST:
            self._add_event("report", "the UPF updates the association")
            return pfcp_encode.association_update_response(self.own, header.sequence, ACCEPTED)
        if header.kind == pfcp_decode.NODE_REPORT_REQUEST:
            self._add_event("report", "the UPF reports a user plane path failure")
            return pfcp_encode.node_report_response(self.own, header.sequence, ACCEPTED)
        return None

    def _take_report(self, header: Header, data: memoryview, length: int) -> bytes:
        row = self.sessions.row_of(header.seid or 0)
        if row is None or not self.sessions.remote_seid[row]:
            return _patched(self._report[NO_CONTEXT], header.sequence)
        report = pfcp_decode.report(data, length, header.body)
        for usage in report.usage:
            add_usage(self.sessions, row, usage)
        if report.downlink_data:
            self.sessions.notifications[row] += 1
            if self.upf.forward_on_notification:
                self.notified(row)
        if report.error_indication:
            self._add_event("report", f"error indication for SEID {header.seid}")
        return _patched(self._report[ACCEPTED], header.sequence, int(self.sessions.remote_seid[row]))

    def _forward(self, row: int) -> None:
        self.paging.rows.append(row)

    def _stamp(self, stamp: int | None) -> None:
        if not self.alive or stamp is None or stamp == self.upf_stamp:
            return
        words = f"the UPF restarted: its recovery time stamp changed from {self.upf_stamp} to {stamp}"
        self._lose("restarted", words)

    def _stop_on_silence(self) -> None:
        if self.alive:
            silent_ns = time.monotonic_ns() - self.exchange.received_ns
            self._lose("gone", f"no response from the UPF for {silent_ns / 1e9:.1f} s")

    def _forgotten(self) -> None:
        """Handles the cause "no established PFCP association" of a request within a session."""
        if self.alive:
            words = f"the UPF no longer has an association with this SMF (cause {NO_ASSOCIATION}); probable cause: it "
            words += "deleted the association for unanswered heartbeats of an earlier run (docs/upf.md)"
            self._lose("forgotten", words)

    def _lose(self, kind: str, words: str) -> None:
        """Ends the association: established sessions are lost, outstanding requests fail."""
        self.alive = False
        self.exchange.abandon(words)
        established = np.flatnonzero(self.sessions.state == ESTABLISHED)
        self.sessions.state[established] = LOST
        self._add_event(kind, f"{words}; {len(established):,} sessions are lost" if len(established) else words)

    def _add_event(self, kind: str, words: str) -> None:
        self.events.append(Event(time.time_ns(), kind, words))


def _sequence(values: Values) -> int:
    return int.from_bytes(values["sequence"], "big")


def _report_template(cause: int) -> Template:
    def encode(values: Values) -> bytes:
        return pfcp_encode.session_report_response(_sequence(values), int.from_bytes(values["seid"], "big"), cause)

    return Template(encode)


def _patched(template: Template, sequence: int, seid: int = 0) -> bytes:
    made = bytearray(template.bytes)
    for place in template.places["sequence"]:
        made[place : place + 3] = sequence.to_bytes(3, "big")
    for place in template.places["seid"]:
        made[place : place + 8] = seid.to_bytes(8, "big")
    return bytes(made)
