"""The keeper: the first process of a lab's PID namespace. While it lives the lab lives.

`python -m pktswarm.lab.keeper NAME STAY REPORT PLAN` is started by lab.api.up. STAY is the end of a pipe: the lab stays
once a byte has come, and ends if the pipe is closed before. REPORT gets one JSON line: what came up. PLAN is JSON: the
arguments of plan() in plan.py.
No namespace is given a name anywhere: with the keeper the kernel ends its processes, and with them everything.
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
from typing import Any, NoReturn

from pktswarm.lab import links, mirror, namespaces, node, ssh, upf_host
from pktswarm.lab.plan import Plan, plan
from pktswarm.traffic.errors import PktswarmError

BUILD_TIMEOUT_S = 180.0


def main(arguments: list[str]) -> None:
    name, stay, report = arguments[0], int(arguments[1]), int(arguments[2])
    the_plan = plan(name, **json.loads(arguments[3]))
    folder = Path.cwd()
    outer_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    namespaces.unshare(namespaces.PID)
    if os.fork():
        # Only children are in the new PID namespace. Nothing waits for this process but `up`.
        os._exit(0)
    keep(the_plan, outer_proc, stay, report, folder)


def keep(the_plan: Plan, outer_proc: int, stay: int, report: int, folder: Path) -> NoReturn:
    """Be the lab's init: have it built, wait for the word to stay, then reap orphans for ever."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    namespaces.set_process_name(f"lab-{the_plan.name}")
    os.chdir("/")
    keeper_pid = int(os.readlink("self", dir_fd=outer_proc))
    _say(report, {"keeper_pid": keeper_pid})
    # Before there are namespaces: it connects from where the machine is.
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
    _await_word(stay, builder)
    _reap()


def _await_word(stay: int, builder: int) -> None:
    """Return when the lab is to stay; leave, and take everything along, when `up` is gone or the builder failed."""
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
    answer: dict[str, Any]
    try:
        answer = {"pids": builder.build(close_in_nodes=report), "notes": builder.notes}
    except BaseException as error:
        answer = {"error": _words(error)}
    _say(report, answer)
    os._exit(1 if "error" in answer else 0)


def _say(pipe: int, message: dict[str, Any]) -> None:
    """One line; lines of up to 4096 bytes do not mix in a pipe, and only the builder's last one is longer."""
    os.write(pipe, json.dumps(message).encode() + b"\n")


class Builder:
    """Brings up the nodes of `the_plan`, each by a process of its own, all at once."""

    def __init__(self, the_plan: Plan, outer_proc: int, folder: Path, to_mirror: socket | None = None) -> None:
        self.plan = the_plan
        self.wiring = node.Wiring(the_plan, outer_proc, folder, mirror=to_mirror)
        self.facts: dict[str, dict[str, Any]] = {}
        """What each node reported, by its name."""
        self._reading, self._writing = os.pipe()
        self._buffer = b""

    def build(self, close_in_nodes: int) -> dict[str, int]:
        """Process number of each node's keeper, in the PID namespace of the one who called `up`."""
        links.prepare_namespace(quiet=True)
        links.add_bridge(node.CONTROL_BRIDGE, node.CONTROL_MTU)
        self._bring_up({node.SWITCH: node.set_up_switch}, close_in_nodes)
        self.wiring = replace(self.wiring, switch_pid=self.facts[node.SWITCH]["pid"])
        setups: dict[str, node.Setup] = {node.DUT: upf_host.set_up_upf if self.plan.upf else node.set_up_dut}
        setups |= {each.name: node.set_up_node(each) for each in self.plan.nodes}
        self._bring_up(setups, close_in_nodes)
        self._hand_out_keys()
        return {name: facts["outer_pid"] for name, facts in self.facts.items()}

    def _bring_up(self, setups: dict[str, node.Setup], close_in_nodes: int) -> None:
        for name, setup in setups.items():
            if os.fork() == 0:
                os.close(close_in_nodes)
                self._be_node(name, setup)
        deadline = time.monotonic() + BUILD_TIMEOUT_S
        while missing := setups.keys() - self.facts.keys():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                raise PktswarmError(f"no word from {', '.join(sorted(missing))} within {BUILD_TIMEOUT_S:.0f} s")
            self._take_reports()

    def _be_node(self, name: str, setup: node.Setup) -> NoReturn:
        try:
            node.hold(name, self.wiring, setup, self._report)
        except BaseException as error:
            self._report({"node": name, "error": _words(error)})
        os._exit(1)

    def _report(self, facts: dict[str, Any]) -> None:
        _say(self._writing, facts)

    def _take_reports(self) -> None:
        *lines, self._buffer = (self._buffer + os.read(self._reading, 1 << 16)).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            if "error" in facts:
                raise PktswarmError(f"{facts['node']}: {facts['error']}")
            self.facts[facts["node"]] = facts

    def _hand_out_keys(self) -> None:
        """Tell every sshd the master's key, and the master every sshd's."""
        master = next(each.name for each in self.plan.nodes if each.group == "master")
        for each in self.plan.nodes:
            ssh.authorize(self._folder(each.name), self.facts[master]["client_key"])
        host_keys = {each.name: self.facts[each.name]["host_key"] for each in self.plan.nodes}
        ssh.write_client_files(self._folder(master), self.plan, host_keys)

    @property
    def notes(self) -> list[str]:
        """What the lab could not be given."""
        return [note for facts in self.facts.values() for note in facts.get("notes", [])]

    def _folder(self, name: str) -> Path:
        """ssh.FOLDER of node `name`, seen from here."""
        return Path(f"/proc/{self.facts[name]['pid']}/root{ssh.FOLDER}")


def _words(error: BaseException) -> str:
    if isinstance(error, PktswarmError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()[-3000:]


if __name__ == "__main__":
    main(sys.argv[1:])
