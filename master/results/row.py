"""The counts of one flow, by the end of the run that reports them; streams_csv makes columns of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pktswarm.master.results.users import Users
from pktswarm.traffic.counting.tally import Latency, Tally
from pktswarm.traffic.leg import MADE_IN_KERNEL, Leg
from pktswarm.traffic.protocol.flow_report import FlowReport


@dataclass
class SentCounts:
    """The counts of the sender, or the sums over all instances of a trace. None: not measured."""

    engine: str = ""
    packets: int | None = None
    bytes: int | None = None
    """With FCS."""
    frames: int | None = None
    """Frames, where packets are sent in fragments."""
    stamped: int | None = None
    """Packets with a stamp, of a stamped trace."""
    late: int | None = None
    """Packets sent after their due times, by an engine that has due times."""
    max_lateness_ns: int | None = None
    """The largest lateness of a frame."""
    resent: int | None = None
    """Packets that the engine interactive sent again, not in `packets`."""
    first_ns: int | None = None
    """Send time of the first frame since the start instant, if the engine reports it."""
    seconds: float | None = None
    """Duration of sending."""
    omitted_timing: list[str] = field(default_factory=list)
    """The figures omitted because of a clock fault, each with the reason."""
    flows: list[FlowReport] | None = None
    """The report on each flow of an interactive trace."""

    @property
    def unstamped(self) -> int | None:
        """Packets without room for a stamp, of a stamped trace."""
        return None if self.packets is None or self.stamped is None else self.packets - self.stamped

    @property
    def gaps(self) -> int | None:
        """Gaps in `seconds`: those of xdp and tc end with the last frame, those of others with the gap behind it."""
        return self.packets - 1 if self.packets and self.engine in MADE_IN_KERNEL else self.packets


@dataclass
class ReceivedCounts:
    """The counts of the receiver, or the sums over all receivers of a flow whose users move. None: not measured."""

    packets: int | None = None
    bytes: int | None = None
    """With FCS."""
    frames: int | None = None
    """Frames, where packets are sent in fragments."""
    unstamped: int | None = None
    """Packets without a stamp, of a stamped trace."""
    missed: int = 0
    """Frames that the engine missed."""
    tally: Tally | None = None
    """From an engine that reads stamps."""
    latency_bound_ns: int | None = None
    """Error bound of the clocks, for the latency in `tally`."""
    timed_every: int = 1
    """Two of so many frames in a row were timed; 1: each. Of several receivers: the largest."""
    delays: list[tuple[int, int]] | None = None
    """(latency in ns, frames), ascending, as in `tally`; None: the receiver reported no histogram."""
    first_ns: int | None = None
    """Arrival of the first packet since the start instant."""
    last_ns: int | None = None
    omitted_timing: list[str] = field(default_factory=list)
    """The figures omitted because of a clock fault, each with the reason."""

    @property
    def numbered(self) -> bool:
        """Whether the receiver read sequence numbers."""
        return self.tally is not None and self.tally.distinct is not None

    @property
    def latency(self) -> Latency | None:
        return None if self.tally is None else self.tally.latency

    @property
    def seconds(self) -> float | None:
        """Time from the first arrival to the last."""
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        return (self.last_ns - self.first_ns) / 1e9


@dataclass
class CaptureCounts:
    """The counts of a capturing engine beside the counting one. None: not measured."""

    packets: int | None = None
    latency: Latency | None = None
    """From due times to captures, of a captured trace."""
    latency_bound_ns: int | None = None
    omitted_timing: list[str] = field(default_factory=list)
    """The figures omitted because of a clock fault, each with the reason."""


@dataclass
class ReceiverCounts:
    """The counts of one of several receivers of a flow whose users move."""

    received: ReceivedCounts
    users: Users
    marks: str | None = None
    """Bitmap of the received sequence numbers (ReceiveCount.marks)."""


@dataclass
class HandoverCounts:
    """The counts of a flow whose users move between receivers."""

    receivers: dict[str, ReceiverCounts] = field(default_factory=dict)
    """Host → its counts; empty for a flow with one receiver."""
    duplicated: int = 0
    """Packets that arrived at a second of these receivers."""


@dataclass
class Row:
    """The counts of one flow: those of its two ends, and figures that need both. None: not measured."""

    leg: Leg
    intended: int | None = None
    sent: SentCounts = field(default_factory=SentCounts)
    received: ReceivedCounts = field(default_factory=ReceivedCounts)
    capture: CaptureCounts = field(default_factory=CaptureCounts)
    handover: HandoverCounts = field(default_factory=HandoverCounts)
    users: Users | None = None
    """The counts of single users, of a stream that has them."""
    misdelivered: dict[str, int] | None = None
    """Wrong host → packets that arrived there; None: no other host reads stamps."""

    @property
    def lost(self) -> int | None:
        """Stamped: distinct sequence numbers sent and never received. Unstamped: sent − received, which is negative if
        more packets were received than sent (duplicates, unmatched packets)."""
        if self.received.tally is not None and self.received.numbered:
            return self._lost_by_number(self.received.tally)
        sent, received = self.sent.packets, self.received.packets
        return None if sent is None or received is None else sent - received

    def _lost_by_number(self, tally: Tally) -> int | None:
        sent, received = self.sent, self.received
        if sent.packets is None or received.unstamped is None:
            return None if sent.packets is None else tally.lost(sent.packets)
        lost = None if sent.stamped is None else tally.lost(sent.stamped)
        return None if lost is None or sent.unstamped is None else lost + sent.unstamped - received.unstamped

    @property
    def lost_by(self) -> str | None:
        """The method behind `lost`: stamps, difference or stamps+difference."""
        if self.lost is None:
            return None
        if not self.received.numbered:
            return "difference"
        return "stamps+difference" if self.received.unstamped or self.sent.unstamped else "stamps"

    @property
    def latency_by(self) -> str | None:
        """The method behind the latency: stamps, round trip or captures."""
        if self.received.latency is not None:
            return "stamps" if self.leg.echo_of is None else "round trip"
        return None if self.capture.latency is None else "captures"

    @property
    def k(self) -> float | None:
        return _ratio(self.received.packets, self.intended)

    @property
    def k_sender(self) -> float | None:
        return _ratio(self.sent.packets, self.intended)

    @property
    def omitted_timing(self) -> list[str]:
        """The figures omitted because of a clock fault, each with the reason."""
        return [*self.received.omitted_timing, *self.sent.omitted_timing, *self.capture.omitted_timing]


def _ratio(part: int | None, total: int | None) -> float | None:
    return None if part is None or not total else part / total
