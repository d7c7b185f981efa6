"""The keeper: the first process of a lab's PID namespace. The lab ends with it.

lab.api.up starts `python -m pktswarm.lab.keeper NAME STAY REPORT PLAN`. STAY is the reading end of a pipe: the lab
stays once a byte has arrived, and ends if the pipe is closed before. REPORT is a pipe for lab.messages. PLAN is JSON:
the arguments of plan() in plan.py.
No namespace has a name: when the keeper ends, the kernel ends its processes, and with them the namespaces.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from socket import socket
from typing import NoReturn

from pktswarm.lab import links, messages, mirror, namespaces, node, router, ssh, upf_host
from pktswarm.lab.messages import Built, Failed, Message, NodeFailed, NodeUp, Started
from pktswarm.lab.plan import Plan, plan
from pktswarm.lab.switch import xdp
from pktswarm.traffic.errors import PktswarmError

BUILD_TIMEOUT_S = 180.0


def main(arguments: list[str]) -> None:
    name, stay, report = arguments[0], int(arguments[1]), int(arguments[2])
    the_plan = plan(name, **json.loads(arguments[3]))
    folder = Path.cwd()
    outer_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    namespaces.unshare(namespaces.PID)
    if os.fork():
        # Only children are in the new PID namespace. Only `up` waits for this process.
        os._exit(0)
    keep(the_plan, outer_proc, stay, report, folder)


def keep(the_plan: Plan, outer_proc: int, stay: int, report: int, folder: Path) -> NoReturn:
    """Is the lab's init: starts the builder, waits for the byte on `stay`, then reaps orphans."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    namespaces.set_process_name(f"lab-{the_plan.name}")
    os.chdir("/")
    keeper_pid = int(os.readlink("self", dir_fd=outer_proc))
    messages.write(report, Started(keeper_pid))
    # Before the namespaces exist: it connects from the machine's network.
    to_mirror = mirror.start([stay, report, outer_proc]) if the_plan.bare else None
    namespaces.unshare(namespaces.NODE)
    namespaces.mount_proc()
    builder = os.fork()
    if builder == 0:
        os.close(stay)
        _build_and_report(Builder(the_plan, outer_proc, folder, to_mirror), report)
    # A handle kept open would keep the caller's /proc from being unmounted.
    os.close(outer_proc)
    os.close(report)
    if to_mirror:
        to_mirror.close()
    _await_stay(stay, builder)
    _reap()


def _await_stay(stay: int, builder: int) -> None:
    """Returns when the lab stays; exits, which ends the lab, when `up` has ended or the builder failed."""
    handle = os.pidfd_open(builder)
    waiting = {stay, handle}
    while stay in waiting:
        ready, _, _ = select.select(waiting, [], [])
        if stay in ready:
            if os.read(stay, 1) == b"":
                os._exit(1)
            waiting.discard(stay)
        elif os.waitstatus_to_exitcode(os.waitpid(builder, 0)[1]) != 0:
            os._exit(1)
        else:
            waiting.discard(handle)
    os.close(handle)
    os.close(stay)


def _reap() -> NoReturn:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


def _build_and_report(builder: Builder, report: int) -> NoReturn:
    message: Message
    try:
        message = Built(builder.build(close_in_nodes=report), builder.notes)
    except BaseException as error:
        message = Failed(_describe(error))
    messages.write(report, message)
    os._exit(1 if isinstance(message, Failed) else 0)


class Builder:
    """Brings up the nodes of `the_plan` in parallel, each in a process of its own."""

    def __init__(self, the_plan: Plan, outer_proc: int, folder: Path, to_mirror: socket | None = None) -> None:
        self.plan = the_plan
        self.wiring = node.Wiring(the_plan, outer_proc, folder, mirror=to_mirror)
        self.nodes: dict[str, NodeUp] = {}
        """The nodes that are up, by name."""
        self._reading, self._writing = os.pipe()
        self._buffer = b""

    def build(self, close_in_nodes: int) -> dict[str, int]:
        """Returns node → process number in the PID namespace of `up`."""
        links.prepare_namespace(quiet=True)
        links.add_bridge(node.CONTROL_BRIDGE, node.CONTROL_MTU)
        self._bring_up({node.SWITCH: node.set_up_switch}, close_in_nodes)
        self.wiring = replace(self.wiring, switch_pid=self.nodes[node.SWITCH].pid)
        setups: dict[str, node.Setup] = {node.DUT: self._set_up_dut()}
        setups |= {each.name: node.set_up_node(each) for each in self.plan.nodes}
        self._bring_up(setups, close_in_nodes)
        if self.wiring.is_xdp:
            with namespaces.network_of(self.wiring.switch_pid):
                for side in self.plan.sides:
                    xdp.take_over(side)
        self._hand_out_keys()
        return {name: up.outer_pid for name, up in self.nodes.items()}

    def _set_up_dut(self) -> node.Setup:
        if self.plan.router:
            return router.set_up_router
        return upf_host.set_up_upf if self.plan.upf else node.set_up_dut

    def _bring_up(self, setups: dict[str, node.Setup], close_in_nodes: int) -> None:
        for name, setup in setups.items():
            if os.fork() == 0:
                os.close(close_in_nodes)
                self._be_node(name, setup)
        deadline = time.monotonic() + BUILD_TIMEOUT_S
        while missing := setups.keys() - self.nodes.keys():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                raise PktswarmError(f"{', '.join(sorted(missing))}: not up within {BUILD_TIMEOUT_S:.0f} s")
            self._take_reports()

    def _be_node(self, name: str, setup: node.Setup) -> NoReturn:
        try:
            node.hold(name, self.wiring, setup, self._report)
        except BaseException as error:
            self._report(NodeFailed(name, _describe(error)))
        os._exit(1)

    def _report(self, message: Message) -> None:
        messages.write(self._writing, message)

    def _take_reports(self) -> None:
        *lines, self._buffer = (self._buffer + os.read(self._reading, 1 << 16)).split(b"\n")
        for line in lines:
            message = messages.decode(line)
            if isinstance(message, NodeFailed):
                raise PktswarmError(f"{message.node}: {message.error}")
            assert isinstance(message, NodeUp)
            self.nodes[message.node] = message

    def _hand_out_keys(self) -> None:
        """Gives every sshd the master's public key, and the master every sshd's."""
        master = next(each.name for each in self.plan.nodes if each.group == "master")
        for each in self.plan.nodes:
            ssh.authorize(self._folder(each.name), self.nodes[master].client_key)
        host_keys = {each.name: self.nodes[each.name].host_key for each in self.plan.nodes}
        ssh.write_client_files(self._folder(master), self.plan, host_keys)

    @property
    def notes(self) -> list[str]:
        """What the lab lacks."""
        return [note for up in self.nodes.values() for note in up.notes]

    def _folder(self, name: str) -> Path:
        """Returns the path to ssh.FOLDER of node `name` from this process."""
        return Path(f"/proc/{self.nodes[name].pid}/root{ssh.FOLDER}")


def _describe(error: BaseException) -> str:
    if isinstance(error, PktswarmError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()[-3000:]


if __name__ == "__main__":
    main(sys.argv[1:])
