"""Drops of the device's host for run.json, and as a note beside the loss."""

from __future__ import annotations

from dataclasses import asdict

from typing_extensions import TypedDict

from pktswarm.master.dut_host.counters import RECEIVE_BUFFER, Drops
from pktswarm.master.dut_host.watch import HostDrops

MOST_PARTS = 4
UNREAD = "(drops of its queueing disciplines are not read)"


class DropsDocument(TypedDict, total=False):
    """`dut_host` of run.json; of a failed reading only the first four fields."""

    host: str
    problem: str
    dropped_packets: int | None
    words: str
    reasons: dict[str, int | None]
    interfaces: dict[str, dict[str, int | None] | None]
    udp_ports: dict[str, int]
    machine_softnet_dropped: int | None


def document(found: HostDrops, lost: int | None) -> DropsDocument:
    """`lost`: packets of all streams; None: not measured."""
    drops = found.drops
    if drops is None:
        return {"host": found.host, "problem": found.problem, "dropped_packets": None, "words": ""}
    return {
        "host": found.host,
        "problem": "",
        "dropped_packets": drops.total,
        "reasons": drops.reasons,
        "interfaces": {
            name: None if interface is None else asdict(interface) for name, interface in drops.interfaces.items()
        },
        "udp_ports": {str(port): count for port, count in sorted(drops.ports.items())},
        "machine_softnet_dropped": drops.softnet_dropped,
        "words": describe(drops, lost, found.device),
    }


def notes(found: HostDrops | None) -> list[str]:
    """Returns a note of a failed reading."""
    if found is None or not found.problem:
        return []
    return [f"the {found.device}'s host {found.host}: drops not counted, {found.problem}"]


def describe(drops: Drops, lost: int | None, device: str) -> str:
    """Returns one line; empty if nothing was lost and nothing dropped."""
    host, total = f"the {device}'s host", drops.total
    if total is None:
        return f"drops of {host} not counted"
    if total == 0:
        return f"{lost:,} lost; {host} counted no drop {UNREAD}{_limits(drops)}" if lost else ""
    dropped = f"{host} dropped {total:,} ({parts(drops)})"
    if lost is None:
        line = f"{dropped}; loss not measured"
    elif total <= lost:
        line = f"{lost:,} lost, of which {dropped}"
    else:
        line = f"{lost:,} lost; {dropped}, more than the packets counted as lost"
    return line + _limits(drops, is_explained=lost is not None and total >= lost)


def parts(drops: Drops) -> str:
    """Returns the reasons, the largest first, with counts if there are several."""
    found = sorted(drops.parts.items(), key=lambda part: -part[1])
    named = [(_named(name, drops), count) for name, count in found]
    if len(named) == 1:
        return named[0][0]
    rest = sum(count for _, count in named[MOST_PARTS:])
    listed = [f"{name} {count:,}" for name, count in named[:MOST_PARTS]]
    return "; ".join(listed + ([f"others {rest:,}"] if rest else []))


def _named(name: str, drops: Drops) -> str:
    """Adds the UDP ports if their sockets account for all drops of the reason."""
    if name != RECEIVE_BUFFER or sum(drops.ports.values()) != drops.reasons[RECEIVE_BUFFER]:
        return name
    ports = sorted(drops.ports, key=lambda port: -drops.ports[port])
    counts = [f"{port}" if len(ports) == 1 else f"{port}: {drops.ports[port]:,}" for port in ports[:MOST_PARTS]]
    return f"{name} of UDP port {', '.join(counts)}"


def _limits(drops: Drops, is_explained: bool = False) -> str:
    """Returns further drops and errors, and counters without a count. `is_explained`: the drops are all the loss."""
    taken = ", ".join(f"{name} {count:,}" for name, count in drops.not_taken.items())
    more = f"; frames of any kind dropped on reception: {taken}" if taken and not is_explained else ""
    more += f"; its interfaces counted {drops.errors:,} errors" if drops.errors else ""
    if drops.softnet_dropped:
        more += f"; the backlogs of its machine dropped {drops.softnet_dropped:,}, in all network namespaces"
    return more + (f"; not counted: {', '.join(drops.uncounted)}" if drops.uncounted else "")
