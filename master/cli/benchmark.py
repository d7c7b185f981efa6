"""What the commands that make many trials do alike: a line for each trial, a document, its page, an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from pktswarm.master.cli.report import attempt

if TYPE_CHECKING:
    from rich.console import Console

    from pktswarm.master.benchmark.attempts import Procedure

    One = TypeVar("One", bound=Procedure[Any, Any])


def telling(console: Console, line: Callable[[One], str], keep: Callable[[One], object]) -> Callable[[One], None]:
    """To be called behind each trial: prints the line of a new one, and keeps all that is known."""
    printed = 0

    def tell(procedure: One) -> None:
        nonlocal printed
        if len(procedure.trials) > printed:
            printed = len(procedure.trials)
            console.print(line(procedure), markup=False, highlight=False)
        keep(procedure)

    return tell


def finish(
    folder: Path,
    document: dict[str, Any],
    as_json: bool,
    print_found: Callable[[Console, dict[str, Any], Path], None],
    make_page: Callable[[Path, dict[str, Any]], Path],
) -> NoReturn:
    """Of any benchmark that keeps a document. A page that cannot be made leaves the results and the exit status."""
    from pktswarm.master.results import terminal

    if as_json:
        print(json.dumps({"results": str(folder), **document}))
    else:
        print_found(terminal.console(), document, folder)
    attempt("the report", lambda: print(f"report: {make_page(folder, document)}", file=sys.stderr))
    raise typer.Exit(document["status"])
