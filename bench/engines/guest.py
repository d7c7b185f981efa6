"""This sender beside the kernel's pktgen, in the virtual machine, because few kernels have pktgen at hand."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.engines import ours, peers, rates
from bench.engines.rates import say
from bench.engines.rows import Bench, against
from bench.engines.wire import BenchError
from pktswarm.lab import vm
from pktswarm.nodes.senders.pktgen import PktgenSender

LIMIT_S = 420.0
ROW = "pktgen"


def pktgen(bench: Bench) -> list[report.Row]:
    """Here if this is the machine, else by the same command inside it."""
    return measure(bench) if os.environ.get("PKTSWARM_VM") else in_the_machine(bench, ROW, LIMIT_S)


def in_the_machine(
    bench: Bench, row: str, limit_s: float, pairs: Sequence[str] = (), icount: bool = False
) -> list[report.Row]:
    """The rows of `row`, by this command in the machine. `pairs`, `icount`: as of vm.run()."""
    say(f"{row}: booting the virtual machine")
    # The machine forgets what it writes, but for the project's folder.
    with tempfile.TemporaryDirectory(dir=vm.PROJECT / "results", prefix="bench-") as folder:
        file = Path(folder) / "rows.json"
        command = ["env", f"PYTHONPATH={vm.PROJECT}", sys.executable, "-m", "bench.engines", "--row", row]
        command += ["--try"] if bench.brief else ["--rounds", str(bench.rounds)]
        command += ["--window", str(bench.window_s), "--json", str(file)]
        with contextlib.redirect_stdout(sys.stderr):  # its table is part of ours
            vm.run(command, timeout_s=limit_s, pairs=pairs, icount=icount)
        if not file.exists():
            raise BenchError("the virtual machine gave no figures")
        rows = json.loads(file.read_text())
        return [report.Row(**{name: value for name, value in row.items() if name != "holds"}) for row in rows]


def measure(bench: Bench) -> list[report.Row]:
    """60-byte frames. pktgen's thread of the sending core, to an end that only counts; ours measured besides."""
    leg = ours.udp()
    theirs = ours.sending(leg, bench.spool, peers.SENDING_CORE, PktgenSender)
    values = bench.in_turn(
        ROW,
        {
            "ours": lambda: rates.of_ours([bench.wire], leg, bench.spool, bench.window_s),
            "pktgen": lambda: rates.of_sender(bench.wire, theirs, bench.window_s),
        },
    )
    work = f"60-byte UDP in the virtual machine ({os.uname().release})"
    return [against(work, values["ours"], values["pktgen"], "pktgen", 5)]
