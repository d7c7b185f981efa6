"""Installs ansible-core on first use, runs a playbook on an inventory, and parses its recap."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pktswarm.master.cluster import inventory
from pktswarm.traffic.errors import BadInput, EngineError

FOLDER = Path(__file__).resolve().parents[2] / "ansible"
LOCK = FOLDER / "requirements.lock"
Action = Literal["provision", "check", "undo"]
"""Names of the playbooks. `check` only reads."""
FINDING = re.compile(r'"msg": "(\S+?): (.+)"')
"""A host's name, and what was found there or why it is refused, as the role's tasks print it."""
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\b", re.MULTILINE)
END_S = 5.0


@dataclass(frozen=True)
class Provisioned:
    """One host of Ansible's recap: numbers of tasks."""

    host: str
    ok: int
    changed: int
    unreachable: int
    failed: int
    finding: str = ""
    """What a check found."""


@dataclass(frozen=True)
class Outcome:
    hosts: tuple[Provisioned, ...]
    words: str
    """Output of Ansible."""

    @property
    def failed(self) -> list[str]:
        return [host.host for host in self.hosts if host.unreachable or host.failed]

    def document(self) -> dict[str, object]:
        return {"hosts": [asdict(host) for host in self.hosts], "failed": self.failed}


def check(hosts: Path) -> inventory.Inventory:
    """Loads the inventory. Raises BadInput for a lab, whose nodes have this machine's files, unless they are bare."""
    if not LOCK.exists():
        allowed = "a whole installation of pktswarm, which has the folder ansible"
        raise BadInput("provision", f"no playbooks in {FOLDER}", allowed=allowed)
    found = inventory.load(hosts)
    if found.variables.get("pktswarm_lab") and not found.variables.get("pktswarm_bare"):
        problem = "the nodes of this lab share the files of this machine"
        raise BadInput(hosts, problem, allowed="pktswarm lab up --bare bookworm --name …")
    return found


def fetch_ansible() -> None:
    """Installs ansible-core in this environment by its lock file, if it is not installed. Raises EngineError."""
    stamp, digest = Path(sys.prefix) / ".ansible-lock", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if _is_fetched(stamp, digest):
        return
    folder = os.open(sys.prefix, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # another command may be at it
        if not _is_fetched(stamp, digest):
            _fetch_ansible(stamp, digest)
    except OSError as error:
        raise EngineError("provision", f"ansible-core was not installed in {sys.prefix}: {error.strerror}") from None
    finally:
        os.close(folder)


def _is_fetched(stamp: Path, digest: str) -> bool:
    return stamp.exists() and stamp.read_text() == digest


def _fetch_ansible(stamp: Path, digest: str) -> None:
    print("provision: installing ansible-core", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--require-hashes", "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError("pip", "ansible-core was not installed", "\n".join(done.stderr.strip().splitlines()[-5:]))
    stamp.write_text(digest)


def play(hosts: inventory.Inventory, action: Action, show: Callable[[str], None]) -> Outcome:
    """Runs the playbook on all hosts, with `show` for each line. Raises EngineError if Ansible itself fails."""
    with tempfile.TemporaryDirectory(prefix="pktswarm-") as scratch:
        process = subprocess.Popen(
            command(hosts, action),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(scratch),
            start_new_session=True,
        )
        try:
            output = _read_output(process, show)
        finally:
            _end(process)
            _close_connections(Path(scratch) / "ssh")
    outcome = read(output, process.returncode)
    return with_findings(outcome) if action == "check" else outcome


def command(hosts: inventory.Inventory, action: Action) -> list[str]:
    playbook = FOLDER / f"{action}.yml"
    found = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(hosts.path.resolve()), str(playbook)]
    # A lab's master is this machine.
    return [*found, "--limit", "transmit:receive"] if hosts.variables.get("pktswarm_lab") else found


def read(words: str, status: int) -> Outcome:
    """Parses the recap in `words`. Raises EngineError without one: no host was reached, or Ansible failed."""
    recap = words.rpartition("PLAY RECAP")[2]
    found = [_provisioned(*row) for row in RECAP.findall(recap)] if recap != words else []
    if not found or (status != 0 and not any(host.unreachable or host.failed for host in found)):
        raise EngineError("ansible-playbook", f"exit status {status} without a failed host", words[-2000:])
    return Outcome(tuple(found), words)


def _provisioned(host: str, ok: str, changed: str, unreachable: str, failed: str) -> Provisioned:
    return Provisioned(host, int(ok), int(changed), int(unreachable), int(failed))


def with_findings(outcome: Outcome) -> Outcome:
    """Adds to each host the last message about it."""
    findings = dict(FINDING.findall(outcome.words))
    return replace(outcome, hosts=tuple(replace(one, finding=findings.get(one.host, "")) for one in outcome.hosts))


def environment(scratch: str) -> dict[str, str]:
    """Returns an environment that keeps all of Ansible's files in `scratch`."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg"),
        "ANSIBLE_HOME": scratch,
        "ANSIBLE_LOCAL_TEMP": scratch,
        "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{scratch}/ssh",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
    }


def _read_output(process: subprocess.Popen[str], show: Callable[[str], None]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        show(line.rstrip())
    process.wait()
    return "".join(lines)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process group, with Ansible's workers, after Ctrl-C."""
    for step in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, step)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue


def _close_connections(folder: Path) -> None:
    """Closes SSH's persistent connections."""
    for path in folder.iterdir() if folder.is_dir() else ():
        command = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "--", "any"]
        subprocess.run(command, capture_output=True, check=False, timeout=END_S)
