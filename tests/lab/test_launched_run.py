"""Runs that launch their own ranks: MPI over SSH; Ctrl-C, deaths in every phase, and hosts that refuse."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from pktswarm.master.run.silence import LONGEST_S
from pktswarm.nodes import clones, live_frames
from run_cluster import (
    LONG,
    PKTSWARM,
    Cluster,
    assert_nothing_left,
    assert_silence,
    pids_of,
    rank_of,
)
from running import cluster_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CONFIGS = Path("configs").resolve()


cluster = cluster_of(Cluster, stands=False)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert_nothing_left(cluster)


def test_mpi_crosses_the_control_network(cluster: Cluster) -> None:
    def control_bytes() -> int:
        pid = cluster.state.keeper.pids["tx1"]
        shown = Path(f"/proc/{pid}/net/dev").read_text()
        return int(shown.split("ctl0:")[1].split()[0])

    trace_bytes = (CONFIGS / "traces" / "lab.pcapng").stat().st_size
    before = control_bytes()
    cluster.run(
        cluster.scenario(f"traces: [{{name: t, file: {CONFIGS}/traces/lab.pcapng, from: tx1, timing: top}}]"), 0
    )
    assert control_bytes() - before > trace_bytes


def test_every_rank_finalizes_before_the_launcher_ends(cluster: Cluster) -> None:
    """mpiexec prints what it ends before its time."""
    document = cluster.run(cluster.scenario("streams: [{name: s, rate_pps: 400, count_packets: 100}]"), 0)
    events = [json.loads(line) for line in (Path(document["results"]) / "log.jsonl").read_text().splitlines()]
    assert [event["output"] for event in events if event["event"] == "mpiexec"] == [""]


def test_ranks_run_unprivileged_and_only_their_guards_are_root(cluster: Cluster) -> None:
    process = cluster.start(cluster.scenario(LONG))
    wait_for(process, "sending")
    net = {Path(f"/proc/{cluster.state.keeper.pids[node]}/ns/net").stat().st_ino for node in ("m0", "tx1", "rx1")}
    started = [
        pid
        for words in ("-m pktswarm.nodes --role", "-m pktswarm.master.run.rank0")
        for ns in net
        for pid in pids_of(words, ns)
    ]
    pythons = [pid for pid in started if is_python(pid)]
    owners = {pid: Path(f"/proc/{pid}").stat().st_uid for pid in pythons}
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pythons}
    folders = [one for one in cluster.left_behind() if ":/var/tmp/pktswarm-" in one]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    unprivileged = [pid for pid, owner in owners.items() if owner != 0]
    guards = [pid for pid, owner in owners.items() if owner == 0]
    assert len(unprivileged) == 6  # rank 0 and one rank on each node, and the anchor of each
    assert len(guards) == 2 and {parents[guard] for guard in guards} < set(unprivileged)
    assert {one.split(":")[0] for one in folders} == {"tx1", "tx2", "rx1", "rx2"}, "where every test looks at its end"


def is_python(pid: int) -> bool:
    """Not the launchers that have a rank's command line among their own words."""
    return Path(f"/proc/{pid}/exe").resolve().name.startswith("python")


# --- stopping and dying -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "phase",
    [
        "waiting for the nodes",
        "arming the receivers",
        "preparing the transmitters",
        "sending",
        "gathering",
        "restoring",
    ],
)
def test_ctrl_c_in_any_phase_leaves_nothing(cluster: Cluster, phase: str) -> None:
    short = phase in ("gathering", "restoring")
    text = LONG.replace("duration_s: 20", "duration_s: 0.5") if short else LONG
    process = cluster.start(cluster.scenario(text))
    wait_for(process, phase)
    if phase == "sending":
        cluster.wait_until_sent()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=40)
    # Too late to stop anything: then it is an ordinary end.
    assert process.returncode == 3 or (short and process.returncode == 0)
    if phase == "sending":
        assert "stopped by the user" in out
        folder = cluster.results()[-1]
        rows = list(csv.DictReader((folder / "streams.csv").open()))
        assert all(int(row["sent_packets"]) == int(row["received_packets"]) > 0 for row in rows)


def test_ctrl_c_before_the_start_instant_counts_nothing_sent(cluster: Cluster) -> None:
    process = cluster.start(cluster.scenario(LONG), "--json")
    wait_for(process, "sending")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=40)
    document = json.loads(out)
    assert process.returncode == 3 and document["reason"] == "stopped by the user"
    assert all(row["sent_packets"] == row["received_packets"] for row in document["rows"])


def test_ctrl_c_twice_ends_at_once(cluster: Cluster) -> None:
    process = cluster.start(cluster.scenario(LONG))
    wait_for(process, "sending")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 3


def page_of(folder: Path) -> str:
    """What `pktswarm report` makes of it."""
    forked.run([PKTSWARM, "report", folder], check=True)
    return (folder / "report.html").read_text()


def pid_on_master(cluster: Cluster, words: str, program: str) -> int:
    """mpiexec and its proxy have the ranks' commands in their own."""
    pids = pids_of(words, Path(f"/proc/{cluster.state.keeper.pids['m0']}/ns/net").stat().st_ino)
    (pid,) = (pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith(program))
    return pid


def rank_0_of(cluster: Cluster) -> int:
    return rank_of(cluster, "m0", "-m pktswarm.master.run.rank0")


def test_a_killed_mpiexec_costs_no_counts(cluster: Cluster) -> None:
    """It takes all of its proxies along, and those what they started; the ranks are not among that."""
    text = "streams: [{name: s, rate_pps: 400, count_packets: 1200}]"
    process = cluster.start_and_send(cluster.scenario(text), "--json")
    os.kill(pid_on_master(cluster, "mpiexec -launcher", "mpiexec"), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["totals"][-1]["received_packets"] == 1200
    assert "mpiexec ended in phase 'send'; the ranks went on without it" in document["notes"]


def test_a_killed_rank_0_ends_the_sending_and_leaves_a_report(cluster: Cluster) -> None:
    process = cluster.start_and_send(cluster.scenario(LONG))
    os.kill(rank_0_of(cluster), signal.SIGKILL)
    assert_silence(cluster)
    process.communicate(timeout=60)
    assert process.returncode == 3
    document = json.loads((cluster.results()[-1] / "run.json").read_text())
    assert document["status"] == 3 and "rank 0 was lost in phase 'send'" in document["reason"]
    assert all(row["sent_packets"] is None for row in document["rows"]), "never a guessed count"
    assert "rank 0 was lost" in page_of(cluster.results()[-1])


def test_a_frozen_rank_0_is_noticed_and_ends_the_run(cluster: Cluster) -> None:
    """Its connection stays open. What came until then is in the report, and the frozen process is gone."""
    process = cluster.start_and_send(cluster.scenario(LONG))
    rank0 = rank_0_of(cluster)
    os.kill(rank0, signal.SIGSTOP)
    began = time.monotonic()
    assert_silence(cluster)
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert time.monotonic() - began < 30, "a hang, which is what this is about"
    document = json.loads((cluster.results()[-1] / "run.json").read_text())
    assert "rank 0 is frozen in phase 'send': no report for " in document["reason"]
    assert all(row["sent_packets"] is None for row in document["rows"]), "never a guessed count"
    assert not Path(f"/proc/{rank0}").exists()


def test_a_frozen_mpiexec_costs_no_counts(cluster: Cluster) -> None:
    """The ranks need it only to come up; at the end it is killed."""
    text = "streams: [{name: s, rate_pps: 400, count_packets: 1200}]"
    process = cluster.start_and_send(cluster.scenario(text), "--json")
    mpiexec = pid_on_master(cluster, "mpiexec -launcher", "mpiexec")
    os.kill(mpiexec, signal.SIGSTOP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["totals"][-1]["received_packets"] == 1200
    assert not Path(f"/proc/{mpiexec}").exists()


def test_a_command_line_that_stood_still_goes_on(cluster: Cluster) -> None:
    """Longer than it waits for rank 0: that was not silent, only not listened to."""
    text = "streams: [{name: s, rate_pps: 400, count_packets: 3200}]"
    process = cluster.start_and_send(cluster.scenario(text), "--json")
    process.send_signal(signal.SIGSTOP)
    time.sleep(LONGEST_S + 1)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["totals"][-1]["received_packets"] == 3200


def test_killing_the_command_line_ends_the_sending(cluster: Cluster) -> None:
    process = cluster.start(cluster.scenario(LONG))
    wait_for(process, "sending")
    process.kill()
    assert_silence(cluster)
    process.communicate(timeout=60)
    assert "the run did not come to its end" in page_of(cluster.results()[-1])


def test_a_killed_rank_costs_its_own_counts_and_nothing_else(cluster: Cluster) -> None:
    text = "streams: [{name: s, rate_pps: 400, count_packets: 1200}]"
    process = cluster.start(cluster.scenario(text), "--json")
    wait_for(process, "sending")
    os.kill(rank_of(cluster, "tx2"), signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3, out
    document = json.loads(out)
    rows = {row["from"]: row for row in document["rows"]}
    assert rows["tx1"]["sent_packets"] == rows["tx1"]["received_packets"] == rows["tx1"]["intended_packets"] == 600
    assert rows["tx2"]["sent_packets"] is None
    assert "tx2 (transmit)" in document["reason"]


def test_a_frozen_rank_stops_sending_by_itself_and_the_others_finish(cluster: Cluster) -> None:
    """Its guard ends it too: see nothing_left."""
    text = "streams: [{name: s, rate_pps: 200, count_packets: 1200}]"
    (before,) = cluster.sent_packets("tx2")
    process = cluster.start_and_send(cluster.scenario(text), "--json")
    os.kill(rank_of(cluster, "tx2"), signal.SIGSTOP)
    out, _ = process.communicate(timeout=60)
    (sent,) = cluster.sent_packets("tx2")
    assert sent - before < 500, "it sent everything, without its master"
    assert process.returncode == 3, out
    document = json.loads(out)
    rows = {row["from"]: row for row in document["rows"]}
    assert rows["tx1"]["sent_packets"] == rows["tx1"]["received_packets"] == rows["tx1"]["intended_packets"] == 600
    assert rows["tx2"]["sent_packets"] is None
    assert "tx2 (transmit): no message for" in document["reason"] and "its interface had sent" in document["reason"]


# --- bad input that only the hosts can tell -----------------------------------------------------------------------


def refused(cluster: Cluster, change: Any, *words: str, text: str = LONG) -> None:
    """Exit status 2, one message with `words`, no results folder, nothing sent."""
    before, [sent] = cluster.results(), cluster.sent_packets("tx1")
    error = cluster.run(cluster.scenario(text), 2, cluster.inventory(change))["error"]
    for word in words:
        assert word in error
    assert cluster.results() == before
    # The interface announces itself, which shows whether live frames and clones leave it.
    assert cluster.sent_packets("tx1")[0] - sent in (0, live_frames.TRIES + clones.TRIES)


def test_a_host_that_does_not_answer_is_named(cluster: Cluster) -> None:
    def change(everything: dict[str, Any]) -> None:
        everything["children"]["transmit"]["hosts"]["tx2"]["ansible_host"] = "10.91.255.254"

    refused(cluster, change, "tx2", "10.91.255.254", "SSH")


def test_a_host_without_sshd_is_named(cluster: Cluster) -> None:
    def change(everything: dict[str, Any]) -> None:
        # The receivers' own switch has no sshd: an address that answers with a refusal.
        everything["children"]["receive"]["hosts"]["rx2"]["ansible_host"] = "127.0.0.7"

    refused(cluster, change, "rx2", "127.0.0.7")


def with_ssh(cluster: Cluster, keyword: str, value: Path) -> Any:
    """A change of the inventory: the lab's SSH settings, with one of them replaced."""

    def change(everything: dict[str, Any]) -> None:
        hosts = f"pathlib.Path({str(cluster.hosts)!r})"
        enter = f"from pktswarm import lab; import sys, pathlib; sys.exit(lab.run_in({hosts}, 'm0', sys.argv[1:]))"
        command = [sys.executable, "-P", "-c", enter, "cat", "/run/pktswarm-lab/ssh_config"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [line for line in shown.stdout.splitlines() if keyword not in line]
        config = cluster.folder / "ssh_config"
        config.write_text("\n".join([*lines, f"  {keyword} {value}"]) + "\n")
        everything["vars"]["pktswarm_ssh_config"] = str(config)

    return change


def test_a_refused_key_is_named(cluster: Cluster) -> None:
    key = cluster.folder / "unmatched"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    refused(cluster, with_ssh(cluster, "IdentityFile", key), "tx1", "refuses the key")


def test_a_wrong_host_key_is_named(cluster: Cluster) -> None:
    nobody = cluster.folder / "known_hosts"
    nobody.write_text("")
    refused(cluster, with_ssh(cluster, "UserKnownHostsFile", nobody), "tx1", "host key")


def test_an_unknown_interface_is_named(cluster: Cluster) -> None:
    def change(everything: dict[str, Any]) -> None:
        everything["children"]["receive"]["hosts"]["rx2"]["traffic_interface"] = "eth7"

    refused(cluster, change, "rx2", "eth7", "no interface of this name")


def test_an_engine_that_the_host_lacks_is_named(cluster: Cluster) -> None:
    if Path("/proc/net/pktgen").exists() or list(Path("/lib/modules").glob(f"{os.uname().release}/**/pktgen.ko*")):
        pytest.skip("this kernel has pktgen, so no engine is missing here")
    refused(
        cluster, lambda everything: None, "tx1", "pktgen", text=LONG.replace("name: long", "name: long, engine: pktgen")
    )


def test_a_frame_longer_than_the_mtu_is_named(cluster: Cluster) -> None:
    text = LONG.replace("size_bytes: 128", "size_bytes: 1600")
    refused(cluster, lambda everything: None, "tx1", "eth1", "1600", "1518", text=text)


def test_a_filter_that_is_none_is_named(cluster: Cluster) -> None:
    refused(
        cluster,
        lambda everything: None,
        "eth1",
        "filter = 'udp port port'",
        "pcap-filter",
        text=LONG + "\nreceive: {filter: udp port port}",
    )


def test_an_interface_under_the_control_network_is_refused(cluster: Cluster) -> None:
    def change(everything: dict[str, Any]) -> None:
        everything["children"]["transmit"]["hosts"]["tx1"]["traffic_interface"] = "ctl0"

    refused(cluster, change, "tx1", "ctl0", "control")
