"""What happens to a run when something fails in it: its own counts are lost, nothing else, and nothing is guessed.

After each the report's sums are what the interfaces counted. Other failures: test_run.py (killed and frozen ranks,
mpiexec and the command line killed, Ctrl-C), test_xdp_truth.py (a device that alters), bench/chaos.py (all at random).
"""

import csv
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab

sys.path.insert(0, str(Path(__file__).parent))
from failures import (
    control_link_cut,
    disagreements,
    disk_full,
    engines,
    packets,
    send_signal,
    shrink_disk,
    traffic_link_down,
    wait_until,
)
from run_cluster import STOP_S, Cluster, offloads_on, rank_of
from running import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

TEXT = "streams: [{name: s, size_bytes: 128, rate_pps: 400, count_packets: 1600}]"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    this = Cluster(tmp_path_factory.mktemp("cluster"), "f")
    yield this
    lab.down(this.name, this.folder)


class Failing:
    """A run in which something is to fail. Behind it nothing is left, and its report agrees with the interfaces."""

    def __init__(self, cluster: Cluster, text: str = TEXT) -> None:
        self.cluster = cluster
        self.process = cluster.start(cluster.scenario(text), "--json")
        self.until("arming the receivers")
        self.before = packets(cluster)  # behind the frames with which each node tries its interface

    def until(self, words: str) -> None:
        wait_for(self.process, words)

    def until_sent(self) -> None:
        self.until("sending")
        self.cluster.wait_until_sent()

    def end(self, status: int = 3) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == status, out + err
        assert wait_until(lambda: not self.cluster.left_behind(), STOP_S), self.cluster.left_behind()
        assert offloads_on(self.cluster) == []
        document = dict(json.loads(out))
        assert disagreements(document, self.before, packets(self.cluster)) == []
        return document


@pytest.fixture
def failing(cluster: Cluster) -> Iterator[type[Failing]]:
    made: list[Failing] = []

    class Kept(Failing):
        def __init__(self, text: str = TEXT) -> None:
            super().__init__(cluster, text)
            made.append(self)

    yield Kept  # type: ignore[misc]
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def whole(document: dict[str, Any], node: str, packets: int = 800) -> bool:
    """Whether a transmitter's counts are all there, and all arrived."""
    (row,) = [row for row in document["rows"] if row["from"] == node]
    return bool(row["intended_packets"] == row["sent_packets"] == row["received_packets"] == packets)


def test_a_rank_killed_before_the_start_is_named_and_the_others_send(cluster: Cluster, failing: Any) -> None:
    run = failing()
    run.until("preparing the transmitters")
    os.kill(rank_of(cluster, "tx2"), signal.SIGKILL)
    document = run.end()
    assert whole(document, "tx1")
    assert "tx2 (transmit)" in document["reason"] and "last heard" in document["reason"]


def test_a_rank_killed_after_the_sending_costs_its_counts_only(cluster: Cluster, failing: Any) -> None:
    run = failing("receive: {drain_s: 1}\n" + TEXT)
    run.until("frames in flight")
    os.kill(rank_of(cluster, "tx2"), signal.SIGKILL)
    document = run.end()
    assert whole(document, "tx1")
    sent = re.search(r"tx2 \(transmit\): .*its interface had sent (\d+) packets by its last sample", document["reason"])
    assert sent and 0 < int(sent[1]) <= 800, document["reason"]


def test_a_cut_control_link_ends_the_sending_there_and_the_others_finish(cluster: Cluster, failing: Any) -> None:
    run = failing(TEXT.replace("400", "200"))
    run.until_sent()
    with control_link_cut(cluster, "tx2"):
        time.sleep(3.0)
        (sent,) = cluster.sent_packets("tx2")
        time.sleep(0.5)
        assert cluster.sent_packets("tx2") == [sent], "it sends without its master"
        assert wait_until(lambda: run.process.poll() is not None, 40)
    document = run.end()
    assert whole(document, "tx1")
    assert "tx2 (transmit): not heard for" in document["reason"]


def test_a_full_disk_costs_the_capture_and_no_count(cluster: Cluster, failing: Any) -> None:
    shrink_disk(cluster, "rx1", 16)
    run = failing(
        "receive: {ring_mib: 4}\nstreams: [{name: s, size_bytes: 1500, rate_pps: 4000, count_packets: 16000}]"
    )
    run.until_sent()
    with disk_full(cluster, "rx1"):
        assert wait_until(lambda: run.process.poll() is not None, 40)
    document = run.end()
    assert whole(document, "tx1", 8000) and whole(document, "tx2", 8000)
    assert "rx1 (receive)" in document["reason"] and "No space left on device" in document["reason"]


def test_engines_that_hang_or_die_are_told_with_their_words(cluster: Cluster, failing: Any) -> None:
    run = failing(TEXT.replace("name: s", "name: s, engine: trafgen"))
    run.until_sent()
    send_signal(engines(cluster, "tx1", "trafgen"), signal.SIGSTOP)
    send_signal(engines(cluster, "tx2", "trafgen"), signal.SIGKILL)
    document = run.end()
    assert [row["sent_packets"] for row in document["rows"]] == [None, None], "never a guessed count"
    for node in ("tx1", "tx2"):
        assert f"{node} (transmit): trafgen: killed" in str(document["doubts"])


def test_a_link_that_goes_down_and_comes_back_is_an_outage_in_a_run_that_goes_on(
    cluster: Cluster, failing: Any
) -> None:
    run = failing()
    run.until_sent()
    with traffic_link_down(cluster, "tx1"):
        time.sleep(0.7)
    document = run.end(0)
    (note,) = [note for note in document["notes"] if "was down" in note]
    begun_s, ended_s = map(float, re.findall(r"([\d.]+) s", note))
    assert note.startswith("tx1 (transmit): the link of eth1") and begun_s < ended_s
    with (Path(document["results"]) / "samples.csv").open() as file:
        downs = [int(row["link_downs"]) for row in csv.DictReader(file) if row["node"] == "tx1" and row["link_downs"]]
    assert downs[0] == 0 and downs[-1] == 1
    assert whole(document, "tx2")
