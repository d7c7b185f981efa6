"""One PFCP session: its rules, and their entries in the data path."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from pktswarm.lab.upf import rules
from pktswarm.lab.upf.ie import Cause, Ie, Refused, Rule, elements
from pktswarm.lab.upf.rules import ACCESS, ADDRESS_BYTES, CHOOSE, FORWARD, OUTER_IPV4, OUTER_IPV6, Far, Pdr, Qer, Urr

MOST_RULES = 4
"""Maximum of PDRs of one TEID or UE address, each counted once per SDF filter; as in kernel/upf.h."""
MOST_POLICERS = 2
"""Maximum of QERs with an MBR of one PDR; as in kernel/upf.h."""
_RULE = struct.Struct("=4s4sHHBBBBBBBB4s8sIII16s4s")
"""struct rule of kernel/upf.h."""
_COUNT = struct.Struct("=I")
RULES_BYTES = _COUNT.size + MOST_RULES * _RULE.size
_SEND_END_MARKER = 2
"""PFCPSMReq-Flags, section 8.2.34."""
_CREATE = {Ie.CREATE_PDR: Rule.PDR, Ie.CREATE_FAR: Rule.FAR, Ie.CREATE_QER: Rule.QER, Ie.CREATE_URR: Rule.URR}
_UPDATE = {Ie.UPDATE_PDR: Rule.PDR, Ie.UPDATE_FAR: Rule.FAR, Ie.UPDATE_QER: Rule.QER, Ie.UPDATE_URR: Rule.URR}
_REMOVE = {Ie.REMOVE_PDR: Rule.PDR, Ie.REMOVE_FAR: Rule.FAR, Ie.REMOVE_QER: Rule.QER, Ie.REMOVE_URR: Rule.URR}
_READ: dict[Rule, Any] = {
    Rule.PDR: (rules.read_pdr, Pdr, (("id", Ie.PDR_ID), ("precedence", Ie.PRECEDENCE), ("interface", Ie.PDI))),
    Rule.FAR: (rules.read_far, Far, (("id", Ie.FAR_ID), ("action", Ie.APPLY_ACTION))),
    Rule.QER: (rules.read_qer, Qer, (("id", Ie.QER_ID),)),
    Rule.URR: (rules.read_urr, Urr, (("id", Ie.URR_ID), ("method", Ie.MEASUREMENT_METHOD))),
}
"""Reader, class and mandatory elements of each type of rule."""

Key = tuple[str, bytes]
"""A table of the data path (uplink, downlink4, downlink6) and a key in it."""
Addresses = dict[int, bytes]
"""Addresses of N3, by OUTER_IPV4 and OUTER_IPV6; empty where it has none."""


class Tables(Protocol):
    """The part of the data path that sessions use."""

    def room(self) -> int: ...
    def take_counts(self) -> int: ...
    def take_policer(self, kbps: int) -> int: ...
    def set_policer(self, index: int, kbps: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """A downlink path of a session with a new target."""

    pdr: Pdr
    before: Far
    after: Far
    qfi: int | None
    end_marker: bool


@dataclass(slots=True)
class Content:
    """The rules of a session, by type and number. A request changes a copy, so a failed one changes nothing."""

    pdrs: dict[int, Pdr] = field(default_factory=dict)
    fars: dict[int, Far] = field(default_factory=dict)
    qers: dict[int, Qer] = field(default_factory=dict)
    urrs: dict[int, Urr] = field(default_factory=dict)
    end_markers: tuple[int, ...] = ()
    """FARs whose update requests an end marker."""

    def copy(self) -> Content:
        return Content(dict(self.pdrs), dict(self.fars), dict(self.qers), dict(self.urrs))

    def of(self, rule: Rule) -> dict[int, Any]:
        return (self.pdrs, self.fars, self.qers, self.urrs)[rule]

    def apply(self, request: list[tuple[int, bytes]]) -> None:
        """Creates, updates and removes the rules of a request. Raises Refused."""
        for kind, value in request:
            if kind in _CREATE:
                self._create(_CREATE[kind], value)
            elif kind in _UPDATE:
                self._update(_UPDATE[kind], value)
            elif kind in _REMOVE:
                self._remove(_REMOVE[kind], value)

    def _create(self, rule: Rule, data: bytes) -> None:
        made = _make_once(rule, data) if rule is Rule.FAR or rule is Rule.QER else _make(rule, data)
        rules_of_type = self.of(rule)
        if made.id in rules_of_type:
            raise Refused(Cause.RULE_FAILURE, failed=(rule, made.id))
        rules_of_type[made.id] = made

    def _update(self, rule: Rule, data: bytes) -> None:
        read, _, mandatory = _READ[rule]
        fields = read(data)
        if "id" not in fields:
            raise Refused(Cause.MANDATORY_MISSING, mandatory[0][1])
        if fields["id"] not in self.of(rule):
            raise Refused(Cause.RULE_FAILURE, failed=(rule, fields["id"]))
        if fields.pop("flags", 0) & _SEND_END_MARKER:
            self.end_markers = (*self.end_markers, fields["id"])
        self.of(rule)[fields["id"]] = replace(self.of(rule)[fields["id"]], **fields)

    def _remove(self, rule: Rule, data: bytes) -> None:
        for _, value in elements(data):
            if self.of(rule).pop(rules.number(value), None) is None:
                raise Refused(Cause.RULE_FAILURE, failed=(rule, rules.number(value)))

    def check(self, n3: Addresses) -> None:
        """Checks that every PDR is complete, and that N3 supports its tunnels. Raises Refused."""
        for pdr in self.pdrs.values():
            far = self.fars.get(pdr.far)
            limits = 0
            for each in pdr.qers:
                if each not in self.qers:
                    raise Refused(Cause.RULE_FAILURE, failed=(Rule.PDR, pdr.id))
                limits += self.qers[each].mbr is not None
            if far is None or not all(each in self.urrs for each in pdr.urrs):
                raise Refused(Cause.RULE_FAILURE, failed=(Rule.PDR, pdr.id))
            if pdr.interface == ACCESS:
                _check_uplink(pdr, n3)
            else:
                _check_downlink(pdr, far, n3)
            if limits > MOST_POLICERS:
                raise Refused(Cause.NOT_SUPPORTED, Ie.QER_ID, (Rule.PDR, pdr.id))

    def by_key(self) -> dict[Key, list[Pdr]]:
        """Returns the PDRs of each TEID and UE address, in the order of precedence. Raises Refused for too many."""
        found: dict[Key, list[Pdr]] = {}
        for pdr in self.pdrs.values():
            for key in keys(pdr):
                found.setdefault(key, []).append(pdr)
        for pdrs in found.values():
            if sum(len(pdr.flows) for pdr in pdrs) > MOST_RULES:
                raise Refused(Cause.NO_RESOURCES, failed=(Rule.PDR, pdrs[-1].id))
            pdrs.sort(key=lambda each: each.precedence)
        return found

    def entries(self, by_key: dict[Key, list[Pdr]], policers: dict[tuple[int, int], int]) -> dict[Key, bytes]:
        """Returns the entries of the data path: key → struct rules of kernel/upf.h."""
        found = {}
        for key, pdrs in by_key.items():
            packed = b"".join([self._pack(pdr, policers) for pdr in pdrs])
            found[key] = (_COUNT.pack(len(packed) // _RULE.size) + packed).ljust(RULES_BYTES, b"\0")
        return found

    def _pack(self, pdr: Pdr, policers: dict[tuple[int, int], int]) -> bytes:
        """Returns the PDR as struct rule, once for each of its SDF filters."""
        far, down = self.fars[pdr.far], pdr.interface != ACCESS
        closed, qfi, limits = False, self.qfi(pdr), [0, 0]
        for each in pdr.qers:
            qer = self.qers[each]
            closed |= qer.closed[down]
            if qer.mbr is not None:
                limits[bool(limits[0])] = policers[each, down]
        ue4, ue6 = pdr.ue4 or bytes(4), pdr.ue6 or bytes(8)
        checks = 0 if down else (pdr.ue4 is not None) | (pdr.ue6 is not None) << 1
        with_qfi = down and qfi is not None
        outer = _outer_of(far.gnb) if down else pdr.outer & pdr.removes
        rest = (
            *(far.action, closed, with_qfi, qfi if with_qfi else 0, checks, outer, 0),
            *(ue4, ue6, pdr.counts, *limits, far.gnb, far.teid or bytes(4)),
        )
        flows = pdr.flows
        return b"".join([_RULE.pack(one.remote, one.mask, *one.ports, one.protocol, *rest) for one in flows])

    def qfi(self, pdr: Pdr) -> int | None:
        """Returns the QFI of its first QER that has one."""
        for each in pdr.qers:
            if self.qers[each].qfi is not None:
                return self.qers[each].qfi
        return None

    def policed(self) -> dict[tuple[int, int], int]:
        """Returns (QER, direction) → kbit/s of the QERs in use."""
        found = {}
        for pdr in self.pdrs.values():
            down = int(pdr.interface != ACCESS)
            for each in pdr.qers:
                limits = self.qers[each].mbr
                if limits is not None:
                    found[each, down] = limits[down]
        return found


def _make(rule: Rule, data: bytes) -> Any:
    """Returns the rule of a Create. Raises Refused for an incomplete one."""
    read, make, mandatory = _READ[rule]
    fields = read(data)
    for name, kind in mandatory:
        if name not in fields:
            raise Refused(Cause.MANDATORY_MISSING, kind)
    if rule is Rule.PDR and "far" not in fields:
        raise Refused(Cause.CONDITIONAL_MISSING, Ie.FAR_ID)
    fields.pop("flags", None)
    return make(**fields)


_make_once = lru_cache(1024)(_make)
"""For FARs and QERs, which are immutable, and often equal in the next session."""


def _outer_of(gnb: bytes) -> int:
    return OUTER_IPV6 if len(gnb) == ADDRESS_BYTES[OUTER_IPV6] else OUTER_IPV4


def own(outer: int, n3: Addresses) -> bytes:
    """Returns N3's addresses of these versions, as in an F-TEID; empty if N3 lacks one."""
    wanted = [n3[one] for one in (OUTER_IPV4, OUTER_IPV6) if outer & one]
    return b"".join(wanted) if all(wanted) else b""


def _check_uplink(pdr: Pdr, n3: Addresses) -> None:
    if pdr.teid is None:
        raise Refused(Cause.CONDITIONAL_MISSING, Ie.F_TEID)
    mine = own(pdr.outer, n3)
    if not mine:
        raise Refused(Cause.INVALID_F_TEID_ALLOCATION, Ie.F_TEID)
    if pdr.teid is not CHOOSE and pdr.teid_addresses != mine:
        raise Refused(Cause.MANDATORY_INCORRECT, Ie.F_TEID)
    if not pdr.removes:
        raise Refused(Cause.CONDITIONAL_MISSING, Ie.OUTER_HEADER_REMOVAL)
    if not pdr.outer & pdr.removes:
        raise Refused(Cause.RULE_FAILURE, Ie.OUTER_HEADER_REMOVAL, (Rule.PDR, pdr.id))


def _check_downlink(pdr: Pdr, far: Far, n3: Addresses) -> None:
    if pdr.ue4 is None and pdr.ue6 is None:
        raise Refused(Cause.CONDITIONAL_MISSING, Ie.UE_IP_ADDRESS)
    if far.action & FORWARD and not far.gnb:
        raise Refused(Cause.CONDITIONAL_MISSING, Ie.OUTER_HEADER_CREATION)
    if far.gnb and not n3[_outer_of(far.gnb)]:
        raise Refused(Cause.NOT_SUPPORTED, Ie.OUTER_HEADER_CREATION)


def keys(pdr: Pdr) -> list[Key]:
    if pdr.interface == ACCESS:
        return [("uplink", pdr.teid)]
    pairs = (("downlink4", pdr.ue4), ("downlink6", pdr.ue6))
    return [(table, address) for table, address in pairs if address is not None]


def moved(before: Content, after: Content) -> list[Moved]:
    """Returns the downlink paths whose target or action `after` changes."""
    found = []
    for pdr in after.pdrs.values():
        old = before.pdrs.get(pdr.id)
        if old is None or pdr.interface == ACCESS:
            continue
        was, now = before.fars[old.far], after.fars[pdr.far]
        if was != now:
            found.append(Moved(pdr, was, now, after.qfi(pdr), now.id in after.end_markers))
    return found


class Session:
    """The UPF's state of a session. `peer`: the SMF's address for reports; `node`: node id of its association."""

    __slots__ = ("content", "gone", "installed", "node", "notified", "peer", "peer_seid", "policers", "seid")

    def __init__(self, seid: int, peer_seid: int, peer: str, node: bytes) -> None:
        self.seid, self.peer_seid, self.peer, self.node = seid, peer_seid, peer, node
        self.content = Content()
        self.policers: dict[tuple[int, int], int] = {}
        self.installed: dict[Key, bytes] = {}
        self.gone: list[tuple[Pdr, tuple[int, int]]] = []
        """Removed PDRs, with their counts."""
        self.notified: set[int] = set()
        """PDRs with buffered packets that were reported to the SMF."""

    def prepare(self, content: Content, by_key: dict[Key, list[Pdr]], tables: Tables) -> dict[Key, bytes]:
        """Allocates counters and policers for `content`; returns the entries of the data path. Raises Refused."""
        policed = content.policed()
        fresh = [pdr for pdr in content.pdrs.values() if not pdr.counts]
        if tables.room() < max(len(fresh), len(policed)):
            raise Refused(Cause.NO_RESOURCES)
        for pdr in fresh:
            pdr.counts = tables.take_counts()
        for each, kbps in policed.items():
            if each in self.policers:
                tables.set_policer(self.policers[each], kbps)
            else:
                self.policers[each] = tables.take_policer(kbps)
        return content.entries(by_key, self.policers)
