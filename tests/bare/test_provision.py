"""From bare nodes to a run, and back. It needs a package mirror and minutes: `./bootstrap test --bare`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab

NAME = "bare-test"
SUITE = "bookworm"
PKTSWARM = [str(Path(sys.executable).with_name("pktswarm"))]
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


def test_bare_nodes_become_nodes_take_part_in_a_run_and_are_given_back(hosts: Path, tmp_path: Path) -> None:
    on_node("ethtool -K eth1 gro on 2>/dev/null; command -v python3 && exit 1; true")
    before = {show: on_node(show) for show in (SHOW_FILES, SHOW_ACCOUNTS, SHOW_PACKAGES)}

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

    provision(hosts, "--undo")
    assert {show: on_node(show) for show in before} == before
    assert all(one["changed"] == 0 for one in provision(hosts, "--undo").values())
