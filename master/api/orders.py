"""Messages between a Python program and the process that works for it (master.api.worker)."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event, Order


@plain
class EnterLab(Order):
    """Be on the master of a lab, if the inventory is that of one."""

    NAME = "enter_lab"
    hosts: str


@plain
class ClusterUp(Order):
    """Start the processes of all nodes, unless they are up; they end with the worker."""

    NAME = "cluster_up"
    hosts: str
    patience: float


@plain
class RunScenario(Order):
    """`folder`: relative paths are below it. `shows`: report live documents."""

    NAME = "run"
    scenario: str
    hosts: str
    results: str
    folder: str
    shows: bool
    report: bool
    patience: float
    waits: bool
    labels: list[str]
    any_address: bool
    control_interface: bool


@plain
class SetRate(Order):
    """Set the rate of a stream of the run that goes on; answered by RateAnswer."""

    NAME = "set_rate"
    stream: str
    rate_pps: float


@plain
class Switch(Order):
    """Start or stop a stream of the run that goes on; answered by RateAnswer."""

    NAME = "switch"
    stream: str
    sends: bool


@plain
class Command(Order):
    """A command of the command line, with its words."""

    NAME = "command"
    words: list[str]
    folder: str


@plain
class LabUp(Order):
    """`options`: the arguments of lab.up() as a JSON object."""

    NAME = "lab_up"
    options: str


@dataclass(frozen=True)
class Problem:
    """A message; of bad input, its parts. `value`: as JSON; empty: none."""

    text: str
    where: str = ""
    problem: str = ""
    key: str = ""
    value: str = ""
    allowed: str = ""


@plain
class Shown(Event):
    """The live document of the run, as JSON (master.live.document)."""

    NAME = "shown"
    document: str


@plain
class RateAnswer(Event):
    """The nodes have set the rate, or started or stopped the stream; or `error` says why not."""

    NAME = "rate_answer"
    error: Failed | None


@plain
class Done(Event):
    """`output`: what the command printed, the folder of the run, or the inventory of the lab."""

    NAME = "done"
    status: int
    output: str


@plain
class Failed(Event):
    """`kind`: the name of the error's class; several problems are those of one input."""

    NAME = "failed"
    kind: str
    exit_status: int
    problems: list[Problem]


RateOrder = SetRate | Switch
WorkerOrder = EnterLab | ClusterUp | RunScenario | RateOrder | Command | LabUp
WorkerEvent = Shown | RateAnswer | Done | Failed
decode_worker_order: Decoder[WorkerOrder] = Decoder(WorkerOrder)
decode_worker_event: Decoder[WorkerEvent] = Decoder(WorkerEvent)
