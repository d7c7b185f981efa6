"""The structs of kernel/count.h, which kernel/count.bpf.c shares with user space.

tests/lab/test_xdp_receiver_times.py compares the two through the compiled object's BTF.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, sizeof

from pktswarm.traffic.counting.latency_histogram import HISTOGRAM_BUCKETS

CAUSES = (
    "dst_mac",
    "src_mac",
    "vlan",
    "protocol",
    "dscp",
    "ttl",
    "mpls",
    "src_port",
    "dst_port",
    "teid",
    "src_ip",
    "dst_ip",
    "length",
    "payload",
    "stamp",
    "checksum",
)
"""enum cause, in its order."""
CAUSE_SLOTS = 16
SUMS_IP, SUMS_TRANSPORT = 1, 2
"""enum sums."""
UNMATCHED_KINDS = ("other", "unknown_stream", "fragment", "malformed", "damaged")
"""enum unmatched_kind, in its order."""
FRAGMENTS = ("begun", "foreign", "whole", "again", "too_long")
"""enum fragments_event, in its order: the first three count packets, the last two fragments."""
WINDOW_WORDS = 2048
HEAD_BYTES, ROW_RANGES, MOST_ROWS = 160, 4, 64
NO_LEG = 0xFFFFFFFF
NUMBERED_NOT, NUMBERED_BY_US, NUMBERED_BY_PKTGEN = range(3)
"""enum numbered."""


class Fields(Structure):
    """Header fields in network byte order; a missing field is zero."""

    _fields_ = (
        ("dst_mac", c_uint8 * 6),
        ("src_mac", c_uint8 * 6),
        ("vlan_outer", c_uint16),
        ("vlan_inner", c_uint16),
        ("tags", c_uint8),
        ("ip_version", c_uint8),
        ("protocol", c_uint8),
        ("tos", c_uint8),
        ("ttl", c_uint8),
        ("labels", c_uint8),
        ("unused", c_uint16),
        ("src_port", c_uint16),
        ("dst_port", c_uint16),
        ("teid", c_uint32),
        ("src_ip", c_uint8 * 16),
        ("dst_ip", c_uint8 * 16),
    )


class Expectation(Structure):
    """`mask` and `value` are two struct fields."""

    _fields_ = (
        ("mask", c_uint64 * (sizeof(Fields) // 8)),
        ("value", c_uint64 * (sizeof(Fields) // 8)),
        ("offset_ns", c_int64),
        ("bias_ns", c_uint64),
        ("limit", c_uint64),
        ("payload_bytes", c_uint32),
        ("timed", c_uint32),
        ("numbered", c_uint32),
        ("clocked", c_uint32),
        ("marks", c_uint32),
        ("first_mark", c_uint32),
        ("sums", c_uint32),
        ("by_headers", c_uint32),
    )


class RawUserRule(Structure):
    """The field by which the users of a leg are counted; see traffic.counting.users."""

    _fields_ = (
        ("first", c_uint64),
        ("step", c_uint64),
        ("mask", c_uint64),
        ("count", c_uint32),
        ("base", c_uint32),
        ("word", c_uint32),
        ("shift", c_uint32),
    )


class RawUser(Structure):
    _fields_ = (
        ("packets", c_uint64),
        ("bytes", c_uint64),
        ("distinct", c_uint64),
        ("latencies", c_uint64),
        ("latency_sum_ns", c_int64),
        ("latency_min_ns", c_int64),
        ("latency_max_ns", c_int64),
        ("damaged", c_uint64),
    )


class RawTally(Structure):
    """struct tally: the figures of a leg in the kernel program."""

    _fields_ = (
        ("lock", c_uint32),
        ("scratch", c_uint32),
        ("done", c_uint64),
        ("bytes", c_uint64),
        ("distinct", c_uint64),
        ("duplicated", c_uint64),
        ("reordered", c_uint64),
        ("too_late", c_uint64),
        ("invalid_sequence", c_uint64),
        ("damaged", c_uint64),
        ("altered", c_uint64),
        ("altered_by", c_uint64 * CAUSE_SLOTS),
        ("next", c_uint64),
        ("candidate", c_uint64),
        ("candidate_user", c_uint64),
        ("first_ns", c_uint64),
        ("last_ns", c_uint64),
        ("latencies", c_uint64),
        ("latency_sum_ns", c_int64),
        ("latency_min_ns", c_int64),
        ("latency_max_ns", c_int64),
        ("negative", c_uint64),
        ("impossible", c_uint64),
        ("moments", c_uint64),
        ("moment_distinct", c_uint64),
        ("transit_ns", c_int64),
        ("jitter_pairs", c_uint64),
        ("jitter_sum_ns", c_int64),
        ("jitter_squares_low", c_uint64),
        ("jitter_squares_high", c_uint64),
        ("jitter_clipped", c_uint64),
        ("jitter_rfc3550_16", c_uint64),
        ("packets", c_uint64),
    )


class RawHistogram(Structure):
    _fields_ = (("buckets", c_uint64 * HISTOGRAM_BUCKETS),)


class RawRange(Structure):
    _fields_ = (("offset", c_uint32), ("mask", c_uint32), ("low", c_uint32), ("high", c_uint32))


class RawRow(Structure):
    _fields_ = (
        ("mask", c_uint64 * (HEAD_BYTES // 8)),
        ("value", c_uint64 * (HEAD_BYTES // 8)),
        ("head_bytes", c_uint32),
        ("length", c_uint32),
        ("slot", c_uint32),
        ("stamped_slot", c_uint32),
        ("ranges", c_uint32),
        ("unused", c_uint32),
        ("range", RawRange * ROW_RANGES),
    )


class RawUnmatched(Structure):
    _fields_ = (
        ("packets", c_uint64 * len(UNMATCHED_KINDS)),
        ("bytes", c_uint64 * len(UNMATCHED_KINDS)),
        ("last_ns", c_uint64),
    )


class Settings(Structure):
    _fields_ = (
        ("armed_ns", c_uint64),
        ("legs", c_uint32),
        ("rows", c_uint32),
        ("pass_on", c_uint32),
        ("alone", c_uint32),
        ("tai", c_uint32),
        ("users", c_uint32),
        ("pktgen", c_uint32),
        ("echo", c_uint32),
        ("together_ms", c_uint32),
        ("timed_every", c_uint32),
    )


class RawFragments(Structure):
    _fields_ = (("events", c_uint64 * len(FRAGMENTS)),)


class RawPutTogether(Structure):
    """The packets of a leg received in fragments, and the number of their fragments."""

    _fields_ = (("packets", c_uint64), ("frames", c_uint64))


class RawFiltered(Structure):
    _fields_ = (("packets", c_uint64), ("bytes", c_uint64))


SHARED: dict[str, type[Structure]] = {
    "fields": Fields,
    "expectation": Expectation,
    "tally": RawTally,
    "histogram": RawHistogram,
    "range": RawRange,
    "row": RawRow,
    "unmatched": RawUnmatched,
    "settings": Settings,
    "user_rule": RawUserRule,
    "user": RawUser,
    "filtered": RawFiltered,
    "fragment_events": RawFragments,
    "put_together": RawPutTogether,
}
"""Name in kernel/count.h → struct."""
