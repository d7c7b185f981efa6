"""The places of headers, lengths and varying fields in a frame that traffic.frames.check has checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pktswarm.traffic.frames.description import Fields, Headers, hex_bytes
from pktswarm.traffic.frames.headers import FCS_BYTES, HEADERS
from pktswarm.traffic.frames.values import off_by

LEAST_SIZE_BYTES = 64
VaryingPlace = tuple[int, str, str, Fields]
"""(number of the header, its name, field, value as written)."""


@dataclass
class PlacedHeader:
    """A header at its place in the frame; `above` is the name of the next header."""

    name: str
    given: Fields
    start: int
    above: str = ""

    @property
    def stop(self) -> int:
        return self.start + header_bytes(self.name, self.given)

    def length(self, end: int) -> int:
        """The value of its length field in a frame of `end` bytes."""
        counts_itself = self.name not in HEADERS or HEADERS[self.name].counts_itself
        return end - (self.start if counts_itself else self.stop)


def header_bytes(name: str, given: Fields) -> int:
    return len(hex_bytes(given)) if name == "raw" else HEADERS[name].size_bytes


def headers_bytes(headers: Headers) -> int:
    """The bytes of all headers: the offset of the payload."""
    return sum(header_bytes(name, given) for entry in headers for name, given in entry.items())


def least_size_bytes(headers: Headers, payload: Mapping[str, object] | None = None) -> int:
    """The smallest frame, FCS included, that holds these headers and a payload given in hex; 64 or more."""
    return max(LEAST_SIZE_BYTES, headers_bytes(headers) + len(hex_bytes(payload or {})) + FCS_BYTES)


def place_headers(headers: Headers) -> list[PlacedHeader]:
    placed: list[PlacedHeader] = []
    for entry in headers:
        name, given = next(iter(entry.items()))
        if placed:
            placed[-1].above = name
        placed.append(PlacedHeader(name, given, placed[-1].stop if placed else 0))
    return placed


def length_fields(headers: Headers) -> list[tuple[int, int]]:
    """(offset, n) of each computed length: its value is the frame's bytes without FCS plus n."""
    return [
        (header.start + HEADERS[header.name].fields["length"].bit // 8, header.length(0) + off_by(given))
        for header in place_headers(headers)
        for given in [header.given.get("length")]
        if _has_length(header) and ("length" not in header.given or off_by(given))
    ]


def given_lengths(headers: Headers) -> list[str]:
    """The length fields (header.field) whose value the description gives in place of the computed one."""
    placed = [header for header in place_headers(headers) if _has_length(header)]
    return [f"{one.name}.length" for one in placed if "length" in one.given and not off_by(one.given["length"])]


def _has_length(header: PlacedHeader) -> bool:
    fields = HEADERS[header.name].fields if header.name in HEADERS else {}
    return "length" in fields and fields["length"].auto


def varying(headers: Headers) -> Iterator[VaryingPlace]:
    """The varying fields in the order of the frame; a field linked with a later one comes behind all others."""
    known: list[str] = []
    later: list[VaryingPlace] = []
    for place in _in_frame(headers):
        index, name, field, value = place
        if "with" in value and value["with"] not in known:
            later.append(place)
            continue
        known += field_names(headers, index, f"{name}.{field}")
        yield place
    yield from later


def _in_frame(headers: Headers) -> Iterator[VaryingPlace]:
    for index, entry in enumerate(headers):
        name, given = next(iter(entry.items()))
        for field in HEADERS[name].fields if name in HEADERS else ():
            value = given.get(field)
            if isinstance(value, dict) and "off_by" not in value:
                yield index, name, field, value


def field_names(headers: Headers, index: int, name: str) -> list[str]:
    """The names that refer to the field `name` (header.field) of header `index`, the usual name first."""
    alone = sum(name.split(".")[0] in entry for entry in headers) == 1
    return [name, f"{index}.{name}"] if alone else [f"{index}.{name}"]
