"""Limits of the field engines, xdp and tc: why they cannot send a leg."""

from __future__ import annotations

from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.sizes import MOST_SIZES
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.frames.values import MOST_VALUES, number_of_places
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import leg_frames, pace, sequence_check
from pktswarm.traffic.schedule.records import MAX_CHECKSUMS, MAX_RULES, WINDOW_BYTES, largest_bytes

MOST_CORES = 64
MOST_BURST = 65536
MOST_USERS = 2**20
"""Users of a stream that are counted one by one."""
STREAM_OPTIONS = ("burst", "late", "stamp", "cores", "wait", "batch")
TRACE_OPTIONS = ("late", "stamp", "cores", "wait", "batch")
BATCH_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)
"""Frames that the kernel makes before it sends them."""


def unable(leg: Leg, engine: str = "xdp") -> str:
    """Why the engine cannot send this leg; empty when it can."""
    known: tuple[str, ...] = TRACE_OPTIONS if leg.kind == "trace" else STREAM_OPTIONS
    if engine == "tc":  # it gives each frame to the kernel by itself
        known = tuple(name for name in known if name != "batch")
    if unknown := [name for name in leg.options if name not in known]:
        return f"unknown option {unknown[0]!r} for a {leg.kind} (allowed: {', '.join(known)})"
    if leg.options.get("wait", "asleep") not in ("asleep", "awake"):
        return f"option wait = {leg.options['wait']!r}: must be asleep or awake"
    if leg.options.get("late", "stretch") not in ("stretch", "catch_up", "skip"):
        return f"option late = {leg.options['late']!r}: must be stretch, catch_up or skip"
    if leg.options.get("cores", 1) not in range(1, MOST_CORES + 1):
        return f"option cores = {leg.options['cores']!r}: must be a whole number from 1 to {MOST_CORES}"
    if leg.options.get("batch", 1) not in BATCH_SIZES:
        return f"option batch = {leg.options['batch']!r}: must be one of {', '.join(map(str, BATCH_SIZES))}"
    if problem := pace.unable(leg):
        return problem
    if leg.kind == "trace":
        return ""
    return _unable_options(leg) or _unable_frame(leg, engine)


def _unable_options(leg: Leg) -> str:
    burst = leg.options.get("burst", 1)
    if not isinstance(burst, int) or not 1 <= burst <= MOST_BURST:
        return f"option burst = {burst!r}: must be a whole number from 1 to {MOST_BURST}"
    return _unable_sizes(leg)


def _unable_sizes(leg: Leg) -> str:
    if len(leg.sizes) > MOST_SIZES:
        return f"{len(leg.sizes)} frame sizes: the maximum is {MOST_SIZES}"
    total = number_of_places([weight for _, weight in leg_frames.sizes_bytes(leg)])
    return f"the sum of the size weights is {total}: the maximum is {MOST_VALUES}" if total > MOST_VALUES else ""


def _unable_frame(leg: Leg, engine: str) -> str:
    sizes = [size for size, _ in leg_frames.sizes_bytes(leg)]
    if max(sizes) - FCS_BYTES > largest_bytes(engine):
        return f"frames of {max(sizes)} bytes: the maximum is {largest_bytes(engine) + FCS_BYTES} bytes"
    if leg.options.get("stamp") and not leg_frames.has_room(leg):
        least = stamp.least_size_bytes(leg.frame["headers"])
        return f"a stamp needs {stamp.PLAIN_BYTES} bytes of free payload, in a frame of at least {least} bytes"
    template = build_frame(leg.frame, min(sizes))
    if len(template.fields) > MAX_RULES:
        return f"{len(template.fields)} varying fields: the maximum is {MAX_RULES}"
    if len(template.checksums) > MAX_CHECKSUMS:
        return f"{len(template.checksums)} checksums: the maximum is {MAX_CHECKSUMS}"
    if problem := _unable_users(leg, template):
        return problem
    if leg.sequence_file and (problem := sequence_check.unable(leg, template)):
        return problem
    for one in template.fields:
        if one.first >> 64 != one.last >> 64 or (one.shift_bits and one.width_bytes > WINDOW_BYTES):
            return f"{one.name} varies above its last 64 bits"
    return ""


def _unable_users(leg: Leg, template: Template) -> str:
    if not leg.users:
        return ""
    counted = [one for one in template.fields if one.name == leg.users.field]
    if not counted:
        return f"users are counted by {leg.users.field}, which does not vary"
    if counted[0].values > MOST_USERS:
        return f"{counted[0].values} users by {counted[0].name}: the maximum is {MOST_USERS}"
    return ""
