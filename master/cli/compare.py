"""`pktswarm compare A B…`: runs side by side, and whether they differ by more than noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = (
    "Examples: pktswarm compare results/20260101T120000Z-demo-repeat results/20260102T120000Z-demo-repeat · "
    "pktswarm compare before1,before2 after1,after2 --fail-on-worse"
)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B…",
            help="Results folders: of a run, or of one that was repeated; several as one side with commas: A1,A2",
            show_default=False,
        ),
    ],
    results: Annotated[Path, typer.Option(help="Where the folder of the comparison is made.")] = Path("results"),
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit status 1 where a figure is worse by more than the noise.")
    ] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Only these decide --fail-on-worse: loss, altered, latency_p99_us, … as in expect; may come again.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Runs side by side: each figure of A beside the others', the difference, and whether it is larger than the noise.

    How large the noise is, runs that were repeated tell (`run --repeat`). Exit status: 0 compared, 1 worse (with
    --fail-on-worse), 2 bad input.
    """
    from pktswarm.master.compare import storage
    from pktswarm.master.compare.comparison import Comparison
    from pktswarm.master.compare.figures import figures_of
    from pktswarm.master.compare.run_sets import sides as read
    from pktswarm.master.compare.show import print_comparison
    from pktswarm.master.results import terminal

    deciding = figures_of(figure or [], fail_on_worse)
    first, *others = read(sides)
    comparison = Comparison(first, others)
    if fail_on_worse:
        comparison.check_noise()
    folder, status = storage.keep(comparison, results), comparison.status(fail_on_worse, deciding)
    if as_json:
        print(json.dumps({"results": str(folder), "status": status, **comparison.document()}))
    else:
        print_comparison(terminal.console(), comparison, folder)
    raise typer.Exit(status)
