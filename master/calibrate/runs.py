"""The runs of a calibration: streams of one size from some nodes to one, each as any other run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pktswarm.master.benchmark.trial import Tolerance, Trial, trial_of
from pktswarm.master.calibrate.options import COMMAND
from pktswarm.master.live.watch import Watch
from pktswarm.master.results.doubts import MISSED
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.run import Finished, Run
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

STOPPED = ("interrupted", "stopped by the user")
PROBE_PPS = 1000.0


class Stopped(PktswarmError):
    """By the user: what was found is kept."""


@dataclass(frozen=True)
class Flow:
    """What one node sends; None: as fast as it goes."""

    source: str
    engine: str
    rate_pps: float | None


@dataclass(frozen=True)
class Sent:
    """Of one transmitter alone. `tx_packets`: by its interface's counter; `problem`: the run says nothing."""

    trial: Trial
    tx_packets: int | None
    seconds: float | None
    problem: str = ""

    @property
    def did_pps(self) -> float:
        """What left: never more than the engine says, nor than the interface counted."""
        packets = min(self.trial.sent_packets or 0, self.tx_packets or 0)
        return packets / self.seconds if self.seconds else 0.0


@dataclass
class Runs:
    """`slack`: how far a trial's load may be off, as a share of it."""

    hosts: Path
    folder: Path
    slack: float
    patience: float
    console: Console
    count: int = field(default=0, init=False)

    def probe(self, pairs: Sequence[tuple[str, str]]) -> Run:
        """A packet over each pair: what the nodes are, and that they reach each other."""
        streams = [
            {"name": f"probe-{number}", "from": source, "to": target, "count_packets": 1, "rate_pps": PROBE_PPS}
            for number, (source, target) in enumerate(pairs)
        ]
        run, finished = self._run(streams, {"mode": "count"})
        for row in finished.outcome.rows:
            if not row.received:
                problem = f"nothing that {row.leg.source} sends comes to {row.leg.target}: {finished.outcome.reason}"
                raise PktswarmError(f"{problem} (see {finished.folder})")
        return run

    def sent(self, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Sent:
        """Of one transmitter, to a receiver of whatever engine."""
        finished, trial = self._trial([flow], target, size_bytes, trial_s, {"mode": "count"}, losses=())
        rows = finished.outcome.rows
        node = next(
            (one for one in finished.outcome.nodes if (one["node"], one["role"]) == (flow.source, "transmit")), {}
        )
        problem = _incomplete(finished.outcome)
        if not problem and (trial.sent_packets is None or node.get("tx_packets") is None):
            problem = "what was sent was not counted"
        return Sent(trial, node.get("tx_packets"), rows[0].seconds if rows else None, problem)

    def received(
        self, flows: Sequence[Flow], target: str, size_bytes: int, trial_s: float, receive: dict[str, Any]
    ) -> Trial:
        return self._trial(flows, target, size_bytes, trial_s, receive)[1]

    def _trial(
        self,
        flows: Sequence[Flow],
        target: str,
        size_bytes: int,
        trial_s: float,
        receive: dict[str, Any],
        losses: tuple[float, ...] = (0.0,),
    ) -> tuple[Finished, Trial]:
        began = time.monotonic()
        streams = [_stream(number, flow, target, size_bytes, trial_s) for number, flow in enumerate(flows)]
        _, finished = self._run(streams, receive)
        finished.outcome = _lost_not_doubted(finished.outcome, target)
        load_pps = sum(flow.rate_pps or 0.0 for flow in flows)
        names = {stream["name"] for stream in streams}
        results, took_s = finished.folder.relative_to(self.folder.parent), round(time.monotonic() - began, 3)
        tolerance = Tolerance(self.slack, losses=losses)
        return finished, trial_of(load_pps, trial_s, names, tolerance, finished.outcome, results, took_s)

    def _run(self, streams: list[dict[str, Any]], receive: dict[str, Any]) -> tuple[Run, Finished]:
        """Raises Stopped where the user ends it, BadInput for what a node cannot do."""
        self.count += 1
        scenario = Scenario.model_validate({"name": COMMAND, "streams": streams, "receive": receive})
        try:
            run = Run(
                Path(COMMAND), self.hosts, self.folder, self.patience, False, scenario=scenario, by_capacity=False
            )
            console = self.console if self.console.is_terminal else Console(stderr=True, quiet=True)
            with Watch(console, run, tables=False) as watch:
                finished = run.execute(watch)
        except BadInput:
            raise
        except PktswarmError as error:
            raise (Stopped(str(error)) if str(error).startswith(STOPPED) else error) from None
        if finished.outcome.reason in STOPPED:
            raise Stopped(finished.outcome.reason)
        # Of every trial they would fill the disk.
        shutil.rmtree(finished.folder / "captures", ignore_errors=True)
        return run, finished


def _stream(number: int, flow: Flow, target: str, size_bytes: int, trial_s: float) -> dict[str, Any]:
    rate = {} if flow.rate_pps is None else {"rate_pps": flow.rate_pps}
    ends = {"from": flow.source, "to": target, "engine": flow.engine}
    return {"name": f"load-{number}", **ends, "size_bytes": size_bytes, "duration_s": trial_s, **rate}


def _lost_not_doubted(outcome: Outcome, target: str) -> Outcome:
    """A receiver whose ring was full lost packets, which is what is looked for here; else it is a reason for doubt."""
    doubts, own = outcome.document.get("doubts", []), f"{target} (receive): {MISSED} "
    full = bool(doubts) and outcome.reason == doubts[0] and all(one.startswith(own) for one in doubts)
    if full and all(row.lost is not None for row in outcome.rows) and sum(row.lost or 0 for row in outcome.rows) > 0:
        return replace(outcome, status=EXIT_AS_EXPECTED, reason="")
    return outcome


def _incomplete(outcome: Outcome) -> str:
    return outcome.reason if outcome.status == EXIT_INCOMPLETE else ""
