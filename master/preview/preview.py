"""Resolves a scenario as for a run, but without contact to a host, and counts its frames.

What a node would report (addresses, engines, MTU) is taken from the inventory or assumed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.plan import capacity as figures
from pktswarm.master.plan import plan as plans
from pktswarm.master.plan.resolve import resolve
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.plan.sendable import refuse_unsendable
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.placeholders import NOT_CHECKED, made_up_inventory
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.capture.files import pcap_parts
from pktswarm.traffic.connections.blocks import Blocks
from pktswarm.traffic.counting import users
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.preview import due_frames
from pktswarm.traffic.preview.due_frames import Block, Counts, Gaps, Series, Share
from pktswarm.traffic.preview.frames import Recording, of_sequence, packets, recording
from pktswarm.traffic.schedule.capabilities import RULES

MADE_UP_FIRST = IPv4Address("198.18.0.0")
"""First address of the half of RFC 2544's network that connections do not use."""
MADE_UP_MTU = 65535
"""Assumed MTU: the host's is unknown, so no frame is refused for it."""


@dataclass(frozen=True)
class Connections:
    """Connections of one leg: blocks of the application."""

    leg: Leg
    blocks: int | None
    """Blocks of all connections; None: unlimited."""
    bytes: int | None
    over_time: Series | None
    """Blocks and their bits by due time; None without due times."""


@dataclass
class Stream:
    """All legs of one stream or trace."""

    name: str
    over_time: Series
    sizes: Counts = field(default_factory=Counts)
    shares: list[Share] = field(default_factory=list)
    users: dict[str, tuple[int, int]] = field(default_factory=dict)
    """User → packets and bytes of all legs; empty without users in the scenario."""

    @property
    def packets(self) -> int:
        return sum(share.packets for share in self.shares)

    @property
    def bytes(self) -> int:
        return sum(share.bytes for share in self.shares)


@dataclass
class Preview:
    name: str
    bin_ns: int
    streams: dict[str, Stream] = field(default_factory=dict)
    hosts: dict[str, Gaps] = field(default_factory=dict)
    """Transmitter → gaps between all its frames."""
    connections: list[Connections] = field(default_factory=list)
    untimed: list[tuple[Leg, str]] = field(default_factory=list)
    """Legs without due times, and the reason."""
    notes: list[str] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Due time of the last frame."""
        return max((gaps.last_ns for gaps in self.hosts.values()), default=0)


# --- the scenario, resolved --------------------------------------------------------------------------------------


class Source:
    """A resolved scenario: its legs with addresses and engines, as in the nodes' tasks."""

    def __init__(self, scenario: Path, hosts: Path | None) -> None:
        self.path = scenario
        self.scenario = scenarios.load(scenario)
        if self.scenario.upf is not None:
            raise BadInput(
                scenario, "no preview of a scenario with a UPF: its frames depend on the sessions", key="upf"
            )
        inventory = made_up_inventory(self.scenario) if hosts is None else inventories.load(hosts)
        capacity = None if hosts is None else figures.beside(hosts)
        self.plan = plans.plan(self.scenario, scenario, inventory, capacity)
        refuse_unsendable(self.scenario, scenario, self.plan.legs)
        self.resolved, self.notes = _resolved(self.scenario, self.plan, inventory)
        self.notes += [NOT_CHECKED] if hosts is None else []
        self.notes[:0] = [*self.plan.notes, *self.plan.warnings, *self.resolved.choices]

    def select(self, host: str | None, stream: str | None) -> list[Leg]:
        """Returns the legs of a transmitter or of a stream. BadInput for an unknown one."""
        legs = self.resolved.legs
        for option, wanted, attribute in (("--host", host, "source"), ("--stream", stream, "stream")):
            there = dict.fromkeys(str(getattr(leg, attribute)) for leg in self.resolved.legs)
            if wanted is not None and wanted not in there:
                allowed = ", ".join(there)
                raise BadInput(self.path, "no traffic of this name", key=option, value=wanted, allowed=allowed)
            legs = [leg for leg in legs if wanted is None or getattr(leg, attribute) == wanted]
        if not legs:
            raise BadInput(self.path, "not sent by this host", key="--stream", value=stream)
        return legs

    def recording(self, leg: Leg) -> Recording | None:
        """Returns the recording of a trace or source for the leg's transmitter; None of other legs."""
        if leg.sequence_file is not None:
            return of_sequence(leg, self.plan.sequences[leg.id])
        if leg.kind != "trace":
            return None
        with tempfile.TemporaryDirectory(prefix="pktswarm-preview-") as folder:
            for name, data in self.resolved.files[leg.source]:
                if Path(name).stem.split(".")[0] == Path(str(leg.trace_file)).stem:
                    (Path(folder) / name).write_bytes(data)
            return recording(leg, Path(folder))


def _resolved(scenario: Scenario, plan: plans.Plan, inventory: Inventory) -> tuple[Resolved, list[str]]:
    """Resolves as master.run.run does with the nodes' reports."""
    needed = {name for leg in plan.legs for name in (leg.source, leg.target)}
    hosts = {host.name: _addressed(host, place) for place, host in enumerate(inventory.hosts, 1) if host.name in needed}
    given = {host.name: host for host in inventory.hosts}
    made_up = [name for name, host in hosts.items() if host != given[name]]
    reports = {name: _report(host) for name, host in hosts.items()}
    notes = [f"addresses are assumed for {', '.join(made_up)}"] if made_up else []
    return resolve(scenario, plan, hosts, reports), notes


def _addressed(host: Host, place: int) -> Host:
    mac = host.mac or f"02:00:00:00:{place >> 8 & 255:02x}:{place & 255:02x}"
    return replace(host, mac=mac, ipv4=host.ipv4 or str(MADE_UP_FIRST + place))


def _report(host: Host) -> dict[str, Any]:
    """Returns the report of a node with all engines."""
    interface = {"exists": True, "carrier": True, "name": host.traffic_interface, "mtu": MADE_UP_MTU, "driver": ""}
    interface |= {"mac": host.mac, "ipv4": host.ipv4}
    receivers = dict.fromkeys(("xdp", "netsniff-ng", "interactive", "socket"), "")
    return {"interface": interface, "senders": dict.fromkeys(RULES, ""), "receivers": receivers}


# --- counted -----------------------------------------------------------------------------------------------------


def look(source: Source, legs: list[Leg], bin_ns: int | None) -> Preview:
    """Counts all frames of the legs, block by block."""
    found = Preview(source.scenario.name, bin_ns or due_frames.nice_bin_ns(source.plan.expected_s * 1e9))
    found.notes += source.notes
    for host in dict.fromkeys(leg.source for leg in legs):
        of_host = [leg for leg in legs if leg.source == host]
        timed = [leg for leg in of_host if leg.kind != "connections" and not due_frames.untimed(leg)]
        if timed:
            found.hosts[host] = gaps = Gaps()
            for times_ns in due_frames.in_order([_counted(found, leg, source.recording(leg)) for leg in timed]):
                gaps.add(times_ns)
        _note_others(found, of_host)
    found.notes += list(dict.fromkeys(note for leg in legs for note in _examples(leg)))
    return found


def _note_others(found: Preview, legs: list[Leg]) -> None:
    found.connections += [_connections(leg, found.bin_ns) for leg in legs if leg.kind == "connections"]
    found.untimed += [(leg, why) for leg in legs if (why := due_frames.untimed(leg))]


def _counted(found: Preview, leg: Leg, recorded: Recording | None) -> Iterator[Block]:
    """Yields the leg's blocks, and counts them."""
    stream = found.streams.setdefault(leg.stream, Stream(leg.stream, Series(found.bin_ns)))
    share = Share(leg, 0, 0, Gaps(), Counts())
    stream.shares.append(share)
    for block in due_frames.blocks(leg, recorded.rows if recorded else None):
        stream.over_time.add(block.time_ns, block.size_bytes)
        stream.sizes.add(block.size_bytes, block.size_bytes)
        share.packets += len(block)
        share.bytes += int(block.size_bytes.sum())
        share.gaps.add(block.time_ns)
        if leg.users or (recorded and recorded.users):
            share.users.add(block.user, block.size_bytes)
        yield block
    _add_users(stream, share, recorded.users if recorded else users.values(leg.users) if leg.users else [])


def _add_users(stream: Stream, share: Share, names: list[str]) -> None:
    """Adds a leg's users, those without packets too."""
    packets, size_bytes = share.users.packets.tolist(), share.users.bytes.tolist()
    for number, name in enumerate(names):
        before = stream.users.get(name, (0, 0))
        own = (packets[number], size_bytes[number]) if number < len(packets) else (0, 0)
        stream.users[name] = (before[0] + own[0], before[1] + own[1])


def _examples(leg: Leg) -> list[str]:
    """Returns a note of fields that the engine draws itself."""
    if leg.engine != "pktgen":
        return []
    drawn = leg.sizes or leg.options.get("imix_weights")
    sizes = "; so is the order of sizes" if drawn else ""
    return [f"{leg.stream}: IPv4 identifications and random fields are examples: pktgen draws its own{sizes}"]


def _connections(leg: Leg, bin_ns: int) -> Connections:
    shape = leg.connection
    ways = 2 if shape.direction == "both" else 1
    each = [Blocks.of(shape, number) for number in range(shape.connections)]
    counts = [blocks.count for blocks in each]
    if any(count is None for count in counts):
        return Connections(leg, None, None, None)
    total = sum(blocks.total_bytes or 0 for blocks in each) * ways
    over_time = Series(bin_ns) if all(blocks.paced_by_time for blocks in each) else None
    if over_time is not None:
        for blocks in each:
            for due_ns, size_bytes in due_frames.due_blocks_of(blocks):
                for _ in range(ways):
                    over_time.add(due_ns, size_bytes)
    return Connections(leg, sum(count or 0 for count in counts) * ways, total, over_time)


# --- the frames as a capture -------------------------------------------------------------------------------------


def _check_due_times(source: Source, legs: list[Leg]) -> None:
    """Raises BadInput if a leg has no due times; connections are ignored."""
    frames = [leg for leg in legs if leg.kind != "connections"]
    for leg in frames:
        if why := due_frames.untimed(leg):
            allowed = "a rate and an end, or --stream with another one"
            raise BadInput(source.path, f"no capture possible: {why}", key=leg.stream, allowed=allowed)
    if not frames:
        raise BadInput(source.path, "only connections, whose packets the kernel makes", key="--pcap")


def write_pcap(source: Source, legs: list[Leg], path: Path) -> int:
    """Writes the frames, and returns their number. Raises BadInput for legs without due times and on I/O errors."""
    _check_due_times(source, legs)
    frames = [(leg, source.recording(leg)) for leg in legs if leg.kind != "connections"]
    number = -1  # the first part is the file header
    try:
        with path.open("wb") as file:
            for part in pcap_parts(packets(frames)):
                file.write(part)
                number += 1
    except OSError as error:
        raise BadInput(path, f"cannot be written: {error.strerror}", key="--pcap") from None
    return number
