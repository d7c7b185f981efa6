"""The order in which the engines of one task are prepared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import guard_engines
from pktswarm.nodes.engine import Receiver
from pktswarm.nodes.guard_engines import Engines
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.receivers.netsniff import NetsniffReceiver
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask

STEPS: list[str] = []


@dataclass
class Process:
    """As much of an EngineProcess as a receiver's start needs."""

    started: bool = False

    def start(self) -> None:
        assert not self.started
        self.started = True
        STEPS.append("netsniff-ng runs")


@dataclass
class Run:
    process: Process


class Capture(NetsniffReceiver):
    def prepare(self) -> None:
        STEPS.append("capture prepared")
        self._runs = {None: Run(Process())}  # type: ignore[dict-item]  # no process is run here


class Counter(Receiver):
    name = "xdp"

    def prepare(self) -> None:
        STEPS.append("counter prepared")

    def start(self, at_ns: int) -> None:
        STEPS.append("counter runs")

    def ready(self) -> bool:
        return True

    def done(self) -> bool:
        return False

    def sample(self) -> dict[int, Any]:
        return {}

    def stop(self) -> None:
        pass

    def restore(self) -> None:
        pass

    def counts(self) -> list[ReceiveCount]:
        return []


@pytest.mark.parametrize(
    ("driver", "steps"),
    [
        ("veth", ["capture prepared", "netsniff-ng runs", "counter prepared", "counter runs"]),
        ("igc", ["capture prepared", "counter prepared", "counter runs", "netsniff-ng runs"]),
    ],
)
def test_a_capture_begins_before_the_counter_is_loaded_only_where_that_restarts_no_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: str, steps: list[str]
) -> None:
    STEPS.clear()
    monkeypatch.setattr(Interface, "driver", driver)
    monkeypatch.setattr(guard_engines, "receiver_class", {"xdp": Counter, "netsniff-ng": Capture}.__getitem__)
    engines = Engines(tmp_path)
    engines.prepare(ReceiveTask("eth0", "02:00:00:00:00:01", [], 60, engine="xdp+netsniff-ng"))
    engines.start(0)
    assert steps == STEPS
