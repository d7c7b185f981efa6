"""Starts Python programs of tests by fork, from a process that has loaded their modules: `fork_server.py SOCKET`.

A request on the Unix socket is a JSON object with descriptors: standard input, output, error, and the network namespace
of the caller. The answers are the process's number, and later its wait status. Ends when standard input does.

`fork_server.py SOCKET command WORDS` runs `pktswarm WORDS` as such a process, for shell scripts: it passes SIGINT and
SIGTERM on, and ends with the command's exit status or signal.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypedDict

MODULES = (
    "pktswarm.lab.api pktswarm.master.calibrate.page pktswarm.master.cli.app pktswarm.master.compare.page "
    "pktswarm.master.doctor.judge pktswarm.master.live.metrics pktswarm.master.live.watch "
    "pktswarm.master.plan.explain pktswarm.master.report pktswarm.master.results.recount pktswarm.master.rfc2544.page "
    "pktswarm.master.run.run pktswarm.master.search.page pktswarm.master.tables.document "
    "pktswarm.master.upf.control_plane pktswarm.master.upf.probe.outcome pktswarm.nodes.engines "
    "pktswarm.nodes.receivers.xdp pktswarm.nodes.senders.xdp rich.status subprocess tempfile"
).split()
COVERAGE = "PKTSWARM_TESTS_COVERAGE"
DESCRIPTORS = 4
LOADING_S = 120.0
NUMBER_BYTES = 4
"""Of the number of a process, and of a wait status."""
CLONE_NEWNET, CLONE_NEWNS, MS_REC, MS_SLAVE = 0x40000000, 0x20000, 0x4000, 0x80000


class Request(TypedDict):
    """`words`: those of Python behind its name, `-c CODE …`; or of the command line. `netns`: as `ip netns` names it,
    or a path."""

    command: bool
    words: list[str]
    netns: str
    folder: str
    environment: dict[str, str]


def ask(
    path: str, request: Request, descriptors: list[int], lives: Callable[[], bool] = lambda: True
) -> tuple[int, socket.socket]:
    """Returns the number of the process, and where its status comes. `lives`: whether the server still runs."""
    connection = _connection(path, lives)
    with Path("/proc/thread-self/ns/net").open() as network:
        socket.send_fds(connection, [b" "], [*descriptors, network.fileno()])
    connection.sendall(json.dumps(request).encode())
    connection.shutdown(socket.SHUT_WR)
    return int.from_bytes(connection.recv(NUMBER_BYTES, socket.MSG_WAITALL), sys.byteorder), connection


def _connection(path: str, lives: Callable[[], bool]) -> socket.socket:
    deadline = time.monotonic() + LOADING_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):  # it still loads
            connection.close()
            assert lives() and time.monotonic() < deadline, "the fork server does not start"
            time.sleep(0.05)


def _command(path: str, words: list[str]) -> int:
    """Returns the exit status of the command, or ends by the signal that ended it."""
    passed = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    folder, environment = str(Path.cwd()), {**os.environ}
    request = Request(command=True, words=words, netns="", folder=folder, environment=environment)
    pid, end = ask(path, request, [0, 1, 2])
    for number in passed:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
    status = end.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    assert len(status) == NUMBER_BYTES, "the fork server ended before its child"
    code = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def main() -> None:
    if sys.argv[2:3] == ["command"]:
        sys.exit(_command(sys.argv[1], sys.argv[3:]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in MODULES:
        importlib.import_module(name)
    _draw_once()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])  # of the file system: an abstract one is in one network namespace only
    listener.listen(16)
    gc.collect()
    gc.freeze()  # else the first collection of each child would copy all of it
    request = _serve(listener)
    if request is not None:  # in a child
        _end(request)


def _draw_once() -> None:
    """What the first page of a process takes a second for: fonts, and compiled templates."""
    import matplotlib

    from pktswarm.master.report import plots, render

    with matplotlib.rc_context(plots.STYLE):
        figure, axes, columns = plots.new_axes("x", "y", ["a line"])
        axes.plot([0, 1], [0, 1], label="a line", **plots.line_style(0))
        plots.svg_of(figure, "name", columns)
    environment = render.environment("")
    for name in environment.list_templates(extensions=["html"]):
        environment.get_template(name)


def _serve(listener: socket.socket) -> Request | None:
    """Returns None at the end, and in each child its request."""
    children: dict[int, tuple[int, socket.socket]] = {}
    """By descriptor of the process."""
    while True:
        ready, _, _ = select.select([0, listener, *children], [], [])
        if 0 in ready and not os.read(0, 1):
            return None
        for handle in children.keys() & {each for each in ready if isinstance(each, int)}:
            pid, connection = children.pop(handle)
            _, status = os.waitpid(pid, 0)
            os.close(handle)
            with contextlib.suppress(OSError):
                connection.send(status.to_bytes(NUMBER_BYTES, sys.byteorder))
            connection.close()
        if listener in ready:
            connection, _ = listener.accept()
            _, descriptors, _, _ = socket.recv_fds(connection, 1, DESCRIPTORS)
            text = b"".join(iter(partial(connection.recv, 1 << 20), b""))
            pid = os.fork()
            if pid == 0:
                _become(descriptors, [listener, connection, *(one for _, one in children.values())], [*children])
                request: Request = json.loads(text)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
            children[os.pidfd_open(pid)] = pid, connection
            connection.send(pid.to_bytes(NUMBER_BYTES, sys.byteorder))


def _become(descriptors: list[int], sockets: list[socket.socket], handles: list[int]) -> None:
    for one in sockets:
        one.close()
    for handle in handles:
        os.close(handle)
    _set_network(descriptors[3])
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in set(descriptors) - {0, 1, 2}:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _measure() -> None:
    """Coverage of this child, into a file of its own beside that of the tests (./bootstrap test --coverage)."""
    import coverage

    measured = coverage.Coverage(config_file=str(Path(__file__).parents[1] / "pyproject.toml"), data_suffix=True)
    measured.start()
    atexit.register(measured.save)
    atexit.register(measured.stop)


def _end(request: Request) -> NoReturn:
    """Its end is that of this process: in Python's order, but without freeing each object, which would copy the memory
    of the server (half of the processor time of a short command)."""
    status: object = 0
    try:
        _run(request)
    except SystemExit as end:
        status = end.code or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(status, int):
            os._exit(status)
    except OSError:
        pass  # Python's own end tries again, and reports it
    sys.exit(status)  # type: ignore[arg-type]  # what SystemExit had


def _run(request: Request) -> None:
    atexit._clear()  # what is registered there is the parent's
    if COVERAGE in os.environ:
        _measure()  # its files are named from this folder
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["netns"]:
        _enter(request["netns"])
    if request["command"]:
        from pktswarm.master.cli import app

        sys.argv = ["pktswarm", *request["words"]]
        sys.exit(app.main())  # type: ignore[func-returns-value]  # as the script that pip installs
    code = request["words"][1]
    sys.argv = ["-c", *request["words"][2:]]
    sys.path[0] = ""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(code, "<string>", "exec"), main.__dict__)  # noqa: S102 - what `python -c` does


def _enter(netns: str) -> None:
    """As `ip netns exec`: /sys is that of the namespace, too."""
    handle = os.open(netns if "/" in netns else f"/run/netns/{netns}", os.O_RDONLY)
    _set_network(handle)
    os.close(handle)
    if "/" not in netns:
        libc = ctypes.CDLL(None, use_errno=True)
        _check(libc.unshare(CLONE_NEWNS))
        _check(libc.mount(b"", b"/", b"none", MS_SLAVE | MS_REC, None))
        _check(libc.mount(netns.encode(), b"/sys", b"sysfs", 0, None))


def _set_network(handle: int) -> None:
    _check(ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET))


def _check(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
