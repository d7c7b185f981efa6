"""The parts of a run that have figures of their own (its streams, its nodes, and all of it), and those figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pktswarm.master.live.expected_sent import Due
from pktswarm.master.live.rate_window import Track, rates, together
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import with_fcs

End = tuple[int, str]
"""Leg, and the host that sends or counts it."""
REMEMBERED = 60
"""Seconds that a part's past goes back."""
SENT = ("packets", "bytes")
RECEIVED = (*SENT, "missing", "duplicated", "reordered", "altered")


def sender_of(leg: Leg) -> End:
    """What is echoed is sent by a receiver."""
    return leg.id, leg.transmitter or leg.source


@dataclass
class Tracks:
    """Of all legs, by who told them. A leg that is counted with another has its sender's figures only."""

    sent: dict[End, Track] = field(default_factory=dict)
    received: dict[End, Track] = field(default_factory=dict)
    due: dict[int, Due] = field(default_factory=dict)


@dataclass
class Part:
    """Which ends of which legs belong to it."""

    legs: list[Leg]
    sent: list[End]
    received: list[End]
    past: deque[float | None] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Packets/s of each second."""

    @classmethod
    def of(cls, legs: Iterable[Leg], host: str = "", role: str = "") -> Part:
        """`host` and `role`: only what that rank tells of them."""
        legs = list(legs)
        senders = [(leg, sender_of(leg)) for leg in legs]
        receivers = [(leg, (leg.id, name)) for leg in legs if leg.merged_into is None for name in leg.receivers]
        sent = [(leg, end) for leg, end in senders if _is_at(end, _sending_role(leg), host, role)]
        received = [(leg, end) for leg, end in receivers if _is_at(end, "receive", host, role)]
        mine = {leg.id: leg for leg, _ in [*sent, *received]}
        return cls(list(mine.values()), [end for _, end in sent], [end for _, end in received])

    def figures(self, tracks: Tracks) -> dict[str, Any]:
        """What is not told, or only of some, is None. Bytes and bits count the FCS, times are nanoseconds; rates and
        the mean latency are of about the last second, all else is since the start."""
        sent, received = _found(self.sent, tracks.sent), _found(self.received, tracks.received)
        due = [None if track is None else tracks.due[leg].at(track.at_ns) for (leg, _), track in sent]
        made: dict[str, Any] = {"intended_packets": together(due)}
        made["intended_in_all_packets"] = together(tracks.due[leg].whole for leg, _ in self.sent)
        for way, ends, names in (("sent", sent, SENT), ("received", received, RECEIVED)):
            told = [track for _, track in ends]
            made |= {_column(way, name): _sum(told, f"{way}_{name}" if way == "sent" else name) for name in names}
            made |= _rates(way, told)
            made[f"{way}_bytes"] = with_fcs(made[f"{way}_bytes"], made[f"{way}_packets"])
        made["loss_ratio"] = _loss_ratio(made)
        return made | _latency([track for _, track in received if track is not None])

    def remember(self, rate_pps: float | None) -> None:
        self.past.append(rate_pps)


def _loss_ratio(figures: dict[str, Any]) -> float | None:
    """Of what was sent; a receiver, who does not know that, takes what should have come to him so far."""
    missing, sent = figures["missing_packets"], figures["sent_packets"]
    if missing is None:
        return None
    whole = figures["received_packets"] + missing if sent is None else sent
    return missing / whole if whole else None


def _sending_role(leg: Leg) -> str:
    return "receive" if leg.echo_of is not None else "transmit"


def _is_at(end: End, its_role: str, host: str, role: str) -> bool:
    return not host or (end[1], its_role) == (host, role)


def _found(ends: list[End], tracks: dict[End, Track]) -> list[tuple[End, Track | None]]:
    return [(end, tracks.get(end)) for end in ends]


def _column(way: str, name: str) -> str:
    return f"{way}_{name}" if name in SENT else f"{name}_packets"


def _sum(tracks: list[Track | None], name: str) -> int | None:
    found = together(None if track is None else track.last(name) for track in tracks)
    return None if found is None else int(found)


def _rates(way: str, tracks: list[Track | None]) -> dict[str, float | None]:
    names = ("sent_packets", "sent_bytes") if way == "sent" else ("packets", "bytes")
    each = [(None, None) if track is None else rates(track, *names) for track in tracks]
    pps, bps = (together(column) for column in (zip(*each, strict=True) if each else ((), ())))
    return {f"{way}_pps": pps, f"{way}_bps": bps}


def _latency(tracks: list[Track]) -> dict[str, Any]:
    """Of the legs that are timed, whatever others there are."""
    timed = [track for track in tracks if track.last("latency_packets") is not None]
    window = [(track.change("latency_sum_ns"), track.change("latency_packets")) for track in timed]
    changes = [(summed, packets) for summed, packets in window if summed is not None and packets]
    packets = sum(count for _, count in changes)
    return {
        "latency_packets": _sum([*timed], "latency_packets"),
        "latency_sum_ns": _sum([*timed], "latency_sum_ns"),
        "latency_mean_ns": sum(summed for summed, _ in changes) / packets if packets else None,
        "latency_min_ns": together((track.last("latency_min_ns") for track in timed), min),
        "latency_max_ns": together((track.last("latency_max_ns") for track in timed), max),
        "latency_bound_ns": together((track.last("latency_bound_ns") for track in timed), max),
    }
