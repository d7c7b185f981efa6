"""The check of a frame description, with messages that name the place, the value and the allowed range.

The headers, their fields and their defaults are in traffic.frames.headers; docs/headers.md describes them to users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.description import Fields, FrameDescription, Headers
from pktswarm.traffic.frames.headers import FCS_BYTES, HEADERS, OVERLAPPING, Field, may_follow
from pktswarm.traffic.frames.placement import field_names, least_size_bytes, place_headers, varying
from pktswarm.traffic.frames.values import Variation, check_link, check_value, off_by, parse

LARGEST_SIZE_BYTES = 65535
DOWNLINK = 0
"""PDU type of a downlink PDU session container (TS 38.415, section 5.5.3.1)."""


def check_frame(
    frame: Mapping[str, object], where: object, key: str, size_bytes: int | None = None
) -> FrameDescription:
    """Returns the checked description. BadInput names the key below `key` (streams.0.headers.2.ipv4.src), its value and
    the allowed values."""
    headers = frame.get("headers")
    if not isinstance(headers, list) or not headers:
        raise BadInput(
            where, "no headers", key=f"{key}.headers", value=headers, allowed="a list that starts with ethernet"
        )
    below = ""
    for index, entry in enumerate(headers):
        place = f"{key}.headers.{index}"
        name = _header_name(entry, where, place)
        _check_order(below, name, where, place)
        _check_fields(name, entry[name], where, f"{place}.{name}")
        below = name
    _check_links(headers, where, key)
    _check_payload(frame.get("payload", {}), where, f"{key}.payload")
    checked = cast(FrameDescription, frame)
    if size_bytes is not None:
        _check_size(checked, size_bytes, where, f"{key}.size_bytes")
    return checked


def _header_name(entry: object, where: object, place: str) -> str:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise BadInput(where, "not a header", key=place, value=entry, allowed="one name with its fields, {udp: {…}}")
    name = next(iter(entry))
    if name not in HEADERS and name != "raw":
        raise BadInput(where, "unknown header", key=place, value=name, allowed=", ".join([*HEADERS, "raw"]))
    return str(name)


def _check_order(below: str, name: str, where: object, place: str) -> None:
    if not below:
        if name != "ethernet":
            raise BadInput(where, "cannot be the first header", key=place, value=name, allowed="ethernet")
    elif not may_follow(below, name):
        allowed = [*HEADERS[below].next_headers, "raw"] if below != "raw" else ["nothing; one raw holds all bytes"]
        raise BadInput(where, f"cannot follow {below}", key=place, value=name, allowed=", ".join(allowed))


def _check_fields(name: str, given: object, where: object, place: str) -> None:
    if not isinstance(given, dict):
        raise BadInput(where, "not the fields of a header", key=place, value=given, allowed="{field: value, …}")
    if name == "raw":
        _check_raw(given, where, place)
        return
    fields = HEADERS[name].fields
    for key in given:
        if key not in fields:
            raise BadInput(where, "unknown field", key=f"{place}.{key}", value=given[key], allowed=", ".join(fields))
        check_value(key, fields[key], given[key], where, f"{place}.{key}")
    for key, field in fields.items():
        if field.default is None and key not in given:
            raise BadInput(where, "missing", key=f"{place}.{key}", allowed=field.allowed)
    if name == "pdu_session":
        _check_pdu_session(given, where, place)
    for first, second in OVERLAPPING.get(name, []):
        if first in given and second in given:
            problem, allowed = f"overlaps {second}", f"{first} or {second}, not both"
            raise BadInput(where, problem, key=f"{place}.{first}", allowed=allowed)


def _check_pdu_session(given: Fields, where: object, place: str) -> None:
    """An uplink container has other bits in the place of these (TS 38.415, section 5.5.2)."""
    kind = given.get("pdu_type", DOWNLINK)
    if isinstance(kind, dict) or HEADERS["pdu_session"].fields["pdu_type"].parse(kind) == DOWNLINK:
        return
    for key in ("ppp", "rqi"):
        if key in given:
            problem = "exists in downlink containers only"
            raise BadInput(where, problem, key=f"{place}.{key}", value=given[key], allowed="pdu_type: 0")


def _check_raw(given: Fields, where: object, place: str) -> None:
    if set(given) != {"hex"}:
        raise BadInput(where, "not raw bytes", key=place, value=given, allowed='{hex: "deadbeef"}')
    _check_hex(given["hex"], where, f"{place}.hex")


def _check_hex(text: object, where: object, place: str) -> None:
    try:
        if isinstance(text, str):
            bytes.fromhex(text)
            return
    except ValueError:
        pass
    raise BadInput(where, "not hex digits", key=place, value=text, allowed='pairs of hex digits, "deadbeef"')


def _check_links(headers: Headers, where: object, key: str) -> None:
    known: dict[str, int] = {}
    for index, name, field_name, value in varying(headers):
        variation = Variation.of(HEADERS[name].fields[field_name], value)
        if "with" in value:
            check_link(variation, value, known, where, f"{key}.headers.{index}.{name}.{field_name}")
        known |= dict.fromkeys(field_names(headers, index, f"{name}.{field_name}"), variation.values)


def _check_payload(payload: object, where: object, place: str) -> None:
    allowed = '{fill: 0}, {hex: "…"} or {random: true}'
    if not isinstance(payload, dict) or len(payload) > 1 or set(payload) - {"fill", "hex", "random"}:
        raise BadInput(where, "not a payload", key=place, value=payload, allowed=allowed)
    if "hex" in payload:
        _check_hex(payload["hex"], where, f"{place}.hex")
    if "random" in payload and payload["random"] is not True:
        raise BadInput(where, "not a payload", key=f"{place}.random", value=payload["random"], allowed="true")
    if "fill" in payload:
        parse(Field(0, 8), payload["fill"], where, f"{place}.fill")


def _check_size(frame: FrameDescription, size_bytes: int, where: object, place: str) -> None:
    least = least_size_bytes(frame["headers"], frame.get("payload", {}))
    if not least <= size_bytes <= LARGEST_SIZE_BYTES:
        allowed = f"{least} to {LARGEST_SIZE_BYTES} with these headers, FCS included"
        raise BadInput(where, "frame size out of range", key=place, value=size_bytes, allowed=allowed)
    for index, header in enumerate(place_headers(frame["headers"])):
        by = off_by(header.given.get("length"))
        right = header.length(size_bytes - FCS_BYTES)
        if by and not 0 <= right + by <= 0xFFFF:
            at = f"{place.removesuffix('size_bytes')}headers.{index}.{header.name}.length.off_by"
            allowed = f"{-right} to {0xFFFF - right} in frames of {size_bytes} bytes"
            raise BadInput(where, "the resulting length is out of range", key=at, value=by, allowed=allowed)
