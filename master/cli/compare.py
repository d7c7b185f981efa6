"""`pktswarm compare`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.defaults import DEFAULT_RESULTS
from pktswarm.master.cli.options import Json, Results, examples

EXAMPLES = examples(
    "compare results/20260101T120000Z-demo-repeat results/20260102T120000Z-demo-repeat",
    "compare before1,before2 after1,after2 --fail-on-worse",
)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B…",
            help="Results folders, each of a run, a repeated run, a search or of another command; join several folders "
            "of one side by commas: A1,A2.",
            show_default=False,
            autocompletion=complete.results,
        ),
    ],
    results: Results = DEFAULT_RESULTS,
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit with status 1 if a figure is worse by more than the noise.")
    ] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Figure that decides --fail-on-worse, with its key in expect: loss, altered, latency_p99_us, …; "
            "repeatable; default: all.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the figures of runs, or of two searches, calibrations, …, and report which differences exceed the noise.

    The noise is measured from repeated runs (`run --repeat`). Exit status: 0 compared; 1 worse, with --fail-on-worse;
    2 bad input.
    """
    from pktswarm.master.compare import storage
    from pktswarm.master.compare.comparison import Comparison
    from pktswarm.master.compare.kinds import figures_of
    from pktswarm.master.compare.run_sets import sides as read
    from pktswarm.master.compare.show import print_comparison
    from pktswarm.master.results import terminal

    first, *others = read(sides)
    deciding = figures_of(first.kind, figure or [], fail_on_worse)
    comparison = Comparison(first, others)
    if fail_on_worse:
        comparison.check_noise()
    folder, status = storage.keep(comparison, results), comparison.status(fail_on_worse, deciding)
    if as_json:
        print(json.dumps({"results": str(folder), "status": status, **comparison.document()}))
    else:
        print_comparison(terminal.console(), comparison, folder)
    raise typer.Exit(status)
