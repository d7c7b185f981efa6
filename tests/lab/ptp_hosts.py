"""ptp4l on two nodes of a lab, the first as grandmaster."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator

from pktswarm.lab.plan import CONTROL_INTERFACE

LIMIT_S = 1800
"""Hard stop of a ptp4l that nobody ends; longer than a run in the virtual machine."""


def enter(pid: int, *words: str) -> list[str]:
    """In the network of a node, and with its own /run."""
    return ["nsenter", f"--target={pid}", "--net", "--mount", *words]


@contextlib.contextmanager
def ptp4l(pids: list[int], state: str, *options: str, within_s: float = 30) -> Iterator[None]:
    """`pids`: of two nodes. `state`: that the port of the second reaches."""
    quick = ["--logAnnounceInterval=-2", "--logSyncInterval=-3", "--logMinDelayReqInterval=-3"]
    command = ["timeout", "--signal=KILL", str(LIMIT_S), "ptp4l", "-i", CONTROL_INTERFACE, "-S", "-m", *quick, *options]
    with contextlib.ExitStack() as ends:
        for pid, role in zip(pids, ("--priority1=1", "--slaveOnly=1"), strict=True):
            process = subprocess.Popen(enter(pid, *command, role), stdout=subprocess.PIPE, text=True)
            ends.callback(process.communicate)
            ends.callback(process.terminate)
        deadline = time.monotonic() + within_s
        while f"portState               {state}\n" not in shown(pids[1]):
            assert time.monotonic() < deadline, f"the port is not {state}: {shown(pids[1])}"
            time.sleep(0.2)
        yield


def shown(pid: int) -> str:
    command = enter(pid, "pmc", "-u", "-b", "0", "GET PORT_PROPERTIES_NP")
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
