"""The parts of a result document that every benchmark has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.cluster.dut import DutEntry


class Interruption(TypedDict):
    """`interrupted_utc`: the end of the interrupted process, or the beginning of its last trial if it was killed."""

    interrupted_utc: str
    resumed_utc: str


class Outcome(TypedDict):
    """The keys of every document that has a page of its own."""

    format_version: int
    name: str
    status: int
    """The exit status."""
    problem: str
    """Why the benchmark ended early; empty: it did not."""
    dut: NotRequired[DutEntry]


class Resumable(Outcome):
    """The keys of every document of a command that can be resumed."""

    interruptions: NotRequired[list[Interruption]]


class Document(Resumable):
    """The keys of every benchmark's document."""

    scenario_file: str


class TrialFields(TypedDict):
    """A trial in a document: the fields of Trial, and its loss ratio."""

    intended_pps: float
    duration_s: float
    intended_packets: int | None
    sent_packets: int | None
    received_packets: int | None
    lost_packets: int | None
    sending_s: float | None
    l2_bps: float | None
    l1_bps: float | None
    took_s: float
    results: str
    problem: str
    held_up: bool
    not_held: Sequence[str]
    loss_ratio: float | None
    latency_rise_ns_per_s: float | None
    queue_delay_ns: int | None


def trial_fields(trial: Trial) -> TrialFields:
    """Convert a trial."""
    return {
        "intended_pps": trial.intended_pps,
        "duration_s": trial.duration_s,
        "intended_packets": trial.intended_packets,
        "sent_packets": trial.sent_packets,
        "received_packets": trial.received_packets,
        "lost_packets": trial.lost_packets,
        "sending_s": trial.sending_s,
        "l2_bps": trial.l2_bps,
        "l1_bps": trial.l1_bps,
        "took_s": trial.took_s,
        "results": trial.results,
        "problem": trial.problem,
        "held_up": trial.held_up,
        "not_held": trial.not_held,
        "loss_ratio": trial.loss_ratio,
        "latency_rise_ns_per_s": trial.latency_rise_ns_per_s,
        "queue_delay_ns": trial.queue_delay_ns,
    }
