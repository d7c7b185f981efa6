"""The matching table of the receiver xdp: which frames belong to which leg, and which of its users they count for.

A slot is a leg's place in the task and in the program's maps. The frames without a stamp of a stamped trace have a slot
of their own behind the legs'.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pktswarm.traffic.counting import expect, sequence_bitmap, users
from pktswarm.traffic.counting.kernel_structs import (
    NUMBERED_BY_PKTGEN,
    NUMBERED_BY_US,
    SUMS_IP,
    Expectation,
    RawRow,
    RawUserRule,
)
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule import leg_frames, pktgen
from pktswarm.traffic.schedule.leg_frames import templates_as_received

MOST_LEGS = 40_000
"""A leg is 15 of the 1,000,000 instructions that the verifier follows; the others are up to 346,000."""


@dataclass(frozen=True)
class Matching:
    """Contents of the program's maps, before they are loaded."""

    legs: int
    expectations: dict[int, Expectation] = field(default_factory=dict)
    """Slot → the header fields of a leg counted by sequence numbers."""
    rows: list[RawRow] = field(default_factory=list)
    """The legs recognised by their bytes."""
    unstamped_slots: dict[int, int] = field(default_factory=dict)
    """Slot of a stamped trace → the slot of its frames without a stamp."""
    user_rules: dict[int, RawUserRule] = field(default_factory=dict)
    """Slot → the rule that finds the user of a frame, where users are counted."""
    bitmaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Leg id → (first word, number of words) of its bitmap of sequence numbers, where several nodes count the leg."""

    @property
    def slots(self) -> int:
        """Number of slots that count packets."""
        return max(1, self.legs + len(self.unstamped_slots))

    @property
    def user_entries(self) -> int:
        """Number of entries in the map of users: one a user, and one a rule for the frames that are no user's."""
        return max(1, sum(int(rule.count) + 1 for rule in self.user_rules.values()))

    @property
    def bitmap_words(self) -> int:
        return max(1, sum(count for _, count in self.bitmaps.values()))


def matching(task: ReceiveTask) -> Matching:
    """Builds the table. Raises BadInput when it exceeds the receiver's memory, or what the verifier follows."""
    if len(task.legs) > MOST_LEGS:
        raise BadInput(task.interface, f"{len(task.legs)} flows to one receiver", allowed=f"up to {MOST_LEGS}")
    bitmaps = sequence_bitmap.places(task.interface, task.legs)
    unstamped_slots = expect.slots_of_unstamped(task.legs)
    numbered = [slot for slot, leg in enumerate(task.legs) if expect.numbered(leg)]
    return Matching(
        legs=len(task.legs),
        expectations={slot: expectation(task, task.legs[slot], bitmaps) for slot in numbered},
        rows=expect.rows(task.interface, expect.matched_by_bytes(task.legs), unstamped_slots),
        unstamped_slots=unstamped_slots,
        user_rules=_user_rules(task, unstamped_slots),
        bitmaps=bitmaps,
    )


def expectation(task: ReceiveTask, leg: Leg, bitmaps: dict[int, tuple[int, int]]) -> Expectation:
    """Returns the entry of a leg counted by sequence numbers."""
    made = _expected_fields(leg)
    made.limit = leg_frames.sequence_limit(leg)
    made.first_mark, made.marks = bitmaps.get(leg.id, (0, 0))
    if made.marks and not made.limit:
        made.limit = made.marks * sequence_bitmap.WORD_BITS
    made.numbered = expect.numbered(leg)
    if made.numbered == NUMBERED_BY_PKTGEN:  # leaves its UDP checksum to the card, which a veth does not have
        made.sums &= SUMS_IP
    made.clocked = made.numbered == NUMBERED_BY_US or pktgen.times(leg)
    offset_ns = _clock_offset_ns(task, leg, made.numbered)
    made.timed = offset_ns is not None and made.clocked
    made.offset_ns = offset_ns or 0
    made.bias_ns = task.bounds_ns.get(leg.source, 0) if leg.echo_of is None else 0
    return made


def _expected_fields(leg: Leg) -> Expectation:
    if leg.kind == "trace":
        return expect.expectation_of_trace(leg)
    templates = templates_as_received(leg)
    # With several frame sizes every length is accepted: the lengths in the headers reveal a truncated frame.
    fields = {"length": None, **leg.expect} if len(templates) > 1 else leg.expect
    return expect.expectation(leg.stream, templates[max(templates)], fields)


def _clock_offset_ns(task: ReceiveTask, leg: Leg, numbered: int) -> int | None:
    """Returns the offset added to this node's clock to obtain the clock of the leg's stamps; None: unknown."""
    if leg.echo_of is not None:
        return 0  # it comes back to where it was stamped
    if numbered == NUMBERED_BY_US and task.tai:
        return 0
    offset_ns = task.offsets_ns.get(leg.source)
    if numbered == NUMBERED_BY_US or offset_ns is None:
        return offset_ns
    realtime_ns = task.realtime_ns.get(leg.source)
    return None if realtime_ns is None or task.tai else offset_ns + realtime_ns


def _user_rules(task: ReceiveTask, unstamped_slots: dict[int, int]) -> dict[int, RawUserRule]:
    """Places the users of all legs one after another; one entry for frames that are no user's follows each leg.

    The users of a stamped trace have two entries each, because each slot counts under a lock of its own.
    """
    base, rules = 0, {}
    stamped = list(enumerate(task.legs))
    unstamped = [(place, task.legs[slot]) for slot, place in unstamped_slots.items()]
    for slot, leg in [*stamped, *unstamped]:
        if leg.users:
            rules[slot] = _user_rule(leg, leg.users, base)
            base += leg.users.count + 1
    if base > users.MOST_USERS + len(rules):
        raise BadInput(
            task.interface, "too many users in all streams", key="users", value=base, allowed=str(users.MOST_USERS)
        )
    return rules


def _user_rule(leg: Leg, counted: FlowUsers, base: int) -> RawUserRule:
    if leg.kind == "trace":
        return users.address_rule(counted, base)
    templates = templates_as_received(leg)
    return users.rule(templates[max(templates)], counted, base)
