"""The topology of a run: the nodes at both sides of the device under test, and the directions of the traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pktswarm.master.results.document import RunDocument

SIDES = {"a": "side a", "b": "side b", "n3": "N3 (gNBs)", "n6": "N6 (data network)"}
LEFT = ("a", "n3")
"""Sides that are drawn on the left; the others are on the right."""
ROLES = {"transmit": "sends", "receive": "receives"}


@dataclass(frozen=True)
class Place:
    """A node. `roles`: what it does."""

    host: str
    interface: str
    roles: str


@dataclass(frozen=True)
class Bank:
    """The nodes of one side. `arrow`: between them and the device, from left to right."""

    title: str
    places: list[Place]
    arrow: str


@dataclass(frozen=True)
class Topology:
    left: Bank
    device: str
    right: Bank
    sentences: list[str]
    """The directions in words."""


def topology(document: RunDocument) -> Topology | None:
    """Returns None if no node reported."""
    ranks = list(document["ranks"].values())
    if not ranks:
        return None
    roles: dict[str, list[str]] = {}
    interfaces: dict[str, str] = {}
    for rank in ranks:
        roles.setdefault(rank["host"], []).append(rank["role"])
        interfaces[rank["host"]] = rank.get("interface", {}).get("name") or interfaces.get(rank["host"], "")
    sides = {host["name"]: host.get("side", "") for host in document["inventory"]}
    left = [host for host in roles if _is_left(sides.get(host, ""), roles[host])]
    right = [host for host in roles if host not in left]
    places = {host: Place(host, interfaces[host], " and ".join(ROLES[role] for role in roles[host])) for host in roles}
    flows = set(_flows(document))
    device = document.get("dut", {}).get("name") or ("UPF" if "upf" in document else "device under test")
    return Topology(
        _bank(left, places, sides, "→", "←", *_uses(left, roles, flows)),
        device,
        _bank(right, places, sides, "←", "→", *_uses(right, roles, flows)),
        list(_sentences(_title(left, sides), _title(right, sides), left, right, flows)),
    )


def _is_left(side: str, roles: Sequence[str]) -> bool:
    """Whether a node is drawn on the left; one without a side is if it sends."""
    return side in LEFT if side else "transmit" in roles


def _flows(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Yields sender and receiver of each flow; a flow whose users move between nodes has several receivers."""
    for row in document["rows"]:
        yield from ((row["from"], target) for target in row["to"].split("+"))
    for connection in document.get("connections", []):
        yield connection["from"], connection["to"]


def _uses(bank: Sequence[str], roles: dict[str, list[str]], flows: set[tuple[str, str]]) -> tuple[bool, bool]:
    """Returns whether a bank sends, and receives; by the roles of a run without counts."""
    if not flows:
        used = {role for host in bank for role in roles[host]}
        return "transmit" in used, "receive" in used
    return any(source in bank for source, _ in flows), any(target in bank for _, target in flows)


def _bank(
    hosts: Sequence[str],
    places: dict[str, Place],
    sides: dict[str, str],
    outward: str,
    inward: str,
    sends: bool,
    receives: bool,
) -> Bank:
    arrow = "↔" if sends and receives else outward if sends else inward if receives else ""
    return Bank(_title(hosts, sides), [places[host] for host in hosts], arrow)


def _title(hosts: Sequence[str], sides: dict[str, str]) -> str:
    found = dict.fromkeys(SIDES[side] for host in hosts if (side := sides.get(host, "")) in SIDES)
    return " and ".join(found) or "nodes"


def _sentences(
    left_title: str, right_title: str, left: Sequence[str], right: Sequence[str], flows: set[tuple[str, str]]
) -> Iterator[str]:
    for source_title, sources, target_title, targets in (
        (left_title, left, right_title, right),
        (right_title, right, left_title, left),
        (left_title, left, left_title, left),
        (right_title, right, right_title, right),
    ):
        count = sum(source in sources and target in targets for source, target in flows)
        if count:
            yield f"{source_title} to {target_title}: {count} {'pair' if count == 1 else 'pairs'} of nodes"
