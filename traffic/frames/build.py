"""Frames described as a list of headers: checked, with messages that name the place, and built into a Template.

{"headers": [{"ethernet": {"src": …, "dst": …}}, {"ipv4": {…}}, {"udp": {…}}], "payload": {"fill": 0}}
The headers, their fields and their defaults are in traffic.frames.headers; docs/headers.md describes them to users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.headers import HEADERS, OVERLAPPING, Field, gtpu_flag, may_follow
from pktswarm.traffic.frames.template import Checksum, Template, VaryingField, mending_order, put_bits
from pktswarm.traffic.frames.values import (
    check_link,
    check_value,
    ends_of,
    listed,
    mode_of,
    number_of_values,
    off_by,
    parse,
    places,
)
from pktswarm.traffic.protocol.task import FCS_BYTES

LEAST_SIZE_BYTES = 64
HALF_BITS = 64
"""Of an IPv6 address."""
LARGEST_SIZE_BYTES = 65535
DOWNLINK = 0
"""The PDU type of a PDU session container on its way to the user."""
PSEUDO_HEADER = {"udp": 17, "tcp": 6, "icmpv6": 58}
"""Headers whose checksum covers the addresses below them, and the protocol number that goes in with these."""

_Varying = tuple[int, str, str, dict[str, Any]]


# --- check ---------------------------------------------------------------------------------------------------------


def check_frame(frame: dict[str, Any], where: object, key: str, size_bytes: int | None = None) -> None:
    """Raises BadInput that names the key below `key` (streams.0.headers.2.ipv4.src), its value and what is allowed."""
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
    if size_bytes is not None:
        _check_size(frame, size_bytes, where, f"{key}.size_bytes")


def _header_name(entry: Any, where: object, place: str) -> str:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise BadInput(where, "not a header", key=place, value=entry, allowed="one name with its fields, {udp: {…}}")
    name = next(iter(entry))
    if name not in HEADERS and name != "raw":
        raise BadInput(where, "unknown header", key=place, value=name, allowed=", ".join([*HEADERS, "raw"]))
    return str(name)


def _check_order(below: str, name: str, where: object, place: str) -> None:
    if not below:
        if name != "ethernet":
            raise BadInput(where, "the first header", key=place, value=name, allowed="ethernet")
    elif not may_follow(below, name):
        allowed = [*HEADERS[below].next_headers, "raw"] if below != "raw" else ["nothing: put all bytes into one raw"]
        raise BadInput(where, f"cannot follow {below}", key=place, value=name, allowed=", ".join(allowed))


def _check_fields(name: str, given: Any, where: object, place: str) -> None:
    if not isinstance(given, dict):
        raise BadInput(where, "not fields", key=place, value=given, allowed="{field: value, …}")
    if name == "raw":
        _check_raw(given, where, place)
        return
    fields = HEADERS[name].fields
    for one in given:
        if one not in fields:
            raise BadInput(where, "unknown field", key=f"{place}.{one}", value=given[one], allowed=", ".join(fields))
        check_value(one, fields[one], given[one], where, f"{place}.{one}")
    for one, field in fields.items():
        if field.default is None and one not in given:
            raise BadInput(where, "missing", key=f"{place}.{one}", allowed=field.allowed)
    if name == "pdu_session":
        _check_pdu_session(given, where, place)
    for first, second in OVERLAPPING.get(name, []):
        if first in given and second in given:
            raise BadInput(
                where, f"{second} is part of it", key=f"{place}.{first}", allowed=f"{first} or {second}, not both"
            )


def _check_pdu_session(given: dict[str, Any], where: object, place: str) -> None:
    """TS 38.415, 5.5.2: uplink has other bits in their place."""
    kind = given.get("pdu_type", DOWNLINK)
    if isinstance(kind, dict) or HEADERS["pdu_session"].fields["pdu_type"].parse(kind) == DOWNLINK:
        return
    for one in ("ppp", "rqi"):
        if one in given:
            raise BadInput(where, "only downlink has it", key=f"{place}.{one}", value=given[one], allowed="pdu_type: 0")


def _check_raw(given: dict[str, Any], where: object, place: str) -> None:
    if set(given) != {"hex"}:
        raise BadInput(where, "not raw bytes", key=place, value=given, allowed='{hex: "deadbeef"}')
    _hex(given["hex"], where, f"{place}.hex")


def _hex(text: Any, where: object, place: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError):
        raise BadInput(
            where, "not hex digits", key=place, value=text, allowed='pairs of hex digits, "deadbeef"'
        ) from None


def _check_links(headers: list[dict[str, Any]], where: object, key: str) -> None:
    """What `with` names."""
    known: dict[str, int] = {}
    for index, name, one, value in varying(headers):
        field = HEADERS[name].fields[one]
        if "with" in value:
            check_link(field, value, known, where, f"{key}.headers.{index}.{name}.{one}")
        number = number_of_values(field, value)
        known |= dict.fromkeys(_names(headers, index, f"{name}.{one}"), number)


def varying(headers: list[dict[str, Any]]) -> Iterator[_Varying]:
    """(number of the header, its name, field, value) of each varying field of checked headers: in their order, but for
    those that move with a later one, which come behind all others."""
    known: list[str] = []
    later: list[_Varying] = []
    for one in _in_frame(headers):
        index, name, field, value = one
        if "with" in value and value["with"] not in known:
            later.append(one)
            continue
        known += _names(headers, index, f"{name}.{field}")
        yield one
    yield from later


def _in_frame(headers: list[dict[str, Any]]) -> Iterator[_Varying]:
    for index, entry in enumerate(headers):
        name, given = next(iter(entry.items()))
        for one in HEADERS[name].fields if name in HEADERS else ():
            if isinstance(given.get(one), dict) and "off_by" not in given[one]:
                yield index, name, one, given[one]


def _names(headers: list[dict[str, Any]], index: int, name: str) -> list[str]:
    """What the field `name` (header.field) of a header may be called, the usual name first."""
    alone = sum(name.split(".")[0] in entry for entry in headers) == 1
    return [name, f"{index}.{name}"] if alone else [f"{index}.{name}"]


def _check_payload(payload: Any, where: object, place: str) -> None:
    allowed = '{fill: 0}, {hex: "…"} or {random: true}'
    if not isinstance(payload, dict) or len(payload) > 1 or set(payload) - {"fill", "hex", "random"}:
        raise BadInput(where, "not a payload", key=place, value=payload, allowed=allowed)
    if "hex" in payload:
        _hex(payload["hex"], where, f"{place}.hex")
    if "random" in payload and payload["random"] is not True:
        raise BadInput(where, "not a payload", key=f"{place}.random", value=payload["random"], allowed="true")
    if "fill" in payload:
        parse(Field(0, 8), payload["fill"], where, f"{place}.fill")


def _check_size(frame: dict[str, Any], size_bytes: int, where: object, place: str) -> None:
    least = least_size_bytes(frame["headers"], frame.get("payload", {}))
    if not least <= size_bytes <= LARGEST_SIZE_BYTES:
        allowed = f"{least} to {LARGEST_SIZE_BYTES} with these headers, FCS included"
        raise BadInput(where, "the frame does not fit", key=place, value=size_bytes, allowed=allowed)
    for index, header in enumerate(_place(frame["headers"])):
        by = off_by(header.given.get("length"))
        right = header.length(size_bytes - FCS_BYTES)
        if by and not 0 <= right + by <= 0xFFFF:
            at = f"{place.removesuffix('size_bytes')}headers.{index}.{header.name}.length.off_by"
            allowed = f"{-right} to {0xFFFF - right} in frames of {size_bytes} bytes"
            raise BadInput(where, "no length can be so wrong", key=at, value=by, allowed=allowed)


def least_size_bytes(headers: list[dict[str, Any]], payload: dict[str, Any] | None = None) -> int:
    """The smallest frame, FCS included, that holds these headers and a payload given in hex; 64 or more."""
    held = sum(_size(name, given) for entry in headers for name, given in entry.items())
    held += len(bytes.fromhex((payload or {}).get("hex", "")))
    return max(LEAST_SIZE_BYTES, held + FCS_BYTES)


def _size(name: str, given: dict[str, Any]) -> int:
    return len(bytes.fromhex(given["hex"])) if name == "raw" else HEADERS[name].size_bytes


# --- build ---------------------------------------------------------------------------------------------------------


@dataclass
class _Placed:
    """A header at its place in the frame."""

    name: str
    given: dict[str, Any]
    start: int
    above: str = ""

    @property
    def stop(self) -> int:
        return self.start + _size(self.name, self.given)

    def length(self, end: int) -> int:
        """What its length field counts: IPv6 (RFC 8200, 3) and GTP-U what follows, IPv4 and UDP themselves too."""
        return end - (self.stop if self.name in ("ipv6", "gtpu") else self.start)


class _Builder:
    """Fills one frame header by header; `data`, `mask` and `identity` grow to the Template's parts."""

    def __init__(self, frame: dict[str, Any], size_bytes: int) -> None:
        self.end = size_bytes - FCS_BYTES
        self.data, self.varying, self.identity = (bytearray(self.end) for _ in range(3))
        self.fields: list[VaryingField] = []
        self.checksums: list[Checksum] = []
        self.links: dict[str, int] = {}
        """Each name of a varying field → its number."""
        self.headers: list[dict[str, Any]] = frame["headers"]
        self.placed = _place(self.headers)
        self.payload: dict[str, Any] = frame.get("payload", {})

    def build(self) -> Template:
        for index, header in enumerate(self.placed):
            self._fill_raw(header) if header.name == "raw" else self._fill(header, index)
        for index, header_name, name, value in varying(self.headers):
            self._fill_varying(index, header_name, name, value)
        span = self._fill_payload()
        for index, header in enumerate(self.placed):
            self._add_checksum(index, header)
        for checksum in mending_order(tuple(self.checksums)):
            checksum.mend(self.data)
            if any(self.varying[start:stop] != bytes(stop - start) for start, stop in checksum.ranges):
                put_bits(self.varying, checksum.offset_bytes * 8, 16, 0xFFFF)
        return Template(
            bytes(self.data), tuple(self.fields), tuple(self.checksums), span, bytes(self.varying), bytes(self.identity)
        )

    def _fill(self, header: _Placed, index: int) -> None:
        for name, field in HEADERS[header.name].fields.items():
            given = header.given.get(name)
            if given is None and self._shadowed(header, name):
                continue
            bit = header.start * 8 + field.bit
            value = self._auto(index, name, field) if given is None or off_by(given) else given
            if isinstance(value, dict):
                continue
            if field.identity:
                put_bits(self.identity, bit, field.width, field.largest)
            put_bits(self.data, bit, field.width, value if isinstance(value, int) else field.parse(value))

    def _fill_varying(self, index: int, header: str, name: str, value: dict[str, Any]) -> None:
        field = HEADERS[header].fields[name]
        bit = self.placed[index].start * 8 + field.bit
        first = self._vary(_names(self.headers, index, f"{header}.{name}"), bit, field, value)
        put_bits(self.data, bit, field.width, first)

    def _shadowed(self, header: _Placed, name: str) -> bool:
        """Left out because another name for the same bits was given (tos, dscp)."""
        return any(
            name in pair and any(one in header.given for one in pair) for pair in OVERLAPPING.get(header.name, [])
        )

    def _auto(self, index: int, name: str, field: Field) -> int:
        header = self.placed[index]
        spec = HEADERS[header.name]
        if field.auto and name == spec.next_field:
            return spec.next_headers.get(header.above, spec.next_default)
        if field.auto and name == "length":
            return header.length(self.end) + off_by(header.given.get(name))
        if field.auto and header.name == "gtpu":
            return gtpu_flag(name, self.headers[index + 1 : index + 3])
        return field.default or 0

    def _vary(self, names: list[str], bit: int, field: Field, value: dict[str, Any]) -> int:
        """Adds the field, and returns its value in the first frame."""
        link = self.links.get(value.get("with", ""))
        first, last = ends_of(field, value)
        if upper_half_alone(field, value):
            return self._vary_upper_half(names, bit, field, value)
        start, stop = bit // 8, (bit + field.width + 7) // 8
        weights = places(value["weights"]) if "weights" in value else ()
        own = number_of_values(field, value)
        varying = VaryingField(
            names[0],
            start,
            stop - start,
            mode_of(value),
            first,
            last,
            value.get("step", 1),
            stop * 8 - bit - field.width,
            field.width,
            field.identity,
            listed(field, value),
            weights if link is None else tuple(one % own for one in self.fields[link].places),
            link,
            value.get("every", 1),
        )
        self.links |= dict.fromkeys(names, len(self.fields))
        self.fields.append(varying)
        put_bits(self.varying, bit, field.width, field.largest)
        return varying.at(0)

    def _vary_upper_half(self, names: list[str], bit: int, field: Field, value: dict[str, Any]) -> int:
        """As a field of its own: a user's /64 prefix in front of an interface identifier that all have."""
        ends = [number >> HALF_BITS for number in ends_of(field, value)]
        half = {mode_of(value): ends, "step": max(1, value.get("step", 1) >> HALF_BITS)}
        half |= {one: value[one] for one in ("with", "wrap", "every") if one in value}
        if field.identity:
            put_bits(self.identity, bit + HALF_BITS, HALF_BITS, (1 << HALF_BITS) - 1)
        self._vary(names, bit, Field(0, HALF_BITS, identity=field.identity), half)
        below = ends_of(field, value)[0] % (1 << HALF_BITS)
        self.fields[-1] = replace(self.fields[-1], below=below, below_bits=HALF_BITS)
        return self.fields[-1].whole(0)

    def _fill_raw(self, header: _Placed) -> None:
        self.data[header.start : header.stop] = bytes.fromhex(header.given["hex"])
        self.identity[header.start : header.stop] = b"\xff" * (header.stop - header.start)

    def _fill_payload(self) -> tuple[int, int]:
        start = self.placed[-1].stop
        if "random" in self.payload and start < self.end:
            self.varying[start : self.end] = b"\xff" * (self.end - start)
            return start, self.end
        content = bytes.fromhex(self.payload.get("hex", ""))
        fill = Field(0, 8).parse(self.payload.get("fill", 0))
        self.data[start : self.end] = content + bytes([fill]) * (self.end - start - len(content))
        return 0, 0

    def _add_checksum(self, index: int, header: _Placed) -> None:
        if header.name == "raw" or "checksum" not in HEADERS[header.name].fields:
            return
        wrong_by = off_by(header.given.get("checksum"))
        if "checksum" in header.given and not wrong_by:
            return
        offset = header.start + HEADERS[header.name].fields["checksum"].bit // 8
        if header.name == "ipv4":
            self.checksums.append(Checksum(offset, ((header.start, header.stop),), off_by=wrong_by))
            return
        ranges: tuple[tuple[int, int], ...] = ((header.start, self.end),)
        constant = 0
        if header.name in PSEUDO_HEADER:
            below = self.placed[index - 1]
            spec = HEADERS[below.name].fields["src"]
            source = below.start + spec.bit // 8
            ranges = ((source, source + 2 * spec.width // 8), *ranges)
            constant = PSEUDO_HEADER[header.name] + self.end - header.start
        self.checksums.append(Checksum(offset, ranges, constant, header.name == "udp", wrong_by))


def upper_half_alone(field: Field, value: dict[str, Any]) -> bool:
    """Whether of an IPv6 address only the upper 64 bits count up or down."""
    if field.width <= HALF_BITS or mode_of(value) not in ("increment", "decrement"):
        return False
    first, last = ends_of(field, value)
    return first == last or value.get("step", 1) % (1 << HALF_BITS) == 0


def _place(headers: list[dict[str, Any]]) -> list[_Placed]:
    placed: list[_Placed] = []
    for entry in headers:
        name, given = next(iter(entry.items()))
        if placed:
            placed[-1].above = name
        placed.append(_Placed(name, given, placed[-1].stop if placed else 0))
    return placed


def length_fields(headers: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(offset, n) of each computed length in a frame of checked headers: it is the frame's bytes without FCS plus n."""
    return [
        (one.start + HEADERS[one.name].fields["length"].bit // 8, one.length(0) + off_by(one.given.get("length")))
        for one in _place(headers)
        if _has_length(one) and ("length" not in one.given or off_by(one.given["length"]))
    ]


def given_lengths(headers: list[dict[str, Any]]) -> list[str]:
    """The lengths (header.field) that the scenario gives in place of the right ones."""
    placed = [one for one in _place(headers) if _has_length(one)]
    return [f"{one.name}.length" for one in placed if "length" in one.given and not off_by(one.given["length"])]


def _has_length(header: _Placed) -> bool:
    fields = HEADERS[header.name].fields if header.name in HEADERS else {}
    return "length" in fields and fields["length"].auto


def build_frame(frame: dict[str, Any], size_bytes: int) -> Template:
    """The Template of a checked frame. `size_bytes` counts the FCS, the Template's bytes do not."""
    check_frame(frame, "frame", "frame", size_bytes)
    return _Builder(frame, size_bytes).build()
