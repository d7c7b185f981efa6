"""Rates over time, random arrivals and application sources in whole runs on a lab."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.master.results.read_document import read_run
from pktswarm.traffic.protocol.task import leg_from_json
from pktswarm.traffic.schedule import due_times, sequence
from running import cluster_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")


class Cluster:
    """A lab of two transmitters and one receiver."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"s{os.getpid()}"
        self.hosts = lab.up(self.name, 2, 1, folder).inventory

    def run(self, text: str, status: int = 0) -> dict[str, Any]:
        path = self.folder / "scenario.yaml"
        path.write_text(f"name: test\n{text}\n")
        return self.run_file(path, status)

    def run_file(self, path: Path, status: int = 0) -> dict[str, Any]:
        command = [PKTSWARM, "run", path, "--hosts", self.hosts, "--results", self.folder / "results", "--json"]
        command += ["--no-report"]
        done = forked.run(command, timeout=90)
        document = dict(json.loads(done.stdout)) if done.stdout else {}
        told = {key: document.get(key) for key in ("reason", "doubts", "totals")}
        assert done.returncode == status, (told, done.stderr)
        if "rows" in document:
            read_run(Path(document["results"]))
        return document


cluster = cluster_of(Cluster)


def table(document: dict[str, Any], name: str) -> list[dict[str, str]]:
    with (Path(document["results"]) / name).open() as file:
        return list(csv.DictReader(file))


def recounted(document: dict[str, Any]) -> None:
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout


JUDGED = "expect: {loss: 0, sent: intended}"


def test_a_rate_that_changes_sends_what_its_integral_says(cluster: Cluster) -> None:
    rate = "{square: {rates: [1000, 4000, 0, 5000, 0], every_s: 0.4}}"
    document = cluster.run(f"streams: [{{name: s, rate: {rate}, duration_s: 2}}]\nreceive: {{mode: count}}\n{JUDGED}")
    assert [row["intended_packets"] for row in document["rows"]] == [2000, 2000]
    assert document["totals"][-1]["received_packets"] == 4000


def test_poisson_arrivals_are_those_that_the_plan_knows(cluster: Cluster) -> None:
    text = "streams: [{name: s, rate: {steady: 1e6, unit: bps}, arrivals: poisson, seed: 5, count_packets: 3000}]"
    document = cluster.run(f"{text}\nreceive: {{mode: count}}\n{JUDGED}")
    legs = [leg_from_json(leg) for leg in json.loads((Path(document["results"]) / "run.json").read_text())["legs"]]
    assert all(leg.gap_table and leg.seed is not None for leg in legs)
    # Random gaps are not the even ones: the last frame is due at another time than 1500 even gaps would make.
    last_ns = [int(due_times.due_times(leg)[-1]) for leg in legs]
    assert last_ns[0] != last_ns[1]
    assert document["totals"][-1]["received_packets"] == 3000


def test_each_user_of_a_source_arrives_with_what_was_drawn_for_it(cluster: Cluster) -> None:
    www = "{www: {request_gap_s: {exponential: 4}, item_bytes: {pareto: {shape: 1.2, least: 1000}, at_most: 60000}}}"
    text = f"sources: [{{name: web, source: {www}, users: 100, duration_s: 2}}]"
    document = cluster.run(f"{text}\n{JUDGED}")
    assert {row["engine"] for row in document["rows"]} == {"xdp"}
    assert {row["lost_by"] for row in document["rows"]} == {"stamps"}
    assert all(row["altered_packets"] == 0 for row in document["rows"])
    counted = {(row["from"], row["user"]): row for row in table(document, "users.csv")}
    assert len(counted) == 100
    for number, (node, first, users) in enumerate((("tx1", 10_000, 64), ("tx2", 10_064, 36))):
        records = sequence.read_sequence(Path(document["results"]) / "sent" / f"leg-{number}.sequence")
        packets = np.bincount(records["user"], minlength=users).tolist()
        frame_bytes = np.bincount(records["user"], records["frame_bytes"], minlength=users).tolist()
        for user in range(users):
            row = counted[node, str(first + user)]
            assert int(row["sent_packets"]) == int(row["received_packets"]) == packets[user]
            assert int(row["received_bytes"]) == frame_bytes[user] + 4 * packets[user]
    recounted(document)


def test_a_source_as_ready_frames_by_tcpreplay(cluster: Cluster) -> None:
    source = "source: voip, users: 20, duration_s: 1, from: tx1, engine: tcpreplay"
    document = cluster.run(f"sources: [{{name: calls, {source}}}]\n{JUDGED}")
    (row,) = document["rows"]
    assert row["engine"] == "tcpreplay"
    assert row["received_packets"] == row["intended_packets"] > 100
    recounted(document)


def test_a_source_over_connections_delivers_all_its_items(cluster: Cluster) -> None:
    source = "source: videoconference, users: 3, connections: 2, duration_s: 1.5, from: tx1"
    document = cluster.run(f"connections: [{{name: tcp, {source}}}, {{name: udp, protocol: udp, {source}}}]\n{JUDGED}")
    tcp, udp = document["connections"]
    for row in (tcp, udp):
        assert row["received_blocks"] == row["sent_blocks"] == row["intended_blocks"] > 100
    assert tcp["received_bytes"] == tcp["intended_bytes"] > 100 * 1000
    assert udp["lost_datagrams"] == 0


def test_the_mix_that_ships_tells_targets_from_the_background(cluster: Cluster) -> None:
    """A busy machine may be away at the very end, so what was not sent is no matter here; all else is."""
    shipped = Path("configs/traffic-mix.yaml").resolve()
    text = shipped.read_text().replace(", sent: intended", "").replace("traces/", f"{shipped.parent}/traces/")
    (cluster.folder / "mix.yaml").write_text(text)
    document = cluster.run_file(cluster.folder / "mix.yaml")
    assert document["doubts"] == []
    target, background = document["groups"]
    assert target["received_packets"] == target["sent_packets"] > 6000
    assert background["lost_packets"] == 0 < background["sent_packets"]
    assert {row["group"] for row in table(document, "streams.csv") if row["stream"] == "calls"} == {"background"}
    assert all(row["received_blocks"] == row["sent_blocks"] > 100 for row in document["connections"])


def test_everything_stops_at_the_cut_off_time(cluster: Cluster) -> None:
    lasting = "source: mpeg, users: 2, duration_s: 30"
    document = cluster.run(
        "stop_after_s: 1\nreceive: {mode: count}\nstreams:\n- {name: s, rate: 500, duration_s: 30}\n"
        "- {name: p, rate: 500, arrivals: poisson, duration_s: 30}\n"
        f"sources: [{{name: web, {lasting}}}]\nconnections: [{{name: c, {lasting}}}]\nexpect: {{loss: 0}}"
    )
    assert max(row["last_ns"] for row in document["rows"]) < 1.5e9
    assert [row["intended_packets"] for row in document["rows"] if row["stream"] == "s"] == [250, 250]
