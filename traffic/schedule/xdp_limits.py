"""Limits of the engine xdp: why it cannot send a leg."""

from __future__ import annotations

from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.sizes import MOST_SIZES
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.frames.values import MOST_VALUES, number_of_places
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule import leg_frames, pace, sequence_check
from pktswarm.traffic.schedule.records import LARGEST_BYTES, MAX_CHECKSUMS, MAX_RULES, WINDOW_BYTES

MOST_CORES = 64
MOST_USERS = 2**20
"""Users of a stream that are counted one by one."""
STREAM_OPTIONS = ("burst", "late", "stamp", "cores", "wait", "batch")
TRACE_OPTIONS = ("late", "stamp", "cores", "wait", "batch")
BATCH_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)
"""Frames that the kernel makes before it hands them on: FRAMES_A_READING in kernel/send.bpf.c divides all but 1."""


def unable(leg: Leg) -> str:
    """Why no schedule can be made of this leg; empty when one can."""
    known = TRACE_OPTIONS if leg.kind == "trace" else STREAM_OPTIONS
    odd = [name for name in leg.options if name not in known]
    if odd:
        return f"it has no option {odd[0]!r} for a {leg.kind}"
    if leg.options.get("wait", "asleep") not in ("asleep", "awake"):
        return f"wait is asleep or awake, not {leg.options['wait']!r}"
    if leg.options.get("late", "catch_up") not in ("catch_up", "skip"):
        return f"late is catch_up or skip, not {leg.options['late']!r}"
    if leg.options.get("cores", 1) not in range(1, MOST_CORES + 1):
        return f"cores is a whole number from 1 to {MOST_CORES}, not {leg.options['cores']!r}"
    if leg.options.get("batch", 1) not in BATCH_SIZES:
        return f"batch is one of {', '.join(map(str, BATCH_SIZES))}, not {leg.options['batch']!r}"
    if trouble := pace.unable(leg):
        return trouble
    if leg.kind == "trace":
        return ""
    return _unable_options(leg) or _unable_frame(leg)


def _unable_options(leg: Leg) -> str:
    burst = leg.options.get("burst", 1)
    if not isinstance(burst, int) or not 1 <= burst <= 65536:
        return f"burst is a whole number from 1 to 65536, not {burst!r}"
    return _unable_sizes(leg)


def _unable_sizes(leg: Leg) -> str:
    if len(leg.sizes) > MOST_SIZES:
        return f"its frames have at most {MOST_SIZES} sizes, not {len(leg.sizes)}"
    total = number_of_places([weight for _, weight in leg_frames.sizes_bytes(leg)])
    return f"its weights of sizes add up to at most {MOST_VALUES}, not {total}" if total > MOST_VALUES else ""


def _unable_frame(leg: Leg) -> str:
    sizes = [size for size, _ in leg_frames.sizes_bytes(leg)]
    if max(sizes) - FCS_BYTES > LARGEST_BYTES:
        return f"its frames have at most {LARGEST_BYTES + FCS_BYTES} bytes"
    if leg.options.get("stamp") and not leg_frames.has_room(leg):
        least = stamp.least_size_bytes(leg.frame["headers"])
        return f"a stamp needs {stamp.PLAIN_BYTES} bytes of free payload: a frame of at least {least} bytes"
    template = build_frame(leg.frame, min(sizes))
    if len(template.fields) > MAX_RULES:
        return f"it varies at most {MAX_RULES} fields of a frame, not {len(template.fields)}"
    if len(template.checksums) > MAX_CHECKSUMS:
        return f"it keeps at most {MAX_CHECKSUMS} checksums, not {len(template.checksums)}"
    if trouble := _unable_users(leg, template):
        return trouble
    if leg.sequence_file and (trouble := sequence_check.unable(leg, template)):
        return trouble
    for one in template.fields:
        if one.first >> 64 != one.last >> 64 or (one.shift_bits and one.width_bytes > WINDOW_BYTES):
            return f"{one.name} varies in more than its last 64 bits"
    return ""


def _unable_users(leg: Leg, template: Template) -> str:
    if not leg.users:
        return ""
    counted = [one for one in template.fields if one.name == leg.users["field"]]
    if not counted:
        return f"its users are told apart by {leg.users['field']}, which does not vary"
    if counted[0].values > MOST_USERS:
        return f"it counts at most {MOST_USERS} users, and {counted[0].name} takes {counted[0].values} values"
    return ""
