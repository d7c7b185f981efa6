"""`pktswarm demo`: a lab, a run in it, its captures counted again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import typer

from pktswarm.master.cli.defaults import DEFAULT_RESULTS
from pktswarm.master.cli.options import Results, examples
from pktswarm.traffic.errors import EXIT_NOT_AS_EXPECTED, PktswarmError

EXAMPLES = examples("demo")
LAB = "demo"
NEXT = """
What to try next:
  {0} lab up           a cluster that stays: 1 master, 3 transmit and 3 receive nodes
  {0} check first      what the scenario configs/first.yaml would do
  {0} run first        run it
  {0} configs first > mine.yaml; {0} run mine.yaml       after a change of its rate and sizes
  {0} lab down"""


def demo(results: Results = DEFAULT_RESULTS) -> None:
    """Start a lab of its own on this machine, run configs/demo.yaml in it, count again, and remove the lab.

    Exit status: that of the run, then that of the recount.
    """
    from pktswarm import lab
    from pktswarm.master import shipped

    state = lab.up(LAB)
    print(f"lab {LAB} is up", file=sys.stderr, flush=True)
    before = set(results.glob("*-demo*"))
    try:
        scenario = str(shipped.CONFIGS / "demo.yaml")
        status = _pktswarm("run", scenario, "--hosts", str(state.inventory), "--results", str(results))
        new = sorted(set(results.glob("*-demo*")) - before)
        if status <= EXIT_NOT_AS_EXPECTED and new:
            status = _pktswarm("recount", str(new[-1])) or status
    finally:
        lab.down(LAB)
    print(NEXT.format(Path(sys.argv[0]).name))
    raise typer.Exit(status)


def _pktswarm(*words: str) -> int:
    """Runs a command in a process of its own: a run enters the namespaces of the lab for good.

    Ctrl-C reaches that process too; SIGTERM is passed on.
    """
    process = subprocess.Popen([sys.executable, "-P", "-m", "pktswarm", *words])

    def end(*_: object) -> None:
        process.terminate()
        raise PktswarmError("terminated")

    previous = signal.signal(signal.SIGTERM, end)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
        process.wait()
