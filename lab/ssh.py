"""sshd on every node, and the keys and settings for logins from the master.

All files are in FOLDER, which on each node is a memory file system of its own, invisible to other nodes.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from pktswarm.lab.plan import Node, Plan
from pktswarm.traffic.errors import BadInput, PktswarmError

FOLDER = Path("/run/pktswarm-lab")
UPF_ORDERS = FOLDER / "upf.sock"
"""Where the UPF of a lab takes orders, on its host."""
CONFIG = FOLDER / "ssh_config"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
START_TIMEOUT_S = 60.0

PAM = """\
# Only the key decides on a login. The host's rules would start sessions with the host's login manager, run its
# message-of-the-day scripts, or refuse root because its password is locked.
auth     required pam_deny.so
account  required pam_permit.so
password required pam_deny.so
session  required pam_permit.so
"""

SSHD_CONFIG = """\
ListenAddress {address}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
AllowUsers {accounts}
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
# Without PAM sshd refuses an account whose password is locked, as root's often is.
UsePAM yes
PermitUserRC no
PrintMotd no
PrintLastLog no
UseDNS no
MaxStartups 200
MaxSessions 200
"""

BARE_SSHD_CONFIG = """\
# As in Debian's settings: Ansible sends files by it.
Subsystem sftp internal-sftp
# The account that `pktswarm provision` makes, by the key that it installs.
Match User pktswarm
  AuthorizedKeysFile .ssh/authorized_keys
"""

SSH_CONFIG = """\
Host *
  User root
  IdentityFile {folder}/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  # OpenSSH's default, which is post-quantum, takes 50 ms longer.
  KexAlgorithms curve25519-sha256
  UpdateHostKeys no
  BatchMode yes
  ConnectTimeout 5
  ServerAliveInterval 5
  ServerAliveCountMax 3
"""


def check_tools() -> None:
    """Raises BadInput with all missing tools, and the command to install them."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=PATH)]
    if missing:
        packages = sorted({TOOLS[tool] for tool in missing})
        raise BadInput("lab", f"{', '.join(missing)} not installed (apt install {' '.join(packages)})")


def make_key(name: str) -> str:
    """Makes an ed25519 key in FOLDER; returns the public key, without the comment."""
    path = FOLDER / name
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pktswarm-lab", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env={"PATH": PATH})
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def start_sshd(node: Node, is_bare: bool) -> str:
    """Starts the node's sshd and waits until it answers; returns its public host key."""
    host_key = make_key("host_key")
    Path("/run/sshd").mkdir(mode=0o755)
    config, log = FOLDER / "sshd_config", FOLDER / "sshd.log"
    text = SSHD_CONFIG.format(address=node.address, folder=FOLDER, accounts="root pktswarm" if is_bare else "root")
    config.write_text(text + (BARE_SSHD_CONFIG if is_bare else ""))
    sshd = str(shutil.which("sshd", path=PATH))
    process = subprocess.Popen(
        [sshd, "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL, env={"PATH": PATH}
    )
    _wait_for_sshd(process, node, log)
    return host_key


def _wait_for_sshd(process: subprocess.Popen[bytes], node: Node, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((node.address, 22), timeout=1).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    output = log.read_text(errors="replace").strip() if log.exists() else ""
    raise PktswarmError(f"{node.name}: sshd does not answer: {output or f'exit status {process.poll()}'}")


def authorize(folder: Path, public_key: str) -> None:
    """Authorizes `public_key` on a node; `folder`: path to the node's FOLDER."""
    (folder / "authorized_keys").write_text(f"{public_key}\n")


def write_client_files(folder: Path, plan: Plan, host_keys: dict[str, str]) -> None:
    """Writes the master's client files; `folder`: path to its FOLDER. `host_keys`: node → public host key."""
    known = [f"{node.name},{node.address} {host_keys[node.name]}\n" for node in plan.nodes]
    (folder / "known_hosts").write_text("".join(known))
    (folder / CONFIG.name).write_text(SSH_CONFIG.format(folder=FOLDER))
