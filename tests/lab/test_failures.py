"""What happens to a run when something fails in it: its own counts are lost, nothing else, and nothing is guessed.

After each the report's sums are what the interfaces counted. docs/failures.md tells users; each of its rows is here:

a process killed before  test_failures.py::test_a_rank_killed_before_the_start_is_named_and_the_others_send
a process killed during  test_launched_run.py::test_a_killed_rank_costs_its_own_counts_and_nothing_else
a process killed after   test_failures.py::test_a_rank_killed_after_the_sending_costs_its_counts_only
a frozen node            test_launched_run.py::test_a_frozen_rank_stops_sending_by_itself_and_the_others_finish
a guard killed           test_doctor.py::test_what_a_killed_guard_left_changed_is_found_and_mended
a guard frozen           test_doctor.py::test_a_frozen_guard_is_ended_and_lets_go_of_the_node
an MTU lowered           test_failures.py::test_an_mtu_that_is_lowered_in_a_run_is_told_and_not_charged_to_the_device
an interface deleted     test_failures.py::test_a_traffic_interface_that_is_deleted_is_named_with_its_time
the results removed      test_failures.py::test_results_that_are_removed_in_a_run_cost_the_files_and_no_table
a control link cut       test_failures.py::test_a_cut_control_link_ends_the_sending_there_and_the_others_finish
a traffic link down      test_failures.py::test_a_link_that_goes_down_and_comes_back_is_an_outage_in_a_run_that_goes_on
a node dies whole        test_failures.py::test_a_node_that_dies_whole_costs_its_own_counts_and_nothing_else
a proxy, a login killed  test_failures.py::test_a_lost_proxy_or_login_costs_no_counts
mpiexec killed           test_launched_run.py::test_a_killed_mpiexec_costs_no_counts
mpiexec frozen           test_launched_run.py::test_a_frozen_mpiexec_costs_no_counts
rank 0 killed            test_launched_run.py::test_a_killed_rank_0_ends_the_sending_and_leaves_a_report
rank 0 frozen            test_launched_run.py::test_a_frozen_rank_0_is_noticed_and_ends_the_run
the command line frozen  test_launched_run.py::test_a_command_line_that_stood_still_goes_on
a damaged bit            test_damage.py::test_each_bit_damaged_at_random_is_one_altered_or_lost_packet
the master killed        test_launched_run.py::test_killing_the_command_line_ends_the_sending
Ctrl-C once              test_launched_run.py::test_ctrl_c_in_any_phase_leaves_nothing
Ctrl-C twice             test_launched_run.py::test_ctrl_c_twice_ends_at_once
a full disk              test_failures.py::test_a_full_disk_costs_the_capture_and_no_count
the master's disk full   test_failures.py::test_a_full_disk_of_the_master_ends_a_run_with_its_words
captures that take long  test_failures.py::test_captures_that_take_long_to_come_cost_nothing
frozen while they come   test_failures.py::test_a_node_that_freezes_while_its_capture_comes_costs_the_rest_of_it_only
a capture falls behind   test_failures.py::test_a_capture_that_falls_behind_is_counted_and_costs_no_count
an engine dies, hangs    test_failures.py::test_engines_that_hang_or_die_are_told_with_their_words
odd words of an engine   test_failures.py::test_words_that_we_do_not_understand_are_shown_and_not_guessed_at
a device that copies     test_xdp_truth.py::test_copies_swaps_and_held_frames
a device that alters     test_xdp_truth.py::test_41_damaged_payloads_are_41_altered
a switch that floods     test_failures.py::test_a_switch_that_floods_is_told_by_stream_and_nothing_of_it_is_received
UTC that is set          ../vm/test_clocks.py::test_what_stands_on_utc_is_left_out_and_everything_else_is_right
UTC of one node is set   ../unit/test_clock_faults.py::test_pktgens_times_are_of_its_nodes_utc_and_are_left_out
a clock that runs away   ../unit/test_clock_faults.py::test_a_clock_that_ran_away_costs_the_latencies_that_need_it
a second master          test_doctor.py::test_the_second_master_is_refused_until_the_first_is_killed

bench/chaos.py does all at random.
"""

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from failures import (
    control_link_cut,
    disagreements,
    disk_full,
    engines,
    everything_of_a_run,
    flooding_switch,
    inside,
    launchers,
    logins,
    packets,
    send_signal,
    shrink_disk,
    slow_control_link,
    speaks_otherwise,
    traffic_link_down,
    wait_until,
)
from pktswarm import lab
from run_cluster import PKTSWARM, STOP_S, Cluster, left_in_the_end, offloads_changed, rank_of
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
        self.until("reading the nodes' clocks")
        self.before = packets(cluster)  # behind the frames with which each node tries its interface

    def until(self, words: str) -> None:
        wait_for(self.process, words)

    def until_sent(self) -> None:
        self.until("sending")
        self.cluster.wait_until_sent()

    def end(self, status: int = 3, flooded: bool = False) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=180)
        assert self.process.returncode == status, out + err
        assert left_in_the_end(self.cluster) == []
        assert offloads_changed(self.cluster) == []
        document = dict(json.loads(out))
        assert disagreements(document, self.before, packets(self.cluster), flooded) == []
        return document


@pytest.fixture
def failing(cluster: Cluster) -> Iterator[type[Failing]]:
    made: list[Failing] = []

    class Kept(Failing):
        def __init__(self, text: str = TEXT) -> None:
            super().__init__(cluster, text)
            made.append(self)

    yield Kept
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
    assert "tx2 (transmit)" in document["reason"] and "last message" in document["reason"]


def test_a_rank_killed_after_the_sending_costs_its_counts_only(cluster: Cluster, failing: Any) -> None:
    run = failing("receive: {drain_s: 5}\n" + TEXT)
    run.until("frames in flight")
    os.kill(rank_of(cluster, "tx2"), signal.SIGKILL)
    document = run.end()
    assert whole(document, "tx1")
    sent = re.search(r"tx2 \(transmit\): .*its interface had sent (\d+) packets by its last sample", document["reason"])
    assert sent and 0 < int(sent[1]) <= 800, document["reason"]


@pytest.mark.parametrize("lost", [launchers, logins])
def test_a_lost_proxy_or_login_costs_no_counts(cluster: Cluster, failing: Any, lost: Any) -> None:
    """mpiexec ends with it, and takes all other proxies along; the ranks need none of them any more."""
    run = failing()
    run.until_sent()
    send_signal(lost(cluster, "tx2"), signal.SIGKILL)
    document = run.end(0)
    assert whole(document, "tx1") and whole(document, "tx2")


def test_a_node_that_dies_whole_costs_its_own_counts_and_nothing_else(cluster: Cluster, failing: Any) -> None:
    """As with its power: proxy, rank, guard and logins at once. What its guard leaves is the next one's to find."""
    run = failing()
    run.until_sent()
    send_signal(everything_of_a_run(cluster, "tx2"), signal.SIGKILL)
    assert wait_until(lambda: run.process.poll() is not None, 60)
    for folder in (cluster.nodes()["tx2"] / "var/tmp").glob("pktswarm-*"):
        shutil.rmtree(folder)
    document = run.end()
    assert whole(document, "tx1")
    assert "tx2 (transmit)" in document["reason"]
    (row,) = [row for row in document["rows"] if row["from"] == "tx2"]
    assert row["sent_packets"] is None and row["received_packets"] is not None


@pytest.mark.waits
def test_a_cut_control_link_ends_the_sending_there_and_the_others_finish(cluster: Cluster, failing: Any) -> None:
    run = failing(TEXT.replace("400", "200"))
    run.until_sent()
    with control_link_cut(cluster, "tx2"):
        assert wait_until(lambda: run.process.poll() is not None, 60)
        (sent,) = cluster.sent_packets("tx2")
        assert sent - run.before["tx2"][0] < 600, "it sent everything, without its master"
    document = run.end()
    assert whole(document, "tx1")
    assert "tx2 (transmit): no message for" in document["reason"]


@pytest.mark.parametrize(("node", "counter"), [("tx2", "sent_packets"), ("rx1", "received_packets")])
def test_an_mtu_that_is_lowered_in_a_run_is_told_and_not_charged_to_the_device(
    cluster: Cluster, failing: Any, node: str, counter: str
) -> None:
    run = failing(TEXT.replace("size_bytes: 128", "size_bytes: 1500"))
    run.until_sent()
    try:
        inside(cluster, node, "ip", "link", "set", "eth1", "mtu", "1300")
        assert wait_until(lambda: run.process.poll() is not None, 60)
    finally:
        inside(cluster, node, "ip", "link", "set", "eth1", "mtu", "1500")
    document = run.end(flooded=True)
    when = r"between ([\d.]+) s and ([\d.]+) s after the start \((.*?)\)"
    told = re.search(rf"(\w+) \(\w+\): the MTU of eth1 was changed from 1500 to 1300 {when}", document["reason"])
    assert told and told[1] == node and float(told[2]) < float(told[3]) < 10, document["reason"]
    assert any(row[counter] < row["intended_packets"] for row in document["rows"])
    if node == "rx1":
        assert re.search(r"rx_dropped \+[\d,]+", told[4]), told[4]


def test_a_traffic_interface_that_is_deleted_is_named_with_its_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The rank of that node goes on, and tells what was counted until then."""
    cluster = Cluster(tmp_path_factory.mktemp("deleted"), "g")
    try:
        process = cluster.start_and_send(cluster.scenario(TEXT), "--json")
        inside(cluster, "rx1", "ip", "link", "del", "eth1")
        out, err = process.communicate(timeout=120)
        assert process.returncode == 3, out + err
        document = json.loads(out)
        assert re.search(r"rx1 \(receive\): eth1 is gone since [\d.]+ s after the start", document["reason"])
        rows = [row for row in document["rows"] if row["to"] == "rx1"]
        assert all(0 < row["received_packets"] < row["sent_packets"] for row in rows), rows
        assert left_in_the_end(cluster) == []
    finally:
        lab.down(cluster.name, cluster.folder)


def test_results_that_are_removed_in_a_run_cost_the_files_and_no_table(cluster: Cluster) -> None:
    before = cluster.results()
    process = cluster.start_and_send(cluster.scenario(TEXT))
    (folder,) = set(cluster.results()) - set(before)
    while folder.exists():  # the run can write a file there while it is emptied
        shutil.rmtree(folder, ignore_errors=True)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, out + err
    assert f"{folder}: No such file or directory: the results were not written" in " ".join(out.split())
    assert "1,600" in out, "the table"
    assert "Traceback" not in err and not folder.exists()


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


@pytest.mark.parametrize("when", ["before", "while it sends"])
def test_a_full_disk_of_the_master_ends_a_run_with_its_words(cluster: Cluster, when: str) -> None:
    """At whatever it writes; the nodes are as they were."""
    lab.run_in(cluster.hosts, "m0", ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"])
    with contextlib.ExitStack() as until_the_end:
        if when == "before":
            until_the_end.enter_context(disk_full(cluster, "m0", "mnt"))
        process = cluster.start(cluster.scenario(TEXT.replace("1600", "4000")), "--results", "/mnt/results")
        if when != "before":
            wait_for(process, "sending")
            until_the_end.enter_context(disk_full(cluster, "m0", "mnt"))
        out, err = process.communicate(timeout=120)
    assert process.returncode == 3, out + err
    assert "No space left on device" in (err if when == "before" else out) and "Traceback" not in err, err
    assert left_in_the_end(cluster) == []


@pytest.mark.waits
def test_captures_that_take_long_to_come_cost_nothing(cluster: Cluster, failing: Any) -> None:
    """One after another comes to the master, and each guard waits for a word all the time."""
    run = failing("streams: [{name: s, size_bytes: 1500, rate_pps: 8000, count_packets: 16000}]")
    with slow_control_link(cluster, "rx1", "16mbit"), slow_control_link(cluster, "rx2", "16mbit"):
        document = run.end(status=0)
    assert document["reason"] == "nothing was expected" and document["doubts"] == []
    phases = {one["phase"]: one["at_ns"] for one in document["phases"]}
    assert phases["restore"] - phases["gather"] > 4e9, "the captures came too fast to show anything"
    sizes = [path.stat().st_size for path in (Path(document["results"]) / "captures").iterdir()]
    assert len(sizes) == 2 and min(sizes) > 8000 * 1496


@pytest.mark.waits
def test_a_node_that_freezes_while_its_capture_comes_costs_the_rest_of_it_only(cluster: Cluster, failing: Any) -> None:
    run = failing("streams: [{name: s, size_bytes: 1500, rate_pps: 8000, count_packets: 16000}]")
    with slow_control_link(cluster, "rx1", "16mbit"), slow_control_link(cluster, "rx2", "16mbit"):
        run.until("gathering")
        folder = cluster.results()[-1]
        captures = folder / "captures"
        assert wait_until(lambda: any(path.stat().st_size > 1e6 for path in captures.iterdir()), STOP_S)
        (come,) = (folder / "captures").iterdir()
        os.kill(rank_of(cluster, come.name[:3]), signal.SIGSTOP)
        document = run.end()
    assert whole(document, "tx1", 8000) and whole(document, "tx2", 8000)
    assert f"{come.name[:3]} (receive): no message for" in document["reason"]
    assert [doubt for doubt in document["doubts"] if f"{come.name[:3]}: {come.stat().st_size:,} of 12," in doubt]
    (other,) = [path for path in come.parent.iterdir() if path != come]
    assert other.stat().st_size > 8000 * 1496 > come.stat().st_size


def test_a_capture_that_falls_behind_is_counted_and_costs_no_count(cluster: Cluster, failing: Any) -> None:
    run = failing(
        "receive: {ring_mib: 4}\nstreams: [{name: s, size_bytes: 1500, rate_pps: 4000, count_packets: 24000}]"
    )
    run.until_sent()
    capture = engines(cluster, "rx1", "netsniff-ng")
    send_signal(capture, signal.SIGSTOP)
    time.sleep(3.0)  # its ring holds a half of that
    send_signal(capture, signal.SIGCONT)
    document = run.end()
    assert whole(document, "tx1", 12000) and whole(document, "tx2", 12000)
    told = str(document["doubts"])
    missed = re.search(r"rx1 \(receive\): the receiver itself missed (\d+) packets \(ring full\)", told)
    captured = re.search(r"rx1: the counter has 12000 packets of s, the capture (\d+)", told)
    assert missed and captured and int(captured[1]) + int(missed[1]) >= 12000, told
    assert 0 < int(captured[1]) < 12000
    behind = re.findall(r"(rx\d) \(receive\): the receiver itself missed (\d+)", told)
    assert max(behind, key=lambda one: int(one[1]))[0] == "rx1", told  # a busy machine may keep rx2 waiting too


def test_words_that_we_do_not_understand_are_shown_and_not_guessed_at(cluster: Cluster, failing: Any) -> None:
    with speaks_otherwise(cluster, "tx1", "trafgen", "packets", "frames"):
        document = failing(TEXT.replace("name: s", "name: s, engine: trafgen")).end()
    sent = {row["from"]: row["sent_packets"] for row in document["rows"]}
    assert sent == {"tx1": None, "tx2": 800} and whole(document, "tx2")
    (doubt,) = [doubt for doubt in document["doubts"] if doubt.startswith("tx1 (transmit): trafgen: ")]
    assert "without its closing figures" in doubt and "frames outgoing" in doubt


@pytest.mark.waits
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
    run = failing("samples_per_s: 10\n" + TEXT)
    run.until_sent()
    time.sleep(1.0)  # some samples before, and some meanwhile
    with traffic_link_down(cluster, "tx1"):
        time.sleep(1.0)
    document = run.end(0)
    (note,) = [note for note in document["notes"] if "was down" in note]
    begun_s, ended_s = map(float, re.findall(r"([\d.]+) s", note))
    assert note.startswith("tx1 (transmit): the link of eth1") and begun_s < ended_s
    with (Path(document["results"]) / "samples.csv").open() as file:
        downs = [int(row["link_downs"]) for row in csv.DictReader(file) if row["node"] == "tx1" and row["link_downs"]]
    assert downs[0] == 0 and downs[-1] == 1
    assert whole(document, "tx2")


def test_a_switch_that_floods_is_told_by_stream_and_nothing_of_it_is_received(cluster: Cluster, failing: Any) -> None:
    with flooding_switch(cluster):
        plain = "{name: plain, engine: trafgen, size_bytes: 256, rate_pps: 400, count_packets: 800}"
        run = failing(f"{TEXT[:-1]}, {plain}]\nexpect: {{loss: 0, sent: intended}}")
        document = run.end(0, flooded=True)
    rows = {(row["stream"], row["to"]): row for row in document["rows"]}
    other = {"rx1": "rx2", "rx2": "rx1"}
    for (stream, to), row in rows.items():
        packets = 800 if stream == "s" else 400
        assert [row[f"{name}_packets"] for name in ("sent", "received", "lost")] == [packets, packets, 0]
        # Where there is no stamp the interface tells that there was something, and not of which stream.
        assert row["misdelivered_packets"] == (800 if stream == "s" else None)
        if stream == "s":
            assert f"s: 800 packets for {to} arrived at {other[to]}" in document["notes"]
    for node in other:
        (note,) = [note for note in document["notes"] if note.startswith(f"{node} (receive): ")]
        assert "frames that arrived at eth1 belong to none of its streams" in note
        more = int(note.split()[2].replace(",", ""))
        assert 400 <= more <= 410, note  # and the announcements of the other
    again = forked.run([PKTSWARM, "recount", document["results"]])
    assert again.returncode == 0, again.stdout
