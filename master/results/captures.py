"""The captures in a results folder, and their packets by flow."""

from __future__ import annotations

import heapq
from pathlib import Path

from pktswarm.traffic.capture.files import Packet, read_capture
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.leg import Leg


def captures_of(folder: Path, host: str) -> list[Path]:
    """The files that a receiver captured, without those of interactive traces, which also hold sent packets."""
    return sorted((folder / "captures").glob(f"{host}-capture-*"))


def captured_packets(
    captures: list[Path], legs: list[Leg], kept: set[int] | None = None
) -> tuple[dict[int, list[Packet]], int]:
    """Leg id → its captured packets in order, and the number of frames that belong to no leg. `kept`: the legs whose
    packets are returned; None: all. The packets of a trace with several VLAN tags are in several captures."""
    matches = [(leg.id, Match.from_data(leg.match)) for leg in legs]
    by_leg: dict[int, list[Packet]] = {leg.id: [] for leg in legs if kept is None or leg.id in kept}
    unmatched = 0
    for packet in heapq.merge(*map(read_capture, captures), key=lambda packet: packet.time_ns):
        owner = next((number for number, match in matches if match.matches(packet.data)), None)
        if owner is None:
            unmatched += 1
        elif owner in by_leg:
            by_leg[owner].append(Packet(packet.time_ns, packet.data))
    return by_leg, unmatched


def by_row(legs: list[Leg]) -> dict[int, list[Leg]]:
    """Leg id of a row → the legs that the row counts, its own first."""
    groups: dict[int, list[Leg]] = {}
    for leg in legs:
        groups.setdefault(leg.id if leg.merged_into is None else leg.merged_into, []).append(leg)
    return groups
