"""Interactive traces, played by both ends: legs and input of the nodes.

Such a trace has two legs between the same two ranks: one from the side that begins the flows, and one that answers it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.trace import Trace
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.prepare import Endpoint, Prepared, load, prepare
from pktswarm.traffic.interactive.script import Key, packet_key
from pktswarm.traffic.leg import Leg, Timing
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay.prepare import Prepared as Recorded
from pktswarm.traffic.replay.prepare import share_rows

ENGINE = "interactive"
STRETCH_ALLOWED, STRETCH_ALLOWED_S = 10.0, 120.0
"""Allowed duration of a replay: a multiple of the recorded one plus a constant; then the run ends it."""
ANY_ENDS = Endpoint("02:00:00:00:00:0a", "192.0.2.1"), Endpoint("02:00:00:00:00:0b", "192.0.2.2")
"""Addresses for counting packets before those of the nodes are known (RFC 5737)."""


def limit_s(expected_s: float) -> float:
    """Longest allowed duration of an interactive replay."""
    return expected_s * STRETCH_ALLOWED + STRETCH_ALLOWED_S


@dataclass(frozen=True)
class Play:
    """Flows of a trace that two nodes play, by their numbers in traffic.replay."""

    files: tuple[Path, ...]
    flows: NDArray[np.int64]


def legs_of(trace: Trace, pairs: list[tuple[str, str]], first_id: int) -> tuple[list[Leg], dict[int, Play], list[str]]:
    """Two legs for each pair of nodes, the flows they play (by the id of the initiating leg), and notes."""
    recorded = load(trace.files)
    legs: list[Leg] = []
    plays: dict[int, Play] = {}
    notes = list(recorded.notes)
    for pair, rows in zip(pairs, share_rows(recorded, len(pairs)), strict=True):
        flows = np.unique(recorded.flow[rows["all"]])
        if not len(flows):
            notes.append(f"{trace.name}: {pair[0]} sends nothing, the trace has fewer flows than transmitters")
            continue
        plays[first_id + len(legs)] = Play(trace.files, flows)
        legs += _two_legs(trace, recorded, pair, flows, first_id + len(legs))
    return legs, plays, notes


def _two_legs(
    trace: Trace, recorded: Recorded, pair: tuple[str, str], flows: NDArray[np.int64], first_id: int
) -> list[Leg]:
    """Initiating and answering leg of a share. Their packet counts are set once the MTU is known."""
    ready = prepare(recorded, flows, *ANY_ENDS)
    if not ready.packets:
        raise BadInput(
            recorded.parsed.path, "has no flow that can be played interactively", key="interactive", value=True
        )
    lead_ns = int(recorded.due.time_ns[np.isin(recorded.flow, flows)][0])
    timing = Timing(lead_ns=lead_ns, period_ns=recorded.due.period_ns)
    there = Leg(
        id=first_id,
        stream=trace.name,
        source=pair[0],
        target=pair[1],
        kind="trace",
        engine=ENGINE,
        size_bytes=max(len(packet.data) for packet in ready.packets) + FCS_BYTES,
        timing=timing,
    )
    back = replace(there, id=first_id + 1, source=pair[1], target=pair[0], answers=first_id)
    return [_counted(there, ready.forward), _counted(back, len(ready.packets) - ready.forward)]


def _counted(leg: Leg, packets: int) -> Leg:
    return replace(leg, count_packets=packets, intended_packets=packets)


def prepared_legs(
    legs: list[Leg], play: Play, mtu_bytes: int, beginner: Endpoint, answerer: Endpoint, capture_ring_mib: int = 0
) -> tuple[list[Leg], Prepared]:
    """The two legs of a share with their packet counts, and the frames that both nodes receive as input, with notes.

    `capture_ring_mib`: ring size of the captures at both nodes; 0: no capture.
    """
    trace = load(play.files, mtu_bytes, f"{legs[0].source} or {legs[0].target}")
    ready = prepare(trace, play.flows, beginner, answerer)
    counts = (ready.forward, len(ready.packets) - ready.forward)
    return [
        replace(
            _counted(leg, count),
            trace_file=f"leg-{legs[0].id}.pcap",
            options={"capture_ring_mib": capture_ring_mib} if capture_ring_mib else {},
            timing=replace(leg.timing, beginner_mac=beginner.mac, answerer_mac=answerer.mac),
        )
        for leg, count in zip(legs, counts, strict=True)
    ], ready


def refuse_equal(leg: Leg, ready: Prepared, played: dict[tuple[bytes, Key], str]) -> None:
    """Raise BadInput for a packet that an earlier trace between the same nodes contains too: it would count for both.

    `played`: (both MACs, key that identifies a packet at any receiver) → its trace; filled in here.
    """
    for packet in ready.packets:
        other = played.setdefault((packet.data[:12], packet_key(packet.data)), leg.stream)
        if other != leg.stream:
            problem = f"{other!r} and {leg.stream!r} have an equal packet between {leg.source} and {leg.target}"
            raise BadInput(leg.target, f"{problem}: the traces cannot be distinguished", key="traces.interactive")


def notes(leg: Leg, ready: Prepared) -> list[str]:
    """Notes for the user about a prepared share."""
    counts = {
        "packets had been merged by the recording host, and are cut again": ready.cut,
        "packets had a wrong checksum in the recording; it is corrected": ready.mended,
    }
    counts |= {f"packets are not sent: {why}": number for why, number in ready.left_out.items()}
    return [f"{leg.stream} from {leg.source}: {number} {what}" for what, number in counts.items() if number]
