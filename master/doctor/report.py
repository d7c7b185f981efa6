"""Types of the report of a host (`python -m pktswarm.nodes.doctor`)."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Zone(TypedDict):
    """A thermal zone, °C; None: the zone has no such trip point."""

    name: str
    celsius: float
    passive_c: float | None
    critical_c: float | None


class Health(TypedDict):
    """`throttled`: flags of vcgencmd; None without it."""

    governors: list[str]
    zones: list[Zone]
    throttled: int | None
    clock_synchronised: bool | None
    free_bytes: int
    spools: str


class Holder(TypedDict, total=False):
    """The run that holds the host; empty if none does."""

    run: str
    by: str
    since: str


class EngineProcess(TypedDict):
    pid: int
    command: str


class Leftovers(TypedDict):
    """Remains of guards that were killed."""

    holder: Holder
    folders: list[str]
    bytes: int
    processes: list[EngineProcess]
    xdp_program: int
    """Its id; 0: none."""
    changed: list[str]


class Memory(TypedDict):
    """Proportional set sizes of a rank before MPI_Init and of its guard, without a task, and what the host has left;
    bytes."""

    rank_bytes: int
    guard_bytes: int
    available_bytes: int


class Ptp(TypedDict):
    """As ptp4l reports it (traffic.protocol.ptp_reading). `problem`: why it cannot be relied on; empty: it can."""

    tai_offset_s: int
    problem: str
    state: str
    grandmaster: str
    offset_ns: int
    path_delay_ns: int


class InterfaceReport(TypedDict):
    """The interface under test. The fields after `exists` are there if it does."""

    name: str
    exists: bool
    mac: str
    mtu: int
    driver: str
    speed_mbps: int | None
    carrier: bool
    native_xdp: bool | None
    carries: list[str]
    shared_wire: NotRequired[str]
    """Nodes of earlier versions do not report it."""
    transmit_queues: int
    receive_queues: int


class HostReport(TypedDict, total=False):
    """A node has all fields, the master the first four."""

    versions: dict[str, str]
    proxy_missing: bool
    tools_missing: list[str]
    health: Health
    interface: InterfaceReport
    senders: dict[str, str]
    """Engine → the reason why it cannot work; empty: it can."""
    on_request: list[str]
    """Engines of `senders` that work where a stream names them."""
    receivers: dict[str, str]
    tail_calls: str
    """Why the counter in the kernel cannot call a further program; empty: it can."""
    guard_trouble: str
    leftovers: Leftovers | None
    mended: list[str]
    memory: Memory | None
    ptp: Ptp | None
    """Both None: the guard does not start. `memory`: the kernel does not report it, either."""
