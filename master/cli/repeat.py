"""`pktswarm run --repeat N`: N equal runs, and the dispersion of their figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from pktswarm.master.cli import pages, report
from pktswarm.master.cli.cluster import kept_ranks
from pktswarm.traffic.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from pktswarm.master.live.metrics import Served
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.run.repeat import Repeated
    from pktswarm.master.run.run import Finished


def repeat(
    scenario: Path,
    hosts: Path,
    results: Path,
    patience: float,
    runs: int,
    as_json: bool,
    junit: Path | None,
    page: bool,
    served: Served | None,
    allow: Allow,
    labels: Mapping[str, str],
    wait: bool,
) -> NoReturn:
    """Run a scenario `runs` times. The caller has entered the lab, if any; the scenario is read once."""
    from pktswarm.master.live.watch import watched
    from pktswarm.master.results import terminal
    from pktswarm.master.run.repeat import Repeated
    from pktswarm.master.run.run import Run
    from pktswarm.master.scenario import scenario as scenarios

    wanted = scenarios.load(scenario)
    repeated = Repeated(results, wanted.name, runs)
    console = terminal.console(stderr=True)

    def once(folder: Path) -> Finished:
        run = Run(scenario, hosts, folder, patience, scenario=wanted, allow=allow, kept=kept, labels=labels)
        return watched(run, served)

    def report_run(finished: Finished) -> None:
        outcome, number = finished.outcome, len(repeated.finished)
        state = "incomplete: " if outcome.status == EXIT_INCOMPLETE else ""
        console.print(f"run {number} of {runs}: {state}{outcome.reason}", markup=False, highlight=False)
        report.after_run(finished, None, page)

    with kept_ranks(wait) as kept:
        repeated.run(once, report_run)
    _finish(repeated, as_json, page)
    if junit is not None:
        report.junit_of([finished.outcome.document for finished in repeated.finished], junit)
    raise typer.Exit(repeated.status)


def _finish(repeated: Repeated, as_json: bool, page: bool) -> None:
    from pktswarm.master.compare.dispersion import spread
    from pktswarm.master.compare.run_sets import side
    from pktswarm.master.compare.show import print_repeated
    from pktswarm.master.results import terminal

    figures = spread(side("A", str(repeated.path)))
    if as_json:
        print(json.dumps({"results": str(repeated.path), **repeated.document(), "figures": figures}))
    else:
        print_repeated(terminal.console(), figures, repeated.problem, repeated.path)
    if page:
        report.attempt(
            "the report", lambda: print(f"report: {pages.make('repeat', repeated.path, None)}", file=sys.stderr)
        )
