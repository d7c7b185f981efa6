"""A sequence as the XDP sender plays it: rules for a record's user and size, and why a leg cannot have them."""

from __future__ import annotations

from collections.abc import Callable

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.placement import given_lengths, length_fields
from pktswarm.traffic.frames.template import Checksum, Template
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule.checksum_weights import weights
from pktswarm.traffic.schedule.records import MAX_RULES, SIZE, WINDOW_BYTES, RuleRecord
from pktswarm.traffic.schedule.sequence import Records


def unable(leg: Leg, template: Template) -> str:
    """Why the kernel cannot make a sequence's frames; empty when it can."""
    if leg.rates or leg.gap_table or leg.rate_pps is not None or "burst" in leg.options:
        return "a source has its own pace"
    if leg.frame.get("payload", {}) not in ({}, {"fill": 0}):
        return "the payload of frames whose size is a source's is zeros"
    if fixed := given_lengths(leg.frame["headers"]):
        return f"{fixed[0]} is given, and sizes are the source's"
    lengths = len(length_fields(leg.frame["headers"]))
    if len(template.fields) + lengths > MAX_RULES:
        return f"it varies at most {MAX_RULES} fields of a frame, not {len(template.fields)} and {lengths} lengths"
    return _unable_user(leg, template)


def _unable_user(leg: Leg, template: Template) -> str:
    found = [one for one in template.fields if one.name == leg.user_field]
    if leg.user_field and (not found or found[0].link is not None or found[0].drawn):
        return f"{leg.user_field} is no counter that can stand at a frame's user"
    if leg.users and leg.users["field"] != leg.user_field:
        return f"its users are those of {leg.user_field}"
    return ""


def size_rules(leg: Leg, checksums: tuple[Checksum, ...], words: Callable[[list[int]], object]) -> list[RuleRecord]:
    """One for each length field. The first one also carries what the size adds to sums through pseudo headers."""
    rules = []
    for number, (offset, less) in enumerate(length_fields(leg.frame["headers"])):
        stop, window = offset + 2, offset + 2 - WINDOW_BYTES
        pseudo = [one for one in checksums if one.constant] if number == 0 else []
        found = weights(checksums, offset, stop, stop, pseudo)
        rules.append(RuleRecord(first=less % 2**64, step=1, mask=0xFFFF, window=window, mode=SIZE, weight=words(found)))
    return rules


def check(leg: Leg, records: Records, template: Template) -> None:
    """BadInput for records that are not the leg's: the kernel would send other frames without a word."""
    largest, smallest = int(records["frame_bytes"].max()), int(records["frame_bytes"].min())
    least = min((size for size, _ in leg.sizes), default=leg.size_bytes) - FCS_BYTES
    where = leg.sequence_file
    if largest != len(template.data) or smallest < least:
        told = f"{smallest + FCS_BYTES} to {largest + FCS_BYTES} bytes"
        allowed = f"{least + FCS_BYTES} to {leg.size_bytes}"
        raise BadInput(where, "frames of other sizes than the stream's", value=told, allowed=allowed)
    if leg.count_packets != len(records):
        problem = "another number of frames than the stream's"
        raise BadInput(where, problem, value=len(records), allowed=str(leg.count_packets))
    users = [one.values for one in template.fields if one.name == leg.user_field] or [1]
    if int(records["user"].max()) >= users[0]:
        problem = "a user that the stream has not"
        raise BadInput(where, problem, value=int(records["user"].max()), allowed=f"0 to {users[0] - 1}")
