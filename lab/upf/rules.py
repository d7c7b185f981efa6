"""PDRs, FARs, QERs and URRs as an SMF creates and updates them (3GPP TS 29.244, sections 7.5.2 and 7.5.4).

Each `read_…` returns the fields that are present: all of a Create's, the changed ones of an Update's. An element that
this UPF does not support is refused, never ignored.
"""

from __future__ import annotations

import ipaddress
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypedDict

from pktswarm.lab.upf.ie import Cause, Ie, Refused, elements

ACCESS, CORE = 0, 1
"""Source Interface, section 8.2.2."""
DROP, FORWARD, BUFFER, NOTIFY = 1, 2, 4, 8
"""Apply Action, section 8.2.26."""
PREDEFINED = {b"simplest"}
"""Names of predefined rules: this one matches every packet and limits none."""
OUTER_IPV4, OUTER_IPV6 = 1, 2
"""Outer IP version of a tunnel: V4 and V6 of an F-TEID, section 8.2.3."""
REMOVES = {0: OUTER_IPV4, 1: OUTER_IPV6, 6: OUTER_IPV4 | OUTER_IPV6}
"""Outer Header Removal, section 8.2.64: GTP-U/UDP/IPv4, GTP-U/UDP/IPv6, GTP-U/UDP/IP."""
ADDRESS_BYTES = {OUTER_IPV4: 4, OUTER_IPV6: 16}
CHOOSE = object()
"""In place of an address or a TEID: the UPF chooses one."""
_FLOW = re.compile(
    r"permit\s+out\s+(?P<protocol>ip|\d+)\s+from\s+(?P<remote>any|assigned|[\d.]+(?:/\d+)?)(?:\s+(?P<ports>[\d,-]+))?"
    r"\s+to\s+(?:any|assigned|[\d.]+(?:/\d+)?|[0-9a-fA-F:]+(?:/\d+)?)"
)


@dataclass(frozen=True, slots=True)
class Filter:
    """An SDF filter: address and port of the far side, and the protocol. Addresses are big-endian."""

    remote: bytes = bytes(4)
    mask: bytes = bytes(4)
    ports: tuple[int, int] = (0, 65535)
    protocol: int = 0


ANY = Filter()


@dataclass(slots=True)
class Pdr:
    """`ue4` and `ue6` (a /64 prefix): None for a PDR without one."""

    id: int
    precedence: int
    interface: int
    far: int
    teid: Any = None
    outer: int = OUTER_IPV4
    """The UPF's addresses that gNBs send to: OUTER_IPV4, OUTER_IPV6, or both."""
    teid_addresses: bytes = b""
    """The UPF's addresses in the F-TEID, IPv4 before IPv6."""
    choose_id: int | None = None
    ue4: Any = None
    ue6: Any = None
    flows: tuple[Filter, ...] = (ANY,)
    """The PDR matches when one of them does."""
    qers: tuple[int, ...] = ()
    urrs: tuple[int, ...] = ()
    removes: int = 0
    """The outer headers to remove, as in `outer`."""
    counts: int = 0
    """The index of its counters."""


@dataclass(slots=True)
class Far:
    id: int
    action: int
    gnb: bytes = b""
    """4 or 16 bytes."""
    teid: bytes = b""


@dataclass(slots=True)
class Qer:
    """Rates in kbit/s by direction, uplink first; None: not limited."""

    id: int
    closed: tuple[bool, bool] = (False, False)
    mbr: tuple[int, int] | None = None
    qfi: int | None = None


@dataclass(slots=True)
class Urr:
    id: int
    method: int
    information: int = 0
    reports: int = 0
    """Number of reports made: the UR-SEQN of the next one."""
    started_s: float = field(default_factory=time.time)
    base: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Already reported: bytes up and down, packets up and down."""


class PdrFields(TypedDict, total=False):
    """Fields of a Pdr in a request."""

    id: int
    precedence: int
    interface: int
    far: int
    teid: Any
    outer: int
    teid_addresses: bytes
    choose_id: int | None
    ue4: Any
    ue6: Any
    flows: tuple[Filter, ...]
    qers: tuple[int, ...]
    urrs: tuple[int, ...]
    removes: int


class FarFields(TypedDict, total=False):
    """Fields of a Far in a request. `flags`: PFCPSMReq-Flags, section 8.2.34."""

    id: int
    action: int
    gnb: bytes
    teid: bytes
    flags: int


class QerFields(TypedDict, total=False):
    """Fields of a Qer in a request."""

    id: int
    closed: tuple[bool, bool]
    mbr: tuple[int, int]
    qfi: int


class UrrFields(TypedDict, total=False):
    """Fields of a Urr in a request."""

    id: int
    method: int
    information: int


_PDR_NUMBERS: dict[int, Literal["id", "precedence", "far"]] = {
    Ie.PDR_ID: "id",
    Ie.PRECEDENCE: "precedence",
    Ie.FAR_ID: "far",
}
_PDR_LISTS: dict[int, Literal["qers", "urrs"]] = {Ie.QER_ID: "qers", Ie.URR_ID: "urrs"}


def number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def read_pdr(data: bytes) -> PdrFields:
    fields: PdrFields = {}
    for kind, value in elements(data):
        if kind == Ie.PDI:
            _read_pdi(value, fields)
        elif kind in _PDR_NUMBERS:
            fields[_PDR_NUMBERS[kind]] = number(value)
        elif kind in _PDR_LISTS:
            name = _PDR_LISTS[kind]
            fields[name] = (*fields.get(name, ()), number(value))
        elif kind == Ie.OUTER_HEADER_REMOVAL:
            if value[0] not in REMOVES:
                raise Refused(Cause.NOT_SUPPORTED, kind)
            fields["removes"] = REMOVES[value[0]]
        elif kind == Ie.ACTIVATE_PREDEFINED_RULES and value not in PREDEFINED:
            raise Refused(Cause.UNKNOWN_PREDEFINED_RULE, kind)
    return fields


def _read_pdi(data: bytes, fields: PdrFields) -> None:
    for kind, value in elements(data):
        if kind == Ie.SOURCE_INTERFACE:
            fields["interface"] = value[0] & 15
        elif kind == Ie.F_TEID:
            _read_teid(value, fields)
        elif kind == Ie.UE_IP_ADDRESS:
            _read_ue(value, fields)
        elif kind == Ie.SDF_FILTER:
            fields["flows"] = (*fields.get("flows", ()), read_filter(value))
        elif kind == Ie.APPLICATION_ID:
            raise Refused(Cause.NOT_SUPPORTED, kind)


def _read_teid(value: bytes, fields: PdrFields) -> None:
    """Section 8.2.3: V4, V6, CH, CHID."""
    flags = value[0]
    outer = flags & (OUTER_IPV4 | OUTER_IPV6)
    end = 5 + sum(size for one, size in ADDRESS_BYTES.items() if outer & one)
    if not outer or not (flags & 4 or len(value) >= end):
        raise Refused(Cause.MANDATORY_INCORRECT, Ie.F_TEID)
    fields["outer"] = outer
    if flags & 4:
        fields["teid"] = CHOOSE
        fields["choose_id"] = value[1] if flags & 8 else None
    else:
        fields["teid"], fields["teid_addresses"] = value[1:5], value[5:end]


def _read_ue(value: bytes, fields: PdrFields) -> None:
    """Section 8.2.62: V6, V4, S/D, IPv6D, CHV4, CHV6."""
    flags, at = value[0], 1
    if flags & 2:
        fields["ue4"], at = value[at : at + 4], at + 4
    if flags & 1:
        fields["ue6"], at = value[at : at + 8], at + 16
    if len(value) < at:
        raise Refused(Cause.INVALID_LENGTH, Ie.UE_IP_ADDRESS)
    if flags & 16:
        fields["ue4"] = CHOOSE
    if flags & 32:
        fields["ue6"] = CHOOSE


@lru_cache(1024)
def read_filter(value: bytes) -> Filter:
    """Section 8.2.5: only the flow description (TS 29.212, 5.4.2), whose `from` is the far side in both directions."""
    refused = Refused(Cause.NOT_SUPPORTED, Ie.SDF_FILTER)
    if len(value) < 4 or not value[0] & 1 or value[0] & 0x0E:
        raise refused
    found = _FLOW.fullmatch(value[4 : 4 + number(value[2:4])].decode(errors="replace").strip())
    if not found:
        raise refused
    ports = found["ports"] or "0-65535"
    first, _, last = ports.partition("-")
    try:
        remote = "0.0.0.0/0" if found["remote"] in ("any", "assigned") else found["remote"]
        network = ipaddress.IPv4Network(remote, strict=False)
        ends = int(first), int(last or first)
    except ValueError:
        raise refused from None
    protocol = 0 if found["protocol"] == "ip" else int(found["protocol"])
    if not 0 <= ends[0] <= ends[1] <= 65535 or protocol > 255:
        raise refused
    return Filter(network.network_address.packed, network.netmask.packed, ends, protocol)


def read_far(data: bytes) -> FarFields:
    fields: FarFields = {}
    for kind, value in elements(data):
        if kind == Ie.FAR_ID:
            fields["id"] = number(value)
        elif kind == Ie.APPLY_ACTION:
            fields["action"] = value[0]
        elif kind in (Ie.FORWARDING_PARAMETERS, Ie.UPDATE_FORWARDING_PARAMETERS):
            _read_forwarding(value, fields)
    return fields


def _read_forwarding(data: bytes, fields: FarFields) -> None:
    for kind, value in elements(data):
        if kind == Ie.OUTER_HEADER_CREATION:
            # Section 8.2.56: the first bit is GTP-U/UDP/IPv4, the second GTP-U/UDP/IPv6.
            size = ADDRESS_BYTES.get(value[0], 0)
            if not size or len(value) < 6 + size:
                raise Refused(Cause.NOT_SUPPORTED, kind)
            fields["teid"], fields["gnb"] = value[2:6], value[6 : 6 + size]
        elif kind == Ie.PFCPSMREQ_FLAGS:
            fields["flags"] = value[0]


def read_qer(data: bytes) -> QerFields:
    fields: QerFields = {}
    for kind, value in elements(data):
        if kind == Ie.QER_ID:
            fields["id"] = number(value)
        elif kind == Ie.GATE_STATUS:
            fields["closed"] = bool(value[0] >> 2 & 3), bool(value[0] & 3)
        elif kind == Ie.MBR:
            if len(value) < 10:
                raise Refused(Cause.INVALID_LENGTH, kind)
            fields["mbr"] = number(value[:5]), number(value[5:10])
        elif kind == Ie.QFI:
            fields["qfi"] = value[0] & 63
    return fields


def read_urr(data: bytes) -> UrrFields:
    fields: UrrFields = {}
    for kind, value in elements(data):
        if kind == Ie.URR_ID:
            fields["id"] = number(value)
        elif kind == Ie.MEASUREMENT_METHOD:
            fields["method"] = value[0]
        elif kind == Ie.MEASUREMENT_INFORMATION:
            fields["information"] = value[0]
    return fields
