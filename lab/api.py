"""What the command line does with a lab: up, down, status, names, enter, run_in."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from lab import namespaces, record_file, ssh
from lab.plan import Plan, check_name, plan
from lab.record_file import Keeper
from traffic.errors import BadInput, PktswarmError

HOSTS = Path("hosts")
UP_TIMEOUT_S = 90.0
DOWN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class LabState:
    """A lab that is up. `inventory` is for `pktswarm run --hosts`."""

    name: str
    inventory: Path
    keeper: Keeper
    plan: Plan


def up(
    name: str = "default", transmit: int = 3, receive: int = 3, hosts_dir: Path = HOSTS, mtu: int = 1500
) -> LabState:
    """Bring up lab `name` and write its inventory. Whatever interrupts it leaves nothing behind.

    Raises BadInput for arguments that cannot be, without root, with tools missing, or if it is up already;
    PktswarmError if it did not come up.
    """
    the_plan = plan(name, transmit, receive, mtu)
    _need_root("lab up")
    ssh.check_tools()
    hosts_dir.mkdir(parents=True, exist_ok=True)
    path = record_file.path_of(name, hosts_dir)
    with _one_at_a_time(hosts_dir):
        if path.exists() and _living(path):
            raise BadInput(path, "this lab is up already (end it with: pktswarm lab down)", key="name", value=name)
        with _Birth(the_plan) as birth:
            keeper = birth.await_keeper()
            record_file.write(path, the_plan, keeper)
            try:
                birth.stay()
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    return LabState(name, path, keeper, the_plan)
