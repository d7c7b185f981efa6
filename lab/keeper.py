"""The keeper: the first process of a lab's PID namespace. While it lives the lab lives.

`python -m lab.keeper NAME TRANSMIT RECEIVE MTU STAY REPORT` is started by lab.api.up. STAY is the end of a pipe: the
lab stays once a byte has come, and ends if the pipe is closed before. On REPORT one JSON line tells what came up.
No namespace is given a name anywhere: with the keeper the kernel ends its processes, and with them everything.
"""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
from typing import NoReturn

from lab import namespaces
from lab.plan import Plan, plan
from traffic.errors import PktswarmError

BUILD_TIMEOUT_S = 60.0


def main(arguments: list[str]) -> None:
    name, transmit, receive, mtu, stay, report = arguments
    the_plan = plan(name, int(transmit), int(receive), int(mtu))
    outer_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    namespaces.unshare(namespaces.PID)
    if os.fork():
        # Only children are in the new PID namespace. Nothing waits for this process but `up`.
        os._exit(0)
    keep(the_plan, outer_proc, int(stay), int(report))


def keep(the_plan: Plan, outer_proc: int, stay: int, report: int) -> NoReturn:
    """Be the lab's init: have it built, wait for the word to stay, then reap orphans for ever."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    namespaces.set_process_name(f"lab-{the_plan.name}")
    os.chdir("/")
    builder = os.fork()
    if builder == 0:
        os.close(stay)
        _build_and_report(the_plan, outer_proc, report)
    os.close(report)
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


def _build_and_report(the_plan: Plan, outer_proc: int, report: int) -> NoReturn:
    try:
        built = Builder(the_plan, outer_proc).build()
        os.write(report, json.dumps(built).encode() + b"\n")
    except BaseException as error:
        os.write(report, json.dumps({"error": _words(error)}).encode() + b"\n")
        os._exit(1)
    os._exit(0)


def _words(error: BaseException) -> str:
    if isinstance(error, PktswarmError):
        return str(error)
    return "".join(traceback.format_exception(error)[-3:]).strip()
