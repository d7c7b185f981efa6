"""A probe from its association to its end: what is tried, in which order, and what is concluded from it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

from master.upf import features, messages
from master.upf.answers import Answer
from master.upf.probe import variants
from master.upf.probe.findings import WORKS, Area, Finding, Findings, Outcome
from master.upf.probe.packets import Tunnel, echo_request, tunnel_bytes
from master.upf.probe.plane import QUIET_S, UserPlane
from master.upf.probe.signalling import Encode, Signalling, values
from master.upf.probe.users import User, Users
from master.upf.probe.variants import Variant
from traffic.errors import BadInput, PktswarmError
from traffic.playing import ECHO_RESPONSE, END_MARKER, ERROR_INDICATION

LONGEST_S = 50.0
"""After that nothing more is tried; what is left is "not asked"."""
REPORT_S = 2.5
"""How long a report is awaited that is due after a second."""
SIZE_STEP_BYTES = 4
SMALLEST_BYTES, LARGEST_BYTES = 1200, 9000
NO_PLANE = Outcome("not asked", "the user plane was left out")
NO_REPORT = Outcome("not asked", "the session was not set to forward again")
TOO_LATE = Outcome("not asked", "the probe's time was over")


class UpfLostError(PktswarmError):
    """The UPF answers no heartbeat any more."""


@dataclass
class Session:
    """One session that stands."""

    user: User
    encoder: messages.GroupMessages
    values: dict[str, bytes]
    tunnels: list[Tunnel]


class Probe:
    """`findings` grows while run() works; `told` is called with the name of each thing before it is tried."""

    def __init__(
        self,
        signalling: Signalling,
        plane: UserPlane | None,
        n3_ipv6: str,
        base: dict[str, Any],
        told: Callable[[str], None],
    ) -> None:
        """`n3_ipv6`: the UPF's, if it has one; `base`: keys that each session needs."""
        self.n4, self.plane, self.n3_ipv6, self.told = signalling, plane, n3_ipv6, told
        self.upf = signalling.upf
        self.findings = Findings(self.upf.n4, group_keys=dict(base.get("group", {})))
        self.users = Users(signalling.where, self.upf, signalling.own, base)
        self._began = time.monotonic()

    def run(self) -> Findings:
        """BadInput where there is no association; UpfLostError where the UPF stops answering in the midst."""
        try:
            self._associate()
            plain = self._plain_session()
            if plain is not None:
                self._sessions()
                self._procedures()
                self._user_plane()
        finally:
            self._end()
            self.findings.seconds = time.monotonic() - self._began
        return self.findings

    # --- association ---------------------------------------------------------------------------------------------

    def _associate(self) -> None:
        self.told("association")
        answer = self.n4.associate()
        found = self.findings
        found.node_id, found.recovery_stamp = answer.node_id, answer.recovery_stamp
        found.features = features.names(answer.features)
        words = "features: " + (" ".join(found.features) or "none announced")
        self._add("association", "association setup", "TS 29.244 6.2.6", Outcome("works", words))
        self._add("association", "heartbeat", "TS 29.244 6.2.2", self._beat())

    def _beat(self) -> Outcome:
        answer = self.n4.ask(lambda sequence: messages.heartbeat_request(self.n4.own, sequence))
        return Outcome("no answer") if answer is None else WORKS

    def _end(self) -> None:
        """Deletes what stands, then asks for what only an association's end can show."""
        for seid in list(self.n4.sessions):
            self.n4.delete(seid)
        self.findings.left_sessions = len(self.n4.sessions)
        if self.findings.get("heartbeat") is None or not self._beat().works:
            return
        update = self.n4.ask(lambda sequence: messages.association_update_request(self.n4.own, sequence))
        self._add("association", "association update", "TS 29.244 6.2.7", self.n4.outcome(update))
        beats = self.n4.heartbeats
        words = f"{beats} in {time.monotonic() - self._began:.0f} s"
        own = Outcome("works", words) if beats else Outcome("not asked", "none came while the probe ran")
        self._add("association", "heartbeats of the UPF", "TS 29.244 6.2.2", own)
        release = self.n4.ask(lambda sequence: messages.association_release_request(self.n4.own, sequence))
        self._add("association", "association release", "TS 29.244 6.2.8", self.n4.outcome(release))

    def _add(
        self,
        area: Area,
        name: str,
        source: str,
        n4: Outcome | None = None,
        up: Outcome | None = None,
        down: Outcome | None = None,
    ) -> Finding:
        return self.findings.add(Finding(area, name, source, n4, up, down))

    # --- sessions of one packet each way -------------------------------------------------------------------------

    def _plain_session(self) -> Finding | None:
        """Tries the forms in which a UPF may want a plain session; the first one that works is the others' base."""
        found: list[tuple[Finding, dict[str, Any]]] = []
        for variant in (variants.TWO_OCTETS, variants.ONE_OCTET):
            found.append((self._try(variant), variant.upf))
        with_types = next((upf for finding, upf in found if finding.works), None)
        without = replace(variants.WITHOUT_TYPES, upf={**variants.WITHOUT_TYPES.upf, **(with_types or {})})
        found.append((self._try(without), without.upf))
        if with_types is None and not found[-1][0].works:
            older = replace(without, name=variants.WITHOUT_TYPES_OLD, upf={**without.upf, "release": 15})
            found.append((self._try(older), older.upf))
        accepted = [one for one in found if one[0].n4 is not None and one[0].n4.works]
        best = next((one for one in found if one[0].works), accepted[0] if accepted else None)
        if best is None:
            return None
        self.users.base = {**self.users.base, "upf": {**self.users.base.get("upf", {}), **best[1]}}
        return best[0]

    def _sessions(self) -> None:
        for variant in variants.PLAIN:
            self._try(variant)

    def _try(self, variant: Variant) -> Finding:
        n4, up, down = self._outcomes(variant)
        return self._add("session", variant.name, variant.source, n4, up, down)

    def _outcomes(self, variant: Variant) -> tuple[Outcome, Outcome | None, Outcome | None]:
        with self._session(variant) as (outcome, session):
            if session is None:
                return outcome, None, None
            if not variant.passes:
                return outcome, *self._closed(session)
            return outcome, *self._both_ways(session, variant)

    @contextlib.contextmanager
    def _session(self, variant: Variant) -> Iterator[tuple[Outcome, Session | None]]:
        """A session of this variant, deleted at the end; None if it is refused, not answered, or not asked for."""
        self.told(variant.name)
        if time.monotonic() - self._began > LONGEST_S:
            yield TOO_LATE, None
            return
        user = self.users.next()
        try:
            outcome, session = self._establish(variant, user)
        except BadInput as lacking:
            yield Outcome("not asked", lacking.problem), None
            return
        if outcome.state == "no answer" and not self._beat().works:
            raise UpfLostError(f"the UPF does not answer any more after: {variant.name}")
        try:
            yield outcome, session
        finally:
            if user.number in self.n4.sessions:
                self.n4.delete(user.number)

    def _establish(self, variant: Variant, user: User) -> tuple[Outcome, Session | None]:
        gnb, n3 = self._tunnel_ends(variant)
        encoder = self.users.messages(variant, user, gnb, n3)
        own = user.values(gnb)

        def encode(sequence: int) -> bytes:
            wanted = values(sequence, 0, **own)
            elements = encoder.establishment_elements(wanted)
            if variant.alter is not None:
                variant.alter(elements)
            return messages.encode_message("PFCPSessionEstablishmentRequest", 50, wanted, elements, session=True)

        outcome, answer = self.n4.establish(user.number, encode)
        if not outcome.works or answer is None:
            return outcome, None
        tunnels = self.users.tunnels(variant, user, answer)
        if isinstance(tunnels, str):
            return Outcome("wrong", tunnels), None
        return _with_choice(outcome, variant, answer), Session(user, encoder, own, tunnels)

    def _tunnel_ends(self, variant: Variant) -> tuple[str, str | None]:
        """The gNB's address and the UPF's; BadInput if there is none of the variant's kind."""
        if variant.outer == 4:
            return next(iter(self.upf.gnbs.values())), self.upf.n3
        gnb = "" if self.plane is None else self.plane.gnb.host.ipv6
        if not gnb or not self.n3_ipv6:
            raise BadInput(self.n4.where, "no IPv6 address of a gNB and of the UPF on N3 is known (n3_ipv6, ipv6)")
        return gnb, self.n3_ipv6

    def _plane_of(self, variant: Variant) -> UserPlane | None:
        if self.plane is None or variant.outer == 4:
            return self.plane
        return self.plane.over(*map(str, self._tunnel_ends(variant)))

    def _both_ways(self, session: Session, variant: Variant) -> tuple[Outcome, Outcome]:
        plane = self._plane_of(variant)
        if plane is None:
            return NO_PLANE, NO_PLANE
        if 6 in variant.ip and not plane.wiring.server_v6:
            lacking = Outcome("not asked", "no IPv6 address of a node of the data network is known")
            return lacking, lacking
        ups = [plane.up(tunnel) for tunnel in session.tunnels]
        downs = [plane.down(tunnel).outcome for tunnel in session.tunnels]
        return _first_trouble(ups), _first_trouble(downs)

    def _closed(self, session: Session) -> tuple[Outcome, Outcome]:
        if self.plane is None:
            return NO_PLANE, NO_PLANE
        tunnel = session.tunnels[0]
        passed = self.plane.up(tunnel, tries=1), self.plane.down(tunnel, tries=1).outcome
        up, down = (
            Outcome("wrong", "a packet passed a closed gate") if one.works else Outcome("works", "nothing passed")
            for one in passed
        )
        return up, down

    # --- procedures within a session -----------------------------------------------------------------------------

    def _procedures(self) -> None:
        for variant, procedure in (
            (variants.VOLUME, self._volume_report),
            (variants.TIME, self._time_report),
            (variants.QUERY, self._query),
            (variants.BUFFER, self._buffering),
            (variants.HANDOVER, self._handover),
            (variants.INACTIVITY, self._inactivity),
        ):
            with self._session(variant) as (outcome, session):
                up: Outcome | None = None
                down: Outcome | None = None
                if session is not None:
                    outcome, up, down = procedure(session)
            self._add("session", variant.name, variant.source, outcome, up, down)
        self._deletion()

    def _volume_report(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self._both_ways(session, variants.VOLUME)
        report = self.n4.reported(session.user.number, lambda one: bool(one.usage), REPORT_S)
        return self._usage_outcome(None if report is None else report.usage, "no usage report came"), up, down

    def _time_report(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self._both_ways(session, variants.TIME)
        report = self.n4.reported(session.user.number, lambda one: bool(one.usage), REPORT_S)
        if report is None:
            return Outcome("no answer", f"no usage report came within {REPORT_S:g} s of a threshold of 1 s"), up, down
        seconds = report.usage[0].duration_s
        words = "a report without a duration" if seconds is None else f"reported {seconds} s"
        return Outcome("works" if seconds else "wrong", words), up, down

    def _query(self, session: Session) -> tuple[Outcome, Outcome, Outcome]:
        up, down = self._both_ways(session, variants.QUERY)
        answer = self._modify(session, lambda wanted: session.encoder.query(wanted))
        refused = self.n4.outcome(answer)
        if answer is None or not refused.works:
            return refused, up, down
        return self._usage_outcome(answer.usage, "accepted without a usage report"), up, down

    def _usage_outcome(self, usage: Any, missing: str) -> Outcome:
        if not usage:
            return Outcome("no answer" if "came" in missing else "wrong", missing)
        one = usage[0]
        figures = (("uplink", one.uplink_bytes), ("downlink", one.downlink_bytes), ("total", one.total_bytes))
        words = ", ".join(f"{name} {value} bytes" for name, value in figures if value is not None)
        measured = any(value for _, value in figures)
        if self.plane is not None and not measured:
            return Outcome("wrong", f"a report without what passed: {words or 'no volume'}")
        return Outcome("works", words or "a report without a volume")

    def _buffering(self, session: Session) -> tuple[Outcome, None, Outcome]:
        outcome = self.n4.outcome(self._modify(session, session.encoder.modification("notify")))
        if not outcome.works or self.plane is None:
            return outcome, None, NO_PLANE
        number = self.plane.send_down(session.tunnels[0])
        report = self.n4.reported(session.user.number, lambda one: one.downlink_data, REPORT_S)
        if self.plane.arrives(number, QUIET_S) is not None:
            return outcome, None, Outcome("wrong", "the packet was forwarded, not buffered")
        if report is None:
            return Outcome("no answer", "no downlink data report came"), None, NO_REPORT
        forward = self.n4.outcome(self._modify(session, session.encoder.modification("forward")))
        if not forward.works:
            return forward, None, NO_REPORT
        came = self.plane.arrives(number, REPORT_S)
        lost = Outcome("wrong", "the buffered packet did not come after the action was set to forward")
        return WORKS, None, WORKS if came is not None else lost

    def _handover(self, session: Session) -> tuple[Outcome, None, Outcome]:
        """The tunnel moves to another TEID of the gNB; the old one gets the end marker."""
        old = session.tunnels[0]
        new_teid = old.downlink_teid + 0x1000
        session.values = session.values | {"downlink_teid": new_teid.to_bytes(4, "big")}
        outcome = self.n4.outcome(self._modify(session, session.encoder.modification("forward", end_marker=True)))
        if not outcome.works or self.plane is None:
            return outcome, None, NO_PLANE
        marker = self.plane.message(None, END_MARKER, QUIET_S)
        moved = self.plane.down(replace(old, downlink_teid=new_teid)).outcome
        if marker is None:
            outcome = Outcome("no answer", "accepted, but no end marker came")
        elif marker.teid != old.downlink_teid:
            outcome = Outcome("wrong", f"the end marker has TEID {marker.teid:#x}, expected {old.downlink_teid:#x}")
        return outcome, None, moved

    def _inactivity(self, session: Session) -> tuple[Outcome, None, None]:
        report = self.n4.reported(session.user.number, lambda one: one.inactivity, REPORT_S)
        silent = Outcome("no answer", f"no report within {REPORT_S:g} s of a timer of {variants.INACTIVITY_S} s")
        return silent if report is None else WORKS, None, None

    def _deletion(self) -> None:
        """Deletion of a session with a URR: its answer has what passed."""
        with self._session(variants.QUERY) as (outcome, session):
            if session is not None:
                if self.plane is not None:
                    self.plane.up(session.tunnels[0])
                outcome, answer = self.n4.delete(session.user.number)
                if outcome.works and answer is not None:
                    outcome = self._usage_outcome(answer.usage, "accepted without a usage report")
        self._add("session", "deletion with usage report", "TS 29.244 7.5.7", outcome)

    def _modify(self, session: Session, encode: Callable[[dict[str, bytes]], bytes]) -> Answer | None:
        remote = self.n4.sessions[session.user.number]
        request: Encode = lambda sequence: encode(values(sequence, remote, **session.values))  # noqa: E731
        return self.n4.ask(request)

    # --- the user plane ------------------------------------------------------------------------------------------

    def _user_plane(self) -> None:
        if self.plane is None:
            return
        self._echo(self.plane)
        self._error_indication(self.plane)
        with self._session(variants.CONTAINER) as (outcome, session):
            if session is not None:
                self._container(self.plane, session.tunnels[0])
        with self._session(Variant("largest packet", "TS 29.281 4.4")) as (outcome, session):
            if session is not None:
                up, down = self._largest(self.plane, session.tunnels[0])
                self._add("user plane", "largest packet", "TS 23.060 9.3", up=up, down=down)

    def _echo(self, plane: UserPlane) -> None:
        self.told("GTP-U echo")
        came = plane.message(echo_request(plane.wiring, 4711), ECHO_RESPONSE)
        outcome = Outcome("no answer") if came is None else WORKS
        if came is not None and came.sequence != 4711:
            outcome = Outcome("wrong", f"sequence number {came.sequence}, expected 4711")
        self._add("user plane", "GTP-U echo", "TS 29.281 7.2.1", up=outcome)

    def _error_indication(self, plane: UserPlane) -> None:
        self.told("error indication")
        user = self.users.next()
        plane.send_up(Tunnel(user.v4 or user.v6, user.uplink_teid, user.downlink_teid))
        came = plane.message(None, ERROR_INDICATION)
        outcome = Outcome("no answer", "none for an unknown TEID") if came is None else WORKS
        self._add("user plane", "error indication", "TS 29.281 7.3.1", up=outcome)

    def _container(self, plane: UserPlane, tunnel: Tunnel) -> None:
        """Whether the UPF takes a PDU session container up (by then it was tried), and adds one down."""
        up, down = plane.up(tunnel), plane.down(tunnel)
        words = "added" if down.has_container else "not added"
        shown = Outcome(down.outcome.state, words) if down.outcome.works else down.outcome
        self._add("user plane", "PDU session container", "TS 38.415", up=up, down=shown)

    def _largest(self, plane: UserPlane, tunnel: Tunnel) -> tuple[Outcome, Outcome]:
        """The longest user's packet that passes each way, by halving; within what the ends' interfaces let through."""
        up_bytes = plane.gnb.mtu_bytes - tunnel_bytes(plane.wiring, False)

        def passes_up(ip_bytes: int) -> bool:
            return plane.up(tunnel, ip_bytes, tries=1).works

        def passes_down(ip_bytes: int) -> bool:
            return plane.down(tunnel, ip_bytes, tries=1).outcome.works

        return _longest(passes_up, up_bytes), _longest(passes_down, plane.server.mtu_bytes)


def _longest(passes: Callable[[int], bool], most: int) -> Outcome:
    """`most`: what can be sent at all."""
    least, beyond = SMALLEST_BYTES, min(most, LARGEST_BYTES) + 1
    if not passes(least):
        return Outcome("wrong", f"no packet of {least} bytes passes")
    if passes(beyond - 1):
        return Outcome("works", f"{beyond - 1} bytes, as much as the sender's MTU allows")
    beyond -= 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if passes(middle) else (least, middle)
    return Outcome("works", f"{least} bytes; {beyond} bytes are lost")


def _first_trouble(outcomes: list[Outcome]) -> Outcome:
    return next((one for one in outcomes if not one.works), outcomes[0])


def _with_choice(outcome: Outcome, variant: Variant, answer: Answer) -> Outcome:
    """Names what the UPF chose."""
    if variant is variants.CHOSEN_TEID:
        return Outcome("works", f"TEID {answer.teid:#x}")
    if variant is variants.CHOSEN_USER and answer.ue_v4 is not None:
        return Outcome("works", str(IPv4Address(answer.ue_v4)))
    return outcome
