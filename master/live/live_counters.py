"""The parts of a run with figures of their own (each stream, each node, the whole run), and those figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pktswarm.master.live.document import Counters, LatencyFigures
from pktswarm.master.live.expected_sent import ExpectedSent
from pktswarm.master.live.rate_window import RateWindow, combine
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import with_fcs

End = tuple[int, str]
"""Leg, and the host that sends or counts it."""
REMEMBERED_S = 60
"""Length of a part's history of rates."""


def sender_of(leg: Leg) -> End:
    """Returns the sending end; an echoed leg is sent by a receiver."""
    return leg.id, leg.transmitter or leg.source


@dataclass
class Reports:
    """Reports of all legs, by leg and host. A leg that is merged into another has its sender's reports only."""

    sent: dict[End, RateWindow] = field(default_factory=dict)
    received: dict[End, RateWindow] = field(default_factory=dict)
    expected: dict[int, ExpectedSent] = field(default_factory=dict)
    senders: dict[int, End] = field(default_factory=dict)
    """Leg → its sending end."""

    def numbered(self, end: End) -> tuple[int, int] | None:
        """Returns how many sequence numbers up to the highest received are missing at a receiving end, and how many
        they are, both of one sample. None: not reported, or of the past: packets are sent and none has arrived."""
        window = self.received.get(end)
        if window is None:
            return None
        missing, packets = window.last("missing"), window.last("packets")
        if missing is None or packets is None or self._is_cut_off(end):
            return None
        return missing, packets - (window.last("duplicated") or 0) + missing

    def _is_cut_off(self, end: End) -> bool:
        sender = self.sent.get(self.senders.get(end[0], end))
        return bool(sender and sender.change("sent_packets")) and self.received[end].change("packets") == 0


@dataclass
class Part:
    """The ends of legs that a stream, a node or the whole run consists of."""

    legs: list[Leg]
    sent: list[End]
    received: list[End]
    past: deque[float | None] = field(default_factory=lambda: deque(maxlen=REMEMBERED_S))
    """Packets/s of each of the last seconds."""

    @classmethod
    def of(cls, legs: Iterable[Leg], host: str = "", role: str = "") -> Part:
        """Returns the ends of `legs`; with `host` and `role` only those of that rank."""
        legs = list(legs)
        senders = [(leg, sender_of(leg)) for leg in legs]
        receivers = [(leg, (leg.id, name)) for leg in legs if leg.merged_into is None for name in leg.receivers]
        sent = [(leg, end) for leg, end in senders if _is_at(end, _sending_role(leg), host, role)]
        received = [(leg, end) for leg, end in receivers if _is_at(end, "receive", host, role)]
        chosen = {leg.id: leg for leg, _ in [*sent, *received]}
        return cls(list(chosen.values()), [end for _, end in sent], [end for _, end in received])

    def figures(self, reports: Reports) -> Counters:
        """Sums the newest reports of the part's ends."""
        sent, received = _windows(self.sent, reports.sent), _windows(self.received, reports.received)
        due = [
            None if window is None else reports.expected[leg].at(window.at_ns)
            for (leg, _), window in zip(self.sent, sent, strict=True)
        ]
        sent_packets, received_packets = _sum(sent, "sent_packets"), _sum(received, "packets")
        sent_pps, sent_bps = _rates(sent, "sent_packets", "sent_bytes")
        received_pps, received_bps = _rates(received, "packets", "bytes")
        return {
            "intended_packets": combine(due),
            "intended_in_all_packets": combine(reports.expected[leg].total for leg, _ in self.sent),
            "sent_packets": sent_packets,
            "sent_bytes": with_fcs(_sum(sent, "sent_bytes"), sent_packets),
            "sent_pps": sent_pps,
            "sent_bps": sent_bps,
            "received_packets": received_packets,
            "received_bytes": with_fcs(_sum(received, "bytes"), received_packets),
            "missing_packets": _sum(received, "missing"),
            "duplicated_packets": _sum(received, "duplicated"),
            "reordered_packets": _sum(received, "reordered"),
            "altered_packets": _sum(received, "altered"),
            "received_pps": received_pps,
            "received_bps": received_bps,
            "loss_ratio": _loss_ratio([reports.numbered(end) for end in self.received]),
            **_latency([window for window in received if window is not None]),
        }

    def remember(self, rate_pps: float | None) -> None:
        self.past.append(rate_pps)


def _loss_ratio(numbered: Sequence[tuple[int, int] | None]) -> float | None:
    """Returns missing ÷ all numbers, over (missing, all) of each end; None if there are none or an end is unknown."""
    known = [each for each in numbered if each is not None]
    whole = sum(total for _, total in known)
    return sum(missing for missing, _ in known) / whole if whole and len(known) == len(numbered) else None


def _sending_role(leg: Leg) -> str:
    return "receive" if leg.echo_of is not None else "transmit"


def _is_at(end: End, its_role: str, host: str, role: str) -> bool:
    return not host or (end[1], its_role) == (host, role)


def _windows(ends: list[End], windows: dict[End, RateWindow]) -> list[RateWindow | None]:
    return [windows.get(end) for end in ends]


def _sum(windows: list[RateWindow | None], name: str) -> int | None:
    return combine(None if window is None else window.last(name) for window in windows)


def _rates(windows: list[RateWindow | None], packets: str, frame_bytes: str) -> tuple[float | None, float | None]:
    each = [(None, None) if window is None else window.packet_and_bit_rate(packets, frame_bytes) for window in windows]
    return combine(pps for pps, _ in each), combine(bps for _, bps in each)


def _latency(windows: list[RateWindow]) -> LatencyFigures:
    """Combines the legs that are timed, whichever others there are."""
    timed = [window for window in windows if window.last("latency_packets") is not None]
    window_sums = [(window.change("latency_sum_ns"), window.change("latency_packets")) for window in timed]
    changes = [(summed, packets) for summed, packets in window_sums if summed is not None and packets]
    packets = sum(count for _, count in changes)
    return {
        "latency_packets": _sum([*timed], "latency_packets"),
        "latency_sum_ns": _sum([*timed], "latency_sum_ns"),
        "latency_mean_ns": sum(summed for summed, _ in changes) / packets if packets else None,
        "latency_min_ns": combine((window.last("latency_min_ns") for window in timed), min),
        "latency_max_ns": combine((window.last("latency_max_ns") for window in timed), max),
        "latency_bound_ns": combine((window.last("latency_bound_ns") for window in timed), max),
    }
