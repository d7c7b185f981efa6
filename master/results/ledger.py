"""The record of a run: takes the events of rank 0 and makes rows and results of them at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pktswarm.master.results import flow_rows, node_rows, run_result
from pktswarm.master.results.document import RunInputs
from pktswarm.master.results.document_rows import NodeRow
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.row import Row
from pktswarm.master.results.run_state import RunState
from pktswarm.master.results.trace_verify import Compared
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.connections.counts import ConnectionRow
from pktswarm.traffic.protocol.rank0_events import Rank0Event


@dataclass(frozen=True)
class Tick:
    """An event every Run.tick_s, by which a watcher shows the elapsed time."""


@dataclass(frozen=True)
class Sessions:
    """A UPF has answered for `done` of the `asked` sessions."""

    done: int
    asked: int


Shown = Rank0Event | Tick | Sessions
"""The events for a watcher of the run."""


class Ledger(RunState):
    """The state of a run, and the results made of it."""

    def rows(self) -> list[Row]:
        return flow_rows.rows(self)

    def connection_rows(self) -> list[ConnectionRow]:
        return node_rows.connection_rows(self)

    def node_rows(self) -> list[NodeRow]:
        return node_rows.node_rows(self)

    def doubts(self) -> list[str]:
        return run_result.doubts(self)

    def outcome(self, expect: Expect, inputs: RunInputs, compared: Sequence[Compared] = ()) -> Outcome:
        """`compared`: traces whose captures were compared with the intended packets."""
        return run_result.outcome(self, expect, inputs, compared)
