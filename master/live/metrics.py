"""A run's figures for Prometheus, on loopback; names by https://prometheus.io/docs/practices/naming.

The socket is bound before the process enters a lab's namespace, so the port is on the loopback of the terminal that
started `pktswarm run`. A thread serves it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from socketserver import ThreadingMixIn
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

from pktswarm.master.live.document import LiveDocument
from pktswarm.master.live.job import JobProgress
from pktswarm.traffic.errors import BadInput

LOOPBACK = "127.0.0.1"
LARGEST_PORT = 65535
STREAM_COUNTERS = {
    "intended_packets": "Packets due by now.",
    "sent_packets": "Packets sent, counted by the senders' engines.",
    "received_packets": "Packets received, counted by the receivers' engines.",
    "sent_bytes": "Bytes sent, with FCS.",
    "received_bytes": "Bytes received, with FCS.",
    "duplicated_packets": "Packets received more than once.",
    "reordered_packets": "Packets received after a later one (RFC 4737).",
    "altered_packets": "Packets received other than sent.",
}
NODE_COUNTERS = {
    "tx_packets": "Packets sent by the interface under test.",
    "rx_packets": "Packets received by the interface under test.",
    "tx_bytes": "Bytes sent by the interface under test, with FCS.",
    "rx_bytes": "Bytes received by the interface under test, with FCS.",
    "tx_dropped": "Packets dropped by the interface instead of sent.",
    "rx_dropped": "Packets dropped by the interface on reception.",
    "link_downs": "Losses of the interface's link.",
}
NODE_NAMES = {"tx_dropped": "tx_dropped_packets", "rx_dropped": "rx_dropped_packets"}


class Served:
    """A server of http://127.0.0.1:PORT/metrics, once start() is called; port 0: any.

    Raises BadInput if the port cannot be bound.
    """

    def __init__(self, port: int) -> None:
        if not 0 <= port <= LARGEST_PORT:
            raise BadInput("run", "not a port", key="--metrics", value=port, allowed=f"0 (any) to {LARGEST_PORT}")
        try:
            self._server = _Server((LOOPBACK, port), _Quiet)
        except OSError as error:
            raise BadInput("run", f"cannot be bound: {error.strerror}", key="--metrics", value=port) from None
        self._thread: threading.Thread | None = None
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/metrics"

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def start(self, newest: Callable[[], LiveDocument]) -> bool:
        """Serves documents of `newest`, which never change, until close() or the end of the process.

        Returns False if it is started already; it serves the new documents then.
        """
        registry = CollectorRegistry()
        registry.register(RunCollector(newest))
        self._server.set_app(make_wsgi_app(registry))
        if self._thread is not None:
            return False
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        return True


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each client: an idle one blocks no other."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Writes nothing: standard error has the live view."""


class RunCollector(Collector):
    """Collects samples of the newest document; a figure that was not measured has none."""

    def __init__(self, newest: Callable[[], LiveDocument]) -> None:
        self._newest = newest

    def describe(self) -> Iterator[Metric]:
        """Returns nothing, so that registration does not collect."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        document = self._newest()
        if (job := document.get("job")) is not None:
            yield from _job_metrics(job)
        yield from _run_metrics(document)
        yield from _stream_metrics(document)
        yield from _node_metrics(document)


def _run_metrics(document: LiveDocument) -> Iterator[Metric]:
    yield InfoMetricFamily("pktswarm_run", "The scenario.", value={"scenario": document["name"]})
    sending = float(document["phase"] == "send")
    yield GaugeMetricFamily("pktswarm_run_sending", "1 while frames are sent, else 0.", value=sending)
    elapsed_s, expected_s = document["elapsed_s"], document["expected_s"]
    yield GaugeMetricFamily("pktswarm_run_elapsed_seconds", "Time since the start instant.", value=elapsed_s)
    yield GaugeMetricFamily("pktswarm_run_expected_seconds", "Duration of the traffic.", value=expected_s)
    yield GaugeMetricFamily("pktswarm_run_warnings", "Warnings so far.", value=len(document["warnings"]))


def _job_metrics(job: JobProgress) -> Iterator[Metric]:
    about = {"command": job["command"], "name": job["name"], "stage": job["stage"]}
    yield InfoMetricFamily("pktswarm_job", "The job that the run is a trial of.", value=about)
    end = job["estimated_end_utc"]
    known: list[tuple[str, str, float | None]] = [
        ("trial", "Number of the trial in progress.", job["trial"]),
        ("expected_trials", "Estimated number of all trials.", job["expected_trials"]),
        ("part", "The frame size, figure or point in progress.", job["part"]),
        ("parts", "Number of frame sizes, figures or points.", job["parts"]),
        ("rate_pps", "Load of the trial in progress, packets/s.", job["rate_pps"]),
        (
            "estimated_end_timestamp_seconds",
            "Estimated end, Unix time.",
            None if end is None else datetime.fromisoformat(end).timestamp(),
        ),
    ]
    for name, words, value in known:
        if value is not None:
            yield GaugeMetricFamily(f"pktswarm_job_{name}", words, value=value)
    bounds = GaugeMetricFamily("pktswarm_job_bound_pps", "Bounds so far, packets/s.", labels=["goal", "bound"])
    for each in job["bounds"]:
        for bound, rate_pps in (("lower", each["lower_pps"]), ("upper", each["upper_pps"])):
            if rate_pps is not None:
                bounds.add_metric([each["goal"], bound], rate_pps)
    yield bounds


def _stream_metrics(document: LiveDocument) -> Iterator[Metric]:
    streams = [([stream["stream"], stream["group"]], stream) for stream in document["streams"]]
    labels = ["stream", "group"]
    for name, words in STREAM_COUNTERS.items():
        counter = CounterMetricFamily(f"pktswarm_stream_{name}", words, labels=labels)
        _fill(counter, streams, name)
        yield counter
    # A gauge: a missing packet can still arrive.
    missing = GaugeMetricFamily(
        "pktswarm_stream_missing_packets",
        "Missing sequence numbers up to the highest received.",
        labels=labels,
    )
    _fill(missing, streams, "missing_packets")
    yield missing
    latency = SummaryMetricFamily("pktswarm_stream_latency_seconds", "One-way latency.", labels=labels)
    for values, stream in streams:
        if stream["latency_packets"] is not None and stream["latency_sum_ns"] is not None:
            latency.add_metric(values, stream["latency_packets"], stream["latency_sum_ns"] / 1e9)
    yield latency
    for which in ("min", "max"):
        words = f"{'Minimum' if which == 'min' else 'Maximum'} latency so far."
        gauge = GaugeMetricFamily(f"pktswarm_stream_latency_{which}_seconds", words, labels=labels)
        _fill(gauge, streams, f"latency_{which}_ns", 1e-9)
        yield gauge


def _node_metrics(document: LiveDocument) -> Iterator[Metric]:
    nodes = [([node["node"], node["role"]], node["interface"]) for node in document["nodes"]]
    labels = ["node", "role"]
    for name, words in NODE_COUNTERS.items():
        counter = CounterMetricFamily(f"pktswarm_node_{NODE_NAMES.get(name, name)}", words, labels=labels)
        _fill(counter, nodes, name)
        yield counter
    busy = CounterMetricFamily("pktswarm_node_cpu_busy_seconds", "Busy time of all processors.", labels=labels)
    _fill(busy, nodes, "cpu_busy_s")
    yield busy
    up = GaugeMetricFamily("pktswarm_node_up", "1, or 0 of a node that is lost or failed.", labels=labels)
    for node in document["nodes"]:
        up.add_metric([node["node"], node["role"]], float(node["state"] == "ok"))
    yield up


def _fill(
    family: CounterMetricFamily | GaugeMetricFamily,
    parts: Sequence[tuple[list[str], Mapping[str, object]]],
    name: str,
    unit: float = 1,
) -> None:
    for labels, figures in parts:
        value = figures.get(name)
        if isinstance(value, (int, float)):
            family.add_metric(labels, value * unit)
