"""The N4 side of a probe: one association, one request at a time; the UPF's requests are answered and kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf import pfcp_decode, pfcp_encode
from pktswarm.master.upf.pfcp_decode import ACCEPTED, Answer, Header, Report
from pktswarm.master.upf.pfcp_encode import Own
from pktswarm.master.upf.pfcp_transport import Exchange
from pktswarm.master.upf.probe.findings import WORKS, Outcome
from pktswarm.master.upf.smf import NTP_TO_UNIX_S
from pktswarm.master.upf.sources import Single
from pktswarm.master.upf.unreleased import Record
from pktswarm.traffic.errors import BadInput

T1_S, N1 = 0.5, 2
"""Short, as each request that a UPF silently drops costs N1 × T1."""
TO_ASSOCIATE_S = 4.5
Encode = Callable[[int], bytes]
"""Returns a message with this sequence number."""


class Signalling:
    """`sessions`: the SMF's SEID → the UPF's, of established sessions."""

    def __init__(self, where: Path, upf: Upf) -> None:
        self.where = where
        self.upf = upf.model_copy(update={"t1_s": T1_S, "n1": N1})
        self.exchange = Exchange(where, self.upf, self._serve)
        address = self.exchange.address
        self.own = Own(address, upf.node_id or address, int(time.time()) + NTP_TO_UNIX_S)
        self.sessions: dict[int, int] = {}
        self.heartbeats = 0
        """Heartbeat requests of the UPF, answered."""
        self.reports: list[tuple[int, Report]] = []
        """Session Report Requests: the SMF's SEID, and the report."""
        self._served: dict[tuple[int, int], bytes | None] = {}
        self._record = Record(address, upf.n4)
        self._upf_stamp: int | None = None

    def close(self) -> None:
        self.exchange.close()

    def ask(self, encode: Encode, seconds: float | None = None) -> Answer | None:
        """Sends one request; returns its response, or None."""
        attempt = Single(self.exchange, encode)
        self.exchange.sources.append(attempt)
        self.exchange.run(lambda: attempt.done, seconds)
        self.exchange.sources.remove(attempt)
        return attempt.answer

    def associate(self) -> Answer:
        """Sets up the association. Raises BadInput on failure.

        Waits as a run does while the UPF may delete a previous association (Unreleased).
        """
        before = self._record.read()
        answer = self._set_up()
        if before is not None and (left_s := before.left_s(answer.recovery_stamp)):
            self.exchange.run(lambda: self.heartbeats > 0, left_s)
            answer = self._set_up() if not self.heartbeats else answer
        self._upf_stamp = answer.recovery_stamp
        self._keep_record()
        return answer

    def release(self) -> Outcome:
        outcome = self.outcome(self.ask(lambda sequence: pfcp_encode.association_release_request(self.own, sequence)))
        if outcome.works:
            self._record.remove()
        else:
            self._keep_record()
        return outcome

    def _keep_record(self) -> None:
        if self._upf_stamp is not None:
            self._record.write(self._upf_stamp)

    def _set_up(self) -> Answer:
        answer = self.ask(lambda sequence: pfcp_encode.association_setup_request(self.own, sequence), TO_ASSOCIATE_S)
        if answer is None or answer.cause != ACCEPTED:
            problem = "no response" if answer is None else f"the UPF refuses the association: {answer.description}"
            problem += f" (Association Setup Request from {self.own.address} to UDP port {self.upf.n4_port})"
            raise BadInput(self.where, problem, key="upf.n4", value=self.upf.n4)
        return answer

    def establish(self, seid: int, encode: Encode) -> tuple[Outcome, Answer | None]:
        """Requests a session; an accepted one is added to `sessions`."""
        answer = self.ask(encode)
        outcome = self.outcome(answer)
        if answer is not None and answer.remote_seid is not None and outcome.works:
            self.sessions[seid] = answer.remote_seid
        elif outcome.works:
            outcome = Outcome("wrong", "accepted without an F-SEID")
        return outcome, answer

    def delete(self, seid: int) -> tuple[Outcome, Answer | None]:
        remote = self.sessions.pop(seid)
        answer = self.ask(lambda sequence: pfcp_encode.session_deletion_request(values(sequence, remote)))
        if answer is None or answer.cause not in (ACCEPTED, pfcp_decode.NO_CONTEXT):
            self.sessions[seid] = remote
        return self.outcome(answer), answer

    def reported(self, seid: int, wanted: Callable[[Report], bool], seconds: float) -> Report | None:
        """Waits for a Session Report Request of this session; earlier reports are kept."""

        def found() -> Report | None:
            return next((report for local, report in self.reports if local == seid and wanted(report)), None)

        self.exchange.run(lambda: found() is not None, seconds)
        return found()

    def outcome(self, answer: Answer | None) -> Outcome:
        if answer is None:
            return Outcome("no answer", self.exchange.trouble)
        return WORKS if answer.cause == ACCEPTED else Outcome("refused", answer.description)

    def _serve(self, header: Header, data: memoryview, length: int) -> bytes | None:
        """Returns the response to a request of the UPF; the same for a retransmission."""
        key = header.kind, header.sequence
        if key not in self._served:
            self._served[key] = self._reply(header, data, length)
        return self._served[key]

    def _reply(self, header: Header, data: memoryview, length: int) -> bytes | None:
        if header.kind == pfcp_decode.HEARTBEAT_REQUEST:
            self.heartbeats += 1
            self._keep_record()
            return pfcp_encode.heartbeat_response(self.own, header.sequence)
        if header.kind == pfcp_decode.SESSION_REPORT_REQUEST:
            seid = header.seid or 0
            self.reports.append((seid, pfcp_decode.report(data, length, header.body)))
            remote = self.sessions.get(seid)
            cause = ACCEPTED if remote is not None else pfcp_decode.NO_CONTEXT
            return pfcp_encode.session_report_response(header.sequence, remote or 0, cause)
        if header.kind == pfcp_decode.NODE_REPORT_REQUEST:
            return pfcp_encode.node_report_response(self.own, header.sequence, ACCEPTED)
        if header.kind == pfcp_decode.ASSOCIATION_UPDATE_REQUEST:
            return pfcp_encode.association_update_response(self.own, header.sequence, ACCEPTED)
        return None


def values(sequence: int, remote_seid: int, **more: bytes) -> dict[str, bytes]:
    """Returns the fields for a message's encoder (template.WIDTHS)."""
    return {"sequence": sequence.to_bytes(3, "big"), "seid": remote_seid.to_bytes(8, "big"), **more}
