"""Information elements and messages of PFCP for the UPF (3GPP TS 29.244, sections 7 and 8)."""

from __future__ import annotations

import struct
from enum import IntEnum

PORT = 8805


class Message:
    """Section 7.3. Plain numbers, not an enumeration, whose look-ups would take most of the time."""

    HEARTBEAT_REQUEST = 1
    HEARTBEAT_RESPONSE = 2
    ASSOCIATION_SETUP_REQUEST = 5
    ASSOCIATION_SETUP_RESPONSE = 6
    ASSOCIATION_UPDATE_REQUEST = 7
    ASSOCIATION_UPDATE_RESPONSE = 8
    ASSOCIATION_RELEASE_REQUEST = 9
    ASSOCIATION_RELEASE_RESPONSE = 10
    VERSION_NOT_SUPPORTED_RESPONSE = 11
    SESSION_ESTABLISHMENT_REQUEST = 50
    SESSION_ESTABLISHMENT_RESPONSE = 51
    SESSION_MODIFICATION_REQUEST = 52
    SESSION_MODIFICATION_RESPONSE = 53
    SESSION_DELETION_REQUEST = 54
    SESSION_DELETION_RESPONSE = 55
    SESSION_REPORT_REQUEST = 56
    SESSION_REPORT_RESPONSE = 57


class Cause:
    """Section 8.2.1."""

    ACCEPTED = 1
    REJECTED = 64
    SESSION_NOT_FOUND = 65
    MANDATORY_MISSING = 66
    CONDITIONAL_MISSING = 67
    INVALID_LENGTH = 68
    MANDATORY_INCORRECT = 69
    INVALID_FORWARDING_POLICY = 70
    INVALID_F_TEID_ALLOCATION = 71
    NO_ASSOCIATION = 72
    RULE_FAILURE = 73
    CONGESTION = 74
    NO_RESOURCES = 75
    NOT_SUPPORTED = 76
    SYSTEM_FAILURE = 77
    ADDRESSES_OCCUPIED = 79
    UNKNOWN_PREDEFINED_RULE = 80


class Ie:
    """Section 8.1.2."""

    CREATE_PDR = 1
    PDI = 2
    CREATE_FAR = 3
    FORWARDING_PARAMETERS = 4
    CREATE_URR = 6
    CREATE_QER = 7
    CREATED_PDR = 8
    UPDATE_PDR = 9
    UPDATE_FAR = 10
    UPDATE_FORWARDING_PARAMETERS = 11
    UPDATE_URR = 13
    UPDATE_QER = 14
    REMOVE_PDR = 15
    REMOVE_FAR = 16
    REMOVE_URR = 17
    REMOVE_QER = 18
    CAUSE = 19
    SOURCE_INTERFACE = 20
    F_TEID = 21
    SDF_FILTER = 23
    APPLICATION_ID = 24
    GATE_STATUS = 25
    MBR = 26
    PRECEDENCE = 29
    REPORT_TYPE = 39
    OFFENDING_IE = 40
    DESTINATION_INTERFACE = 42
    UP_FUNCTION_FEATURES = 43
    APPLY_ACTION = 44
    DOWNLINK_DATA_REPORT = 83
    PFCPSMREQ_FLAGS = 49
    PDR_ID = 56
    F_SEID = 57
    NODE_ID = 60
    MEASUREMENT_METHOD = 62
    USAGE_REPORT_TRIGGER = 63
    VOLUME_MEASUREMENT = 66
    DURATION_MEASUREMENT = 67
    START_TIME = 75
    END_TIME = 76
    QUERY_URR = 77
    USAGE_REPORT_MODIFICATION = 78
    USAGE_REPORT_DELETION = 79
    URR_ID = 81
    OUTER_HEADER_CREATION = 84
    UE_IP_ADDRESS = 93
    OUTER_HEADER_REMOVAL = 95
    RECOVERY_TIME_STAMP = 96
    MEASUREMENT_INFORMATION = 100
    UR_SEQN = 104
    ACTIVATE_PREDEFINED_RULES = 106
    FAR_ID = 108
    QER_ID = 109
    FAILED_RULE_ID = 114
    QFI = 124


class Rule(IntEnum):
    """Types of rules in Failed Rule ID, section 8.2.80; the type determines the bytes of the number."""

    PDR = 0
    FAR = 1
    QER = 2
    URR = 3


class Refused(Exception):
    """A request that changes nothing, and is answered with this cause."""

    def __init__(self, cause: int, offending: int = 0, failed: tuple[Rule, int] | None = None) -> None:
        super().__init__(cause)
        self.cause, self.offending, self.failed = cause, offending, failed


_HEAD = struct.Struct(">HH")
_ONLY = {
    Message.HEARTBEAT_REQUEST,
    Message.HEARTBEAT_RESPONSE,
    *range(Message.ASSOCIATION_SETUP_REQUEST, Message.VERSION_NOT_SUPPORTED_RESPONSE + 1),
}
"""Messages of a node: their header has no SEID."""
NTP_OFFSET_S = 2_208_988_800
"""Seconds from 1900, the epoch of PFCP's time stamps, to 1970."""


def elements(data: bytes) -> list[tuple[int, bytes]]:
    """Yields type and value of the elements in `data`. Raises Refused where one exceeds the data."""
    found, at, end = [], 0, len(data)
    unpack = _HEAD.unpack_from
    while at < end:
        if at + 4 > end:
            raise Refused(Cause.INVALID_LENGTH)
        kind, length = unpack(data, at)
        start = at + 4
        at = start + length
        if at > end:
            raise Refused(Cause.INVALID_LENGTH, kind)
        found.append((kind, data[start:at]))
    return found


def ie(kind: int, value: bytes) -> bytes:
    return _HEAD.pack(kind, len(value)) + value


def message(kind: int, sequence: int, body: bytes, seid: int | None = None) -> bytes:
    """Returns a message, section 7.2.2; without a SEID, one of the node."""
    number = (sequence << 8).to_bytes(4, "big")
    if seid is None:
        return struct.pack(">BBH", 0x20, kind, 4 + len(body)) + number + body
    return struct.pack(">BBHQ", 0x21, kind, 12 + len(body), seid) + number + body


def parse_header(data: bytes) -> tuple[int, int | None, int, int]:
    """Returns type, SEID (None: without), sequence number, and the offset of the elements. Raises ValueError."""
    if len(data) < 8:
        raise ValueError("too short")
    flags, kind, length = struct.unpack_from(">BBH", data)
    if flags >> 5 != 1:
        raise ValueError("version")
    if 4 + length != len(data) or (flags & 1 and len(data) < 16):
        raise ValueError("length")
    if bool(flags & 1) == (kind in _ONLY):
        raise ValueError("SEID")
    if flags & 1:
        return kind, int.from_bytes(data[4:12], "big"), int.from_bytes(data[12:15], "big"), 16
    return kind, None, int.from_bytes(data[4:7], "big"), 8


def time_stamp(unix_s: float) -> bytes:
    return (int(unix_s + NTP_OFFSET_S) & 0xFFFFFFFF).to_bytes(4, "big")


def node_id(ipv4: bytes) -> bytes:
    return ie(Ie.NODE_ID, b"\0" + ipv4)
