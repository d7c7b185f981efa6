"""When a sender of live frames attaches the program that its driver needs, and when it is ready."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import libbpf, live_frames
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders.tc import TcSender
from pktswarm.nodes.senders.xdp import XdpSender
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.protocol.task import SendTask


class Node:
    """Its driver takes live frames only with a program, and loses the carrier for the `restarts` looks behind it."""

    def __init__(self, restarts: int = 2, trouble: str = "") -> None:
        self.attached, self.detached, self._restarts, self._trouble = 0, 0, restarts, trouble

    def attach(self, interface: Interface) -> Node:
        self.attached += 1
        return self

    def close(self) -> None:
        self.detached += 1

    def has_carrier(self, interface: Interface) -> bool:
        if self.attached and self._restarts:
            self._restarts -= 1
            return False
        return True

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live_frames, "needs_program", lambda _: self.attached == self.detached)
        monkeypatch.setattr(live_frames, "attach_pass", self.attach)
        monkeypatch.setattr(live_frames, "trouble", lambda _: self._trouble)
        monkeypatch.setattr(Interface, "carrier", property(self.has_carrier))


def test_it_attaches_once_waits_for_the_link_and_detaches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = Node()
    node.replace(monkeypatch)
    sender = XdpSender(SendTask("eth1", [], 60), tmp_path)
    assert [sender.ready() for _ in range(5)] == [False, False, False, True, True]
    sender.restore()
    sender.restore()
    assert (node.attached, node.detached) == (1, 1)


def test_frames_that_do_not_leave_with_a_program_either_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = Node(restarts=0, trouble="eth1: its driver drops them")
    node.replace(monkeypatch)
    sender = XdpSender(SendTask("eth1", [], 60), tmp_path)
    assert not sender.ready()
    with pytest.raises(EngineError, match="with an XDP program attached: eth1: its driver drops them"):
        sender.ready()
    sender.restore()
    assert node.detached == 1


def test_clones_need_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = Node()
    node.replace(monkeypatch)
    assert TcSender(SendTask("eth1", [], 60), tmp_path).ready() and not node.attached


def test_a_driver_that_refuses_the_program_is_named_with_its_mtu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise EngineError("libbpf", "Operation not supported")

    program, other = os.pipe()
    os.close(other)
    monkeypatch.setattr(libbpf, "load_program", lambda *_: program)
    monkeypatch.setattr(libbpf, "attach_program", refuse)
    monkeypatch.setattr(Interface, "index", 2)
    monkeypatch.setattr(Interface, "driver", "igc")
    monkeypatch.setattr(Interface, "mtu", 9000)
    words = "eth1: its driver igc takes no XDP program with an MTU of 9000 .*Operation not supported"
    with pytest.raises(EngineError, match=words):
        live_frames.attach_pass(Interface("eth1"))
    with pytest.raises(OSError):  # the program is closed
        os.fstat(program)
