"""The report of a node, which the master needs before it plans in detail. Needs no root."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import replace

from pktswarm.nodes import availability, routes, wires, xdp_features
from pktswarm.nodes.engines import RECEIVERS, SENDERS
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.process import tool_version
from pktswarm.traffic import VERSION
from pktswarm.traffic.protocol.clock_identity import clock_identity
from pktswarm.traffic.protocol.guard_events import Probed
from pktswarm.traffic.protocol.node_report import InterfaceReport, NodeReport

TOOLS = ("trafgen", "tcpreplay", "netsniff-ng")
"""Engines that are programs of their own; the others are of this version, or of the kernel."""


def report(interface: Interface, probed: Probed, master: str) -> NodeReport:
    """The report of this node, without `held_by` and `mended`, which its guard reports.

    `probed`: what the guard has tried on the interface. `master`: its address, as the launcher knows it.
    """
    uname = os.uname()
    return NodeReport(
        hostname=socket.gethostname(),
        kernel=uname.release,
        machine=uname.machine,
        cpus=os.cpu_count(),
        python=platform.python_version(),
        pktswarm=VERSION,
        interface=_interface(interface, master),
        senders={name: engine.missing() or probed.unfit.get(name, "") for name, engine in SENDERS.items()},
        on_request=probed.on_request,
        receivers={name: engine.missing() for name, engine in RECEIVERS.items()},
        versions={name: version for name in TOOLS if (version := tool_version(name))},
        tail_calls=availability.tail_calls(),
        clock=clock_identity(),
    )


def refreshed(report: NodeReport, interface: Interface, master: str) -> NodeReport:
    """The report for a further run of the same ranks: their interface can have changed since."""
    return replace(report, interface=_interface(interface, master), held_by=None, mended=[])


def _interface(interface: Interface, master: str) -> InterfaceReport:
    if not interface.exists():
        return InterfaceReport(interface.name, exists=False)
    control = routes.towards(master) if master else set()
    return InterfaceReport(
        name=interface.name,
        exists=True,
        mac=interface.mac,
        ipv4=interface.ipv4,
        mtu=interface.mtu,
        driver=interface.driver,
        speed_mbps=interface.speed_mbps,
        carrier=interface.carrier,
        native_xdp=_native(xdp_features.features(interface.index)),
        carries=_carries(interface, control),
        shared_wire=wires.shared(interface.name, control),
    )


def _carries(interface: Interface, control: set[int]) -> list[str]:
    """Connections over this interface that test traffic must not meet. `control`: interfaces towards the master."""
    found = ["the node's default route"] if wires.carries(interface.name, routes.defaults()) else []
    return found + (["the connection to the master"] if wires.carries(interface.name, control) else [])


def _native(features: int | None) -> bool | None:
    """None where the kernel (before 6.3) does not report it."""
    return None if features is None else bool(features & xdp_features.NATIVE)
