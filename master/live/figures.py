"""The live document of a run, made from the nodes' events: for the live view, `pktswarm status` and the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.files import utc
from pktswarm.master.live.document import (
    FORMAT_VERSION,
    InterfaceFigures,
    LiveDocument,
    NodeFigures,
    PartFigures,
    SessionProgress,
    StreamFigures,
)
from pktswarm.master.live.expected_sent import ExpectedSent
from pktswarm.master.live.job import JobProgress, no_job
from pktswarm.master.live.live_counters import Part, Reports, sender_of
from pktswarm.master.live.rate_window import RateWindow
from pktswarm.master.live.warnings import Warnings
from pktswarm.master.results.ledger import Ledger, Sessions, Shown
from pktswarm.traffic.counting.samples import RECEIVED, SENT, unpack
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.node_report import counts_whole_frames
from pktswarm.traffic.protocol.rank0_events import Drift, Lost, Phase
from pktswarm.traffic.protocol.rank_events import Failed, GuardGone, RateSet, Sample
from pktswarm.traffic.protocol.task import with_fcs

TICK_S = 1.0


class Figures:
    """`name`: the scenario's; `expected_s`: the duration of its traffic; `job`: returns what the run is part of."""

    def __init__(self, name: str, expected_s: float, job: Callable[[], JobProgress | None] = no_job) -> None:
        self.name, self.expected_s, self.job = name, expected_s, job
        self.warnings = Warnings()
        self._reports = Reports()
        self._interfaces: dict[int, RateWindow] = {}
        self._legs: dict[int, Leg] = {}
        self._clocks: dict[tuple[int, str], tuple[int, int] | None] = {}
        """(leg, node) → Ledger.latency_error_ns at the start."""
        self._whole = Part([], [], [])
        self._streams: dict[str, Part] = {}
        self._nodes: dict[int, Part] = {}
        self._next_tick = 0.0
        self.phase = "launch"
        self.sessions: SessionProgress | None = None
        """None outside of the phases that establish and delete sessions."""

    def take(self, ledger: Ledger, event: Shown) -> None:
        """Takes every event of the run, after the ledger."""
        match event:
            case Phase(name):
                self.phase, self.sessions = name, None
            case Sessions(done, asked):
                self.sessions = {"done": done, "asked": asked}
            case Sample():
                self._sample(ledger, event)
            case RateSet(leg) if leg in self._reports.expected:
                self._reports.expected[leg].forget()
            case Drift(rank):
                self.warnings.look_at_clock(ledger.nodes[rank], event, self.elapsed_s(ledger))
            case Lost() | Failed() | GuardGone():
                self.warnings.look_at_node(ledger.nodes[event.rank], self.elapsed_s(ledger))

    def due(self) -> bool:
        """Returns whether a new document is due: at once, then once a second."""
        now = time.monotonic()
        if now < self._next_tick:
            return False
        self._next_tick = now + TICK_S
        return True

    # --- events -------------------------------------------------------------------------------------------------

    def _plan(self, ledger: Ledger) -> None:
        """Divides the legs into parts, once they are resolved."""
        self._legs = {leg.id: leg for leg in ledger.resolved.legs if leg.kind != "connections"}
        self._reports.expected = {leg.id: ExpectedSent(leg) for leg in self._legs.values()}
        self._reports.senders = {leg.id: sender_of(leg) for leg in self._legs.values()}
        names = dict.fromkeys(leg.stream for leg in self._legs.values())
        self._whole = Part.of(self._legs.values())
        self._streams = {name: Part.of(leg for leg in self._legs.values() if leg.stream == name) for name in names}
        for number, node in ledger.nodes.items():
            self._nodes[number] = Part.of(self._legs.values(), node.rank.host.name, node.rank.role)

    def _sample(self, ledger: Ledger, event: Sample) -> None:
        if not self._legs:
            self._plan(ledger)
        node, at_ns = ledger.nodes[event.rank], ledger.sampled_ns(event)
        host = node.rank.host.name
        self._interfaces.setdefault(event.rank, RateWindow()).take(at_ns, event.interface)
        self.warnings.look_at_link(node, event.interface, at_ns)
        self.warnings.look_at_utc(node, ledger.start_ns or 0)
        for leg, sent in unpack(event.sent, SENT).items():
            self._reports.sent.setdefault((leg, host), RateWindow()).take(at_ns, sent)
        for leg, received in unpack(event.received, RECEIVED).items():
            if self._legs[leg].handover_targets:  # a packet missing here may be received elsewhere
                received["missing"] = None
            self._correct_latency(ledger, node, leg, received)
            self._reports.received.setdefault((leg, host), RateWindow()).take(at_ns, received)

    def _correct_latency(self, ledger: Ledger, node: NodeState, leg: int, received: dict[str, int | None]) -> None:
        """Corrects latencies as the results do, with the clock readings at the start only."""
        packets = received["latency_packets"]
        if packets is None:
            return
        if (leg, node.name) not in self._clocks:
            self._clocks[leg, node.name] = ledger.latency_error_ns(self._legs[leg], node, ledger.start_ns or 0)
        if (error := self._clocks[leg, node.name]) is not None:
            error_ns, received["latency_bound_ns"] = error
            for name, times in (("sum", packets), ("min", 1), ("max", 1)):
                received[f"latency_{name}_ns"] = (received[f"latency_{name}_ns"] or 0) + error_ns * times

    # --- the document -------------------------------------------------------------------------------------------

    @staticmethod
    def elapsed_s(ledger: Ledger) -> float:
        """Returns the time since the start instant; 0 before it."""
        return 0.0 if ledger.start_ns is None else max(0.0, (time.monotonic_ns() - ledger.start_ns) / 1e9)

    def document(self, ledger: Ledger) -> LiveDocument:
        """Makes a document and adds one point to the last minute: to be called when due()."""
        elapsed_s, sending = self.elapsed_s(ledger), self.phase == "send"
        nodes = [self._node(number, node, sending, elapsed_s) for number, node in ledger.nodes.items()]
        left_s = self.expected_s if ledger.start_ns is None else max(0.0, self.expected_s - elapsed_s)
        return {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "utc": utc(time.time_ns()),
            "phase": self.phase,
            "sessions": self.sessions,
            "elapsed_s": round(elapsed_s, 3),
            "expected_s": round(self.expected_s, 3),
            "left_s": round(left_s if sending or not elapsed_s else 0.0, 3),
            "total": self._part(self._whole, sending),
            "streams": [self._stream(name, part, sending) for name, part in self._streams.items()],
            "nodes": nodes,
            "warnings": self.warnings.document(),
            "job": self.job(),
        }

    def _stream(self, name: str, part: Part, sending: bool) -> StreamFigures:
        return {"stream": name, "group": part.legs[0].group, **self._part(part, sending)}

    def _part(self, part: Part, sending: bool, interface_pps: float | None = None) -> PartFigures:
        """`interface_pps`: rate of a node whose engine does not report while it runs."""
        figures = part.figures(self._reports)
        if sending:
            rates_pps = (figures["received_pps"], figures["sent_pps"], interface_pps)
            part.remember(next((rate for rate in rates_pps if rate is not None), None))
        return {**figures, "last_minute_pps": list(part.past)}

    def _node(self, number: int, node: NodeState, sending: bool, at_s: float) -> NodeFigures:
        part, interface = self._nodes.get(number, Part([], [], [])), self._interface(number, node)
        interface_pps = interface.get("tx_pps") if node.rank.role == "transmit" else interface.get("rx_pps")
        figures = self._part(part, sending, interface_pps)
        if sending:
            variation = max((self._reports.expected[leg].gap_variation for leg, _ in part.sent), default=0.0)
            self.warnings.look_at_rate(number, node, figures, variation, at_s)
        return {
            "node": node.rank.host.name,
            "role": node.rank.role,
            "state": "lost" if node.lost else "failed" if node.problem else "ok",
            "problem": node.problem,
            **figures,
            "interface": interface,
        }

    def _interface(self, number: int, node: NodeState) -> InterfaceFigures:
        window = self._interfaces.get(number)
        if window is None:
            return {}
        tx_pps, tx_bps = window.packet_and_bit_rate("tx_packets", "tx_bytes")
        rx_pps, rx_bps = window.packet_and_bit_rate("rx_packets", "rx_bytes")
        rx_bytes = with_fcs(window.last("rx_bytes"), window.last("rx_packets"))
        if node.report and not counts_whole_frames(node.report.interface.driver, "receive"):
            rx_bytes = rx_bps = None
        busy_ms, busy_ms_per_s = window.last("cpu_busy_ms"), window.rate("cpu_busy_ms")
        cpus = node.report.cpus if node.report else None
        return {
            "tx_packets": window.last("tx_packets"),
            "rx_packets": window.last("rx_packets"),
            "tx_dropped": window.last("tx_dropped"),
            "rx_dropped": window.last("rx_dropped"),
            "link_downs": window.last("link_downs"),
            "tx_bytes": with_fcs(window.last("tx_bytes"), window.last("tx_packets")),
            "tx_pps": tx_pps,
            "tx_bps": tx_bps,
            "rx_bytes": rx_bytes,
            "rx_pps": rx_pps,
            "rx_bps": rx_bps,
            "cpu_busy_s": None if busy_ms is None else busy_ms / 1000,
            "cpu_ratio": None if busy_ms_per_s is None or not cpus else busy_ms_per_s / 1000 / cpus,
        }
