"""Follows a run on the terminal, and in its folder for `pktswarm status`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape

from pktswarm.master.live import phases, view
from pktswarm.master.live.document import LiveDocument
from pktswarm.master.live.figures import Figures
from pktswarm.master.live.job import JobProgress, no_job
from pktswarm.master.results import terminal
from pktswarm.master.results.ledger import Ledger, Shown
from pktswarm.traffic.protocol.rank0_events import Phase

if TYPE_CHECKING:
    from pktswarm.master.live.metrics import Served
    from pktswarm.master.run.run import Finished, Run

LINE_EVERY_S = 5.0


class Watch:
    """Observer for Run.execute.

    `console`: standard error, as standard output has the table or JSON; without a terminal it gets a line every
    LINE_EVERY_S. `tables`: show streams and nodes, not the progress alone. `job`: returns what the run is part of.
    """

    def __init__(
        self, console: Console, run: Run, tables: bool = True, job: Callable[[], JobProgress | None] = no_job
    ) -> None:
        self.console, self.run, self.tables = console, run, tables
        self.figures = Figures(run.scenario.name, run.plan.expected_s, job)
        self.document: LiveDocument = self.figures.document(run.ledger)
        """The newest document; replaced, never changed, so another thread may read it."""
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next_line = 0.0
        self._warned = 0

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._print_warnings()

    def __call__(self, ledger: Ledger, event: Shown) -> None:
        self.figures.take(ledger, event)
        phase = event.name if isinstance(event, Phase) else ""
        if phase and self._live is None:
            self._print_phase(phase)
        if self.figures.due() or phase:
            self._update(ledger)

    def _update(self, ledger: Ledger) -> None:
        self.document = self.figures.document(ledger)
        if self.run.folder is not None:
            self.run.folder.write_status(self.document)
        if self._live is not None:
            self._live.update(self._screen(), refresh=True)
            return
        self._print_warnings()
        if (self.figures.phase == "send" or self.figures.sessions) and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self.console.print(view.line(self.document), markup=False, highlight=False, soft_wrap=True)

    def _screen(self) -> RenderableType:
        if not self.tables:
            return view.progress(self.document)
        return view.screen(self.document, *self.console.size)

    def _print_phase(self, name: str) -> None:
        if not self.console.quiet:  # rich itself takes a millisecond for each, and most come before the first packet
            print(phases.describe(name) + (" …" if name != "over" else ""), file=self.console.file, flush=True)
        if name == "send" or "sessions" in name:
            self._next_line = time.monotonic() + LINE_EVERY_S

    def _print_warnings(self) -> None:
        """Prints each warning once; on a terminal at the end, as its screen shows them until then."""
        warnings = self.document["warnings"]
        for warning in warnings[self._warned :]:
            self.console.print(f"[yellow]{escape(warning['text'])}[/]", soft_wrap=True)
        self._warned = len(warnings)


def watched(run: Run, served: Served | None) -> Finished:
    """Executes the run with the live view on standard error, and serves its metrics."""
    console = terminal.console(stderr=True)
    terminal.print_warnings(console, run.plan.warnings)
    with Watch(console, run) as watch:
        if served is not None and served.start(lambda: watch.document):
            console.print(f"metrics: {served.url}", highlight=False)
        return run.execute(watch)
