"""A checked frame description built into a Template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.description import FrameDescription, hex_bytes
from pktswarm.traffic.frames.headers import FCS_BYTES, HEADERS, OVERLAPPING, Field, gre_field, gtpu_flag
from pktswarm.traffic.frames.placement import PlacedHeader, field_names, place_headers, varying
from pktswarm.traffic.frames.template import Checksum, Template, VaryingField, mending_order, put_bits
from pktswarm.traffic.frames.values import Variation, off_by, places

HALF_BITS = 64
"""Half an IPv6 address: a user's /64 prefix, or its interface identifier."""
PSEUDO_HEADER = {"udp": 17, "tcp": 6, "icmpv6": 58}
"""Headers whose checksum covers a pseudo header, and the protocol number in that."""


def build_frame(frame: Mapping[str, object], size_bytes: int) -> Template:
    """The Template of a frame description; BadInput for a wrong one. `size_bytes` counts the FCS, the Template's bytes
    do not."""
    return _Builder(check_frame(frame, "frame", "frame", size_bytes), size_bytes).build()


class _Builder:
    """Fills one frame header by header; `data`, `varying` and `identity` become the Template's parts."""

    def __init__(self, frame: FrameDescription, size_bytes: int) -> None:
        self.end = size_bytes - FCS_BYTES
        self.data, self.varying, self.identity = (bytearray(self.end) for _ in range(3))
        self.fields: list[VaryingField] = []
        self.checksums: list[Checksum] = []
        self.links: dict[str, int] = {}
        """Name of a varying field → its number."""
        self.headers = frame["headers"]
        self.placed = place_headers(self.headers)
        self.payload = frame.get("payload", {})

    def build(self) -> Template:
        for index, header in enumerate(self.placed):
            self._fill_raw(header) if header.name == "raw" else self._fill(header, index)
        for index, header_name, name, value in varying(self.headers):
            self._fill_varying(index, header_name, name, Variation.of(HEADERS[header_name].fields[name], value))
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

    def _fill(self, header: PlacedHeader, index: int) -> None:
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

    def _fill_varying(self, index: int, header: str, name: str, value: Variation) -> None:
        field = HEADERS[header].fields[name]
        bit = self.placed[index].start * 8 + field.bit
        first = self._vary(field_names(self.headers, index, f"{header}.{name}"), bit, field, value)
        put_bits(self.data, bit, field.width, first)

    def _shadowed(self, header: PlacedHeader, name: str) -> bool:
        """Whether the description gives another name for the same bits (tos, dscp)."""
        return any(
            name in pair and any(one in header.given for one in pair) for pair in OVERLAPPING.get(header.name, [])
        )

    def _auto(self, index: int, name: str, field: Field) -> int:
        header = self.placed[index]
        spec = HEADERS[header.name]
        if field.auto and header.name == "gre":
            return gre_field(name, self.headers[index + 1 : index + 4])
        if field.auto and name == spec.next_field:
            return spec.next_headers.get(header.above, spec.next_default)
        if field.auto and name == "length":
            return header.length(self.end) + off_by(header.given.get(name))
        if field.auto and header.name == "gtpu":
            return gtpu_flag(name, self.headers[index + 1 : index + 3])
        return field.default or 0

    def _vary(self, names: list[str], bit: int, field: Field, value: Variation) -> int:
        """Adds the field, and returns its value in the first frame."""
        if field.width > HALF_BITS and value.keeps_low_bits(HALF_BITS):
            return self._vary_upper_half(names, bit, field, value)
        link = self.links.get(value.link)
        start, stop = bit // 8, (bit + field.width + 7) // 8
        varying = VaryingField(
            names[0],
            start,
            stop - start,
            value.mode,
            value.first,
            value.last,
            value.step,
            stop * 8 - bit - field.width,
            field.width,
            field.identity,
            value.listed,
            places(value.weights) if link is None else tuple(one % value.values for one in self.fields[link].places),
            link,
            value.every,
        )
        self.links |= dict.fromkeys(names, len(self.fields))
        self.fields.append(varying)
        put_bits(self.varying, bit, field.width, field.largest)
        return varying.at(0)

    def _vary_upper_half(self, names: list[str], bit: int, field: Field, value: Variation) -> int:
        """A user's /64 prefix as a field of its own, before an interface identifier that all frames have."""
        half = replace(
            value, first=value.first >> HALF_BITS, last=value.last >> HALF_BITS, step=max(1, value.step >> HALF_BITS)
        )
        if field.identity:
            put_bits(self.identity, bit + HALF_BITS, HALF_BITS, (1 << HALF_BITS) - 1)
        self._vary(names, bit, Field(0, HALF_BITS, identity=field.identity), half)
        below = value.first % (1 << HALF_BITS)
        self.fields[-1] = replace(self.fields[-1], below=below, below_bits=HALF_BITS)
        return self.fields[-1].whole(0)

    def _fill_raw(self, header: PlacedHeader) -> None:
        self.data[header.start : header.stop] = hex_bytes(header.given)
        self.identity[header.start : header.stop] = b"\xff" * (header.stop - header.start)

    def _fill_payload(self) -> tuple[int, int]:
        start = self.placed[-1].stop
        if "random" in self.payload and start < self.end:
            self.varying[start : self.end] = b"\xff" * (self.end - start)
            return start, self.end
        content = hex_bytes(self.payload)
        fill = Field(0, 8).parse(self.payload.get("fill", 0))
        self.data[start : self.end] = content + bytes([fill]) * (self.end - start - len(content))
        return 0, 0

    def _add_checksum(self, index: int, header: PlacedHeader) -> None:
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
