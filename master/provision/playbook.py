"""ansible-playbook: fetched when first asked for, run on an inventory, and its words read."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pktswarm.master.cluster import inventory
from pktswarm.traffic.errors import BadInput, EngineError

FOLDER = Path(__file__).resolve().parents[2] / "ansible"
LOCK = FOLDER / "requirements.lock"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\b", re.MULTILINE)
END_S = 5.0


@dataclass(frozen=True)
class Provisioned:
    """One host of Ansible's recap: how many tasks were in order, of those changed something, and what failed."""

    host: str
    ok: int
    changed: int
    unreachable: int
    failed: int


@dataclass(frozen=True)
class Outcome:
    hosts: tuple[Provisioned, ...]
    words: str
    """All that Ansible printed."""

    @property
    def failed(self) -> list[str]:
        return [one.host for one in self.hosts if one.unreachable or one.failed]

    def document(self) -> dict[str, object]:
        return {"hosts": [asdict(one) for one in self.hosts], "failed": self.failed}


def check(hosts: Path) -> inventory.Inventory:
    """Raises BadInput where provisioning would change this machine: a lab's nodes have its files, unless bare."""
    if not LOCK.exists():
        allowed = "the pktswarm of a source folder, where bootstrap has been run"
        raise BadInput("provision", f"there are no playbooks in {FOLDER}", allowed=allowed)
    found = inventory.load(hosts)
    if found.variables.get("pktswarm_lab") and not found.variables.get("pktswarm_bare"):
        problem = "the nodes of this lab are this machine: there is nothing to provision"
        raise BadInput(hosts, problem, allowed="pktswarm lab up --bare bookworm --name …")
    return found


def fetch_ansible() -> None:
    """ansible-core into this environment, by its lock file; at once when it is there. Raises EngineError."""
    stamp = Path(sys.prefix) / ".ansible-lock"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print("provision: fetching ansible-core, once", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
    done = subprocess.run([*command, "-r", str(LOCK)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError("pip", "ansible-core was not installed", "\n".join(done.stderr.strip().splitlines()[-5:]))
    stamp.write_text(digest)


def play(hosts: inventory.Inventory, undo: bool, show: Callable[[str], None]) -> Outcome:
    """Run the playbook on all hosts; each line is given to `show`. Raises EngineError when Ansible itself failed."""
    with tempfile.TemporaryDirectory(prefix="pktswarm-") as scratch:
        process = subprocess.Popen(
            command(hosts, undo),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(scratch),
            start_new_session=True,
        )
        try:
            words = _listen(process, show)
        finally:
            _end(process)
            _close_connections(Path(scratch) / "ssh")
    return read(words, process.returncode)


def command(hosts: inventory.Inventory, undo: bool) -> list[str]:
    playbook = FOLDER / ("undo.yml" if undo else "provision.yml")
    found = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(hosts.path.resolve()), str(playbook)]
    # A lab's master is the machine itself.
    return [*found, "--limit", "transmit:receive"] if hosts.variables.get("pktswarm_lab") else found


def read(words: str, status: int) -> Outcome:
    """The recap in `words`. Raises EngineError where there is none: then no host was reached, or Ansible failed."""
    recap = words.rpartition("PLAY RECAP")[2]
    found = [Provisioned(row[0], *map(int, row[1:])) for row in RECAP.findall(recap)] if recap != words else []
    if not found or (status != 0 and not any(one.unreachable or one.failed for one in found)):
        raise EngineError("ansible-playbook", f"ended with {status} and no host failed", words[-2000:])
    return Outcome(tuple(found), words)


def _environment(scratch: str) -> dict[str, str]:
    """Nothing of Ansible's stays on the master: what it keeps lies in `scratch`."""
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


def _listen(process: subprocess.Popen[str], show: Callable[[str], None]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        show(line.rstrip())
    process.wait()
    return "".join(lines)


def _end(process: subprocess.Popen[str]) -> None:
    """After Ctrl-C: Ansible's workers are in its group."""
    for step in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, step)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue


def _close_connections(folder: Path) -> None:
    """SSH keeps one to each host for the next task; there is none."""
    for path in folder.iterdir() if folder.is_dir() else ():
        command = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "--", "any"]
        subprocess.run(command, capture_output=True, check=False, timeout=END_S)
