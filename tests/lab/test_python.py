"""The Python interface on a lab: what docs/python.md has, threads, Ctrl-C, and programs that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pktswarm
from guide_blocks import ROOT, Block, fenced
from run_cluster import pids_of, until
from running import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

BLOCKS = [block for block in fenced(ROOT / "docs" / "python.md") if block.language == "python"]
WORKER = "pktswarm.master.api.worker"
HEADERS: list[dict[str, Any]] = [{"ethernet": {}}, {"ipv4": {}}]
LONG = {"name": "long", "size_bytes": 128, "rate": "400 pps", "duration_s": 30}
PROGRAM = """
import pktswarm, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
scenario = pktswarm.Scenario(streams=[{"name": "long", "size_bytes": 128, "rate": "400 pps", "duration_s": 30}])
with pktswarm.Lab(1, 1, name=sys.argv[1]) as lab, pktswarm.Cluster(lab.inventory) as cluster:
    with cluster.start(scenario) as live:
        for sample in live.samples():
            if (sample["total"]["received_packets"] or 0) > 0:
                print("packets arrive", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pktswarm.Cluster]:
    with pktswarm.Lab(1, 1) as lab, pktswarm.Cluster(lab.inventory, tmp_path_factory.mktemp("results")) as cluster:
        yield cluster


def scenario(**stream: object) -> pktswarm.Scenario:
    short = {"name": "short", "size_bytes": 128, "rate": "400 pps", "count_packets": 40, **stream}
    return pktswarm.Scenario(name="short", streams=[short], receive={"mode": "count"})


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_the_page_runs(block: Block, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "test_device.py").write_text(block.text)
    run = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if block.text.startswith("# test_device.py") else []
    done = subprocess.run(
        [sys.executable, *run, "test_device.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("results/*")), "each has made a run"
    assert not pids_of(f"pktswarm-lab-{tmp_path.name}")


def test_counts_are_those_of_the_folder(cluster: pktswarm.Cluster) -> None:
    run = cluster.run(scenario())
    short = run.streams["short"]
    assert (short.intended_packets, short.sent_packets, short.received_packets, short.lost_packets) == (40, 40, 40, 0)
    assert run.as_expected and run.doubts == [] and cluster.made[-1] == run.folder
    assert run.report == run.folder / "report.html" and run.report.exists()
    assert pktswarm.Result.load(run.folder).document == run.document
    assert short.latency_ns.bound == 0 and (short.latency_ns.min or 0) > 0, "one clock"


def test_bad_input_names_its_key_and_sends_nothing(cluster: pktswarm.Cluster) -> None:
    made = len(list(cluster.results.iterdir())) if cluster.results.exists() else 0
    with pytest.raises(pktswarm.BadInput) as raised:
        cluster.run(scenario(**{"from": "tx9"}))
    assert raised.value.key == "streams.0.from" and raised.value.value == "tx9"
    with pytest.raises(pktswarm.BadInput, match="there is no such file"):
        cluster.run("none.yaml")
    with pytest.raises(pktswarm.BadInput, match="--precision = 'x'"):
        cluster.search(scenario(), precision="x")
    with pytest.raises(pktswarm.BadInput, match="--trials"):
        cluster.search(scenario(), trials="many")  # type: ignore[arg-type]  # what typer refuses
    assert (len(list(cluster.results.iterdir())) if cluster.results.exists() else 0) == made


def test_doctor_and_calibrate_are_those_of_the_command_line(cluster: pktswarm.Cluster) -> None:
    health = cluster.doctor()
    assert health.is_whole and {one.level for one in health.findings} == {"note"}, health.findings
    assert any("held by" in one.what for one in health.findings), "by the cluster of this inventory"
    with pytest.raises(pktswarm.BadInput, match="mutually exclusive"):
        cluster.calibrate(quick=True, full=True)
    figures = cluster.calibrate(sizes="512", engines="xdp", nodes=["tx1"], quick=True, duration="100ms")
    capacity = Path(figures.document["capacity"])
    capacity.unlink()  # other tests plan without it
    assert figures.folder.parent == cluster.results and capacity.parent == cluster.inventory.parent
    assert [one["node"] for one in figures.document["figures"]] == ["tx1"]


def test_a_table_is_that_of_the_command_line(cluster: pktswarm.Cluster, tmp_path: Path) -> None:
    family = tmp_path / "small.yaml"
    stream = {"name": "s", "size_bytes": 128, "rate_pps": "$rate", "duration_s": "$seconds"}
    axes = [{"name": name, "values": [1]} for name in ("part", "whole")] + [{"name": "rate", "values": [100, 200]}]
    made = {"streams": [stream], "receive": {"mode": "count"}}
    keys = {"table": "small", "title": "two rates", "axes": axes, "measures": ["loss_ratio"], "scenario": made}
    family.write_text(json.dumps(keys))
    table = cluster.table(family, duration="500ms")
    assert (table.status, table.problem, table.folder) == (0, "", cluster.results / "small")
    assert [point["measured"]["loss_ratio"] for point in table.document["points"]] == [0, 0]
    assert json.loads((table.folder / "small.json").read_text()) == table.document
    with pytest.raises(pktswarm.BadInput, match="there is no such file"):
        cluster.table("none.yaml")


def test_sessions_are_those_of_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "ten.yaml"
    config.write_text('upf: {groups: [{name: users, sessions: 10, ue_addresses: "10.45.0.1/16"}]}')
    with pktswarm.Lab(1, 1, dut="upf") as lab:
        cluster = pktswarm.Cluster(lab.inventory, tmp_path)
        held = cluster.sessions(config, hold="100ms")
        assert (held.status, held.problem, held.document["hold_s"]) == (0, "", 0.1)
        counts = held.document["operations"]
        assert counts["establishment"]["accepted"] == counts["deletion"]["accepted"] == 10
        with pytest.raises(pktswarm.BadInput, match="upf"):
            cluster.sessions(ROOT / "configs/first.yaml")
        cluster.close()


def test_a_cluster_that_was_closed_can_be_used_again(cluster: pktswarm.Cluster) -> None:
    again = pktswarm.Cluster(cluster.inventory, cluster.results)
    for _ in range(2):
        assert again.run(scenario()).total.received_packets == 40
        again.close()


def test_one_call_at_a_time(cluster: pktswarm.Cluster) -> None:
    with cluster.start(pktswarm.Scenario(streams=[LONG])) as live:
        assert any((sample["total"]["received_packets"] or 0) > 0 for sample in live.samples())
        with pytest.raises(pktswarm.Busy, match="another thread uses this cluster"):
            cluster.run(scenario())
        live.stop()
    assert live.wait().reason == "stopped by the user" and not live.running


def test_calls_of_threads_take_turns(cluster: pktswarm.Cluster) -> None:
    with pktswarm.Cluster(cluster.inventory, cluster.results, wait=True) as waiting:
        found: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: found.append(waiting.run(scenario()).total.received_packets))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [40] * 3
    assert cluster.run(scenario()).total.received_packets == 40, "the cluster of the first one is still up"


def test_a_second_program_is_busy(cluster: pktswarm.Cluster) -> None:
    with cluster.start(pktswarm.Scenario(streams=[LONG])) as live:
        assert any(sample["phase"] == "send" for sample in live.samples())
        other = pktswarm.Cluster(cluster.inventory, cluster.results)
        with pytest.raises(pktswarm.Busy, match="in use by"):
            other.run(scenario())
        other.close()
        live.stop()


def test_an_exception_stops_the_run(cluster: pktswarm.Cluster) -> None:
    with pytest.raises(ZeroDivisionError), cluster.start(pktswarm.Scenario(streams=[LONG])) as live:
        for sample in live.samples():
            _ = 1 / (0 if (sample["total"]["received_packets"] or 0) > 0 else 1)
    assert not live.running and live.wait().total.lost_packets == 0


def test_a_rate_is_set_while_the_stream_is_sent(cluster: pktswarm.Cluster) -> None:
    """The samples show it; the other stream keeps its own, and no packet is lost."""
    both = [LONG, {**LONG, "name": "other", "headers": [*HEADERS, {"udp": {"src": 7, "dst": 9}}]}]
    with cluster.start(pktswarm.Scenario(streams=both, receive={"mode": "count"}, samples_per_s=10)) as live:
        for sample in live.samples():
            if (sample["total"]["received_packets"] or 0) > 0:
                break
        live.set_rate("long", pps=4000)
        rates = []
        for sample in live.samples():
            (row,) = (row for row in sample["streams"] if row["stream"] == "long")
            rates.append(row["received_pps"] or 0.0)
            if (row["received_packets"] or 0) > 8000:
                live.stop()
    run = live.wait()
    assert max(rates) > 3000, rates
    changed, steady = run.streams["long"], run.streams["other"]
    assert changed.intended_packets is None and (changed.sent_packets or 0) > 4000 and changed.lost_packets == 0
    assert steady.intended_packets == 30 * 400 and (steady.sent_packets or 0) < 2000 and steady.lost_packets == 0
    (note,) = [note for note in run.notes if "rate set to" in note]
    assert note.startswith("long from tx1: rate set to 4,000 packets/s at ") and run.doubts == []


def test_a_stream_sends_more_than_was_planned_and_all_is_counted(cluster: pktswarm.Cluster) -> None:
    slow = {**LONG, "rate": "20 pps"}
    with cluster.start(pktswarm.Scenario(streams=[slow], receive={"mode": "count"}, samples_per_s=10)) as live:
        for sample in live.samples():
            received = sample["total"]["received_packets"] or 0
            if 0 < received < 100:
                live.set_rate("long", pps=2000)
            elif received > 30 * 20 + 1000:
                live.stop()
    changed = live.wait().streams["long"]
    assert (changed.sent_packets or 0) > 30 * 20 + 1000 and changed.lost_packets == 0


def test_a_stream_is_started_and_stopped_while_another_is_sent(cluster: pktswarm.Cluster) -> None:
    other = {**LONG, "name": "other", "held": True, "headers": [*HEADERS, {"udp": {"src": 7, "dst": 9}}]}
    scenario = pktswarm.Scenario(streams=[LONG, other], receive={"mode": "count"}, samples_per_s=10)
    with pytest.raises(pktswarm.BadInput, match=r"other\.held = True: it would never be sent"):
        cluster.run(scenario)
    with cluster.start(scenario) as live:
        with pytest.raises(pktswarm.Error, match=r"start_stream other: not in phase|no run goes on"):
            live.start_stream("other")
        for sample in live.samples():
            received = {row["stream"]: row["received_packets"] or 0 for row in sample["streams"]}
            if received.get("other", 0) > 400:
                live.stop_stream("other")
                break
            if received.get("long", 0) > 200:
                live.start_stream("other")
        for sample in live.samples():
            (row,) = (row for row in sample["streams"] if row["stream"] == "long")
            if (row["received_packets"] or 0) > 1500:
                live.stop()
    run = live.wait()
    steady, started = run.streams["long"], run.streams["other"]
    assert started.intended_packets is None and 400 < (started.sent_packets or 0) < (steady.sent_packets or 0) - 600
    assert steady.lost_packets == started.lost_packets == 0 and steady.intended_packets == 30 * 400
    (note,) = [note for note in run.notes if note.startswith("other from tx1: held at first, started at ")]
    assert "stopped at " in note and run.doubts == []


def test_rates_that_cannot_be_set_are_named(cluster: pktswarm.Cluster) -> None:
    counted = {"name": "counted", "size_bytes": 128, "rate": "100 pps", "count_packets": 3000}
    with cluster.start(pktswarm.Scenario(streams=[LONG, counted])) as live:
        for sample in live.samples():
            if sample["phase"] == "send":
                break
        with pytest.raises(pktswarm.BadInput, match=r"no such stream \(allowed: long, counted"):
            live.set_rate("none", pps=5)
        with pytest.raises(pktswarm.BadInput, match=r"set_rate long = 0\.0: rate out of range \(allowed: 0\.001 to"):
            live.set_rate("long", pps=0)
        with pytest.raises(pktswarm.BadInput, match=r"counted = 50\.0: rate out of range \(allowed: 100 to"):
            live.set_rate("counted", pps=50)
        live.set_rate("counted", pps=200)
        live.stop()
    with pytest.raises(pktswarm.Error, match="no run goes on"):
        live.set_rate("long", pps=5)


def begun(name: str, folder: Path) -> subprocess.Popen[str]:
    """PROGRAM, once packets arrive."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_for(process, "packets arrive")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_ends_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C raises KeyboardInterrupt in it, once the run has stopped in order; a killed one can do nothing."""
    name, others = f"p{os.getpid()}-{number}", {*pids_of(WORKER)}
    process = begun(name, tmp_path)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == -number, words
    assert until(lambda: not pids_of(name) and {*pids_of(WORKER)} <= others), pids_of(name)
    (result,) = map(pktswarm.Result.load, tmp_path.glob("results/*"))
    assert result.reason == "stopped by the user" and result.total.lost_packets == 0
    assert (result.total.sent_packets or 0) > 0
    if number is signal.SIGINT:
        assert "KeyboardInterrupt" in words


def test_a_lab_that_cannot_come_up_leaves_nothing() -> None:
    with pytest.raises(pktswarm.BadInput, match="transmit"):
        pktswarm.Lab(transmit=0).up()
    lab = pktswarm.Lab(1, 1)
    with pytest.raises(ValueError, match="is not up"):
        _ = lab.inventory


FAILING = """
import pytest

def test_loses_something(pktswarm_cluster):
    run = pktswarm_cluster.run("configs/first.yaml")
    assert run.total.lost_packets == 1

def test_gives_up(pktswarm_cluster):
    pktswarm_cluster.run("configs/first.yaml")
    pytest.fail("as it says")

def test_is_content(pktswarm_cluster):
    pktswarm_cluster.run("configs/first.yaml")
"""


def test_a_failing_test_shows_its_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "test_failing.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pktswarm-results", "kept"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("Captured pktswarm call") == 2 and "lost 0 packets" in done.stdout, done.stdout
    assert len(list(tmp_path.glob("kept/*/report.html"))) == 2, "of the tests that fail"
