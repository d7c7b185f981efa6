"""Searches on a lab whose device has a known limit: the kernel's token bucket, and a policer in XDP."""

import csv
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from police import Police
from running import cluster_of, held_up, wait_for

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
]

RATE_BPS, QUEUE_BYTES, BURST_BYTES = 20_000_000, 500_000, 3036
"""With a queue of 0.2 s a sender that is held up for a moment leaves the device something to send."""
SIZE_BYTES, FCS_BYTES = 512, 4
SECONDS, PRECISION = 1.0, 0.01
HOLDS_PPS = (RATE_BPS / 8 * SECONDS + QUEUE_BYTES + BURST_BYTES) / (SIZE_BYTES - FCS_BYTES) / SECONDS
"""What the device takes for so long without loss: all that it sends meanwhile, and what it holds."""
SCENARIO = f"""name: test
streams: [{{name: load, size_bytes: {SIZE_BYTES}, rate_pps: 8000, duration_s: 9}}]
receive: {{mode: count, drain_s: 0.3}}
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"search{os.getpid()}"
        state = lab.up(self.name, 1, 1, folder, bottleneck_bps=RATE_BPS, queue_bytes=QUEUE_BYTES, switch="bridge")
        self.hosts, self.scenario = state.inventory, folder / "scenario.yaml"
        self.switch_pid = state.keeper.pids["switch"]
        self.scenario.write_text(SCENARIO)

    def start(self, *options: object) -> subprocess.Popen[str]:
        command = [PKTSWARM, "search", self.scenario, "--hosts", self.hosts, "--results", self.folder / "results"]
        words = [*map(str, command), *map(str, options), "--json"]
        return forked.popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def search(self, status: int, *options: object) -> dict[str, Any]:
        """Again where a busy machine held the sender up too often: the search then says so, and gives no rate."""
        for _ in range(3):
            process = self.start(*options)
            try:
                out, err = process.communicate(timeout=150)
            finally:
                process.kill()
            if process.returncode == status or not held_up(out):
                break
        assert process.returncode == status, out + err
        return dict(json.loads(out))


cluster = cluster_of(Cluster, stands=False)


def test_the_rate_found_is_the_devices_within_the_precision(cluster: Cluster) -> None:
    found = cluster.search(0, "--loss", "0", "--loss", "2%", "--precision", f"{PRECISION:%}", "--confirm", 0)
    assert [goal["state"] for goal in found["goals"]] == ["reached", "reached"]
    for goal in found["goals"]:
        limit_pps = HOLDS_PPS / (1 - goal["loss_ratio"])
        a_packet = 2 / SECONDS
        assert limit_pps * (1 - PRECISION) - a_packet <= goal["rate_pps"] <= limit_pps + a_packet, goal
        assert goal["l2_bps"] == pytest.approx(8 * SIZE_BYTES * goal["rate_pps"])
    check_kept(Path(found["results"]), found)


def test_a_rate_that_only_the_queue_holds_is_not_reported(cluster: Cluster) -> None:
    """A trial of 1 s holds 17 % more than the device forwards, and shows that its queue fills: that rate has failed
    without a long trial, and a lower one holds in one."""
    found = cluster.search(0, "--precision", f"{PRECISION:%}", "--trials", 1, "--confirm", 4)
    (goal,) = found["goals"]
    forwarded_pps = RATE_BPS / 8 / (SIZE_BYTES - FCS_BYTES)
    assert goal["confirmed_s"] == 4 and goal["upper_pps"] > goal["rate_pps"] == goal["lower_pps"]
    assert 0.95 * forwarded_pps <= goal["rate_pps"] <= forwarded_pps + QUEUE_BYTES / (SIZE_BYTES - FCS_BYTES) / 4
    held = [trial for trial in found["trials"] if not trial["confirms"] and not trial["lost_packets"]]
    highest = max(held, key=lambda trial: float(trial["intended_pps"]))
    assert highest["intended_pps"] > 1.1 * forwarded_pps and highest["latency_rise_ns_per_s"] > 0
    confirming = [trial for trial in found["trials"] if trial["confirms"]]
    assert all(trial["intended_pps"] < 1.1 * forwarded_pps for trial in confirming)
    assert (confirming[-1]["lost_packets"], confirming[-1]["latency_rise_ns_per_s"]) == (0, 0)


def test_a_policers_rate_is_found_through_its_noise(cluster: Cluster) -> None:
    """What drops by chance before the policer is no more than the goal lets through.

    A policer passes more where the last frames reach it late, as on a busy machine: what it passes at most is computed
    from its own clock, and its own counts are compared with those of the trials.
    """
    rate_pps, depth, loss, precision = 4000, 800, 0.005, 0.02
    with Police(cluster.switch_pid, "to-dut-b", rate_pps, depth, noise=loss / 5) as police:
        found = cluster.search(0, "--loss", f"{loss:%}", "--precision", f"{precision:%}", "--confirm", 0)
        policed = {(burst.came, burst.passed): burst.last_ns - burst.first_ns for burst in police.bursts()}
    goal = found["goals"][0]
    trials = [one for one in found["trials"] if one["intended_pps"] == goal["rate_pps"]]
    took_ns = [policed[one["sent_packets"], one["received_packets"]] for one in trials]
    least_pps = (rate_pps + depth / SECONDS) / (1 - loss) * (1 - precision)
    most_pps = (rate_pps * max(took_ns) / 1e9 + depth) / SECONDS / (1 - loss)
    a_packet = 2 / SECONDS
    assert least_pps - a_packet <= goal["rate_pps"] <= most_pps + a_packet, goal


def test_an_interrupted_search_goes_on_from_its_last_trial(cluster: Cluster) -> None:
    """Stopped in its third trial, it shows how to go on, refuses other options, and repeats no trial."""
    options = ("--precision", "5%", "--trials", 1, "--confirm", 0, "--label", "firmware=2.1")
    process = cluster.start(*options)
    try:
        wait_for(process, "trial 2: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    half = json.loads(out)
    folder = Path(half["results"])
    assert process.returncode == 3 and half["problem"] in ("stopped by the user", "interrupted"), out + err
    assert f"to continue: pktswarm search {cluster.scenario}" in err and f"--resume {folder}" in err
    kept = [trial["results"] for trial in half["trials"] if not trial["problem"]]
    assert kept
    shown = forked.run([PKTSWARM, "status", folder])
    assert shown.returncode == 3 and "interrupted: " in shown.stdout and "to continue: pktswarm" in shown.stdout

    others = ("--precision", "6%", "--trials", 1, "--confirm", 0, "--label", "firmware=2.2")
    refused = cluster.start(*others, "--resume", folder)
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2 and "options.search.precision is 0.06, was 0.05" in err
    assert 'options.labels.firmware is "2.2", was "2.1"' in err

    found = cluster.search(0, *options, "--resume", folder)
    assert Path(found["results"]) == folder and found["interruptions"]
    results = [trial["results"] for trial in found["trials"]]
    assert results[: len(kept)] == kept and len(set(results)) == len(results)
    assert found["goals"][0]["state"] == "reached" and found["problem"] == ""
    assert found["dut"]["labels"] == half["dut"]["labels"] == {"firmware": "2.1"}
    assert (folder / "report.html").exists()
    check_kept(folder, found)


def check_kept(folder: Path, found: dict[str, Any]) -> None:
    """Each trial is a run of its own with the same counts."""
    with (folder / "search.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found["trials"]) == len(list((folder / "runs").iterdir()))
    for row in rows:
        total = json.loads((folder / row["results"] / "run.json").read_text())["totals"][-1]
        counted = [int(row[f"{name}_packets"]) for name in ("intended", "sent", "received", "lost")]
        assert counted == [total[f"{name}_packets"] for name in ("intended", "sent", "received", "lost")]
        assert counted[0] == round(float(row["intended_pps"]) * float(row["duration_s"]))


def test_a_tester_at_its_limit_is_told_and_no_rate_given(cluster: Cluster) -> None:
    found = cluster.search(3, "--max", 5_000_000, "--duration", 0.2)
    assert "this is a limit of the tester, not of the device" in found["problem"]
    assert [goal["rate_pps"] for goal in found["goals"]] == [None]
    assert len(found["trials"]) == 1 and found["trials"][0]["problem"] == found["problem"]


def test_ctrl_c_ends_a_search_and_keeps_what_it_found(cluster: Cluster) -> None:
    process = cluster.start()
    try:
        wait_for(process, "trial 2:")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3, out + err
    found = json.loads(out)
    kept = json.loads((Path(found["results"]) / "search.json").read_text())
    assert kept == {name: value for name, value in found.items() if name != "results"}
    assert len(kept["trials"]) >= 2 and not kept["trials"][1]["problem"]
    assert kept["problem"] in ("stopped by the user", "stopped by the user before anything was sent", "interrupted")
    assert [goal["rate_pps"] for goal in kept["goals"]] == [None]
