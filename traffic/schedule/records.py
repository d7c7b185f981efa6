"""The structs of kernel/send.h, which the XDP sender shares with its kernel program, in this machine's byte order.

send.h defines their meaning; tests compare the two through the compiled object's BTF.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint8, c_uint16, c_uint32, c_uint64

MAX_LEGS, MAX_RULES, MAX_CHECKSUMS = 256, 16, 4
SLOT_BYTES, WINDOW_BYTES, PENDING = 4096, 8, 256
LARGE_SLOT_BYTES = 16384
"""The slots of the engine tc, whose frames are not limited to a page."""
CHUNK_BYTES = 1 << 20
HELD_NS = 0
"""A leg that gives up then is held: it sends nothing, until it is given another time."""
NEVER = 2**64 - 1
TURN_LONG, TURN_OF_ONE, TURN_OVER = range(3)
GAP_FRACTION_BITS = 24
GAP_TABLE_BITS = 20
COUNT, RANDOM, LINKED, USER, SIZE = range(5)
MAX_PARTS, MAX_EDITS = 8, 8
EDIT_PLAIN, EDIT_SUMMED, EDIT_SUM = range(3)
LARGEST_BYTES = 3368
"""Largest live frame, without FCS, in a page of 4096 bytes; 3408 in kernels newer than 6.1."""
LARGEST_CLONE_BYTES = 9600
"""Largest frame of the engine tc, without FCS: MTUs up to 9,582 with a VLAN tag."""


class SumRecord(ctypes.Structure):
    _fields_ = (("offset", c_uint16), ("zero_is_ones", c_uint8), ("unused", c_uint8))


class NoiseRecord(ctypes.Structure):
    _fields_ = (("start", c_uint16), ("weight", c_uint16 * MAX_CHECKSUMS), ("unused", c_uint16 * 3))


class SettingsRecord(ctypes.Structure):
    """struct send_settings: set before the program is loaded."""

    _fields_ = (
        ("reading_mask", c_uint32),
        ("stamp_tai", c_uint32),
        ("egress_index", c_uint32),
        ("egress_queue", c_uint32),
        ("rules", c_uint32),
        ("modes", c_uint32),
        ("tables", c_uint32),
        ("sizes", c_uint32),
        ("noise", c_uint32),
        ("parts", c_uint32),
        ("traces", c_uint32),
        ("sequences", c_uint32),
        ("steps", c_uint32),
    )


class SlotRecord(ctypes.Structure):
    _fields_ = (
        ("frame_bytes", c_uint16),
        ("noise_stop", c_uint16),
        ("noise_windows", c_uint16),
        ("parts", c_uint16),
        ("bytes", c_uint8 * SLOT_BYTES),
    )


class LargeSlotRecord(ctypes.Structure):
    """SlotRecord of the engine tc."""

    _fields_ = (*SlotRecord._fields_[:-1], ("bytes", c_uint8 * LARGE_SLOT_BYTES))


AnySlot = SlotRecord | LargeSlotRecord


def slot_record(engine: str) -> type[SlotRecord] | type[LargeSlotRecord]:
    return LargeSlotRecord if engine == "tc" else SlotRecord


def slot_bytes(engine: str) -> int:
    return LARGE_SLOT_BYTES if engine == "tc" else SLOT_BYTES


def largest_bytes(engine: str) -> int:
    """The longest frame that the engine sends on any interface, without FCS."""
    return LARGEST_CLONE_BYTES if engine == "tc" else LARGEST_BYTES


class EditRecord(ctypes.Structure):
    """`value` in the byte order of a frame."""

    _fields_ = (("at", c_uint16), ("value", c_uint16), ("kind", c_uint16))


class PartRecord(ctypes.Structure):
    _fields_ = (
        ("head_bytes", c_uint16),
        ("start", c_uint16),
        ("bytes", c_uint16),
        ("edits", c_uint16),
        ("edit", EditRecord * MAX_EDITS),
    )


class TraceRecord(ctypes.Structure):
    _fields_ = (("due_ns", c_uint64), ("place", c_uint32), ("stored_bytes", c_uint16), ("frame_bytes", c_uint16))


class PlacesRecord(ctypes.Structure):
    _fields_ = (
        ("address", c_uint16 * 2),
        ("header_sum", c_uint16),
        ("port", c_uint16),
        ("sum", c_uint16),
        ("teid", c_uint16),
        ("stamp", c_uint16),
        ("ends", c_uint8),
        ("zero_is_ones", c_uint8),
    )


class StepRecord(ctypes.Structure):
    _fields_ = (("gap", c_uint64), ("until_ns", c_uint64), ("factor", c_uint32), ("shift", c_uint32))


class RuleRecord(ctypes.Structure):
    _fields_ = (
        ("first", c_uint64),
        ("step", c_uint64),
        ("count", c_uint64),
        ("position", c_uint64),
        ("stay", c_uint32),
        ("stays", c_uint32),
        ("mask", c_uint64),
        ("window", c_uint16),
        ("shift", c_uint8),
        ("mode", c_uint8),
        ("table", c_uint8),
        ("link", c_uint8),
        ("weight", c_uint16 * MAX_CHECKSUMS),
        ("unused", c_uint16),
    )


class LegRecord(ctypes.Structure):
    _fields_ = (
        ("gap", c_uint64),
        ("remaining", c_uint64),
        ("stop_ns", c_uint64),
        ("give_up_ns", c_uint64),
        ("late_ns", c_uint64),
        ("stretch_ns", c_uint64),
        ("most_stretched_ns", c_uint64),
        ("sequence", c_uint64),
        ("random", c_uint64),
        ("fraction", c_uint32),
        ("burst", c_uint32),
        ("in_burst", c_uint32),
        ("slot", c_uint32),
        ("pass_ns", c_uint64),
        ("period_ns", c_uint64),
        ("step_end_ns", c_uint64),
        ("left", c_uint64),
        ("seed", c_uint64),
        ("drawn", c_uint64),
        ("first_record", c_uint32),
        ("records", c_uint32),
        ("record", c_uint32),
        ("users", c_uint32),
        ("first_step", c_uint32),
        ("steps", c_uint32),
        ("step", c_uint32),
        ("first_gap", c_uint32),
        ("gaps", c_uint32),
        ("stamp", c_uint16),
        ("timed", c_uint8),
        ("skip", c_uint8),
        ("stamp_weight", c_uint16 * MAX_CHECKSUMS),
        ("rules", c_uint8),
        ("sums", c_uint8),
        ("sizes", c_uint8),
        ("checked", c_uint8),
        ("user_rule", c_uint8),
        ("crossing", c_uint8),
        ("sequence_of_records", c_uint8),
        ("shifted", c_uint8),
        ("user", c_uint32),
        ("frame_bytes", c_uint16),
        ("numbered_with", c_uint16),
        ("add_address", c_uint32 * 2),
        ("add_teid", c_uint32),
        ("add_port", c_uint16),
        ("in_parts", c_uint16),
        ("part", c_uint32),
        ("part_slot", c_uint32),
        ("packet_late", c_uint32),
        ("by_time", c_uint32),
        ("failed", c_uint64),
        ("sum", SumRecord * MAX_CHECKSUMS),
        ("noise", NoiseRecord),
        ("size", RuleRecord),
        ("rule", RuleRecord * MAX_RULES),
        ("generated", c_uint64),
        ("refused", c_uint64),
        ("dropped", c_uint64),
        ("generated_bytes", c_uint64),
        ("failed_bytes", c_uint64),
        ("late", c_uint64),
        ("skipped", c_uint64),
        ("latest_ns", c_uint64),
        ("stretched_ns", c_uint64),
        ("first_ns", c_uint64),
        ("last_ns", c_uint64),
        ("packets", c_uint64),
        ("packet_bytes", c_uint64),
    )

    @property
    def sent(self) -> int:
        """Frames sent."""
        return int(self.generated - self.refused - self.dropped)

    @property
    def sent_packets(self) -> int:
        return int(self.packets) if self.in_parts else self.sent

    @property
    def sent_bytes(self) -> int:
        """Without FCS."""
        return int(self.generated_bytes - self.failed_bytes)


class PendingRecord(ctypes.Structure):
    _fields_ = (
        ("leg", c_uint16),
        ("bytes", c_uint16),
        ("user", c_uint32),
        ("whole_bytes", c_uint16),
        ("packet", c_uint16),
    )


class StateRecord(ctypes.Structure):
    _fields_ = (
        ("start_ns", c_uint64),
        ("runs", c_uint64),
        ("calls", c_uint64),
        ("soon_ns", c_uint64),
        ("surely_ns", c_uint64),
        ("last_ns", c_uint64),
        ("longest_absence_ns", c_uint64),
        ("device_sent", c_uint64),
        ("device_dropped", c_uint64),
        ("unexplained", c_uint64),
        ("error", c_int32),
        ("finished", c_uint32),
        ("pushed", c_uint32),
        ("popped", c_uint32),
        ("tree_leaves", c_uint32),
        ("cpu", c_uint32),
        ("broken", c_uint32),
        ("pending", PendingRecord * PENDING),
        ("turn", c_uint32),
        ("held", c_uint32),
        ("due_ns", c_uint64 * MAX_LEGS),
        ("winner", c_uint16 * (2 * MAX_LEGS)),
        ("dropped_in_row", c_uint64),
    )
