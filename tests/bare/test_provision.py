"""From bare nodes to a run, and back. It needs a package mirror and minutes: `./bootstrap test --bare`."""

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

from pktswarm import lab

NAME = "bare-test"
SUITE = "bookworm"
PKTSWARM = [str(Path(sys.executable).with_name("pktswarm"))]
INTO_S = 2.0
"""How far into a task it is interrupted."""
SHOW_FILES = (
    # What a package manager and Python keep for themselves is neither a package nor a setting.
    "find / -xdev -type f -not -path '/proc/*' -not -path '/run/*' -not -path '/tmp/*' -not -path '/sys/*'"
    " -not -path '/var/lib/apt/*' -not -path '/var/cache/*' -not -path '/var/log/*' -not -path '/var/lib/dpkg/*'"
    " -not -name '*.pyc' -printf '%p %m %u %g\\n' | sort"
)
SHOW_ACCOUNTS = "cat /etc/passwd /etc/group /etc/shadow"
SHOW_PACKAGES = "dpkg-query --show"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Path]:
    """In the house's own folder: the runs are told of it as a user would."""
    folder = Path("hosts")
    state = lab.up(NAME, 1, 1, folder, bare=SUITE)
    try:
        yield state.inventory
    finally:
        lab.down(NAME, folder)


def pktswarm(*words: str, status: int = 0) -> str:
    done = subprocess.run([*PKTSWARM, *words], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == status, done.stderr[-4000:] + done.stdout[-4000:]
    return done.stdout


def on_node(command: str, node: str = "tx1") -> list[str]:
    return pktswarm("lab", "exec", "--name", NAME, node, "--", "sh", "-c", command).splitlines()


def provision(hosts: Path, *words: str) -> dict[str, dict[str, Any]]:
    told = json.loads(pktswarm("provision", "--hosts", str(hosts), "--json", *words))
    assert told["failed"] == []
    return {one["host"]: one for one in told["hosts"]}


def interrupted(hosts: Path, *words: str, task: str, by: signal.Signals, into_s: float = INTO_S) -> None:
    """Provisioning that ends in the middle of `task`: by Ctrl-C, or with all of Ansible killed."""
    command = [*PKTSWARM, "provision", "--hosts", str(hosts), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if line.startswith("TASK [") and task in line:
                break
        else:
            pytest.fail(f"it ended before {task!r}:\n{told[-4000:]}")
        time.sleep(into_s)
        if by == signal.SIGKILL:
            ansible = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if not ansible:  # the call before had come so far that little was left
                assert process.wait(60) == 0
                return
            os.killpg(int(ansible[0]), by)
        else:
            process.send_signal(by)
        process.stderr.read()
        assert process.wait(60) == 3


def state() -> dict[str, list[str]]:
    return {show: on_node(show) for show in (SHOW_FILES, SHOW_ACCOUNTS, SHOW_PACKAGES)}


@pytest.mark.parametrize(
    ("task", "by"),
    [
        ("Install Python, which Ansible requires", signal.SIGKILL),
        ("Install with apt", signal.SIGKILL),
        ("Install the lock file's packages", signal.SIGINT),
    ],
)
def test_provisioning_that_was_interrupted_is_taken_back(hosts: Path, task: str, by: signal.Signals) -> None:
    before = state()
    interrupted(hosts, task=task, by=by)
    provision(hosts, "--undo")
    assert state() == before


def test_bare_nodes_become_nodes_take_part_in_a_run_and_are_given_back(hosts: Path, tmp_path: Path) -> None:
    on_node("ethtool -K eth1 gro on 2>/dev/null; command -v python3 && exit 1; true")
    before = state()

    first = provision(hosts)
    assert set(first) == {"tx1", "rx1"} and all(one["changed"] > 5 for one in first.values())
    second = provision(hosts)
    assert all(one["changed"] == 0 for one in second.values()), second

    pktswarm("run", "configs/first.yaml", "--hosts", str(hosts), "--results", str(tmp_path), "--no-report")
    (streams,) = tmp_path.glob("*/streams.csv")
    assert streams.read_text().count("\n") >= 2

    # What was set for good is set: the interface merges nothing, though it did.
    on_node("ethtool -K eth1 gro on")
    assert provision(hosts)["tx1"]["changed"] == 1
    assert "generic-receive-offload: off" in on_node("ethtool -k eth1")

    # Each goes on where the one before ended; and one that was given up for good is no reason not to begin anew.
    interrupted(hosts, "--undo", task="Remove the account", by=signal.SIGKILL)
    interrupted(hosts, task="Create the account's home", by=signal.SIGINT)
    interrupted(hosts, "--undo", task="Remove files and folders", by=signal.SIGINT, into_s=0.5)
    interrupted(hosts, "--undo", task="Remove the added packages", by=signal.SIGKILL, into_s=0.5)
    provision(hosts, "--undo")
    assert state() == before
    assert all(one["changed"] == 0 for one in provision(hosts, "--undo").values())
