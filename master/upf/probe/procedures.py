"""Tests of procedures of a session: reports, buffering, handover, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pktswarm.master.upf.pfcp_decode import Usage
from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import WORKS, Outcome
from pktswarm.master.upf.probe.plane import QUIET_S
from pktswarm.master.upf.probe.trials import NO_PLANE, Session, Trials
from pktswarm.traffic.frames.responder import END_MARKER

REPORT_S = 2.5
"""Wait for a report that is due after 1 s."""
NO_USAGE = Outcome("wrong", "accepted without a usage report")
NO_REPORT = Outcome("not asked", "action not set to forward")


class Procedures:
    def __init__(self, trials: Trials) -> None:
        self.trials, self.n4, self.plane = trials, trials.n4, trials.plane

    def run(self) -> None:
        for variant, procedure in (
            (variants.VOLUME, self._volume_report),
            (variants.TIME, self._time_report),
            (variants.QUERY, self._query),
            (variants.BUFFER, self._buffering),
            (variants.HANDOVER, self._handover),
            (variants.INACTIVITY, self._inactivity),
        ):
            with self.trials.session(variant) as (outcome, session):
                up: Outcome | None = None
                down: Outcome | None = None
                if session is not None:
                    outcome, up, down = procedure(session)
            self.trials.add("session", variant.name, variant.source, outcome, up, down)
        self._deletion()

    def _volume_report(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self.trials.both_ways(session, variants.VOLUME)
        report = self.n4.reported(session.user.number, lambda report: bool(report.usage), REPORT_S)
        missing = Outcome("no answer", "no usage report received")
        return self._usage_outcome(None if report is None else report.usage, missing), up, down

    def _time_report(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self.trials.both_ways(session, variants.TIME)
        report = self.n4.reported(session.user.number, lambda report: bool(report.usage), REPORT_S)
        if report is None:
            return Outcome("no answer", f"no usage report within {REPORT_S:g} s of a threshold of 1 s"), up, down
        seconds = report.usage[0].duration_s
        words = "report without a duration" if seconds is None else f"reported {seconds} s"
        return Outcome("works" if seconds else "wrong", words), up, down

    def _query(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self.trials.both_ways(session, variants.QUERY)
        answer = self.trials.modify(session, lambda wanted: session.encoder.query(wanted))
        refused = self.n4.outcome(answer)
        if answer is None or not refused.works:
            return refused, up, down
        return self._usage_outcome(answer.usage, NO_USAGE), up, down

    def _buffering(self, session: Session) -> tuple[Outcome, None, Outcome]:
        outcome = self.n4.outcome(self.trials.modify(session, session.encoder.modification("notify")))
        if not outcome.works or self.plane is None:
            return outcome, None, NO_PLANE
        number = self.plane.send_down(session.tunnels[0])
        report = self.n4.reported(session.user.number, lambda report: report.downlink_data, REPORT_S)
        if self.plane.arrives(number, QUIET_S) is not None:
            return outcome, None, Outcome("wrong", "packet forwarded, not buffered")
        if report is None:
            return Outcome("no answer", "no downlink data report received"), None, NO_REPORT
        forward = self.n4.outcome(self.trials.modify(session, session.encoder.modification("forward")))
        if not forward.works:
            return forward, None, NO_REPORT
        buffered = self.plane.arrives(number, REPORT_S)
        lost = Outcome("wrong", "buffered packet not received after the action was set to forward")
        return WORKS, None, WORKS if buffered is not None else lost

    def _handover(self, session: Session) -> tuple[Outcome, None, Outcome]:
        """Moves the tunnel to another TEID of the gNB; the old one gets the end marker."""
        old = session.tunnels[0]
        new_teid = old.downlink_teid + 0x1000
        session.values = session.values | {"downlink_teid": new_teid.to_bytes(4, "big")}
        outcome = self.n4.outcome(self.trials.modify(session, session.encoder.modification("forward", end_marker=True)))
        if not outcome.works or self.plane is None:
            return outcome, None, NO_PLANE
        marker = self.plane.message(None, END_MARKER, QUIET_S)
        moved = self.plane.down(replace(old, downlink_teid=new_teid)).outcome
        if marker is None:
            outcome = Outcome("no answer", "accepted, but no end marker received")
        elif marker.teid != old.downlink_teid:
            outcome = Outcome("wrong", f"end marker with TEID {marker.teid:#x}, expected {old.downlink_teid:#x}")
        return outcome, None, moved

    def _inactivity(self, session: Session) -> tuple[Outcome, None, None]:
        report = self.n4.reported(session.user.number, lambda report: report.inactivity, REPORT_S)
        silent = Outcome("no answer", f"no report within {REPORT_S:g} s of a timer of {variants.INACTIVITY_S} s")
        return silent if report is None else WORKS, None, None

    def _deletion(self) -> None:
        """Deletes a session with a URR: the response has its usage."""
        with self.trials.session(variants.QUERY) as (outcome, session):
            if session is not None:
                if self.plane is not None:
                    self.plane.up(session.tunnels[0])
                outcome, answer = self.n4.delete(session.user.number)
                if outcome.works and answer is not None:
                    outcome = self._usage_outcome(answer.usage, NO_USAGE)
        self.trials.add("session", "deletion with usage report", "TS 29.244 7.5.7", outcome)

    def _usage_outcome(self, usage: Sequence[Usage] | None, missing: Outcome) -> Outcome:
        if not usage:
            return missing
        report = usage[0]
        figures = (("uplink", report.uplink_bytes), ("downlink", report.downlink_bytes), ("total", report.total_bytes))
        words = ", ".join(f"{name} {value} bytes" for name, value in figures if value is not None)
        measured = any(value for _, value in figures)
        if self.plane is not None and not measured:
            return Outcome("wrong", f"report without the volume of the packets: {words or 'none'}")
        return Outcome("works", words or "report without a volume")
