"""A lab for whole runs: how it is run from outside, watched, hurt, and what is left in it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import forked
from forked import PKTSWARM as PKTSWARM
from pktswarm import lab
from pktswarm.master.results.read_document import read_run
from running import lie_down, sent_packets, stand_again, wait_for, wait_until_sent

LONG = "streams: [{name: long, size_bytes: 128, rate_pps: 400, duration_s: 20}]"
SILENT_S = 10.0
TRANSMITTERS = ("tx1", "tx2")
STANDING = (":cluster", "--standby", "cluster_daemon", "hydra_pmi_proxy", "sshd: ", "ssh -F")
"""Words of the processes of ranks that stay up."""
STOP_S = 30.0
"""How long a node may take to be as it was: 2 s after its master is gone, then the steps of stopping; on a busy machine
each of them is late, and behind a link that was cut sshd's end waits for TCP's next try."""


def out_of_a_run(out: str) -> str:
    """The outcome in few lines: a whole document hides why a test failed."""
    try:
        document = json.loads(out)
    except ValueError:
        return out
    kept = {key: document.get(key) for key in ("status", "reason", "verdicts", "doubts", "notes", "played", "results")}
    rows = [
        {key: value for key, value in row.items() if value and "packets" in key} for row in document.get("rows", [])
    ]
    return "\n".join(f"{key}: {value}" for key, value in {**kept, "rows": rows}.items())


class Cluster:
    """A lab of two transmitters and two receivers, and how it is run from outside."""

    def __init__(self, folder: Path, letter: str = "r", **more: Any) -> None:
        self.folder = folder
        self.name = f"{letter}{os.getpid()}"
        self.state = lab.up(self.name, 2, 2, folder, **more)
        self.hosts = self.state.inventory
        for node in self.nodes():
            # Its guards' folders, apart from those of others on this machine.
            assert lab.run_in(self.hosts, node, ["mount", "-t", "tmpfs", "tmpfs", "/var/tmp"]) == 0

    def nodes(self) -> dict[str, Path]:
        """Of each node that is on its processes' view of the file system."""
        named = {node.name for node in self.state.plan.nodes}
        roots = {name: Path(f"/proc/{pid}/root") for name, pid in self.state.keeper.pids.items() if name in named}
        return {name: root for name, root in roots.items() if root.exists()}

    def scenario(self, text: str) -> Path:
        path = self.folder / "scenario.yaml"
        path.write_text(f"name: test\n{text}\n")
        return path

    def start(self, scenario: Path, *options: str, hosts: Path | None = None) -> subprocess.Popen[str]:
        if hosts in (None, self.hosts):
            stand_again(self)
        else:
            lie_down(self)
        command = [PKTSWARM, "run", scenario, "--hosts", hosts or self.hosts, "--results", self.folder / "results"]
        return forked.popen([*command, "--no-report", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def sent_packets(self, *nodes: str) -> list[int]:
        return [sent_packets(self.state.keeper.pids[node]) for node in nodes or TRANSMITTERS]

    def start_and_send(self, scenario: Path, *options: str) -> subprocess.Popen[str]:
        """A run, once frames leave both transmitters."""
        process = self.start(scenario, *options)
        wait_for(process, "sending")
        self.wait_until_sent()
        return process

    def wait_until_sent(self) -> None:
        wait_until_sent(self.state.keeper.pids[node] for node in TRANSMITTERS)

    def run(self, scenario: Path, status: int, hosts: Path | None = None, *options: str) -> dict[str, Any]:
        process = self.start(scenario, "--json", *options, hosts=hosts)
        out, err = process.communicate(timeout=90)
        assert process.returncode == status, (
            f"{err}{out_of_a_run(out)}\nstatus {process.returncode} in place of {status}"
        )
        if not out:
            return {"error": err.strip().splitlines()[-1]}
        document = dict(json.loads(out))
        if "rows" in document:
            read_run(Path(document["results"]))  # BadInput: run.json does not fit its types
        return document

    def inventory(self, change: Any) -> Path:
        """The lab's inventory, changed."""
        document = yaml.safe_load(self.hosts.read_text())
        change(document["all"])
        path = self.folder / "changed.yml"
        path.write_text(yaml.safe_dump(document))
        return path

    def left_behind(self) -> list[str]:
        """Processes in the lab beyond its own and those of ranks that stay up, and what is in its nodes' /var/tmp."""
        alive = [self.state.keeper.pids[name] for name in ("switch", *self.nodes())]
        namespaces = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in alive}
        left = self.in_var_tmp()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                left += _foreign(entry, namespaces)
        stands = any("cluster_daemon" in one for one in left)
        return [one for one in left if not (stands and any(words in one for words in STANDING))]

    def in_var_tmp(self) -> list[str]:
        """Folders of guards."""
        return [
            f"{name}:/var/tmp/{path.name}" for name, root in self.nodes().items() for path in root.glob("var/tmp/*")
        ]

    def results(self) -> list[Path]:
        return sorted((self.folder / "results").glob("*"))


def _foreign(entry: Path, namespaces: set[int]) -> list[str]:
    try:
        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        inside = (entry / "ns/net").stat().st_ino in namespaces
    except OSError:
        return []
    ours = (
        not words
        or "pktswarm.lab.keeper" in words
        or words.startswith("pktswarm-lab")
        or "sshd: /usr/sbin/sshd -D" in words
    )
    return [f"{entry.name} {words}"] if inside and not ours else []


def offloads_changed(cluster: Cluster) -> list[str]:
    """Of a node; a receiver that left GRO changed would show.

    With switches in XDP the lab has it on, limited so that it merges nothing.
    """
    shown = subprocess.run(
        ["nsenter", f"--net=/proc/{cluster.state.keeper.pids['rx1']}/ns/net", "ethtool", "-k", "eth1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    own = "on" if cluster.state.plan.switch == "xdp" else "off"
    gro = [line for line in shown.splitlines() if line.startswith("generic-receive-offload:")]
    return [line for line in gro if line != f"generic-receive-offload: {own}"]


def assert_nothing_left(cluster: Cluster) -> None:
    """The lab is as it was before its first run."""
    assert left_in_the_end(cluster) == []
    assert offloads_changed(cluster) == []


def pids_of(words: str, inside: int | None = None) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode() if entry.name.isdigit() else ""
            if words in command and (inside is None or (entry / "ns/net").stat().st_ino == inside):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def network_of(cluster: Cluster, node: str) -> int:
    return Path(f"/proc/{cluster.state.keeper.pids[node]}/ns/net").stat().st_ino


def rank_of(cluster: Cluster, node: str, words: str = "-m pktswarm.nodes --role ") -> int:
    """The rank of a node. Its guard looks the same but runs as root; its anchor is its parent."""
    pids = [pid for pid in pids_of(words, network_of(cluster, node)) if Path(f"/proc/{pid}").stat().st_uid != 0]
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pids}
    (rank,) = (pid for pid in pids if pid not in parents)
    return rank


def assert_silence(cluster: Cluster) -> None:
    """The counters of both transmitters stand still long before LONG is over: 2 s after the last word."""
    now, deadline = cluster.sent_packets(), time.monotonic() + SILENT_S
    while True:
        before = now
        time.sleep(0.5)
        if (now := cluster.sent_packets()) == before:
            return
        assert time.monotonic() < deadline, f"they send without their master: {before}, then {now}"


def guard_of(rank: int) -> int:
    (guard,) = (pid for pid in pids_of("-m pktswarm.nodes --role ") if _is_child(pid, rank))
    return guard


def _is_child(pid: int, parent: int) -> bool:
    try:
        return parent_of(pid) == parent
    except (FileNotFoundError, ProcessLookupError):  # of another test on this machine: it ended since it was listed
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def left_in_the_end(cluster: Cluster) -> list[str]:
    """What is still left behind after STOP_S."""
    deadline = time.monotonic() + STOP_S
    while (left := cluster.left_behind()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STOP_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
