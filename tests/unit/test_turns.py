"""Short turns on a processor, as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.protocol import turns


def slice_ns() -> int:
    lines = Path(f"/proc/{os.getpid()}/sched").read_text().splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("se.slice")))


@pytest.mark.skipif(libbpf.kernel() < (6, 12), reason="Linux before 6.12 takes no length of turns")
@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel shows no turns (CONFIG_SCHED_DEBUG)")
def test_turns_are_short_within_and_the_kernels_own_behind_it() -> None:
    before = slice_ns()
    with turns.short():
        assert slice_ns() == turns.TURN_NS
    assert slice_ns() == before
