"""The runs of a calibration: streams of one frame size to one node."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from pktswarm.master.benchmark.job import Job
from pktswarm.master.benchmark.runs import watching
from pktswarm.master.benchmark.trial import Tolerance, Trial, trial_of
from pktswarm.master.calibrate.options import COMMAND
from pktswarm.master.results.doubts import MISSED
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.run.run import Finished, Run
from pktswarm.master.scenario.receive import Receive
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.stream import Stream
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, BadInput, PktswarmError

STOPPED = ("interrupted", "stopped by the user")
PROBE_PPS = 1000.0
COUNT = Receive.model_validate({"mode": "count"})


class Stopped(PktswarmError):
    """The user stopped the calibration, which keeps its figures."""


@dataclass(frozen=True)
class Flow:
    """The packets of one transmitter. `rate_pps` is None: without pacing."""

    source: str
    engine: str
    rate_pps: float | None


@dataclass(frozen=True)
class Sent:
    """A run of one transmitter. `tx_packets`: the counter of its interface. `problem`: why the run is not valid."""

    trial: Trial
    tx_packets: int | None
    seconds: float | None
    problem: str = ""

    @property
    def did_pps(self) -> float:
        """The sent rate: the smaller of the counts of the engine and the interface, over the duration."""
        packets = min(self.trial.sent_packets or 0, self.tx_packets or 0)
        return packets / self.seconds if self.seconds else 0.0


@dataclass
class Runs:
    """Makes the runs. `slack`: tolerance of a load, as a share of it. `job`: what they are part of.

    `on_trial` is called with each trial, and with the rate of an unpaced one.
    """

    hosts: Path
    folder: Path
    slack: float
    patience: float
    console: Console
    kept: KeptRanks
    labels: Mapping[str, str] = field(default_factory=dict)
    job: Job | None = None
    on_trial: Callable[[Trial, float | None], None] = lambda trial, unpaced_pps: None
    count: int = field(default=0, init=False)

    def probe(self, pairs: Sequence[tuple[str, str]]) -> Run:
        """Send one packet over each pair: the nodes report their properties, and that they reach each other."""
        streams = [
            Stream.model_validate(
                {"name": f"probe-{number}", "from": source, "to": target, "count_packets": 1, "rate_pps": PROBE_PPS}
            )
            for number, (source, target) in enumerate(pairs)
        ]
        run, finished = self._run(streams, COUNT, PROBE_PPS)
        for row in finished.outcome.rows:
            if not row.received.packets:
                problem = f"{row.leg.target} receives no packets of {row.leg.source}: {finished.outcome.reason}"
                raise PktswarmError(f"{problem} (see {finished.folder})")
        return run

    def sent(self, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Sent:
        """Make a run of one transmitter, to a receiver with any engine."""
        finished, trial = self._trial([flow], target, size_bytes, trial_s, COUNT, losses=())
        rows = finished.outcome.rows
        tx_packets = {(node["node"], node["role"]): node["tx_packets"] for node in finished.outcome.nodes}
        sent_by_interface = tx_packets.get((flow.source, "transmit"))
        problem = _incomplete(finished.outcome)
        if not problem and (trial.sent_packets is None or sent_by_interface is None):
            problem = "sent packets were not counted"
        sent = Sent(trial, sent_by_interface, rows[0].sent.seconds if rows else None, problem)
        self.on_trial(trial, sent.did_pps if flow.rate_pps is None else None)
        return sent

    def received(self, flows: Sequence[Flow], target: str, size_bytes: int, trial_s: float, receive: Receive) -> Trial:
        """Make a run of several transmitters to one receiver."""
        trial = self._trial(flows, target, size_bytes, trial_s, receive)[1]
        self.on_trial(trial, None)
        return trial

    def _trial(
        self,
        flows: Sequence[Flow],
        target: str,
        size_bytes: int,
        trial_s: float,
        receive: Receive,
        losses: tuple[float, ...] = (0.0,),
    ) -> tuple[Finished, Trial]:
        began = time.monotonic()
        streams = [_stream(number, flow, target, size_bytes, trial_s) for number, flow in enumerate(flows)]
        load_pps = sum(flow.rate_pps or 0.0 for flow in flows)
        _, finished = self._run(streams, receive, load_pps or None)
        finished.outcome = _lost_not_doubted(finished.outcome, target)
        names = {stream.name for stream in streams}
        results, took_s = finished.folder.relative_to(self.folder.parent), round(time.monotonic() - began, 3)
        tolerance = Tolerance(self.slack, losses=losses)
        return finished, trial_of(load_pps, trial_s, names, tolerance, finished.outcome, results, took_s)

    def _run(self, streams: list[Stream], receive: Receive, rate_pps: float | None) -> tuple[Run, Finished]:
        """Make a run. Raises Stopped, and BadInput for what a node cannot do."""
        self.count += 1
        scenario = Scenario(name=COMMAND, streams=streams, receive=receive)
        try:
            run = Run(
                Path(COMMAND),
                self.hosts,
                self.folder,
                self.patience,
                False,
                scenario=scenario,
                by_capacity=False,
                kept=self.kept,
                labels=self.labels,
            )
            console = self.console if self.console.is_terminal else Console(stderr=True, quiet=True)
            with watching(console, run, self.job, rate_pps) as watch:
                finished = run.execute(watch)
        except BadInput:
            raise
        except PktswarmError as error:
            raise (Stopped(str(error)) if str(error).startswith(STOPPED) else error) from None
        if finished.outcome.reason in STOPPED:
            raise Stopped(finished.outcome.reason)
        # The captures of all trials would fill the disk.
        shutil.rmtree(finished.folder / "captures", ignore_errors=True)
        return run, finished


def _stream(number: int, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Stream:
    rate = {} if flow.rate_pps is None else {"rate_pps": flow.rate_pps}
    ends = {"from": flow.source, "to": target, "engine": flow.engine}
    return Stream.model_validate(
        {"name": f"load-{number}", **ends, "size_bytes": size_bytes, "duration_s": trial_s, **rate}
    )


def _lost_not_doubted(outcome: Outcome, target: str) -> Outcome:
    """Accept the only doubt of a run if it is a full ring of the receiver: the ring is a limit to measure."""
    doubts, own = outcome.document["doubts"], f"{target} (receive): {MISSED} "
    full = bool(doubts) and outcome.reason == doubts[0] and all(doubt.startswith(own) for doubt in doubts)
    if full and all(row.lost is not None for row in outcome.rows) and sum(row.lost or 0 for row in outcome.rows) > 0:
        return replace(outcome, status=EXIT_AS_EXPECTED, reason="")
    return outcome


def _incomplete(outcome: Outcome) -> str:
    return outcome.reason if outcome.status == EXIT_INCOMPLETE else ""
