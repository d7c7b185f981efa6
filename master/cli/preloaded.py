"""A process with the program loaded, which makes a copy of itself for each command of a cluster that is up.

It listens on the socket that master.cli.entry names. A command is taken only from a process in the same circumstances:
user, capabilities, namespaces, limits, and the variables that act while a program is loaded. The copy gets that
process's streams, working directory, environment and ignored signals; signals are passed on to it, and it dies with
the process. The standard input of this process is a pipe, over which `cluster up` reports the daemon's process: with
that, or with the pipe, it ends; and when a loaded file has changed, which it notices at the next command.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO, cast

from pktswarm.master.cli import app
from pktswarm.master.cli.entry import ANSWER_S, PASSED_ON, socket_name
from pktswarm.traffic.errors import MessageError
from pktswarm.traffic.protocol.invocations import (
    Declined,
    Ended,
    Go,
    Invocation,
    Invoke,
    Ready,
    decode_invocation,
)
from pktswarm.traffic.protocol.messages import Lines, peer

LATER = (
    *("run.run", "run.kept_ranks", "live.watch", "report", "report.page", "results.terminal", "cluster.dut"),
    *("search.engine", "rfc2544.tester", "y1564.tester", "calibrate.measure", "doctor.ask"),
)
"""Modules of pktswarm.master that commands load when they begin."""
LAB = "pktswarm.lab"
"""Loaded by commands with the inventory of a lab."""
STATUS = (
    *("Uid", "Gid", "Groups", "SigBlk", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"),
    *("Cpus_allowed", "Mems_allowed"),
)
"""Lines of /proc/PID/status that a copy would inherit from here, and not from the command's process."""
SCHEDULING = (18, 19, 40, 41)
"""Priority, nice value, real-time priority and policy: fields of /proc/PID/stat (proc(5))."""
LOADING = (
    *("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENBLAS_", "OMP_", "MPL", "NO_COLOR", "TERM"),
    *("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TYPER_", "COLORTERM", "TTY_"),
)
"""First parts of the names of variables that the interpreter or a module reads while it is loaded."""


class Request(NamedTuple):
    """A command to work for."""

    lines: Lines[Invocation]
    descriptors: list[int]
    order: Invoke
    ignored: set[int]
    """Signals that its process ignores."""
    umask: int


class Preloaded:
    def __init__(self, name: str, life: int) -> None:
        """`life`: a descriptor that can be read when the cluster has ended. Raises OSError where `name` is taken."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(name)
        self._listener.listen(16)
        self._life = life
        self._wake, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_writer)
        self._working: dict[int, Lines[Invocation]] = {}
        """Copies that work, and the connections to their commands."""
        self._files = _loaded_files()
        self._states = _states(self._files)
        self._is_old = False
        """Whether one of them has changed since."""

    def serve(self) -> Request | None:
        """Returns None when the cluster has ended, and, in a copy of this process, the command that it works for."""
        while True:
            watched = [self._listener.fileno(), self._life, self._wake]
            ready = select.select(watched, [], [])[0]
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._reap()
            if self._life in ready:
                return None
            if self._listener.fileno() not in ready:
                continue
            if (request := self._received()) and self._is_copy(request):
                return request
            if self._is_old:
                return None

    def _received(self) -> Request | None:
        """The command of a new connection; None: it was declined."""
        connection, _ = self._listener.accept()
        lines, descriptors = Lines(connection, decode_invocation), list[int]()
        connection.settimeout(ANSWER_S)
        try:
            command = peer(connection)
            if command.uid != os.geteuid():  # nothing is read of a stranger, who could keep this process at it
                raise MessageError("not the same user")
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
            order = lines.next(ANSWER_S)
            if not isinstance(order, Invoke) or len(descriptors) != 4:
                raise MessageError("no invocation came")
            process = Path("/proc", str(command.pid))
            status, own = _status(process), Path("/proc/self")
            theirs, ours = _circumstances(process, status), _circumstances(own, _status(own))
            if differing := difference(theirs, ours, order.environment):
                raise MessageError(differing)
            return Request(lines, descriptors, order, _ignored(status), int(status["Umask"], 8))
        except (OSError, MessageError) as error:
            _close(descriptors)
            with contextlib.suppress(OSError):
                lines.send(Declined(str(error)))
            connection.close()
            return None

    def _is_copy(self, request: Request) -> bool:
        pid = os.fork()
        if pid == 0:
            self._let_go()
            return True
        _close(request.descriptors)
        self._working[pid] = request.lines
        # While the copy gets ready, which waits for the command.
        self._is_old = self._states != _states(self._files)
        with contextlib.suppress(OSError):  # its end shows in the copy
            request.lines.send(Declined("a loaded file has changed") if self._is_old else Ready(pid))
        return False

    def _let_go(self) -> None:
        """In a copy: of everything that is not the command's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._listener.close()
        _close([self._life, self._wake, self._wake_writer])
        for lines in self._working.values():
            lines.socket.close()

    def _reap(self) -> None:
        """A copy reports its exit status itself; where a signal ended it, this is done here."""
        for pid in list(self._working):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            lines = self._working.pop(pid)
            if os.WIFSIGNALED(status):
                with contextlib.suppress(OSError):
                    lines.send(Ended(-os.WTERMSIG(status)))
            lines.socket.close()


def _close(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)


# --- circumstances ------------------------------------------------------------------------------------------------


def _loaded_files() -> list[str]:
    """The files of all modules that are loaded now."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in files if isinstance(file, str)]


def _states(files: Iterable[str]) -> list[tuple[int, int]]:
    """Time of the last change and size of each; zeros of one that is gone. A thousand files, for each command: not by
    way of pathlib, which takes three times as long."""
    found = []
    for file in files:
        try:
            state = os.stat(file)  # noqa: PTH116
        except OSError:
            found.append((0, 0))
        else:
            found.append((state.st_mtime_ns, state.st_size))
    return found


def _circumstances(process: Path, status: Mapping[str, str]) -> dict[str, str]:
    """What a process inherits, and a copy of this process would inherit from here instead. `process`: its folder in
    /proc. Raises OSError."""
    behind_name = (process / "stat").read_text().rpartition(")")[2].split()  # from field 3 on
    return {
        **{name: status.get(name, "") for name in STATUS},
        **{f"namespace {each.name}": str(each.readlink()) for each in (process / "ns").iterdir()},
        "root": str((process / "root").readlink()),
        "limits": (process / "limits").read_text(),
        "scheduling": " ".join(behind_name[field - 3] for field in SCHEDULING),
        "oom_score_adj": (process / "oom_score_adj").read_text(),
    }


def difference(theirs: Mapping[str, str], ours: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The first circumstance or variable that differs; empty: none."""
    pairs = [(theirs, ours), (_at_loading(environment), _at_loading(os.environ))]
    differing = [name for one, other in pairs for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    return f"not the same {min(differing)}" if differing else ""


def _at_loading(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(LOADING)}


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _ignored(status: Mapping[str, str]) -> set[int]:
    mask = int(status["SigIgn"], 16)
    return {number for number in PASSED_ON if mask >> (number - 1) & 1}


# --- the copy -----------------------------------------------------------------------------------------------------


def work(request: Request, do: Callable[[], None]) -> NoReturn:
    """Become the process of a command, do it, and end without freeing every object first, which takes as long as the
    rest of a short command."""
    _become(request)
    if not isinstance(request.lines.next(None), Go):
        os._exit(0)  # nobody is there
    _die_with(request.lines.socket)
    status = _done(do)
    with contextlib.suppress(OSError):
        request.lines.send(Ended(status))
    os._exit(status)


def _become(request: Request) -> None:
    os.setsid()
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN if number in request.ignored else signal.SIG_DFL)
    for descriptor, place in zip(request.descriptors, (0, 1, 2), strict=False):
        os.dup2(descriptor, place)
    os.fchdir(request.descriptors[3])
    _close(request.descriptors)
    os.umask(request.umask)
    os.environ.clear()
    os.environ.update(request.order.environment)
    time.tzset()
    sys.argv = [request.order.program, *request.order.words]
    _open_streams()


def _open_streams() -> None:
    """As the interpreter opens them at its start."""
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    lines = 1 if os.isatty(1) else -1
    sys.stdin = _opened(0, "r", -1, encoding, errors)
    sys.stdout = _opened(1, "w", lines, encoding, errors)
    sys.stderr = _opened(2, "w", 1, encoding, "backslashreplace")


def _opened(descriptor: int, mode: str, buffering: int, encoding: str, errors: str | None) -> TextIO:
    return cast("TextIO", open(descriptor, mode, buffering, encoding, errors, closefd=False))


def _die_with(connection: socket.socket) -> None:
    """The end of the connection is the end of the command's process, however it ended."""

    def look(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGIO, look)
    signal.siginterrupt(signal.SIGIO, False)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    look()


def _done(do: Callable[[], None]) -> int:
    """The exit status that the interpreter would give."""
    status = 0
    try:
        do()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    return status & 0xFF


def _life() -> int:
    """A descriptor of the daemon's process, whose number comes over the standard input. Exits where none comes. Raises
    OSError where the kernel has no such descriptors (before Linux 5.3), or the daemon is gone."""
    number = sys.stdin.readline().strip()
    if not number.isdigit():
        sys.exit(0)
    return os.pidfd_open(int(number))


def main() -> None:
    """Serve the inventory that the first argument names."""
    for name in LATER:
        importlib.import_module(f"pktswarm.master.{name}")
    importlib.import_module(LAB)
    life = _life()
    try:
        preloaded = Preloaded(socket_name(sys.argv[1]), life)
    except OSError:
        return  # there is one
    print("ready", flush=True)
    gc.collect()
    gc.freeze()  # copies share what the collector does not touch
    request = preloaded.serve()
    if request is not None:
        work(request, app.main)
