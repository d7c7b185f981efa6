"""Rules of the XDP sender for the user and size of a sequence's records, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.placement import given_lengths, length_fields
from pktswarm.traffic.frames.template import Checksum, Template
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule.checksum_weights import weights
from pktswarm.traffic.schedule.records import MAX_RULES, SIZE, WINDOW_BYTES, RuleRecord

if TYPE_CHECKING:
    from pktswarm.traffic.schedule.sequence import Records


def unable(leg: Leg, template: Template) -> str:
    """Why xdp cannot send this sequence; empty when it can."""
    if leg.rates or leg.gap_table or leg.rate_pps is not None or "burst" in leg.options:
        return "rate, gaps and burst do not apply: the source sets the times"
    if leg.frame.get("payload", {}) not in ({}, {"fill": 0}):
        return "the payload must be zeros: the source sets the sizes"
    if fixed := given_lengths(leg.frame["headers"]):
        return f"{fixed[0]} must not be given: the source sets the sizes"
    lengths = len(length_fields(leg.frame["headers"]))
    if len(template.fields) + lengths > MAX_RULES:
        return f"{len(template.fields)} varying fields and {lengths} lengths: the maximum is {MAX_RULES}"
    return _unable_user(leg, template)


def _unable_user(leg: Leg, template: Template) -> str:
    found = [one for one in template.fields if one.name == leg.user_field]
    if leg.user_field and (not found or found[0].link is not None or found[0].drawn):
        return f"{leg.user_field} must be a counter that is neither linked nor random"
    if leg.users and leg.users.field != leg.user_field:
        return f"users must be counted by {leg.user_field}, not by {leg.users.field}"
    return ""


def size_rules(leg: Leg, checksums: tuple[Checksum, ...], words: Callable[[list[int]], object]) -> list[RuleRecord]:
    """A rule for each length field. The first rule also carries the weight of the size in pseudo headers."""
    rules = []
    for number, (offset, less) in enumerate(length_fields(leg.frame["headers"])):
        stop, window = offset + 2, offset + 2 - WINDOW_BYTES
        pseudo = [one for one in checksums if one.constant] if number == 0 else []
        found = weights(checksums, offset, stop, stop, pseudo)
        rules.append(RuleRecord(first=less % 2**64, step=1, mask=0xFFFF, window=window, mode=SIZE, weight=words(found)))
    return rules


def check(leg: Leg, records: Records, template: Template) -> None:
    """BadInput for records that do not fit the leg: the kernel program does not check them."""
    largest, smallest = int(records["frame_bytes"].max()), int(records["frame_bytes"].min())
    least = min((size for size, _ in leg.sizes), default=leg.size_bytes) - FCS_BYTES
    where = leg.sequence_file
    if largest != len(template.data) or smallest < least:
        found = f"{smallest + FCS_BYTES} to {largest + FCS_BYTES} bytes"
        allowed = f"{least + FCS_BYTES} to {leg.size_bytes}"
        raise BadInput(where, "frame sizes differ from the stream's", value=found, allowed=allowed)
    if leg.count_packets != len(records):
        problem = "the number of frames differs from the stream's"
        raise BadInput(where, problem, value=len(records), allowed=str(leg.count_packets))
    users = [one.values for one in template.fields if one.name == leg.user_field] or [1]
    if int(records["user"].max()) >= users[0]:
        problem = "user out of range"
        raise BadInput(where, problem, value=int(records["user"].max()), allowed=f"0 to {users[0] - 1}")
