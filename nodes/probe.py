"""What a node can do: told to the master before anything is planned in detail. Needs no root."""

from __future__ import annotations

import os
import platform
import socket
from typing import Any

from nodes.engines import RECEIVERS, SENDERS
from nodes.interface import Interface
from traffic import VERSION


def report(interface: Interface) -> dict[str, Any]:
    """Kernel, versions, the traffic interface and every engine with the reason why it is missing ("" if it is not)."""
    uname = os.uname()
    return {
        "hostname": socket.gethostname(),
        "kernel": uname.release,
        "machine": uname.machine,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "pktswarm": VERSION,
        "interface": _interface(interface),
        "senders": {name: engine.missing() for name, engine in SENDERS.items()},
        "receivers": {name: engine.missing() for name, engine in RECEIVERS.items()},
    }


def _interface(interface: Interface) -> dict[str, Any]:
    if not interface.exists():
        return {"name": interface.name, "exists": False}
    return {
        "name": interface.name,
        "exists": True,
        "mac": interface.mac,
        "ipv4": interface.ipv4,
        "mtu": interface.mtu,
        "driver": interface.driver,
        "speed_mbps": interface.speed_mbps,
        "carrier": interface.carrier,
    }
