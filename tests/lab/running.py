"""A cluster that the tests of a file share, and a run of the command line that a test watches."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab


class Named(Protocol):
    """A cluster as lab.down knows it."""

    name: str
    folder: Path


_STANDING: dict[str, bool] = {}
"""Clusters whose ranks stay up between the runs → whether they are up now."""


def stand(made: Named) -> None:
    """Its ranks stay up between the runs, which saves the time of a launch for each. They end with the lab."""
    command = [PKTSWARM, "cluster", "up", "--no-preload", "--hosts", made.folder / f"lab-{made.name}.yml"]
    forked.run(command, check=True, timeout=90)
    _STANDING[made.name] = True


def stand_again(made: Named) -> None:
    """After lie_down(), before a run of its own inventory."""
    if not _STANDING.get(made.name, True):
        stand(made)


def lie_down(made: Named) -> None:
    """End ranks that stay up, before a run of another inventory wants their nodes."""
    if _STANDING.get(made.name):
        hosts = made.folder / f"lab-{made.name}.yml"
        forked.run([PKTSWARM, "cluster", "down", "--hosts", hosts], check=True, timeout=90)
        _STANDING[made.name] = False


def cluster_of(
    make: Callable[[Path], Named], scope: Literal["module", "session"] = "module", stands: bool = True
) -> Any:
    """The fixture of a file with one cluster: it comes up for the first test, and goes behind the last; of
    `session`, for the files that have no other. `stands`: see stand()."""

    @pytest.fixture(scope=scope)
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
        folder = tmp_path_factory.mktemp("cluster")
        try:
            made = make(folder)
            if stands:
                stand(made)
            yield made
        finally:
            for inventory in folder.glob("lab-*.yml"):  # also of a cluster that was not made to its end
                lab.down(inventory.stem.removeprefix("lab-"), folder)

    return cluster


def held_up(told: str) -> bool:
    """Whether a search, a benchmark or a calibration says that this machine held the sender up: it then gives no
    figure, and may be tried again."""
    return re.search(r"in [\d.]+ s instead of|was held up for", told) is not None


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Until the run says that it is in a phase."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"the run ended before {words!r}: {process.stdout.read() if process.stdout else ''}")


def qdisc_drops(pid: int, interface: str) -> int:
    """Of the one queueing discipline that an interface in the network namespace of a process has, by the kernel."""
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", *f"tc -s -json qdisc show dev {interface}".split()]
    (qdisc,) = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return int(qdisc["drops"])


def sent_packets(pid: int, interface: str = "eth1") -> int:
    """By an interface in the network namespace of a process."""
    return _counter(pid, interface, 9)


def received_packets(pid: int, interface: str = "eth1") -> int:
    return _counter(pid, interface, 1)


def _counter(pid: int, interface: str, column: int) -> int:
    shown = Path(f"/proc/{pid}/net/dev").read_text()
    return int(shown.split(f"{interface}:")[1].split()[column])


def wait_until_sent(pids: Iterable[int], packets: int = 20, interface: str = "eth1") -> None:
    """Until each has sent so many more: a run says that it is sending some time before the first frame goes."""
    wanted = {pid: sent_packets(pid, interface) + packets for pid in pids}
    deadline = time.monotonic() + 20
    while any(sent_packets(pid, interface) < count for pid, count in wanted.items()):
        assert time.monotonic() < deadline, "nothing is sent"
        time.sleep(0.02)
