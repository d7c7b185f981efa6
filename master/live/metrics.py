"""The figures of a run for Prometheus, on loopback: https://prometheus.io/docs/practices/naming has the names' rules.

The socket is bound before the process may enter a lab's namespace, so the port is on the loopback of the terminal where
`pktswarm run` was typed; a thread serves it from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from pktswarm.traffic.errors import BadInput

LOOPBACK = "127.0.0.1"
LARGEST_PORT = 65535
Document = dict[str, Any]
STREAM_COUNTERS = {
    "intended_packets": "Packets that were to be sent by now.",
    "sent_packets": "Packets that the senders' engines sent.",
    "received_packets": "Packets that the receivers' engines counted.",
    "sent_bytes": "Bytes of the sent packets with FCS.",
    "received_bytes": "Bytes of the received packets with FCS.",
    "duplicated_packets": "Packets that came more than once.",
    "reordered_packets": "Packets that came behind a later one (RFC 4737).",
    "altered_packets": "Packets that came otherwise than they were sent.",
}
NODE_COUNTERS = {
    "tx_packets": "Packets that left the interface under test.",
    "rx_packets": "Packets that came to the interface under test.",
    "tx_bytes": "Bytes that left it, with FCS.",
    "rx_bytes": "Bytes that came to it, with FCS.",
    "tx_dropped": "Packets that the interface did not send.",
    "rx_dropped": "Packets that the interface did not take.",
    "link_downs": "How often its link went down.",
}
NODE_NAMES = {"tx_dropped": "tx_dropped_packets", "rx_dropped": "rx_dropped_packets"}


class Served:
    """http://127.0.0.1:PORT/metrics, once start() was called. BadInput where the port cannot be had; 0: any."""

    def __init__(self, port: int) -> None:
        if not 0 <= port <= LARGEST_PORT:
            raise BadInput("run", "is no port", key="--metrics", value=port, allowed=f"0 (any) to {LARGEST_PORT}")
        try:
            self._server = _Server((LOOPBACK, port), _Quiet)
        except OSError as error:
            raise BadInput("run", f"cannot listen: {error.strerror}", key="--metrics", value=port) from None
        self._thread: threading.Thread | None = None
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/metrics"

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def start(self, newest: Callable[[], Document]) -> bool:
        """`newest`: a document of master.live.figures that nobody changes any more. Ends with the process. False: it
        has been started, and tells of another run from now on."""
        registry = CollectorRegistry()
        registry.register(RunCollector(newest))
        self._server.set_app(make_wsgi_app(registry))
        if self._thread is not None:
            return False
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        return True


class _Server(ThreadingMixIn, WSGIServer):
    """A client that says nothing keeps no other from its answer."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Standard error is the live view's."""


class RunCollector(Collector):
    """What was not measured has no sample, as it has no figure elsewhere."""

    def __init__(self, newest: Callable[[], Document]) -> None:
        self._newest = newest

    def describe(self) -> Iterator[Metric]:
        """Nothing is asked before it is there."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        document = self._newest()
        yield from _of_run(document)
        yield from _of_streams(document)
        yield from _of_nodes(document)


def _of_run(document: Document) -> Iterator[Metric]:
    yield InfoMetricFamily("pktswarm_run", "The scenario.", value={"scenario": document["name"]})
    sending = float(document["phase"] == "send")
    yield GaugeMetricFamily("pktswarm_run_sending", "1 while frames are sent.", value=sending)
    for name, words in (("elapsed", "Since the start instant."), ("expected", "How long the sending takes.")):
        yield GaugeMetricFamily(f"pktswarm_run_{name}_seconds", words, value=document[f"{name}_s"])
    yield GaugeMetricFamily("pktswarm_run_warnings", "Warnings so far.", value=len(document["warnings"]))


def _of_streams(document: Document) -> Iterator[Metric]:
    streams = [([one["stream"], one["group"]], one) for one in document["streams"]]
    labels = ["stream", "group"]
    for name, words in STREAM_COUNTERS.items():
        counter = CounterMetricFamily(f"pktswarm_stream_{name}", words, labels=labels)
        _fill(counter, streams, name)
        yield counter
    # Numbers that have not come yet may still: it goes down too.
    missing = GaugeMetricFamily(
        "pktswarm_stream_missing_packets", "Sequence numbers up to the highest that have not come.", labels=labels
    )
    _fill(missing, streams, "missing_packets")
    yield missing
    latency = SummaryMetricFamily("pktswarm_stream_latency_seconds", "One-way latency.", labels=labels)
    for values, one in streams:
        if one["latency_packets"] is not None:
            latency.add_metric(values, one["latency_packets"], one["latency_sum_ns"] / 1e9)
    yield latency
    for which in ("min", "max"):
        words = f"The {'least' if which == 'min' else 'greatest'} latency so far."
        gauge = GaugeMetricFamily(f"pktswarm_stream_latency_{which}_seconds", words, labels=labels)
        _fill(gauge, streams, f"latency_{which}_ns", 1e-9)
        yield gauge


def _of_nodes(document: Document) -> Iterator[Metric]:
    nodes = [([one["node"], one["role"]], one["interface"]) for one in document["nodes"]]
    labels = ["node", "role"]
    for name, words in NODE_COUNTERS.items():
        counter = CounterMetricFamily(f"pktswarm_node_{NODE_NAMES.get(name, name)}", words, labels=labels)
        _fill(counter, nodes, name)
        yield counter
    busy = CounterMetricFamily("pktswarm_node_cpu_busy_seconds", "Of all its processors together.", labels=labels)
    _fill(busy, nodes, "cpu_busy_s")
    yield busy
    up = GaugeMetricFamily("pktswarm_node_up", "0: lost, or it failed.", labels=labels)
    for one in document["nodes"]:
        up.add_metric([one["node"], one["role"]], float(one["state"] == "ok"))
    yield up


def _fill(family: Any, parts: list[tuple[list[str], Document]], name: str, unit: float = 1) -> None:
    for labels, figures in parts:
        if (value := figures.get(name)) is not None:
            family.add_metric(labels, value * unit)
