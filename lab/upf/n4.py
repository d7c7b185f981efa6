"""The UPF's side of N4: associations and sessions (3GPP TS 29.244). Bytes in, bytes out; sockets are the process's."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from pktswarm.lab.upf import ie
from pktswarm.lab.upf.ie import Cause, Ie, Message, Refused, elements, message, parse_header
from pktswarm.lab.upf.pool import Pool
from pktswarm.lab.upf.rules import ACCESS, BUFFER, CHOOSE, FORWARD, Pdr, number
from pktswarm.lab.upf.session import Addresses, Content, Key, Moved, Session, Tables, moved, own
from pktswarm.lab.upf.usage import usage_reports

MOST_SESSIONS = 65_536
KEPT_ANSWERS = 20_000
"""Stored answers to session requests: a retransmitted request gets the same answer."""
FIRST_TEID = 0x80000000
"""First of the TEIDs that this UPF chooses."""
FEATURES = bytes([0x10, 0x01, 0x04 | 0x10])
"""UP Function Features, section 8.2.25: FTUP; EMPU; UEIP and MNOP."""
_QUERY_ALL = 4
_DROP_BUFFERED = 1
"""PFCPSMReq-Flags, section 8.2.34."""
Peer = tuple[str, int]


class Hooks(Tables, Protocol):
    """The data path, beyond its tables."""

    def install(self, table: str, key: bytes, packed: bytes) -> None: ...
    def remove(self, table: str, key: bytes) -> None: ...
    def give_counts(self, index: int) -> None: ...
    def give_policer(self, index: int) -> None: ...
    def read_volume(self, index: int) -> tuple[int, int]: ...


class Waiting(Protocol):
    """Packets kept for users, and end markers."""

    def led_elsewhere(self, one: Moved) -> None: ...
    def forget(self, counts: int) -> None: ...


@dataclass
class Association:
    """The association with one SMF. `peer`: source of its setup request."""

    peer: Peer
    recovery: bytes
    sessions: set[int] = field(default_factory=set)
    missed: int = 0
    """Consecutive heartbeats without an answer."""


class N4:
    """Answers PFCP messages, and configures the data path accordingly."""

    def __init__(self, n3: Addresses, n4: tuple[bytes, bytes], tables: Hooks, waiting: Waiting) -> None:
        self.n3, (self.n4_ipv4, self.n4_ipv6) = n3, n4
        self.tables, self.waiting = tables, waiting
        self.pools = Pool("downlink4", 0x0A2D0001, 65_534, 4), Pool("downlink6", 0x20010DB8_00450000, 65_536, 8)
        """10.45.0.0/16 and 2001:db8:45::/48."""
        self.refuse_every = 0
        self.refuse_cause = int(Cause.REJECTED)
        self.ignore_mbr_every = 0
        self.establishments = 0
        """Session establishment requests since the faults were set."""
        self._seids = itertools.count(1)
        self._teids = itertools.count(FIRST_TEID)
        self._sequences = itertools.count(1)
        self._forget()

    def _forget(self) -> None:
        self.recovery = ie.ie(Ie.RECOVERY_TIME_STAMP, ie.time_stamp(time.time()))
        self.associations: dict[bytes, Association] = {}
        self.sessions: dict[int, Session] = {}
        self.owners: dict[Key, int] = {}
        self.by_counts: dict[int, tuple[Session, int]] = {}
        """Index of counters → session and number of the PDR."""
        self._answers: OrderedDict[tuple[Peer, bytes], bytes] = OrderedDict()

    def restart(self) -> None:
        """Restarts as after a power failure: no state, and a new recovery time stamp."""
        before = self.recovery
        for session in list(self.sessions.values()):
            self._end(session)
        self._forget()
        if self.recovery == before:
            stamp = number(before[4:]) + 1
            self.recovery = ie.ie(Ie.RECOVERY_TIME_STAMP, stamp.to_bytes(4, "big"))

    def handle(self, data: bytes, peer: Peer) -> bytes | None:
        """Returns the answer to a message; None: it gets none."""
        try:
            kind, seid, sequence, at = parse_header(data)
        except ValueError as error:
            return message(Message.VERSION_NOT_SUPPORTED_RESPONSE, 0, b"") if str(error) == "version" else None
        if kind in _ANSWERS:
            self._take_response(kind, peer)
            return None
        if kind not in _REQUESTS:
            return None
        if seid is None:
            return message(kind + 1, sequence, self._answer_node(kind, data[at:], peer))
        key = (peer, data)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._answer(kind, seid, sequence, data[at:], peer)
            if len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return answer

    def _answer(self, kind: int, seid: int, sequence: int, body: bytes, peer: Peer) -> bytes:
        session = self.sessions.get(seid)
        to = session.peer_seid if session else 0
        try:
            if kind == Message.SESSION_ESTABLISHMENT_REQUEST:
                to, answer = self._establish(body, peer)
            elif session is None:
                raise Refused(Cause.SESSION_NOT_FOUND)
            else:
                answer = _SESSION[kind](self, session, body)
        except Refused as error:
            if kind == Message.SESSION_ESTABLISHMENT_REQUEST:
                to = _peer_seid(body)
            answer = self._refusal(kind, error)
        except (struct.error, IndexError):
            answer = self._refusal(kind, Refused(Cause.INVALID_LENGTH))
        return message(kind + 1, sequence, answer, to)

    def _answer_node(self, kind: int, body: bytes, peer: Peer) -> bytes:
        try:
            return _NODE[kind](self, body, peer)
        except Refused as error:
            return b"" if kind == Message.HEARTBEAT_REQUEST else ie.node_id(self.n4_ipv4) + _cause(error.cause)

    def _refusal(self, kind: int, error: Refused) -> bytes:
        body = ie.node_id(self.n4_ipv4) if kind == Message.SESSION_ESTABLISHMENT_REQUEST else b""
        body += ie.ie(Ie.CAUSE, bytes([error.cause]))
        if error.offending:
            body += ie.ie(Ie.OFFENDING_IE, struct.pack(">H", error.offending))
        if error.failed:
            rule, which = error.failed
            size = (2, 4, 4, 4)[rule]
            body += ie.ie(Ie.FAILED_RULE_ID, bytes([rule]) + (which & (1 << 8 * size) - 1).to_bytes(size, "big"))
        return body

    # ---- the node

    def _heartbeat(self, body: bytes, peer: Peer) -> bytes:
        return self.recovery

    def _set_up(self, body: bytes, peer: Peer) -> bytes:
        found = _first(body)
        own = ie.node_id(self.n4_ipv4)
        for kind in (Ie.NODE_ID, Ie.RECOVERY_TIME_STAMP):
            if kind not in found:
                return own + ie.ie(Ie.CAUSE, bytes([Cause.MANDATORY_MISSING])) + self.recovery
        node = found[Ie.NODE_ID]
        # Section 6.2.6.2.2: a setup for a known node ends its previous association.
        self._release_node(node)
        # A restarted SMF may reuse the sequence numbers of its requests.
        self._answers = OrderedDict((key, one) for key, one in self._answers.items() if key[0][0] != peer[0])
        self.associations[node] = Association(peer, found[Ie.RECOVERY_TIME_STAMP])
        features = ie.ie(Ie.UP_FUNCTION_FEATURES, FEATURES)
        return own + ie.ie(Ie.CAUSE, bytes([Cause.ACCEPTED])) + self.recovery + features

    def _update(self, body: bytes, peer: Peer) -> bytes:
        known = _first(body).get(Ie.NODE_ID) in self.associations
        return ie.node_id(self.n4_ipv4) + _cause(Cause.ACCEPTED if known else Cause.NO_ASSOCIATION)

    def _release(self, body: bytes, peer: Peer) -> bytes:
        node = _first(body).get(Ie.NODE_ID, b"")
        known = node in self.associations
        self._release_node(node)
        return ie.node_id(self.n4_ipv4) + _cause(Cause.ACCEPTED if known else Cause.NO_ASSOCIATION)

    def _release_node(self, node: bytes) -> None:
        association = self.associations.pop(node, None)
        for seid in list(association.sessions) if association else []:
            self._end(self.sessions[seid])

    def _take_response(self, kind: int, peer: Peer) -> None:
        for association in self.associations.values():
            if kind == Message.HEARTBEAT_RESPONSE and association.peer[0] == peer[0]:
                association.missed = 0

    def heartbeats(self, most_missed: int) -> list[tuple[bytes, Peer]]:
        """Returns a heartbeat for each SMF, to its PFCP port; ends associations with `most_missed` unanswered ones."""
        for node, association in list(self.associations.items()):
            if association.missed >= most_missed:
                self._release_node(node)
            association.missed += 1
        return [
            (message(Message.HEARTBEAT_REQUEST, self._sequence(), self.recovery), (each.peer[0], ie.PORT))
            for each in self.associations.values()
        ]

    def _sequence(self) -> int:
        return next(self._sequences) & 0xFFFFFF

    # ---- sessions

    def _establish(self, body: bytes, peer: Peer) -> tuple[int, bytes]:
        request = elements(body)
        found = dict(reversed(request))  # the first of each type
        for kind in (Ie.NODE_ID, Ie.F_SEID, Ie.CREATE_PDR, Ie.CREATE_FAR):
            if kind not in found:
                raise Refused(Cause.MANDATORY_MISSING, kind)
        association = self.associations.get(found[Ie.NODE_ID])
        if association is None:
            raise Refused(Cause.NO_ASSOCIATION)
        self.establishments += 1
        if self.refuse_every and self.establishments % self.refuse_every == 0:
            raise Refused(self.refuse_cause)
        if len(self.sessions) >= MOST_SESSIONS:
            raise Refused(Cause.NO_RESOURCES)
        seid = next(self._seids)
        session = Session(seid, *_f_seid(found[Ie.F_SEID], peer), found[Ie.NODE_ID])
        content = Content()
        content.apply(request)
        if self.ignore_mbr_every and self.establishments % self.ignore_mbr_every == 0:
            content.qers = {which: replace(qer, mbr=None) for which, qer in content.qers.items()}
        created = self._change(session, content)
        self.sessions[seid] = session
        association.sessions.add(seid)
        at, address = (b"\1", self.n4_ipv6) if ":" in peer[0] else (b"\2", self.n4_ipv4)
        own = ie.ie(Ie.F_SEID, at + seid.to_bytes(8, "big") + address)
        return session.peer_seid, ie.node_id(self.n4_ipv4) + _cause(Cause.ACCEPTED) + own + created

    def _modify(self, session: Session, body: bytes) -> bytes:
        request = elements(body)
        found = dict(reversed(request))  # the first of each type
        flags = found.get(Ie.PFCPSMREQ_FLAGS, b"\0")[0]
        queried = [number(each) for kind, one in request if kind == Ie.QUERY_URR for _, each in elements(one)]
        to = _f_seid(found[Ie.F_SEID], (session.peer, 0)) if Ie.F_SEID in found else (session.peer_seid, session.peer)
        before, content = session.content, session.content.copy()
        content.apply(request)
        created = self._change(session, content)
        session.peer_seid, session.peer = to
        if flags & _DROP_BUFFERED:
            for pdr in content.pdrs.values():
                self.waiting.forget(pdr.counts)
        for one in moved(before, content):
            if one.after.action & FORWARD:
                session.notified.discard(one.pdr.id)
            if one.before.action & BUFFER or one.end_marker:
                self.waiting.led_elsewhere(one)
        which = list(content.urrs) if flags & _QUERY_ALL else [each for each in queried if each in content.urrs]
        reports = usage_reports(session, which, self.tables.read_volume, Ie.USAGE_REPORT_MODIFICATION)
        return _cause(Cause.ACCEPTED) + created + reports

    def _delete(self, session: Session, body: bytes) -> bytes:
        which = list(session.content.urrs)
        reports = usage_reports(session, which, self.tables.read_volume, Ie.USAGE_REPORT_DELETION)
        self._end(session)
        return _cause(Cause.ACCEPTED) + reports

    def _change(self, session: Session, content: Content) -> bytes:
        """Sets the session's content, in the data path too. Returns Created PDRs; on Refused nothing has changed."""
        content.check(self.n3)
        created = self._choose(content)
        by_key = content.by_key()
        for key, pdrs in by_key.items():
            if self.owners.get(key, session.seid) != session.seid:
                raise Refused(Cause.RULE_FAILURE, failed=(ie.Rule.PDR, pdrs[0].id))
        installed = session.prepare(content, by_key, self.tables)
        for key, packed in installed.items():
            if session.installed.get(key) != packed:
                self.tables.install(*key, packed)
                self.owners[key] = session.seid
        self._let_go(session, content, installed)
        session.content, session.installed = content, installed
        return created

    def _let_go(self, session: Session, content: Content, installed: dict[Key, bytes]) -> None:
        """Releases what the session no longer has."""
        for key in session.installed.keys() - installed.keys():
            self.tables.remove(*key)
            self.owners.pop(key, None)
        for which, pdr in content.pdrs.items():
            self.by_counts[pdr.counts] = (session, which)
        if not session.installed:
            return
        for which, pdr in session.content.pdrs.items():
            if which not in content.pdrs:
                self.waiting.forget(pdr.counts)
                session.gone.append((pdr, self.tables.read_volume(pdr.counts)))
                self.by_counts.pop(pdr.counts, None)
                self.tables.give_counts(pdr.counts)
        for each in session.policers.keys() - content.policed().keys():
            self.tables.give_policer(session.policers.pop(each))

    def _choose(self, content: Content) -> bytes:
        """Chooses TEIDs and UE addresses for the SMF. Created PDR, section 7.5.3.2."""
        created = b""
        teids: dict[int | None, bytes] = {}
        for which, pdr in content.pdrs.items():
            chosen = b""
            if pdr.interface == ACCESS and pdr.teid is CHOOSE:
                known = teids.get(pdr.choose_id) if pdr.choose_id is not None else None
                pdr.teid = known or next(self._teids).to_bytes(4, "big")
                pdr.teid_addresses = own(pdr.outer, self.n3)
                teids[pdr.choose_id] = pdr.teid
                chosen += ie.ie(Ie.F_TEID, bytes([pdr.outer]) + pdr.teid + pdr.teid_addresses)
            if pdr.ue4 is CHOOSE or pdr.ue6 is CHOOSE:
                chosen += self._choose_user(pdr, content)
            if chosen:
                created += ie.ie(Ie.CREATED_PDR, ie.ie(Ie.PDR_ID, which.to_bytes(2, "big")) + chosen)
        return created

    def _choose_user(self, pdr: Pdr, content: Content) -> bytes:
        """A session's PDRs share one address of each kind."""
        for name, pool in zip(("ue4", "ue6"), self.pools, strict=True):
            if getattr(pdr, name) is not CHOOSE:
                continue
            known = [getattr(each, name) for each in content.pdrs.values() if isinstance(getattr(each, name), bytes)]
            setattr(pdr, name, known[0] if known else pool.take(self.owners))
        ue4, ue6 = pdr.ue4 or b"", (pdr.ue6 or b"").ljust(16 if pdr.ue6 else 0, b"\0")
        return ie.ie(Ie.UE_IP_ADDRESS, bytes([bool(ue6) | bool(ue4) << 1]) + ue4 + ue6)

    def _end(self, session: Session) -> None:
        self._let_go(session, Content(), {})
        session.content, session.installed = Content(), {}
        self.sessions.pop(session.seid, None)
        association = self.associations.get(session.node)
        if association:
            association.sessions.discard(session.seid)

    # ---- reports

    def downlink_data(self, counts: int) -> tuple[bytes, Peer] | None:
        """Returns a session report of buffered packets for this PDR's user; None when the SMF has one."""
        session, which = self.by_counts.get(counts, (None, 0))
        if session is None or which in session.notified:
            return None
        session.notified.add(which)
        report = ie.ie(Ie.DOWNLINK_DATA_REPORT, ie.ie(Ie.PDR_ID, which.to_bytes(2, "big")))
        body = ie.ie(Ie.REPORT_TYPE, b"\1") + report
        request = message(Message.SESSION_REPORT_REQUEST, self._sequence(), body, session.peer_seid)
        return request, (session.peer, ie.PORT)


def _cause(cause: int) -> bytes:
    return ie.ie(Ie.CAUSE, bytes([cause]))


def _first(body: bytes) -> dict[int, bytes]:
    """Returns the first element of each type."""
    return dict(reversed(elements(body)))


def _f_seid(value: bytes, peer: Peer) -> tuple[int, str]:
    """Returns SEID and address for reports, section 8.2.37: V6 is the first bit, V4 the second, its address first."""
    if len(value) < 9:
        raise Refused(Cause.INVALID_LENGTH, Ie.F_SEID)
    seid, v4, v6 = number(value[1:9]), value[0] & 2, value[0] & 1
    if v6 and (not v4 or ":" in peer[0]):
        at = 13 if v4 else 9
        if len(value) < at + 16:
            raise Refused(Cause.INVALID_LENGTH, Ie.F_SEID)
        return seid, socket.inet_ntop(socket.AF_INET6, value[at : at + 16])
    return seid, socket.inet_ntoa(value[9:13]) if v4 and len(value) >= 13 else peer[0]


def _peer_seid(body: bytes) -> int:
    """Returns the SMF's SEID of a refused establishment, as far as it is readable."""
    try:
        return _f_seid(_first(body).get(Ie.F_SEID, b""), ("", 0))[0]
    except Refused:
        return 0


_NODE: dict[int, Callable[[N4, bytes, Peer], bytes]] = {
    Message.HEARTBEAT_REQUEST: N4._heartbeat,
    Message.ASSOCIATION_SETUP_REQUEST: N4._set_up,
    Message.ASSOCIATION_UPDATE_REQUEST: N4._update,
    Message.ASSOCIATION_RELEASE_REQUEST: N4._release,
}
_SESSION: dict[int, Callable[[N4, Session, bytes], bytes]] = {
    Message.SESSION_MODIFICATION_REQUEST: N4._modify,
    Message.SESSION_DELETION_REQUEST: N4._delete,
}
_REQUESTS = {*_NODE, *_SESSION, Message.SESSION_ESTABLISHMENT_REQUEST}
_ANSWERS = {Message.HEARTBEAT_RESPONSE, Message.SESSION_REPORT_RESPONSE}
