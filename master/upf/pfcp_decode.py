"""Decodes PFCP messages of a UPF without scapy: microseconds, not milliseconds, for a session's response.

Every function takes a buffer and the message's length in it, and raises Malformed for a malformed message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from struct import Struct, error
from struct import unpack_from as unpack
from typing import NamedTuple

HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE = 1, 2
ASSOCIATION_SETUP_REQUEST, ASSOCIATION_SETUP_RESPONSE = 5, 6
ASSOCIATION_UPDATE_REQUEST = 7
ASSOCIATION_RELEASE_RESPONSE = 10
VERSION_NOT_SUPPORTED = 11
NODE_REPORT_REQUEST = 12
SESSION_ESTABLISHMENT_RESPONSE, SESSION_MODIFICATION_RESPONSE, SESSION_DELETION_RESPONSE = 51, 53, 55
SESSION_REPORT_REQUEST = 56
REQUESTS = {
    HEARTBEAT_REQUEST,
    3,
    ASSOCIATION_SETUP_REQUEST,
    ASSOCIATION_UPDATE_REQUEST,
    9,
    NODE_REPORT_REQUEST,
    14,
    SESSION_REPORT_REQUEST,
}
"""Requests that a UPF can send, and those that only an SMF may (table 7.3-1)."""

CREATED_PDR, CAUSE, F_TEID, OFFENDING_IE, UP_FEATURES, F_SEID, NODE_ID = 8, 19, 21, 40, 43, 57, 60
UE_ADDRESS, RECOVERY_STAMP, FAILED_RULE, PDR_ID = 93, 96, 114, 56
REPORT_TYPE, URR_ID, VOLUME, DURATION, USAGE_TRIGGER = 39, 81, 66, 67, 63
USAGE_REPORTS = (78, 79, 80)
DOWNLINK_REPORT, ERROR_REPORT = 83, 99

ACCEPTED, NO_CONTEXT, NO_ASSOCIATION = 1, 65, 72
CAUSES = {
    1: "request accepted",
    2: "more usage reports to send",
    3: "request partially accepted",
    64: "request rejected, no reason given",
    65: "session context not found",
    66: "mandatory IE missing",
    67: "conditional IE missing",
    68: "invalid length",
    69: "mandatory IE incorrect",
    70: "invalid forwarding policy",
    71: "invalid F-TEID allocation option",
    72: "no established PFCP association",
    73: "rule creation or modification failure",
    74: "PFCP entity in congestion",
    75: "no resources available",
    76: "service not supported",
    77: "system failure",
    78: "redirection requested",
    79: "all dynamic addresses are occupied",
    80: "unknown predefined rule",
    81: "unknown application ID",
    82: "L2TP tunnel establishment failure",
    83: "L2TP session establishment failure",
    84: "L2TP tunnel release",
    85: "L2TP session release",
    86: "session restoration failure: the requested resource is not available",
}
"""TS 29.244, table 8.2.1-1."""
ELEMENTS = {
    1: "Create PDR",
    2: "PDI",
    3: "Create FAR",
    4: "Forwarding Parameters",
    6: "Create URR",
    7: "Create QER",
    10: "Update FAR",
    11: "Update Forwarding Parameters",
    19: "Cause",
    20: "Source Interface",
    21: "F-TEID",
    22: "Network Instance",
    23: "SDF Filter",
    25: "Gate Status",
    26: "MBR",
    27: "GBR",
    29: "Precedence",
    37: "Reporting Triggers",
    42: "Destination Interface",
    44: "Apply Action",
    56: "PDR ID",
    57: "F-SEID",
    60: "Node ID",
    62: "Measurement Method",
    77: "Query URR",
    84: "Outer Header Creation",
    85: "Create BAR",
    88: "BAR ID",
    93: "UE IP Address",
    95: "Outer Header Removal",
    96: "Recovery Time Stamp",
    106: "Activate Predefined Rules",
    108: "FAR ID",
    113: "PDN Type",
    124: "QFI",
    140: "Suggested Buffering Packets Count",
    159: "APN/DNN",
    160: "3GPP Interface Type",
}
"""Names of the information elements that the SMF sends (table 8.1.2-1), for an offending IE."""
RULES = {0: ("PDR", 2), 1: ("FAR", 4), 2: ("QER", 4), 3: ("URR", 4), 4: ("BAR", 1)}
_HEADER = Struct("!BBH")
_ELEMENT = Struct("!HH")
Buffer = bytes | bytearray | memoryview


class Malformed(Exception):
    """A malformed message."""


class Header(NamedTuple):
    kind: int
    seid: int | None
    sequence: int
    body: int
    """Offset of the information elements."""
    version: int


def header(data: Buffer, length: int) -> Header:
    """Decodes the header; Malformed if its length exceeds the datagram's."""
    if length < 8:
        raise Malformed(f"{length} bytes: too short for a PFCP header")
    flags, kind, rest = _HEADER.unpack_from(data)
    if rest + 4 > length:
        raise Malformed(f"message type {kind}: length {rest + 4} bytes, {length} received")
    if flags & 1:
        if length < 16:
            raise Malformed(f"message type {kind}: {length} bytes are too short for a SEID")
        seid, last = unpack("!QI", data, 4)
        return Header(kind, seid, last >> 8, 16, flags >> 5)
    return Header(kind, None, unpack("!I", data, 4)[0] >> 8, 8, flags >> 5)


def elements(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields (type, start of the value, end of the value) of each information element."""
    while at < end:
        if at + 4 > end:
            raise Malformed(f"{end - at} bytes at {at}: too short for an information element")
        kind, length = _ELEMENT.unpack_from(data, at)
        at += 4
        if at + length > end:
            raise Malformed(f"information element {kind} at {at - 4}: length {length} bytes, {end - at} left")
        yield kind, at, at + length
        at += length


@dataclass(slots=True)
class Answer:
    """A response. `remote_seid` and the fields after it: of an establishment."""

    cause: int = 0
    offending: int | None = None
    failed_rule: str = ""
    recovery_stamp: int | None = None
    features: bytes = b""
    node_id: str = ""
    remote_seid: int | None = None
    teid: int | None = None
    upf_v4: int | None = None
    upf_v6: bytes | None = None
    ue_v4: int | None = None
    ue_v6: bytes | None = None
    usage: list[Usage] | None = None

    @property
    def description(self) -> str:
        """The cause, with offending IE and failed rule."""
        return describe_cause(self.cause, self.offending, self.failed_rule)


@dataclass(frozen=True)
class Usage:
    """One usage report; None: not measured. Bytes as the UPF counts them."""

    urr: int
    total_bytes: int | None = None
    uplink_bytes: int | None = None
    downlink_bytes: int | None = None
    duration_s: int | None = None
    trigger: int = 0


@dataclass(frozen=True)
class Report:
    """A Session Report Request. `inactivity`: no user plane packet within the session's inactivity time (UPIR)."""

    downlink_data: bool = False
    error_indication: bool = False
    usage: list[Usage] = field(default_factory=list)
    inactivity: bool = False


def describe_cause(cause: int, offending: int | None = None, failed_rule: str = "") -> str:
    words = f"{CAUSES.get(cause, 'unknown cause')} ({cause})"
    if offending is not None:
        words += f", offending IE: {ELEMENTS.get(offending, 'type')} ({offending})"
    return words + (f", failed rule: {failed_rule}" if failed_rule else "")


def answer(data: Buffer, length: int, body: int) -> Answer:
    """Decodes any response with a Cause, and heartbeats."""
    found = Answer()
    try:
        for kind, at, end in elements(data, body, length):
            if kind == CAUSE:
                found.cause = data[at]
            elif kind == CREATED_PDR:
                _created_pdr(found, data, at, end)
            elif kind == F_SEID:
                found.remote_seid = unpack("!Q", data, at + 1)[0]
            elif kind in USAGE_REPORTS:
                found.usage = [*(found.usage or []), usage(data, at, end)]
            else:
                _rare(found, kind, data, at, end)
    except (error, IndexError):
        raise Malformed("truncated information element") from None
    return found


def _rare(found: Answer, kind: int, data: Buffer, at: int, end: int) -> None:
    if kind == OFFENDING_IE:
        found.offending = unpack("!H", data, at)[0]
    elif kind == FAILED_RULE:
        rule, width = RULES.get(data[at] & 31, ("rule", end - at - 1))
        found.failed_rule = f"{rule} {int.from_bytes(data[at + 1 : at + 1 + width], 'big')}"
    elif kind == RECOVERY_STAMP:
        found.recovery_stamp = unpack("!I", data, at)[0]
    elif kind == UP_FEATURES:
        found.features = bytes(data[at:end])
    elif kind == NODE_ID:
        found.node_id = _node_id(data, at, end)


def _created_pdr(found: Answer, data: Buffer, at: int, end: int) -> None:
    for kind, inner, last in elements(data, at, end):
        if kind == F_TEID:
            flags = data[inner]
            found.teid = unpack("!I", data, inner + 1)[0]
            inner += 5
            if flags & 1:
                found.upf_v4 = unpack("!I", data, inner)[0]
                inner += 4
            if flags & 2:
                found.upf_v6 = _sixteen(data, inner, last)
        elif kind == UE_ADDRESS:
            flags = data[inner]
            inner += 1
            if flags & 2:
                found.ue_v4 = unpack("!I", data, inner)[0]
                inner += 4
            if flags & 1:
                found.ue_v6 = _sixteen(data, inner, last)


def _sixteen(data: Buffer, at: int, end: int) -> bytes:
    if at + 16 > end:
        raise Malformed(f"IPv6 address of {end - at} bytes")
    return bytes(data[at : at + 16])


def usage(data: Buffer, at: int, end: int) -> Usage:
    """Decodes a usage report of any of the three types."""
    values: dict[str, int] = {"urr": 0}
    for kind, inner, last in elements(data, at, end):
        if kind == URR_ID:
            values["urr"] = unpack("!I", data, inner)[0]
        elif kind == DURATION:
            values["duration_s"] = unpack("!I", data, inner)[0]
        elif kind == USAGE_TRIGGER:
            values["trigger"] = int.from_bytes(data[inner:last], "little")
        elif kind == VOLUME:
            flags = data[inner]
            inner += 1
            for bit, name in ((1, "total_bytes"), (2, "uplink_bytes"), (4, "downlink_bytes")):
                if flags & bit:
                    values[name] = unpack("!Q", data, inner)[0]
                    inner += 8
    return Usage(**values)


def report(data: Buffer, length: int, body: int) -> Report:
    kinds, found = 0, []
    try:
        for kind, at, end in elements(data, body, length):
            if kind == REPORT_TYPE:
                kinds = data[at]
            elif kind in USAGE_REPORTS:
                found.append(usage(data, at, end))
    except (error, IndexError):
        raise Malformed("truncated information element") from None
    return Report(bool(kinds & 1), bool(kinds & 4), found, bool(kinds & 8))


def _node_id(data: Buffer, at: int, end: int) -> str:
    kind, value = data[at] & 15, bytes(data[at + 1 : end])
    if kind == 0 and len(value) >= 4:
        return ".".join(map(str, value[:4]))
    if kind == 1 and len(value) >= 16:
        return str(IPv6Address(value[:16]))
    if value and value[0] < 0x20:
        return ".".join(_labels(value))
    return value.decode(errors="replace")


def _labels(value: bytes) -> Iterator[str]:
    while value and value[0]:
        yield value[1 : 1 + value[0]].decode(errors="replace")
        value = value[1 + value[0] :]


def chooses_teids(features: bytes) -> bool:
    """Returns the feature FTUP (8.2.25)."""
    return bool(len(features) > 0 and features[0] & 0x10)


def chooses_ue_addresses(features: bytes) -> bool:
    """Returns the feature UEIP."""
    return bool(len(features) > 2 and features[2] & 0x04)
