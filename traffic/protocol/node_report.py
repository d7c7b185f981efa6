"""The report of a node about itself, which its rank sends with its first message."""

from __future__ import annotations

from dataclasses import field, fields

from pktswarm.traffic.plain import plain
from pktswarm.traffic.typed_json import encode


@plain
class Holder:
    """The run that holds a node."""

    run: str
    by: str
    since: str
    """UTC, ISO 8601."""


@plain
class InterfaceReport:
    """The traffic interface. All but `name` is unknown where it does not exist."""

    name: str
    exists: bool
    mac: str = ""
    ipv4: str | None = None
    mtu: int = 0
    driver: str = ""
    speed_mbps: int | None = None
    carrier: bool = False
    native_xdp: bool | None = None
    """None: the kernel (before 6.3) does not report it."""
    carries: list[str] = field(default_factory=list)
    """Connections that test traffic must not meet, and that go over this interface."""
    shared_wire: str = ""
    """The interface below this one by which the connection to the master leaves too; empty: there is none."""

    def to_json(self) -> dict[str, object]:
        if not self.exists:
            return {"name": self.name, "exists": False}
        return {each.name: getattr(self, each.name) for each in fields(self)}


@plain
class NodeReport:
    hostname: str
    kernel: str
    machine: str
    cpus: int | None
    python: str
    pktswarm: str
    interface: InterfaceReport
    senders: dict[str, str]
    """Engine → why it is missing; empty: it is there."""
    receivers: dict[str, str]
    versions: dict[str, str]
    """Versions of the engines that are separate programs."""
    on_request: list[str] = field(default_factory=list)
    """Engines of `senders` that work where a stream names them: the node then changes its interface for the run."""
    held_by: Holder | None = None
    """Another run that holds the node."""
    mended: list[str] = field(default_factory=list)
    """Settings that killed guards left behind, and that were put back."""
    tail_calls: str = ""
    """Why the counter in the kernel cannot call a further program; empty: it can."""
    clock: str = ""
    """Identity of its CLOCK_MONOTONIC (traffic.protocol.clock_identity); empty: unknown."""

    def to_json(self) -> dict[str, object]:
        values = {each.name: encode(getattr(self, each.name), whole=True) for each in fields(self)}
        return {**values, "held_by": values["held_by"] or {}}


def counts_whole_frames(driver: str | None, role: str) -> bool:
    """Whether the byte counter of an interface has the Ethernet header of each frame in the direction of its role."""
    return driver != "veth" or role == "transmit"
