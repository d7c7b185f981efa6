"""The drops of the device's host as run.json has them, and as words beside the loss."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pktswarm.master.dut_host.counters import RECEIVE_BUFFER, Drops
from pktswarm.master.dut_host.watch import HostDrops

MOST_PARTS = 4


def document(found: HostDrops, lost: int | None) -> dict[str, Any]:
    """`lost`: of all streams; None where it was not measured."""
    drops = found.drops
    if drops is None:
        return {"host": found.host, "problem": found.problem, "dropped_packets": None, "words": ""}
    return {
        "host": found.host,
        "problem": "",
        "dropped_packets": drops.total,
        "reasons": drops.reasons,
        "interfaces": {name: None if one is None else asdict(one) for name, one in drops.interfaces.items()},
        "udp_ports": {str(port): count for port, count in sorted(drops.ports.items())},
        "machine_softnet_dropped": drops.softnet_dropped,
        "words": describe(drops, lost, found.device),
    }


def notes(found: HostDrops | None) -> list[str]:
    """A reading that failed."""
    if found is None or not found.problem:
        return []
    return [f"the {found.device}'s host {found.host}: what it dropped is not known, {found.problem}"]


def beside_loss(verdicts: list[dict[str, Any]], host: dict[str, Any] | None) -> list[dict[str, Any]]:
    """With the line as `note` of each verdict on loss that does not hold."""
    if host is None or not host["words"]:
        return verdicts
    is_loss = [not one["holds"] and one["what"].endswith(": lost") for one in verdicts]
    return [{**one, "note": host["words"]} if is_it else one for one, is_it in zip(verdicts, is_loss, strict=True)]


def describe(drops: Drops, lost: int | None, device: str) -> str:
    """One line; empty where nothing was lost and nothing dropped. Claims no more than was counted."""
    host, total = f"the {device}'s host", drops.total
    if total is None:
        return f"what {host} dropped was not counted"
    if total == 0:
        return f"{lost:,} lost; {host} counted no drop{_limits(drops)}" if lost else ""
    told = f"{host} dropped {total:,} ({parts(drops)})"
    if lost is None:
        line = f"{told}; the loss was not measured"
    elif total <= lost:
        line = f"{lost:,} lost, of which {told}"
    else:
        line = f"{lost:,} lost; {told}, so not only packets that are counted as lost"
    return line + _limits(drops, is_explained=lost is not None and total >= lost)


def parts(drops: Drops) -> str:
    """The reasons, the largest first, with a count where there are several."""
    found = sorted(drops.parts.items(), key=lambda one: -one[1])
    named = [(_named(name, drops), count) for name, count in found]
    if len(named) == 1:
        return named[0][0]
    rest = sum(count for _, count in named[MOST_PARTS:])
    listed = [f"{name} {count:,}" for name, count in named[:MOST_PARTS]]
    return "; ".join(listed + ([f"others {rest:,}"] if rest else []))


def _named(name: str, drops: Drops) -> str:
    """With the UDP ports where the sockets account for all of it."""
    if name != RECEIVE_BUFFER or sum(drops.ports.values()) != drops.reasons[RECEIVE_BUFFER]:
        return name
    ports = sorted(drops.ports, key=lambda port: -drops.ports[port])
    counts = [f"{port}" if len(ports) == 1 else f"{port}: {drops.ports[port]:,}" for port in ports[:MOST_PARTS]]
    return f"{name} of UDP port {', '.join(counts)}"


def _limits(drops: Drops, is_explained: bool = False) -> str:
    """What else the counters say, and which could not be compared. `is_explained`: the drops are all the loss."""
    taken = ", ".join(f"{name} {count:,}" for name, count in drops.not_taken.items())
    more = (
        f"; frames that it received and did not take, whatever they were: {taken}" if taken and not is_explained else ""
    )
    more += f"; its interfaces counted {drops.errors:,} errors" if drops.errors else ""
    if drops.softnet_dropped:
        more += f"; the backlogs of its machine dropped {drops.softnet_dropped:,}, of all network namespaces"
    return more + (f"; not counted: {', '.join(drops.uncounted)}" if drops.uncounted else "")
