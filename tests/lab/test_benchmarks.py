"""RFC 2544's benchmarks of one frame size and a service like Y.1564's on the kernel's token bucket, in short trials."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pktswarm import lab
from running import cluster_of, held_up, qdisc_drops

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
]

RATE_BPS, QUEUE_BYTES, BURST_BYTES = 20_000_000, 200_000, 3036
SIZE_BYTES, FCS_BYTES, OVERHEAD_BYTES = 512, 4, 20
SECONDS, TRIALS, PRECISION = 1.0, 3, 0.05
MEDIUM_BPS = 26_600_000
MAXIMUM_PPS = MEDIUM_BPS / 8 / (SIZE_BYTES + OVERHEAD_BYTES)
SUSTAINED_PPS = RATE_BPS / 8 / (SIZE_BYTES - FCS_BYTES)
HELD = (QUEUE_BYTES + BURST_BYTES) / (SIZE_BYTES - FCS_BYTES)
"""Frames that the device takes on top of what it sends meanwhile."""
SHORTLY = (
    "from pktswarm.master.rfc2544 import options\n"
    f"options.QUICK = options.Form('quick', {SECONDS}, {TRIALS}, 0.5, 1, 1, 0.0, 0.0, 0.0)\n"
    "from pktswarm.master.cli.app import main\n"
    "main()\n"
)
"""The command line with a quick form that is shorter still."""
CIR_BPS, EIR_BPS = 10_000_000, 8_000_000
SERVICE = f"""name: test
services: {{load: {{cir_bps: {CIR_BPS}, eir_bps: {EIR_BPS}, delay_ms: 80, availability: 99 %, policing: true}}}}
streams: [{{name: load, size_bytes: {SIZE_BYTES}}}]
"""
"""CIR + 125 % of EIR is what the device passes on: nothing polices the service."""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"rfc{os.getpid()}"
        state = lab.up(self.name, 1, 1, folder, bottleneck_bps=RATE_BPS, queue_bytes=QUEUE_BYTES)
        self.hosts, self.device = state.inventory, state.keeper.pids["dut"]
        options = ["--sizes", SIZE_BYTES, "--max", f"{MEDIUM_BPS}bit", "--precision", f"{PRECISION:%}"]
        options += ["--longest-burst", 5.3]  # the first one sent is hardly too long
        self.found = self.command(0, "rfc2544", *options)

    def command(self, status: int, *words: object) -> dict[str, Any]:
        """Again where a busy machine held the sender up too often: that is told, and no figure given. With what the
        device dropped meanwhile."""
        options = ["--hosts", self.hosts, "--results", self.folder / "results", "--json"]
        command = [sys.executable, "-c", SHORTLY, *map(str, [*words, *options])]
        for _ in range(3):
            before = qdisc_drops(self.device, "to-b")
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            if done.returncode == status or not held_up(done.stdout):
                break
        assert done.returncode == status, done.stdout + done.stderr
        assert "RFC 6815" in done.stderr and "not conformant" in done.stderr.lower()
        return {**json.loads(done.stdout), "dropped": qdisc_drops(self.device, "to-b") - before}


cluster = cluster_of(Cluster, stands=False)


def of_size(cluster: Cluster) -> dict[str, Any]:
    (of,) = cluster.found["sizes"]
    assert of["size_bytes"] == SIZE_BYTES and not of["problem"] and of["maximum_pps"] == pytest.approx(MAXIMUM_PPS)
    return dict(of)


def test_the_throughput_is_what_the_device_holds_without_loss(cluster: Cluster) -> None:
    holds_pps = SUSTAINED_PPS + HELD / SECONDS
    found = of_size(cluster)["throughput"]
    assert holds_pps * (1 - PRECISION) - 2 <= found["rate_pps"] <= holds_pps + 2
    assert found["l1_bps"] == pytest.approx(8 * (SIZE_BYTES + OVERHEAD_BYTES) * found["rate_pps"])


def test_the_throughput_is_within_the_precision_below_a_load_that_lost(cluster: Cluster) -> None:
    rate_pps = of_size(cluster)["throughput"]["rate_pps"]
    trials = [one for one in cluster.found["trials"] if one["test"] == "throughput" and not one["problem"]]
    lost = [one["lost_packets"] for one in trials if one["intended_pps"] == rate_pps]
    assert lost.count(0) > TRIALS / 2
    above = {one["intended_pps"] for one in trials if one["intended_pps"] > rate_pps and one["lost_packets"]}
    assert min(above) * (1 - PRECISION) <= rate_pps * (1 + 1e-6)


def test_what_was_lost_is_what_the_device_says_it_dropped(cluster: Cluster) -> None:
    assert sum(one["lost_packets"] for one in cluster.found["trials"]) == cluster.found["dropped"] > 0


def late_packets(cluster: Cluster, trial: dict[str, Any]) -> int:
    with (Path(cluster.found["results"]) / trial["results"] / "streams.csv").open(newline="") as file:
        return sum(int(row["late_packets"]) for row in csv.DictReader(file) if row["from"] != "")


def test_the_loss_rate_at_each_load_is_what_the_device_cannot_hold(cluster: Cluster) -> None:
    steps = of_size(cluster)["loss"]
    assert [one["load_percent"] for one in steps] == [100, 90, 80, 70]
    trials = [one for one in cluster.found["trials"] if one["test"] == "loss" and not one["problem"]]
    for one, trial in zip(steps, trials, strict=True):
        sent = one["load_percent"] / 100 * MAXIMUM_PPS * SECONDS
        due = max(0.0, sent - SUSTAINED_PPS * SECONDS - HELD)
        assert abs(one["sent_packets"] - sent) <= 1
        # What left late and together may be lost on top.
        assert -0.02 * sent <= one["lost_packets"] - due <= (0.02 * sent + late_packets(cluster, trial) if due else 0)


def test_the_longest_burst_is_what_the_queue_holds(cluster: Cluster) -> None:
    of = of_size(cluster)
    longest = HELD / (1 - SUSTAINED_PPS / MAXIMUM_PPS)
    # The device is a part of this machine, and may be held up: it then takes less.
    assert 0.85 * longest <= of["back_to_back"]["frames_mean"] <= 1.03 * longest
    assert of["back_to_back"]["implied_buffer_s"] == pytest.approx(of["back_to_back"]["frames_mean"] / MAXIMUM_PPS)


def test_latency_at_the_throughput_is_of_every_frame(cluster: Cluster) -> None:
    of = of_size(cluster)
    (one,) = of["latency"]["each"]
    assert one["frames"] + one["lost_packets"] == round(0.5 * of["throughput"]["rate_pps"])
    queued_ns = 1e9 * QUEUE_BYTES * 8 / RATE_BPS
    assert 0 < one["mean_ns"] < one["max_ns"] < 2 * queued_ns


def test_what_is_kept_says_the_same(cluster: Cluster) -> None:
    folder = Path(cluster.found["results"])
    with (folder / "trials.csv").open(newline="") as file:
        trials = list(csv.DictReader(file))
    assert len(trials) == len(cluster.found["trials"]) == len(list((folder / "runs").iterdir()))
    for trial in trials:
        total = json.loads((folder / trial["results"] / "run.json").read_text())["totals"][-1]
        assert [int(trial[f"{name}_packets"]) for name in ("sent", "lost")] == [
            total[f"{name}_packets"] for name in ("sent", "lost")
        ]
    page = (folder / "report.html").read_text()
    assert "not conformant to RFC 2544" in page and f"{of_size(cluster)['throughput']['rate_pps']:,.0f}" in page


def test_a_service_passes_where_it_is_what_was_agreed_and_fails_where_nothing_polices_it(cluster: Cluster) -> None:
    path = cluster.folder / "service.yaml"
    path.write_text(SERVICE)
    found = cluster.command(1, "y1564", path, "--step", 1, "--performance", 2)
    sent_bps = [CIR_BPS * part / 100 for part in (25, 50, 75, 100)] + [CIR_BPS + EIR_BPS, CIR_BPS + 1.25 * EIR_BPS]
    assert [one["verdict"] for one in found["steps"]] == ["pass"] * 5 + ["fail"]
    for one, bps in zip(found["steps"], sent_bps, strict=True):
        assert one["load_bps"] == bps and one["received_bps"] == pytest.approx(bps, rel=0.01)
    (performance,) = found["performance"]
    assert (performance["verdict"], performance["loss_ratio"], performance["availability"]) == ("pass", 0, 1)
    assert found["services"][0]["verdict"] == "fail"
    assert "Not every service passed" in (Path(found["results"]) / "report.html").read_text()
