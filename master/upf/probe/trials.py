"""Trials of one session: established, tested with a packet each way, deleted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from pktswarm.master.upf import pfcp_encode
from pktswarm.master.upf.pfcp_decode import Answer
from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import WORKS, Area, Finding, Findings, Outcome
from pktswarm.master.upf.probe.packets import Tunnel
from pktswarm.master.upf.probe.plane import UserPlane
from pktswarm.master.upf.probe.signalling import Encode, Signalling, values
from pktswarm.master.upf.probe.users import User, Users
from pktswarm.master.upf.probe.variants import Variant
from pktswarm.traffic.errors import BadInput, PktswarmError

LONGEST_S = 50.0
"""Time limit: tests that would start later are "not asked"."""
NO_PLANE = Outcome("not asked", "user plane not tested")
TOO_LATE = Outcome("not asked", "time limit of the probe reached")


class UpfLostError(PktswarmError):
    """The UPF does not respond to heartbeats."""


@dataclass
class Session:
    """An established session."""

    user: User
    encoder: pfcp_encode.GroupMessages
    values: dict[str, bytes]
    tunnels: list[Tunnel]


@dataclass
class Trials:
    """Shared state of all tests of a probe.

    `plane`: None if no packets are sent. `n3_ipv6`: the UPF's N3 address, or empty. `progress`: called with the name of
    each test before it starts.
    """

    n4: Signalling
    plane: UserPlane | None
    n3_ipv6: str
    users: Users
    findings: Findings
    progress: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)

    def add(
        self,
        area: Area,
        name: str,
        source: str,
        n4: Outcome | None = None,
        up: Outcome | None = None,
        down: Outcome | None = None,
    ) -> Finding:
        return self.findings.add(Finding(area, name, source, n4, up, down))

    def attempt(self, variant: Variant) -> Finding:
        n4, up, down = self._outcomes(variant)
        return self.add("session", variant.name, variant.source, n4, up, down)

    def _outcomes(self, variant: Variant) -> tuple[Outcome, Outcome | None, Outcome | None]:
        with self.session(variant) as (outcome, session):
            if session is None:
                return outcome, None, None
            if not variant.passes:
                return outcome, *self._closed(session)
            return outcome, *self.both_ways(session, variant)

    @contextlib.contextmanager
    def session(self, variant: Variant) -> Iterator[tuple[Outcome, Session | None]]:
        """Yields a session of this variant, deleted at the end; None if it is refused, not answered or not tested."""
        self.progress(variant.name)
        if time.monotonic() - self.began > LONGEST_S:
            yield TOO_LATE, None
            return
        user = self.users.next()
        try:
            outcome, session = self._establish(variant, user)
        except BadInput as lacking:
            yield Outcome("not asked", lacking.problem), None
            return
        if outcome.state == "no answer" and not self.beat().works:
            raise UpfLostError(f"the UPF stopped responding after: {variant.name}")
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
            return pfcp_encode.encode_message("PFCPSessionEstablishmentRequest", 50, wanted, elements, session=True)

        outcome, answer = self.n4.establish(user.number, encode)
        if not outcome.works or answer is None:
            return outcome, None
        tunnels = self.users.tunnels(variant, user, answer)
        if isinstance(tunnels, str):
            return Outcome("wrong", tunnels), None
        return _with_choice(outcome, variant, answer), Session(user, encoder, own, tunnels)

    def _tunnel_ends(self, variant: Variant) -> tuple[str, str | None]:
        """Returns the gNB's and the UPF's address; BadInput if there is none of the variant's IP version."""
        if variant.outer == 4:
            return next(iter(self.n4.upf.gnbs.values())), self.n4.upf.n3
        gnb = "" if self.plane is None else self.plane.gnb.host.ipv6
        if not gnb or not self.n3_ipv6:
            raise BadInput(self.n4.where, "no IPv6 addresses of a gNB and of the UPF on N3 (n3_ipv6, ipv6)")
        return gnb, self.n3_ipv6

    def _plane_of(self, variant: Variant) -> UserPlane | None:
        if self.plane is None or variant.outer == 4:
            return self.plane
        return self.plane.over(*map(str, self._tunnel_ends(variant)))

    def both_ways(self, session: Session, variant: Variant) -> tuple[Outcome, Outcome]:
        plane = self._plane_of(variant)
        if plane is None:
            return NO_PLANE, NO_PLANE
        if 6 in variant.ip and not plane.wiring.server_v6:
            lacking = Outcome("not asked", "no IPv6 address of a node of the data network")
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
            Outcome("wrong", "packet passed a closed gate") if outcome.works else Outcome("works", "nothing passed")
            for outcome in passed
        )
        return up, down

    def modify(self, session: Session, encode: Callable[[dict[str, bytes]], bytes]) -> Answer | None:
        remote = self.n4.sessions[session.user.number]
        request: Encode = lambda sequence: encode(values(sequence, remote, **session.values))  # noqa: E731
        return self.n4.ask(request)

    def beat(self) -> Outcome:
        answer = self.n4.ask(lambda sequence: pfcp_encode.heartbeat_request(self.n4.own, sequence))
        return Outcome("no answer") if answer is None else WORKS


def _first_trouble(outcomes: list[Outcome]) -> Outcome:
    return next((outcome for outcome in outcomes if not outcome.works), outcomes[0])


def _with_choice(outcome: Outcome, variant: Variant, answer: Answer) -> Outcome:
    """Adds the value that the UPF chose."""
    if variant is variants.CHOSEN_TEID:
        return Outcome("works", f"TEID {answer.teid:#x}")
    if variant is variants.CHOSEN_USER and answer.ue_v4 is not None:
        return Outcome("works", str(IPv4Address(answer.ue_v4)))
    return outcome
