"""How the master speaks to its hosts over SSH, and what its words mean. Host keys are checked; nobody is asked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from pktswarm.master.cluster.inventory import Host, Inventory

CONNECT_TIMEOUT_S = 5


def options(inventory: Inventory, connect_timeout_s: int = CONNECT_TIMEOUT_S) -> list[str]:
    config = inventory.variables.get("pktswarm_ssh_config")
    chosen = ["-F", str(Path(config).expanduser())] if config else []
    login = inventory.variables.get("pktswarm_login")
    chosen += [f"-oUser={login}"] if login else []
    return [*chosen, "-oBatchMode=yes", f"-oConnectTimeout={connect_timeout_s}"]


def command(
    inventory: Inventory, host: Host, remote: list[str], connect_timeout_s: int = CONNECT_TIMEOUT_S
) -> list[str]:
    """`remote` is quoted: the other end's shell reads it."""
    return ["ssh", *options(inventory, connect_timeout_s), "--", host.address, shlex.join(remote)]


def trouble(status: int, words: str, python: str) -> str:
    """What went wrong, by ssh's exit status and what it and the other end said."""
    last = words.strip().splitlines()[-1] if words.strip() else ""
    return unreachable(status, words) or f"has no pktswarm at {python} ({last})"


def unreachable(status: int, words: str) -> str:
    """Why there was no connection; empty where there was one."""
    last = words.strip().splitlines()[-1] if words.strip() else ""
    if re.search("host key verification failed|no .* host key is known|identification has changed", words, re.I):
        return "its host key is not the one in known_hosts"
    if "Permission denied" in words and status == 255:
        return f"refuses the key ({last})"
    return f"does not answer over SSH ({last})" if status == 255 else ""
