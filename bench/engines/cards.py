"""The engine tc beside its peers over emulated cards without XDP, in the virtual machine.

The machine's clocks count instructions (lab vm --icount): a rate is that of a processor which takes 1 ns for each, and
the card's own work takes no time, as that of a real one, which is done beside the processor.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pyroute2 import IPRoute

from bench import report
from bench.engines import by_clones, guest, ours, peers, rates
from bench.engines.rows import Bench, against
from bench.engines.wire import FAR, NEAR, SENT, BenchError, Channel, Wire, Worker, counter, stack
from pktswarm.lab import links, vm
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders.pktgen import PktgenSender

T = TypeVar("T")
ROWS = {f"tc over {model}": model for model in ("e1000e", "virtio-net-pci")}
READY_S = 30.0
"""Until a driver has found its interfaces, and those each other. Cards of Intel negotiate for some seconds."""
LIMIT_S = 2400.0
"""Of the machine: five rounds take 10 minutes, and more beside other work."""


class Cards(Wire):
    """Two interfaces of `model`, connected to each other, in place of a veth pair."""

    def __init__(self, model: str) -> None:
        self._model = model
        super().__init__()

    def _connect(self) -> None:
        subprocess.run(["modprobe", vm.MODULES[self._model]], check=True, timeout=60)
        ends = ((self.near, NEAR), (self.far, FAR))
        for own, (pid, name) in zip(vm.pair_macs(self._model), ends, strict=True):
            self._move(own, pid, name)
        for pid, name in ends:
            with Worker("a card", pid, _bring_up(name)) as worker:
                worker.hear()
        for pid, name in ends:
            with Worker("a card", pid, _wait_for_carrier(name)) as worker:
                worker.hear()

    @staticmethod
    def _move(own: str, pid: int, name: str) -> None:
        with IPRoute() as netlink:
            index = _until(f"the card {own}", lambda: next(iter(netlink.link_lookup(address=own)), None))
            netlink.link("set", index=index, state="down")
            netlink.link("set", index=index, ifname=name, net_ns_pid=pid)

    def received(self) -> int:
        """Frames that the near card has sent: the far one, of another address, drops them, as a switch or another board
        would take them. Taken by the same processor they would be most of its work."""
        return counter(self.near, NEAR, SENT)


def rows(name: str) -> Callable[[Bench], list[report.Row]]:
    """Here if this is the machine, else by the same command inside it."""

    def measured(bench: Bench) -> list[report.Row]:
        model = ROWS[name]
        if not os.environ.get("PKTSWARM_VM"):
            return guest.in_the_machine(bench, name, LIMIT_S, pairs=[model], icount=True)
        with Cards(model) as wire:
            there = replace(bench, wires=[wire])
            return [*by_clones.rows(there, name, ring=()), _beside_pktgen(there, name)]

    return measured


def _beside_pktgen(bench: Bench, name: str) -> report.Row:
    leg = ours.udp()

    def rate(body: Callable[[Channel], None]) -> Callable[[], float]:
        return lambda: rates.of_sender(bench.wire, body, bench.window_s, stack)

    theirs = ours.sending(leg, bench.spool, peers.SENDING_CORE, PktgenSender)
    contenders = {"ours": rate(by_clones.sending(bench, leg)), "pktgen": rate(theirs)}
    values = bench.in_turn(f"{name}, pktgen", contenders)
    return against(f"{name}: 60-byte UDP, against pktgen", values["ours"], values["pktgen"], "pktgen", by_clones.BETTER)


def _bring_up(name: str) -> Callable[[Channel], None]:
    def body(channel: Channel) -> None:
        links.bring_up(name)
        channel.tell("up")

    return body


def _wait_for_carrier(name: str) -> Callable[[Channel], None]:
    def body(channel: Channel) -> None:
        _until(f"a carrier of {name}", lambda: Interface(name).carrier or None)
        channel.tell("connected")

    return body


def _until(what: str, found: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + READY_S
    while (value := found()) is None:
        if time.monotonic() > deadline:
            raise BenchError(f"{what} did not come within {READY_S} s")
        time.sleep(0.1)
    return value
