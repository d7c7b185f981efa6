"""What a node can do: told to the master before anything is planned in detail. Needs no root."""

from __future__ import annotations

import os
import platform
import socket
from typing import Any

from pktswarm.nodes import routes, xdp_features
from pktswarm.nodes.engines import RECEIVERS, SENDERS
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import tool_version
from pktswarm.traffic import VERSION

TOOLS = ("trafgen", "tcpreplay", "netsniff-ng")
"""Engines that are programs of their own; the others are of this version, or of the kernel."""


def report(interface: Interface, unfit: dict[str, str], master: str) -> dict[str, Any]:
    """Kernel, versions (also of the tools that are there), the traffic interface, and every engine with the reason why
    it is missing ("" if it is not).

    `unfit`: senders that cannot work on the interface, as the guard has tried. `master`: its address, as the launcher
    knows it.
    """
    uname = os.uname()
    return {
        "hostname": socket.gethostname(),
        "kernel": uname.release,
        "machine": uname.machine,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "pktswarm": VERSION,
        "interface": _interface(interface, master),
        "senders": {name: engine.missing() or unfit.get(name, "") for name, engine in SENDERS.items()},
        "receivers": {name: engine.missing() for name, engine in RECEIVERS.items()},
        "versions": {name: version for name in TOOLS if (version := tool_version(name))},
    }


def _interface(interface: Interface, master: str) -> dict[str, Any]:
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
        "native_xdp": _native(xdp_features.features(interface.index)),
        "carries": _carries(interface.index, master),
    }


def _carries(index: int, master: str) -> list[str]:
    """What test traffic must not meet, and what goes over this interface all the same."""
    found = ["the node's default route"] if index in routes.defaults() else []
    return found + (["the connection to the master"] if master and index in routes.towards(master) else [])


def _native(features: int | None) -> bool | None:
    """None where the kernel (before 6.3) does not tell."""
    return None if features is None else bool(features & xdp_features.NATIVE)
