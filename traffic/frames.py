"""Frames described as a list of headers: checked, with messages that name the place, and built into a Template.

{"headers": [{"ethernet": {"src": …, "dst": …}}, {"ipv4": {…}}, {"udp": {…}}], "payload": {"fill": 0}}
The headers, their fields and their defaults are in traffic.headers; docs/headers.md describes them to users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from traffic.errors import BadInput
from traffic.headers import HEADERS, OVERLAPPING, Field, may_follow
from traffic.task import FCS_BYTES
from traffic.template import Checksum, Mode, Template, VaryingField, put_bits

LEAST_SIZE_BYTES = 64
LARGEST_SIZE_BYTES = 65535
MODES = ("increment", "decrement", "random")
PSEUDO_HEADER = {"udp": 17, "tcp": 6, "icmpv6": 58}
"""Headers whose checksum covers the addresses below them, and the protocol number that goes in with these."""


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
        _check_value(fields[one], given[one], where, f"{place}.{one}")
    for one, field in fields.items():
        if field.default is None and one not in given:
            raise BadInput(where, "missing", key=f"{place}.{one}", allowed=field.allowed)
    for first, second in OVERLAPPING.get(name, []):
        if first in given and second in given:
            raise BadInput(
                where, f"{second} is part of it", key=f"{place}.{first}", allowed=f"{first} or {second}, not both"
            )


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


def _check_value(field: Field, value: Any, where: object, place: str) -> None:
    if not isinstance(value, dict):
        _parse(field, value, where, place)
        return
    modes = [mode for mode in MODES if mode in value]
    if len(modes) != 1 or set(value) - {modes[0], "step"}:
        allowed = "{increment: [first, last], step: 1}, {decrement: [first, last]} or {random: [first, last]}"
        raise BadInput(where, "not a varying field", key=place, value=value, allowed=allowed)
    _check_range(field, modes[0], value, where, place)


def _check_range(field: Field, mode: str, value: dict[str, Any], where: object, place: str) -> None:
    ends, step = value[mode], value.get("step", 1)
    if not isinstance(ends, list) or len(ends) != 2:
        raise BadInput(where, "not a range", key=f"{place}.{mode}", value=ends, allowed="[first, last]")
    first, last = (_parse(field, end, where, f"{place}.{mode}.{i}") for i, end in enumerate(ends))
    if (first < last) if mode == "decrement" else (first > last):
        allowed = "the larger value first" if mode == "decrement" else "the smaller value first"
        raise BadInput(where, "the range is the wrong way round", key=f"{place}.{mode}", value=ends, allowed=allowed)
    whole = isinstance(step, int) and not isinstance(step, bool)
    if mode == "random" and "step" in value:
        raise BadInput(where, "a random field has no step", key=f"{place}.step", value=step, allowed="leave it out")
    if not whole or not 1 <= step <= max(1, abs(last - first)):
        largest = max(1, abs(last - first))
        raise BadInput(
            where, "no such step", key=f"{place}.step", value=step, allowed=f"a whole number from 1 to {largest}"
        )


def _parse(field: Field, value: Any, where: object, place: str) -> int:
    try:
        return field.parse(value)
    except ValueError as error:
        problem = "out of range" if "out of range" in str(error) else f"not {_article(field)}"
        raise BadInput(where, problem, key=place, value=value, allowed=field.allowed) from None


def _article(field: Field) -> str:
    return {"mac": "a MAC address", "ipv4": "an IPv4 address", "ipv6": "an IPv6 address"}.get(field.kind, "a number")


def _check_payload(payload: Any, where: object, place: str) -> None:
    allowed = '{fill: 0}, {hex: "…"} or {random: true}'
    if not isinstance(payload, dict) or len(payload) > 1 or set(payload) - {"fill", "hex", "random"}:
        raise BadInput(where, "not a payload", key=place, value=payload, allowed=allowed)
    if "hex" in payload:
        _hex(payload["hex"], where, f"{place}.hex")
    if "random" in payload and payload["random"] is not True:
        raise BadInput(where, "not a payload", key=f"{place}.random", value=payload["random"], allowed="true")
    if "fill" in payload:
        _parse(Field(0, 8), payload["fill"], where, f"{place}.fill")


def _check_size(frame: dict[str, Any], size_bytes: int, where: object, place: str) -> None:
    least = least_size_bytes(frame["headers"], frame.get("payload", {}))
    if not least <= size_bytes <= LARGEST_SIZE_BYTES:
        allowed = f"{least} to {LARGEST_SIZE_BYTES} with these headers, FCS included"
        raise BadInput(where, "the frame does not fit", key=place, value=size_bytes, allowed=allowed)


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


class _Builder:
    """Fills one frame header by header; `data`, `mask` and `identity` grow to the Template's parts."""

    def __init__(self, frame: dict[str, Any], size_bytes: int) -> None:
        self.end = size_bytes - FCS_BYTES
        self.data, self.varying, self.identity = (bytearray(self.end) for _ in range(3))
        self.fields: list[VaryingField] = []
        self.checksums: list[Checksum] = []
        self.placed = _place(frame["headers"])
        self.payload: dict[str, Any] = frame.get("payload", {})

    def build(self) -> Template:
        for header in self.placed:
            self._fill_raw(header) if header.name == "raw" else self._fill(header)
        span = self._fill_payload()
        for index, header in enumerate(self.placed):
            self._add_checksum(index, header)
        for checksum in self.checksums:
            checksum.mend(self.data)
            if any(self.varying[start:stop] != bytes(stop - start) for start, stop in checksum.ranges):
                put_bits(self.varying, checksum.offset_bytes * 8, 16, 0xFFFF)
        return Template(
            bytes(self.data), tuple(self.fields), tuple(self.checksums), span, bytes(self.varying), bytes(self.identity)
        )

    def _fill(self, header: _Placed) -> None:
        for name, field in HEADERS[header.name].fields.items():
            given = header.given.get(name)
            if given is None and self._shadowed(header, name):
                continue
            bit = header.start * 8 + field.bit
            value = self._auto(header, name, field) if given is None else given
            if isinstance(value, dict):
                value = self._vary(header, name, field, value)
            elif field.identity:
                put_bits(self.identity, bit, field.width, field.largest)
            put_bits(self.data, bit, field.width, value if isinstance(value, int) else field.parse(value))

    def _shadowed(self, header: _Placed, name: str) -> bool:
        """Left out because another name for the same bits was given (tos, dscp)."""
        return any(
            name in pair and any(one in header.given for one in pair) for pair in OVERLAPPING.get(header.name, [])
        )

    def _auto(self, header: _Placed, name: str, field: Field) -> int:
        spec = HEADERS[header.name]
        if field.auto and name == spec.next_field:
            return spec.next_headers.get(header.above, spec.next_default)
        if field.auto and name == "length":
            # IPv6 counts what follows its header (RFC 8200, 3), IPv4 and UDP count themselves too.
            return self.end - (header.stop if header.name == "ipv6" else header.start)
        return field.default or 0

    def _vary(self, header: _Placed, name: str, field: Field, value: dict[str, Any]) -> int:
        mode = cast(Mode, next(mode for mode in MODES if mode in value))
        first, last = (field.parse(end) for end in value[mode])
        bit = header.start * 8 + field.bit
        start, stop = bit // 8, (bit + field.width + 7) // 8
        self.fields.append(
            VaryingField(
                f"{header.name}.{name}",
                start,
                stop - start,
                mode,
                first,
                last,
                value.get("step", 1),
                stop * 8 - bit - field.width,
                field.width,
                field.identity,
            )
        )
        put_bits(self.varying, bit, field.width, field.largest)
        return first

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
        if header.name == "raw" or "checksum" not in HEADERS[header.name].fields or "checksum" in header.given:
            return
        offset = header.start + HEADERS[header.name].fields["checksum"].bit // 8
        if header.name == "ipv4":
            self.checksums.append(Checksum(offset, ((header.start, header.stop),)))
            return
        ranges: tuple[tuple[int, int], ...] = ((header.start, self.end),)
        constant = 0
        if header.name in PSEUDO_HEADER:
            below = self.placed[index - 1]
            spec = HEADERS[below.name].fields["src"]
            source = below.start + spec.bit // 8
            ranges = ((source, source + 2 * spec.width // 8), *ranges)
            constant = PSEUDO_HEADER[header.name] + self.end - header.start
        self.checksums.append(Checksum(offset, ranges, constant, header.name == "udp"))


def _place(headers: list[dict[str, Any]]) -> list[_Placed]:
    placed: list[_Placed] = []
    for entry in headers:
        name, given = next(iter(entry.items()))
        if placed:
            placed[-1].above = name
        placed.append(_Placed(name, given, placed[-1].stop if placed else 0))
    return placed


def build_frame(frame: dict[str, Any], size_bytes: int) -> Template:
    """The Template of a checked frame. `size_bytes` counts the FCS, the Template's bytes do not."""
    check_frame(frame, "frame", "frame", size_bytes)
    return _Builder(frame, size_bytes).build()
