"""What a run amounts to so far, from what the nodes tell: the document that the live view, `pktswarm status` and the
metrics show."""

from __future__ import annotations

import time
from typing import Any

from pktswarm.master.cluster.node import NodeState
from pktswarm.master.files import utc
from pktswarm.master.live.expected_sent import Due
from pktswarm.master.live.live_counters import Part, Tracks
from pktswarm.master.live.rate_window import Track, rates
from pktswarm.master.live.warnings import Warnings
from pktswarm.master.results.ledger import Event, Ledger
from pktswarm.traffic.counting.samples import unpack
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import with_fcs

FORMAT_VERSION = 1
TICK_S = 1.0


class Figures:
    """`name`: the scenario's; `expected_s`: how long it sends."""

    def __init__(self, name: str, expected_s: float) -> None:
        self.name, self.expected_s = name, expected_s
        self.warnings = Warnings()
        self._tracks = Tracks()
        self._interfaces: dict[int, Track] = {}
        self._legs: dict[int, Leg] = {}
        self._clocks: dict[tuple[int, str], tuple[int, int] | None] = {}
        """Of a leg at a node: Ledger.latency_error_ns at the start."""
        self._whole = Part([], [], [])
        self._streams: dict[str, Part] = {}
        self._nodes: dict[int, Part] = {}
        self._next_tick = 0.0
        self.phase = "launch"
        self.sessions: dict[str, int] | None = None
        """How many a UPF has answered for so far, and how many it is asked for, while that is the phase."""

    def take(self, ledger: Ledger, event: Event) -> None:
        """Every event of the run, after the ledger has it."""
        match event["event"]:
            case "phase":
                self.phase, self.sessions = event["name"], None
            case "sessions":
                self.sessions = {"done": event["done"], "asked": event["asked"]}
            case "sample":
                self._sample(ledger, event)
            case "drift":
                self.warnings.look_at_clock(ledger.nodes[event["rank"]], event, self.elapsed_s(ledger))
            case "lost" | "failed" | "guard_gone":
                self.warnings.look_at_node(ledger.nodes[event["rank"]], self.elapsed_s(ledger))

    def due(self) -> bool:
        """Once a second: time for a new document. The first one at once."""
        now = time.monotonic()
        if now < self._next_tick:
            return False
        self._next_tick = now + TICK_S
        return True

    # --- taking -------------------------------------------------------------------------------------------------

    def _plan(self, ledger: Ledger) -> None:
        """Once it is known who sends what to whom."""
        self._legs = {leg.id: leg for leg in ledger.resolved.legs if leg.kind != "connections"}
        self._tracks.due = {leg.id: Due(leg) for leg in self._legs.values()}
        names = dict.fromkeys(leg.stream for leg in self._legs.values())
        self._whole = Part.of(self._legs.values())
        self._streams = {name: Part.of(leg for leg in self._legs.values() if leg.stream == name) for name in names}
        for number, node in ledger.nodes.items():
            self._nodes[number] = Part.of(self._legs.values(), node.rank.host.name, node.rank.role)

    def _sample(self, ledger: Ledger, event: Event) -> None:
        if not self._legs:
            self._plan(ledger)
        node, at_ns = ledger.nodes[event["rank"]], ledger.sampled_ns(event)
        host = node.rank.host.name
        self._interfaces.setdefault(event["rank"], Track()).take(at_ns, event["interface"])
        self.warnings.look_at_link(node, event["interface"], at_ns)
        self.warnings.look_at_utc(node, ledger.start_ns or 0)
        for leg, sent in unpack(event, "sent").items():
            self._tracks.sent.setdefault((leg, host), Track()).take(at_ns, sent)
        for leg, came in unpack(event, "received").items():
            if self._legs[leg].handover_targets:  # what is missing here may have come elsewhere
                came["missing"] = None
            self._correct_latency(ledger, node, leg, came)
            self._tracks.received.setdefault((leg, host), Track()).take(at_ns, came)

    def _correct_latency(self, ledger: Ledger, node: NodeState, leg: int, came: dict[str, int | None]) -> None:
        """As the results will be, but with what is known of the clocks at the start."""
        packets = came["latency_packets"]
        if packets is None:
            return
        if (leg, node.name) not in self._clocks:
            self._clocks[leg, node.name] = ledger.latency_error_ns(self._legs[leg], node, ledger.start_ns or 0)
        if (known := self._clocks[leg, node.name]) is not None:
            error_ns, came["latency_bound_ns"] = known
            for name, times in (("sum", packets), ("min", 1), ("max", 1)):
                came[f"latency_{name}_ns"] = (came[f"latency_{name}_ns"] or 0) + error_ns * times

    # --- telling ------------------------------------------------------------------------------------------------

    @staticmethod
    def elapsed_s(ledger: Ledger) -> float:
        """Since the start instant; 0 before."""
        return 0.0 if ledger.start_ns is None else max(0.0, (time.monotonic_ns() - ledger.start_ns) / 1e9)

    def document(self, ledger: Ledger) -> dict[str, Any]:
        """To be asked for when it is due(): each time is one point of the last minute."""
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
            "streams": [
                {"stream": name, "group": part.legs[0].group, **self._part(part, sending)}
                for name, part in self._streams.items()
            ],
            "nodes": nodes,
            "warnings": self.warnings.document(),
        }

    def _part(self, part: Part, sending: bool, interface_pps: float | None = None) -> dict[str, Any]:
        """`interface_pps`: of a node whose engine tells nothing while it runs."""
        figures = part.figures(self._tracks)
        if sending:
            rates_pps = (figures["received_pps"], figures["sent_pps"], interface_pps)
            part.remember(next((rate for rate in rates_pps if rate is not None), None))
        return {**figures, "last_minute_pps": list(part.past)}

    def _node(self, number: int, node: NodeState, sending: bool, at_s: float) -> dict[str, Any]:
        part, interface = self._nodes.get(number, Part([], [], [])), self._interface(number, node)
        way = "tx" if node.rank.role == "transmit" else "rx"
        told = self._part(part, sending, interface.get(f"{way}_pps"))
        if sending:
            spread = max((self._tracks.due[leg].spread for leg, _ in part.sent), default=0.0)
            self.warnings.look_at_rate(number, node, told, spread, at_s)
        return {
            "node": node.rank.host.name,
            "role": node.rank.role,
            "state": "lost" if node.lost else "failed" if node.problem else "ok",
            "problem": node.problem,
            **told,
            "interface": interface,
        }

    def _interface(self, number: int, node: NodeState) -> dict[str, Any]:
        """Linux' counters since the start, bytes with FCS, and how busy the node's processors are (a ratio of 1)."""
        track = self._interfaces.get(number)
        if track is None:
            return {}
        names = ("tx_packets", "rx_packets", "tx_dropped", "rx_dropped", "link_downs")
        told: dict[str, Any] = {name: track.last(name) for name in names}
        for way in ("tx", "rx"):
            told[f"{way}_bytes"] = with_fcs(track.last(f"{way}_bytes"), told[f"{way}_packets"])
            told[f"{way}_pps"], told[f"{way}_bps"] = rates(track, f"{way}_packets", f"{way}_bytes")
        busy_ms, rate_ms = track.last("cpu_busy_ms"), track.rate("cpu_busy_ms")
        told["cpu_busy_s"] = None if busy_ms is None else busy_ms / 1000
        cpus = node.report.get("cpus")
        told["cpu_ratio"] = None if rate_ms is None or not cpus else rate_ms / 1000 / cpus
        return told
