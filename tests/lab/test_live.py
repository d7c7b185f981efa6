"""A run seen while it goes: by `pktswarm status`, by Prometheus, on a terminal; and its samples to the last packet."""

import csv
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import forked
from forked import PKTSWARM
from pktswarm import lab
from running import cluster_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

LABELS = ("scenario", "stream", "group", "node", "role")
SCENARIO = """name: live
samples_per_s: 10
streams:
  - {name: small, rate_pps: 1000, duration_s: SECONDS}
  - {name: large, size_bytes: 900, rate_pps: 500, duration_s: SECONDS, background: true}
receive: {mode: count}
expect: {loss: 0, sent: intended}
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"live{os.getpid()}"
        self.hosts = lab.up(self.name, 2, 2, folder).inventory

    def start(self, seconds: float, *options: str, **how: Any) -> subprocess.Popen[str]:
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(SCENARIO.replace("SECONDS", str(seconds)))
        command = [PKTSWARM, "run", scenario, "--hosts", self.hosts, "--results", self.folder / "results", *options]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return forked.popen([*command, "--no-report"], **streams)

    def status(self) -> tuple[int, dict[str, Any]]:
        command: list[str | Path] = [PKTSWARM, "status", self.folder / "results", "--json"]
        done = forked.run(command, timeout=60)
        return done.returncode, json.loads(done.stdout)


cluster = cluster_of(Cluster)


@dataclass
class Seen:
    """Of one run: what was told while it went, and what it came to."""

    status: tuple[int, dict[str, Any]]
    metrics: dict[tuple[str, ...], float]
    err: str
    document: dict[str, Any]
    after: tuple[int, dict[str, Any]]

    @property
    def folder(self) -> Path:
        return Path(self.document["results"])

    def table(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((self.folder / name).open()))


@pytest.fixture(scope="module")
def seen(cluster: Cluster) -> Iterator[Seen]:
    process = cluster.start(4, "--json", "--metrics", "0")
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith("metrics: ")).split()[1]
        wait_for(process, "sending …")
        found = _once_it_is_received(cluster)
        metrics = _scraped(url)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    yield Seen(found, metrics, err, json.loads(out), cluster.status())


def _once_it_is_received(cluster: Cluster) -> tuple[int, dict[str, Any]]:
    deadline = time.monotonic() + 30
    while True:
        found = cluster.status()
        if (found[1].get("figures") or {}).get("total", {}).get("received_packets"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def _scraped(url: str) -> dict[tuple[str, ...], float]:
    """From outside of the lab: the port is where the command was typed."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own loopback address
        families = list(text_string_to_metric_families(answer.read().decode()))
    told = [one for family in families for one in family.samples]
    return {(one.name, *(one.labels[name] for name in LABELS if name in one.labels)): one.value for one in told}


def test_status_is_asked_from_elsewhere_while_it_runs(seen: Seen) -> None:
    exit_status, told = seen.status
    assert (exit_status, told["state"], told["results"]) == (0, "running", str(seen.folder))
    figures = told["figures"]
    assert [(one["stream"], one["group"]) for one in figures["streams"]] == [
        ("small", "target"),
        ("large", "background"),
    ]
    for one in figures["streams"]:
        assert 0 < one["received_packets"] <= one["intended_in_all_packets"] and one["latency_min_ns"] is not None
    assert {node["state"] for node in figures["nodes"]} == {"ok"} and len(figures["nodes"]) == 4


def test_prometheus_is_served_the_same_streams_while_it_runs(seen: Seen) -> None:
    for stream, group in (("small", "target"), ("large", "background")):
        received = seen.metrics["pktswarm_stream_received_packets_total", stream, group]
        assert 0 < received <= {"small": 4000, "large": 2000}[stream]
    assert seen.metrics["pktswarm_node_up", "rx1", "receive"] == 1
    assert seen.metrics["pktswarm_run_expected_seconds",] == pytest.approx(4)


def test_when_it_is_over_status_has_its_outcome_and_nothing_is_left(seen: Seen) -> None:
    exit_status, told = seen.after
    assert (exit_status, told["state"], told["status"]) == (0, "finished", 0)
    assert told["totals"] == seen.document["totals"]
    assert not (seen.folder / "status.json").exists()


def test_the_last_samples_are_the_final_counts(seen: Seen) -> None:
    """Of each stream from each transmitter: packets, bytes and, of the receiver's own latencies, how many."""
    last: dict[tuple[str, ...], dict[str, str]] = {}
    for row in seen.table("samples.csv"):
        if row["stream"]:
            last[row["stream"], row["from"], row["to"], row["role"]] = row
    rows = seen.table("streams.csv")
    assert len(last) == 2 * len(rows) == 8
    for row in rows:
        leg = (row["stream"], row["from"], row["to"])
        sent, received = last[*leg, "transmit"], last[*leg, "receive"]
        assert (sent["sent_packets"], sent["sent_bytes"]) == (row["sent_packets"], row["sent_bytes"])
        for name in (
            "received_packets",
            "received_bytes",
            "duplicated_packets",
            "reordered_packets",
            "altered_packets",
        ):
            assert received[name] == row[name], name
        assert received["latency_packets"] == row["received_packets"] and received["missing_packets"] == "0"
        assert {sent["group"], received["group"]} == {row["group"]}
        corrected = float(row["latency_mean_ns"]) - int(received["latency_sum_ns"]) / int(received["latency_packets"])
        shift = int(row["latency_min_ns"]) - int(received["latency_min_ns"])
        assert corrected == pytest.approx(shift, abs=1)  # the clocks' later reading moves every latency alike


def test_samples_grow_and_have_their_nodes_counters(seen: Seen) -> None:
    rows = seen.table("samples.csv")
    small = [row for row in rows if (row["stream"], row["from"], row["role"]) == ("small", "tx1", "receive")]
    for name in ("received_packets", "received_bytes", "latency_packets"):
        told = [int(row[name]) for row in small if row[name]]
        assert len(told) >= 20 and told == sorted(told)
    interface = [row for row in rows if row["node"] == "tx1" and not row["stream"]]
    assert {row["link_downs"] for row in interface} == {"0"}
    assert float(interface[-1]["cpu_busy_s"]) > float(interface[0]["cpu_busy_s"])
    assert '"event":"sample"' not in (seen.folder / "log.jsonl").read_text()


def test_without_a_terminal_it_is_lines(seen: Seen) -> None:
    assert "waiting for frames in flight …" in seen.err and "\x1b" not in seen.err


def test_on_a_terminal_it_is_a_screen_that_goes_again(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 160, 0, 0))
    here = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    }  # would be taken for its size
    process = cluster.start(3, stderr=theirs, stdout=subprocess.DEVNULL, env={**here, "TERM": "xterm"})
    os.close(theirs)
    drawn = b""
    try:
        while chunk := _read(ours):
            drawn += chunk
        process.wait(timeout=60)
    finally:
        process.kill()
        os.close(ours)
    text = drawn.decode(errors="replace")
    assert process.returncode == 0, text
    for words in ("small", "large", "background", "tx1 transmit", "rx2 receive", "last minute", "packets/s"):
        assert words in text, text[-3000:]
    assert any(bar in text for bar in "▁▂▃▄▅▆▇█") and "\x1b[?25h" in text  # the cursor is back


def _read(terminal: int) -> bytes:
    """Nothing once the run has closed its end."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def test_a_run_that_was_killed_has_died(cluster: Cluster) -> None:
    process = cluster.start(20)
    try:
        wait_for(process, "sending …")
        _, told = _once_it_is_received(cluster)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    exit_status, after = cluster.status()
    assert (exit_status, after["state"], after["results"]) == (3, "died", told["results"])
    assert after["figures"]["total"]["received_packets"] >= told["figures"]["total"]["received_packets"] > 0
