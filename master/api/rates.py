"""Changes of streams by a program while its run goes on: passed on to the run, answered when the nodes made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pktswarm.master.api import errors
from pktswarm.master.api.orders import RateAnswer, RateOrder, SetRate
from pktswarm.traffic.errors import PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.results.ledger import Shown
    from pktswarm.master.run.run import Run
    from pktswarm.traffic.protocol import rank0_orders


class RateChanges:
    """One is under way at a time: the program waits for its answer."""

    def __init__(self, run: Run, report: Callable[[RateAnswer], None]) -> None:
        self._run, self._report = run, report
        self._legs: set[int] = set()
        """Those whose nodes have not answered yet."""

    def begin(self, order: RateOrder) -> None:
        try:
            self._legs = self._run.set_rates(self._orders(order))
        except PktswarmError as error:
            self._report(RateAnswer(errors.to_event(error)))

    def _orders(self, order: RateOrder) -> Iterator[rank0_orders.SetRate]:
        from pktswarm.master.run import rate_changes

        run = self._run
        stream = run.ledger, run.ranks, run.scenario_path, order.stream
        if isinstance(order, SetRate):
            return rate_changes.orders(*stream, order.rate_pps)
        return rate_changes.switch_orders(*stream, order.sends)

    def look(self, event: Shown) -> None:
        from pktswarm.traffic.protocol.rank_events import RateSet

        if isinstance(event, RateSet) and event.leg in self._legs:
            self._legs.discard(event.leg)
            if not self._legs:
                self._report(RateAnswer(None))

    def end(self) -> None:
        """The run has ended: a node that has not answered sent nothing any more."""
        if self._legs:
            error = PktswarmError(f"{self._run.scenario_path}: the sending ended before the stream was changed")
            self._report(RateAnswer(errors.to_event(error)))
