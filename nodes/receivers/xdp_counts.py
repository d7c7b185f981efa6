"""Makes the ReceiveCounts of the receiver xdp from the figures of its program."""

from __future__ import annotations

import json

from pktswarm.nodes.receivers.xdp_figures import Figures
from pktswarm.nodes.receivers.xdp_matching import Matching
from pktswarm.nodes.receivers.xdp_program import NAME
from pktswarm.traffic.counting import expect, tally
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask
from pktswarm.traffic.schedule import pktgen

MOST_HISTOGRAMS = 256
"""Flows of a receiver up to which it reports the histogram of each: up to 16 kB a flow."""


def receive_counts(
    task: ReceiveTask, matching: Matching, figures: Figures, attached: str, to_utc_ns: int
) -> list[ReceiveCount]:
    """Returns one count a leg. `to_utc_ns`: UTC less the receiver's clock."""
    unmatched = figures.unmatched()
    every_histogram = len(task.legs) <= MOST_HISTOGRAMS
    counts = [
        ReceiveCount(
            leg.id,
            NAME,
            counted.packets,
            counted.bytes,
            None if counted.first_ns is None else counted.first_ns + to_utc_ns,
            None if counted.last_ns is None else counted.last_ns + to_utc_ns,
            note=_note(leg, counted, attached),
            output=json.dumps({"unmatched": unmatched}),
            tally=counted.to_json(),
            users=figures.packed_users(leg.id),
            marks=figures.packed_bitmap(leg, counted.distinct),
            delays=figures.delays(slot) if leg.handover_targets or every_histogram else None,
            utc_less_monotonic_ns=None if task.tai else to_utc_ns,
            timed_every=figures.timed_every,
        )
        for slot, (leg, counted) in enumerate(zip(task.legs, figures.tallies().values(), strict=True))
    ]
    for slot, unstamped_slot in matching.unstamped_slots.items():
        _add_unstamped(counts[slot], figures.tally(unstamped_slot), to_utc_ns)
    _add_fragments(counts, figures)  # after _add_unstamped: received_frames covers all packets
    for first in counts[:1]:
        first.misdelivered = figures.misdelivered()
    return counts


def _add_unstamped(count: ReceiveCount, unstamped: tally.Tally, to_utc_ns: int) -> None:
    """Adds the frames of a stamped trace that have no stamp."""
    count.unstamped_packets = unstamped.packets
    count.received_packets += unstamped.packets
    count.received_bytes = (count.received_bytes or 0) + unstamped.bytes
    if unstamped.first_ns is not None and unstamped.last_ns is not None:
        first_ns, last_ns = unstamped.first_ns + to_utc_ns, unstamped.last_ns + to_utc_ns
        count.first_ns = first_ns if count.first_ns is None else min(count.first_ns, first_ns)
        count.last_ns = last_ns if count.last_ns is None else max(count.last_ns, last_ns)


def _add_fragments(counts: list[ReceiveCount], figures: Figures) -> None:
    """Adds the number of frames that carried the packets, and of packets with fragments missing."""
    events = figures.fragments()
    if not events["begun"]:
        return
    counts[0].unfinished_packets = events["begun"] - events["foreign"] - events["whole"]
    for slot, count in enumerate(counts):
        reassembled = figures.reassembled(slot)
        if reassembled.packets:
            count.received_frames = count.received_packets - reassembled.packets + reassembled.frames
            count.note += f"; {reassembled.packets} packets came in {reassembled.frames} fragments"


def _note(leg: Leg, counted: tally.Tally, attached: str) -> str:
    notes = [attached]
    if counted.distinct is None and expect.sender_stamps(leg):
        notes.append("counted by its bytes, because its stamps are not where they are looked for")
    if leg.engine == "pktgen" and counted.distinct is not None and not pktgen.times(leg):
        notes.append("no latency: pktgen writes a frame's time before it waits for its turn")
    if counted.too_late:
        notes.append(f"{counted.too_late} frames came over {tally.REMEMBERED} behind and count as lost")
    if counted.invalid_sequence:
        notes.append(f"{counted.invalid_sequence} frames have a sequence number that cannot be")
    if counted.damaged:
        notes.append(f"{counted.damaged} altered frames have a stamp that does not verify; they are received, not lost")
    if counted.impossible:
        notes.append(f"{counted.impossible} frames have a time that the clocks do not allow, and no latency")
    return "; ".join(notes)
