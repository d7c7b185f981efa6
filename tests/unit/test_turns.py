"""Short turns on a processor, as the kernel shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.protocol import turns

SHOWN = """
import os
from pathlib import Path
from pktswarm.traffic.protocol import turns

def slice_ns():
    lines = Path("/proc/self/sched").read_text().splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("se.slice")))

os.sched_setscheduler(0, os.{policy}, os.sched_param(0))
print(slice_ns())
with turns.short():
    print(slice_ns(), os.sched_getscheduler(0) == os.{policy}, os.getpriority(os.PRIO_PROCESS, 0))
print(slice_ns())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, where the tests run at another priority")
@pytest.mark.skipif(libbpf.kernel() < (6, 12), reason="Linux before 6.12 takes no length of turns")
@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel shows no turns (CONFIG_SCHED_DEBUG)")
@pytest.mark.parametrize("policy", ["SCHED_OTHER", "SCHED_BATCH"])
def test_turns_are_short_within_and_the_kernels_own_behind_it(policy: str) -> None:
    command = ["nice", "-n", "3", sys.executable, "-c", SHOWN.format(policy=policy)]
    before, within, behind = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert within == f"{turns.TURN_NS} True {os.getpriority(os.PRIO_PROCESS, 0) + 3}"
    assert behind == before != str(turns.TURN_NS)
