"""Pairs of hosts: which transmitter sends to which receiver."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import Role


def pairs_of(origin: str, target: str, key: str, path: Path, inventory: Inventory) -> list[tuple[str, str]]:
    """Pairs of transmitter and receiver by position; receivers are reused in turn if there are fewer."""
    sources = _members(origin, "transmit", f"{key}.from", path, inventory)
    targets = _members(target, "receive", f"{key}.to", path, inventory)
    pairs = []
    for index, source in enumerate(sources):
        others = [target for target in targets if target != source]
        if not others:
            raise BadInput(path, "a host cannot send to itself", key=f"{key}.to", value=source)
        pairs.append((source, others[index % len(others)]))
    return pairs


def _members(group: str, role: Role, key: str, path: Path, inventory: Inventory) -> list[str]:
    names = [host.name for host in inventory.with_role(role)]
    if group == role:
        return names
    if group in names:
        return [group]
    raise BadInput(
        path, f"no such {role} host in {inventory.path}", key=key, value=group, allowed=", ".join([role, *names])
    )


def check_both_roles(pairs: list[tuple[str, str]], key: str, path: Path, inventory: Inventory) -> None:
    """Downlink packets go from `to` to `from`."""
    for names, role in (({source for source, _ in pairs}, "receive"), ({target for _, target in pairs}, "transmit")):
        having = {host.name for host in inventory.hosts if role in host.roles}
        if lacking := sorted(names - having):
            problem = f"{lacking[0]} has no role {role!r}, which the other direction needs"
            allowed = "hosts in both groups of the inventory (in the lab: pktswarm lab up --both-roles)"
            raise BadInput(path, problem, key=key, value="both", allowed=allowed)
