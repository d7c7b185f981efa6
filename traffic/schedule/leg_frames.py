"""The frames of a leg, before a sender makes them: sizes, room for stamps, and templates."""

from __future__ import annotations

from dataclasses import replace

from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import MADE_IN_KERNEL, Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import pktgen


def sizes_bytes(leg: Leg) -> list[tuple[int, int]]:
    """(size with FCS, weight) of a stream's frames."""
    return [(size, weight) for size, weight in leg.sizes] or [(leg.size_bytes, 1)]


def stamped(leg: Leg) -> bool:
    """Whether the leg's frames carry a stamp: by default those of a stream with room in every size; with option stamp
    those of a trace that have room."""
    if leg.kind == "trace":
        return leg.options.get("stamp") is True
    return leg.kind == "stream" and bool(leg.options.get("stamp", True)) and has_room(leg)


def stamp_bytes(leg: Leg) -> int:
    """The stamp's size in a stamped stream: with a checksum of the payload if every frame has room for it."""
    return stamp.CHECKED_BYTES if has_room(leg, stamp.CHECKED_BYTES) and _is_checkable(leg) else stamp.PLAIN_BYTES


def _is_checkable(leg: Leg) -> bool:
    """Whether the receiver finds the end of the payload: lengths can be wrong on purpose."""
    headers, size = leg.frame["headers"], min(size for size, _ in sizes_bytes(leg))
    template = build_frame(leg.frame, size)
    if not stamp_is_found(template, headers):
        return False
    return layout(template.data).payload_bytes == len(template.data) - stamp.payload_offset(headers)


def sequence_limit(leg: Leg) -> int:
    """Upper bound of the sequence numbers, exclusive; 0: unknown.

    A leg without a rate sends a further frame, with a new number, for each frame that a full ring drops; one whose rate
    is raised sends more within its duration.
    """
    if leg.steered and leg.duration_s is not None and leg.kind == "stream":
        return 0
    if leg.kind == "trace":
        return 0 if leg.timing.mode == "top" else leg.stamped_packets or 0
    paced = leg.rate_pps is not None or bool(leg.rates) or bool(leg.sequence_file)
    return leg.count_packets or 0 if paced or leg.engine not in MADE_IN_KERNEL else 0


def has_room(leg: Leg, bytes_needed: int = stamp.PLAIN_BYTES) -> bool:
    """Whether the payload has room for a stamp; bytes that the scenario gives in hex are not overwritten."""
    taken = "hex" in leg.frame.get("payload", {}) or "arp" in leg.frame["headers"][-1]
    held = stamp.payload_offset(leg.frame["headers"]) + bytes_needed + FCS_BYTES
    return not taken and min(size for size, _ in sizes_bytes(leg)) >= held and leg.id <= stamp.LARGEST_STREAM


def stamp_is_found(template: Template, headers: Headers) -> bool:
    """Whether the counting program finds the stamp at the sender's place.

    It does not behind raw bytes, in a fragment, or with lengths that are wrong on purpose.
    """
    try:
        found = layout(template.data)
    except (IndexError, ValueError):
        return False
    return found.payload == stamp.payload_offset(headers) and found.payload_bytes >= stamp.PLAIN_BYTES


def templates_as_sent(leg: Leg) -> dict[int, Template]:
    """Size with FCS → the template of the frames as the leg's engine sends them."""
    if leg.engine == "pktgen":
        return {size: build_frame(pktgen.as_sent(leg), size) for size in pktgen.sizes_bytes(leg)}
    if leg.engine in MADE_IN_KERNEL:
        return {size: _stamped(leg, leg.frame["headers"], size) for size, _ in sizes_bytes(leg)}
    return {size: build_frame(leg.frame, size) for size, _ in sizes_bytes(leg)}


def templates_as_received(leg: Leg) -> dict[int, Template]:
    """As templates_as_sent(), behind a device that adds or removes headers (Leg.arrives)."""
    if leg.arrives is None:
        return templates_as_sent(leg)
    sizes = [size + leg.arrives.added_bytes for size, _ in sizes_bytes(leg)]
    return {size: _stamped(leg, leg.arrives.headers, size) for size in sizes}


def _stamped(leg: Leg, headers: Headers, size_bytes: int) -> Template:
    """The template with the stamp, and the checksums that cover it, among its varying bits."""
    template = build_frame({**leg.frame, "headers": headers}, size_bytes)
    if not stamped(leg):
        return template
    start = stamp.payload_offset(headers)
    varying = bytearray(template.varying_mask)
    stop = start + stamp_bytes(leg)
    varying[start:stop] = b"\xff" * (stop - start)
    for checksum in template.checksums:
        if checksum.covers(start, stop):
            varying[checksum.offset_bytes : checksum.offset_bytes + 2] = b"\xff\xff"
    return replace(template, varying_mask=bytes(varying))
