"""The operations on a lab: up, down, status, names, enter, run_in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, NotRequired, TypedDict

from pktswarm.lab import bare as bare_nodes
from pktswarm.lab import namespaces, record_file, ssh
from pktswarm.lab.birth import Birth, kill_and_wait, started_ticks
from pktswarm.lab.plan import MOST_MTU_XDP, Dut, Plan, Switch, check_name, plan
from pktswarm.lab.record_file import Keeper
from pktswarm.lab.upf.orders import ask
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.lab.switch.tables import Switch as Switched

HOSTS = Path("hosts")
DOWN_TIMEOUT_S = 15.0
GUEST_GRACE_S = 5.0
"""Time that `down` gives the processes in the lab to end in order."""


@dataclass(frozen=True)
class LabState:
    """A lab that is up. `inventory` is for `pktswarm run --hosts`."""

    name: str
    inventory: Path
    keeper: Keeper
    plan: Plan
    notes: tuple[str, ...] = ()
    """What the lab lacks."""


class LabStatus(TypedDict):
    """`why`: the reason when the lab is not up. The processes are those of a lab that is up."""

    name: str
    inventory: str
    up: bool
    why: str
    keeper_pid: NotRequired[int]
    keeper_started: NotRequired[int]
    master_pid: NotRequired[int]
    pids: NotRequired[dict[str, int]]


def up(
    name: str = "default",
    transmit: int = 3,
    receive: int = 3,
    hosts_dir: Path = HOSTS,
    mtu: int = 1500,
    bottleneck_bps: int = 0,
    queue_bytes: int = 0,
    both_roles: bool = False,
    dut: Dut = "switch",
    command: Sequence[str] = (),
    routes: Sequence[str] = (),
    bare: str = "",
    switch: Switch | None = None,
) -> LabState:
    """Brings up lab `name` and writes its inventory. An interruption leaves nothing behind.

    `dut`: the device under test; "exec" runs `command`. `routes`: "PREFIX=NODE", routes of it by way of a node.
    `bare`: the Debian release of nodes with a root file system of their own, which is made on first use.
    `switch`: None is xdp where this machine and the MTU allow it, else bridge.
    Raises BadInput for invalid arguments, without root, without the tools, or if the lab is up already; PktswarmError
    if it did not come up.
    """
    shape = plan(
        name, transmit, receive, mtu, bottleneck_bps, queue_bytes, dut, command, routes, bare, switch or "bridge"
    )
    if command and not shutil.which(command[0]):
        raise BadInput(f"lab {name}", "not a command on this machine", key="command", value=command[0])
    _need_root()
    ssh.check_tools()
    by, notes = _switch(name, switch, mtu)
    # Users' packets pass a UPF in both directions.
    the_plan = replace(shape, both_roles=both_roles or shape.upf is not None, switch=by)
    if bare:
        bare_nodes.check(name, bare)
        bare_nodes.make_root(bare)
    hosts_dir.mkdir(parents=True, exist_ok=True)
    path = record_file.path_of(name, hosts_dir)
    with _one_at_a_time(hosts_dir):
        if _living(path):
            raise BadInput(path, f"lab {name} is up already (end it with: pktswarm lab down --name {name})")
        with _removed_on_error(path), Birth(the_plan) as birth:
            keeper = birth.await_keeper()
            record_file.profile_of(path).unlink(missing_ok=True)
            record_file.write(path, the_plan, keeper)
            birth.stay()
    return LabState(name, path, keeper, the_plan, (*birth.notes, *notes))


def _switch(name: str, asked: Switch | None, mtu: int) -> tuple[Switch, list[str]]:
    """Returns the kind of the lab's switches, and a note where the default is not what it usually is."""
    if asked == "bridge":
        return asked, []
    from pktswarm.lab.switch import xdp

    why = xdp.missing() or (f"an MTU of {mtu} is above {MOST_MTU_XDP}" if mtu > MOST_MTU_XDP else "")
    if asked == "xdp" and why:
        raise BadInput(f"lab {name}", why, key="switch", value=asked, allowed="bridge")
    return ("bridge", [f"the switches are bridges: {why}"]) if why else ("xdp", [])


def down(name: str = "default", hosts_dir: Path = HOSTS) -> None:
    """Ends lab `name`: its processes, and with them its namespaces and interfaces; removes inventory and UPF profile.

    Processes in it get SIGTERM first, so that a rank's guard can clean up. If only the inventory exists, it is removed.
    Raises BadInput if there is neither.
    """
    check_name(name)
    _need_root()
    path = record_file.path_of(name, hosts_dir)
    keeper = record_file.read(path)
    if keeper is None:
        raise BadInput(path, f"there is no lab {name}", allowed=", ".join(names(hosts_dir)) or "none is up")
    with _one_at_a_time(hosts_dir):
        if _is_alive(keeper):
            networks = _networks(keeper)
            _end_guests(keeper)
            kill_and_wait(keeper.keeper_pid, DOWN_TIMEOUT_S, keeper.keeper_started)
            # Guards that were frozen or killed left their folders in the machine's file system.
            subprocess.run([sys.executable, "-P", "-m", "pktswarm.nodes.stale_spools", *map(str, networks)], check=True)
        if record_file.read(path) == keeper:
            path.unlink()
            record_file.profile_of(path).unlink(missing_ok=True)


def wait_for_runs(inventory: Path, timeout_s: float) -> None:
    """Waits for the end of runs and of a cluster that is up in the lab, at most `timeout_s`."""
    keeper, deadline = record_file.read(inventory), time.monotonic() + timeout_s
    while keeper is not None and any(map(_is_run, _guests(keeper))) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_run(pid: int) -> bool:
    try:
        return b"pktswarm.master." in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def status(name: str = "default", hosts_dir: Path = HOSTS) -> LabStatus:
    """Returns whether the lab is up, and its processes."""
    check_name(name)
    path = record_file.path_of(name, hosts_dir)
    keeper = record_file.read(path)
    answer: LabStatus = {"name": name, "inventory": str(path), "up": False, "why": ""}
    if keeper is None:
        return {**answer, "why": "it was not brought up"}
    if not _is_alive(keeper):
        return {**answer, "why": f"its keeper, process {keeper.keeper_pid}, is gone"}
    return {
        **answer,
        "up": True,
        "keeper_pid": keeper.keeper_pid,
        "keeper_started": keeper.keeper_started,
        "master_pid": keeper.master_pid,
        "pids": keeper.pids,
    }


def names(hosts_dir: Path = HOSTS) -> list[str]:
    """Returns the names of the labs that are up."""
    files = sorted(hosts_dir.glob("lab-*.yml"))
    return [path.stem.removeprefix("lab-") for path in files if _living(path)]


def enter(lab: str | Path, node: str = "m0", hosts_dir: Path = HOSTS) -> None:
    """Moves this process to `node`: its network, host name and files. `lab`: a name or an inventory.

    To be called before any thread is started. The process keeps its number and its children, so it gets a /proc with
    them, in a mount namespace of its own. Raises BadInput if the lab is not up or has no such node.
    """
    path = lab if isinstance(lab, Path) else record_file.path_of(lab, hosts_dir)
    _need_root()
    namespaces.enter(_node_pid(path, node))
    namespaces.unshare(namespaces.MOUNT)
    namespaces.mount_proc()


def network_files(lab: str | Path, node: str, hosts_dir: Path = HOSTS) -> Path:
    """Returns the path of `/proc/net` of `node`, also for processes in the lab. Raises BadInput as enter() does."""
    path = lab if isinstance(lab, Path) else record_file.path_of(lab, hosts_dir)
    return Path(f"/proc/{_node_pid(path, node)}/net")


def run_in(lab: str | Path, node: str, command: list[str], hosts_dir: Path = HOSTS) -> int:
    """Runs `command` on `node` with this terminal; returns its exit status (128 + signal if one ended it).

    It ends with the lab, and with the caller. Raises BadInput as enter() does, or if there is no such command.
    """
    path = lab if isinstance(lab, Path) else record_file.path_of(lab, hosts_dir)
    _need_root()
    pid = _node_pid(path, node)
    if not command or not shutil.which(command[0]):
        raise BadInput("lab exec", "not a command on this machine", key="command", value=" ".join(command[:1]))
    child = os.fork()
    if child == 0:
        _be_command(pid, command)
    return _wait_for(child)


def switches(lab: str | Path, hosts_dir: Path = HOSTS) -> list[Switched]:
    """The tables and counters of a lab's switches in XDP, with the one under test. BadInput if there are none."""
    from pktswarm.lab.switch import tables  # pyroute2 takes longer to load than most commands need in all

    path = record_file.path_of(lab, hosts_dir) if isinstance(lab, str) else lab
    found = []
    for host in ("switch", "dut"):
        with namespaces.network_of(_node_pid(path, host)):
            found += tables.read()
    if not found:
        raise BadInput(path, "the lab has bridges", allowed="pktswarm lab exec switch -- bridge fdb show")
    return found


def order_upf(lab: str | Path, order: Mapping[str, object], hosts_dir: Path = HOSTS) -> dict[str, Any]:
    """Sends an order to the lab's own UPF (docs/lab.md); returns the answer. BadInput if wrong, or without UPF."""
    path = lab if isinstance(lab, Path) else record_file.path_of(lab, hosts_dir)
    _need_root()
    orders = Path(f"/proc/{_node_pid(path, 'dut')}/root{ssh.UPF_ORDERS}")
    try:
        return ask(orders, order)
    except OSError:
        raise BadInput(path, "its device under test is not the lab's UPF, or it has ended (see --dut upf)") from None


def _need_root() -> None:
    if os.geteuid() != 0:
        raise BadInput("lab", "needs root, to make network namespaces (try: sudo pktswarm lab …)")


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Serializes `up` and `down`, by a lock of the folder, which leaves no file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _is_alive(keeper: Keeper) -> bool:
    return started_ticks(keeper.keeper_pid) == keeper.keeper_started


def _living(path: Path) -> bool:
    keeper = record_file.read(path)
    return keeper is not None and _is_alive(keeper)


def _node_pid(path: Path, node: str) -> int:
    """Returns the process that holds the namespaces of `node`."""
    keeper = record_file.read(path)
    if keeper is None or not _is_alive(keeper):
        name = path.stem.removeprefix("lab-")
        raise BadInput(path, f"lab {name} is not up (bring it up with: pktswarm lab up --name {name})")
    pid = keeper.pids.get(node, 0)
    if not pid:
        raise BadInput(path, "there is no such node", key="node", value=node, allowed=", ".join(keeper.pids))
    if _namespace(pid, "pid") != _namespace(keeper.keeper_pid, "pid"):
        raise BadInput(path, f"node {node} is dead: bring the lab down and up again")
    return pid


def _namespace(pid: int | str, kind: str) -> int | None:
    """Returns the namespace's inode; None if the process has ended, or is not accessible (so not of the lab)."""
    try:
        return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _guests(keeper: Keeper) -> list[int]:
    """Returns the processes in the nodes beside their keepers: from outside, which hold namespaces, or of an sshd."""
    networks = {_namespace(pid, "net") for pid in keeper.pids.values()} - {None, _namespace("self", "net")}
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    keepers = {keeper.keeper_pid, *keeper.pids.values()}
    return [pid for pid in sorted(pids - keepers) if _namespace(pid, "net") in networks]


def _networks(keeper: Keeper) -> set[int]:
    """Returns the inodes of the network namespaces that still exist."""
    found = set()
    for pid in keeper.pids.values():
        with contextlib.suppress(FileNotFoundError):
            found.add(Path(f"/proc/{pid}/ns/net").stat().st_ino)
    return found


def _end_guests(keeper: Keeper) -> None:
    for step in (signal.SIGTERM, signal.SIGKILL):
        for pid in _guests(keeper):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, step)
        deadline = time.monotonic() + GUEST_GRACE_S
        while _guests(keeper) and time.monotonic() < deadline:
            time.sleep(0.02)


def _be_command(pid: int, command: list[str]) -> NoReturn:
    """In a child process: enters the node, and runs the command in a child, which is in the lab's PID namespace."""
    status = 126
    try:
        namespaces.die_with_parent()
        namespaces.enter(pid, namespaces.NODE | namespaces.PID)
        child = os.fork()
        if child == 0:
            namespaces.die_with_parent()
            os.execvp(command[0], command)  # noqa: S606
        status = _wait_for(child)
    except OSError as error:
        print(f"lab exec: {error}", file=sys.stderr)
    finally:
        os._exit(status)


def _wait_for(child: int) -> int:
    """Returns the exit status of `child`. SIGINT goes to the child alone, as in a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
