"""mpiexec over SSH: the command, the process, and what went wrong when the ranks do not come up."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pktswarm.master.cluster import ssh
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.protocol.messages import peer

REAP_S = 3.0
LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S = 20.0, 5.0
MPI_SETTINGS = {
    # Left to itself MPICH talks through shared memory between hosts that share a kernel.
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "MPIR_CVAR_NOLOCAL": "1",
    "FI_PROVIDER": "tcp",
    # The size of 1024 buffers for messages that no receive waits for; longer messages do without. By default they are
    # 16 MB of each rank, and 10 ms of its start.
    "FI_TCP_MAX_RX_SIZE": "1024",
    # UCX, which the wheel's MPICH loads and this does not use, would spin for 45 ms to patch mmap() and its like.
    "UCX_MEM_EVENTS": "no",
}


def who() -> str:
    """The user and host of this process, for others that want the same nodes."""
    return f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"


class Launch:
    """The ranks of one launch, and the socket on which rank 0 answers. `standby`: the abstract socket on which rank 0
    of a cluster that stays up begins runs."""

    def __init__(self, inventory: Inventory, ranks: list[Rank], patience: float = 1.0, standby: str = "") -> None:
        self.inventory, self.ranks, self.patience, self.standby = inventory, ranks, patience, standby
        # An abstract socket and an unlinked file: even SIGKILL leaves nothing of them.
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        self._last_words = ""
        self.run = secrets.token_hex(8)
        self.control = "pktswarm-" + secrets.token_hex(16)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"\0{self.control}")
        self.listener.listen(1)
        self.process: subprocess.Popen[bytes] | None = None
        self._without_mpi = [rank for rank in ranks if rank.host.mpi == "none"]
        self._connections: list[subprocess.Popen[bytes]] = []
        """SSH of the ranks without MPI, in their order."""

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            # Ctrl-C is the command line's: mpiexec would kill every rank at once.
            start_new_session=True,
        )
        for rank in self._without_mpi:
            self._connections.append(
                subprocess.Popen(
                    ssh.command(self.inventory, rank.host, [*self._program(rank), "--over", "pipes"]),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self.output,
                    bufsize=0,
                    start_new_session=True,
                )
            )

    def command(self) -> list[str]:
        master = self.inventory.master
        # mpiexec starts its proxy on every host from the folder that it is in here itself: one path for all hosts.
        mpiexec = Path(master.python or sys.executable).with_name("mpiexec")
        command = [str(mpiexec), "-launcher", "ssh", "-disable-auto-cleanup"]
        command += ["-localhost", master.address, "-hosts", self.slots()]
        roles = json.dumps([rank.role for rank in self.ranks])
        rank0 = [master.python or sys.executable, "-P", "-m", "pktswarm.master.run.rank0"]
        rank0 += ["--control", self.control, "--roles", roles, "--user", master.user]
        rank0 += ["--patience", str(self.patience)]
        rank0 += ["--standby", self.standby, "--owner", str(os.geteuid())] if self.standby else []
        if self._without_mpi:
            rank0 += ["--without-mpi", json.dumps([rank.number for rank in self._without_mpi])]
        command += self._section(master, rank0)
        for rank in self._with_mpi():
            command += [":", *self._section(rank.host, self._program(rank))]
        return command

    def _with_mpi(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank not in self._without_mpi]

    def _program(self, rank: Rank) -> list[str]:
        by = who() + (":cluster" if self.standby else "")
        words = [rank.host.python or sys.executable, "-P", "-m", "pktswarm.nodes"]
        words += ["--role", rank.role, "--host", rank.host.name]
        words += ["--interface", rank.host.traffic_interface, "--user", rank.host.user]
        return [*words, "--master", self.inventory.master.address, "--run", self.run, "--by", by]

    @staticmethod
    def _section(host: Host, program: list[str]) -> list[str]:
        interface = ["-env", "FI_TCP_IFACE", host.control_interface] if host.control_interface else []
        # The folder is said for each: where it is not, it is mpiexec's own, which a node need not have.
        return ["-n", "1", "-wdir", "/", *interface, *program]

    def slots(self) -> str:
        """One slot a rank, in their order: mpiexec fills them one after another."""
        hosts = [self.inventory.master, *(rank.host for rank in self._with_mpi())]
        return ",".join(f"{host.address}:1" for host in hosts)

    def environment(self) -> dict[str, str]:
        environment = {**os.environ, **MPI_SETTINGS}
        environment["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(ssh.options(self.inventory))
        return environment

    def accept(self, timeout_s: float) -> socket.socket:
        """Rank 0's connection. Raises BadInput naming the host that kept the ranks from coming up."""
        self.listener.settimeout(0.05)
        deadline = time.monotonic() + timeout_s * self.patience
        while time.monotonic() < deadline and self.running():
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            if peer(connection).uid == os.geteuid():
                self._hand_over_pipes(connection)
                return connection
            connection.close()  # a stranger guessed the name
        raise self.diagnose()

    def _hand_over_pipes(self, rank0: socket.socket) -> None:
        """rank0.take_pipes() has them first."""
        pipes = [pipe for each in self._connections for pipe in (each.stdout, each.stdin) if pipe is not None]
        if pipes:
            socket.send_fds(rank0, [b"p"], [pipe.fileno() for pipe in pipes])
        for pipe in pipes:
            pipe.close()

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def diagnose(self, hosts: list[Host] | None = None) -> PktswarmError:
        """Ask every host by itself what SSH says; the first that does not answer is the reason."""
        asked = hosts or list(self.inventory.hosts)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(self._try_ssh, asked))
        for host, problem in zip(asked, answers, strict=True):
            if problem:
                return BadInput(host.name, problem, key="ansible_host", value=host.address)
        return PktswarmError(f"the ranks did not start; output of mpiexec: {self.messages() or 'nothing'}")

    def messages(self) -> str:
        """What mpiexec and the ranks printed: nothing, when all is well."""
        if not self.output.closed:
            self.output.seek(0)
            self._last_words = self.output.read().decode(errors="replace").strip()[-4000:]
        return self._last_words

    def _try_ssh(self, host: Host) -> str:
        python = host.python or sys.executable
        loads = "pktswarm.nodes.rank" if host.mpi == "none" else "pktswarm.nodes.rank, pktswarm.nodes.mpi"
        command = ssh.command(self.inventory, host, [python, "-P", "-c", f"import {loads}"])
        limit_s = (ssh.CONNECT_TIMEOUT_S + 10) * self.patience
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return "does not answer"
        if done.returncode == 0:
            return ""
        return ssh.trouble(done.returncode, done.stderr, python)

    def stop(self) -> None:
        """End mpiexec and everything it started here; the nodes' guards notice by themselves."""
        if self.process is not None:
            for step in (signal.SIGTERM, signal.SIGKILL):
                if not self.running():
                    break
                os.killpg(self.process.pid, step)
                self._wait(3.0)
            self.process.wait()
            for connection in self._connections:
                connection.kill()
                connection.wait()
            _reap_children()
        self.messages()
        self.listener.close()
        self.output.close()

    def wait(self, seconds: float) -> bool:
        """True when mpiexec ended by itself in time. The ranks without MPI leave at the same time."""
        deadline = time.monotonic() + seconds
        self._wait(seconds)
        for connection in self._connections:
            with contextlib.suppress(subprocess.TimeoutExpired):
                connection.wait(max(0.0, deadline - time.monotonic()))
        return not self.running()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.01)


def _reap_children() -> None:
    """What mpiexec left behind became ours (see adopt_orphans); it is killed by its id."""
    deadline = time.monotonic() + REAP_S
    while (left := _children()) and time.monotonic() < deadline:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> list[int]:
    """The child processes, found by the parent of every process: not every kernel lists the children of one."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                    pids.append(int(entry.name))
    return pids
