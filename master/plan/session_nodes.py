"""The hosts of a session group: gNBs on side n3, the data network on side n6."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.plan.session_headers import ip_of
from pktswarm.master.scenario.stream import Stream
from pktswarm.master.scenario.upf import Upf
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import Role


def gnb_nodes(where: Path, key: str, upf: Upf, group_name: str, role: Role, inventory: Inventory) -> dict[str, str]:
    """Host → the gNB that it plays, for the gNBs of the group."""
    group = upf.group(group_name)
    gnbs = list(dict.fromkeys(upf.gnbs_of(group)))
    if len(gnbs) < len(upf.gnbs_of(group)):
        problem = "a gNB given twice: its users cannot be counted one by one"
        raise BadInput(where, problem, key=f"upf.groups.{group.name}.gnb", value=upf.gnbs_of(group))
    return _hosts_of(where, key, upf, gnbs[: group.sessions], role, inventory)


def moved_among(where: Path, key: str, upf: Upf, stream: Stream, inventory: Inventory) -> dict[str, str]:
    """Host → the gNB that it plays, for all gNBs that the users of the stream may move to. Empty without a handover,
    and for uplink streams, which continue from the first gNB."""
    if upf.handover is None or upf.handover.group != stream.sessions or stream.direction == "up":
        return {}
    return _hosts_of(where, key, upf, upf.moved_among(), "receive", inventory)


def _hosts_of(where: Path, key: str, upf: Upf, gnbs: list[str], role: Role, inventory: Inventory) -> dict[str, str]:
    n3 = [host for host in inventory.hosts if host.side == "n3"]
    hosts = {address: host for host in n3 for address in (host.ipv4, host.ipv6) if address}
    found: dict[str, str] = {}
    for gnb in gnbs:
        address = upf.gnbs[gnb]
        if address not in hosts:
            ip = ip_of(address)
            known = ", ".join(f"{host.name} {getattr(host, ip)}" for host in n3 if getattr(host, ip)) or "there is none"
            raise BadInput(
                where,
                f"{key} needs a node there; no host of side n3 in {inventory.path} has that {ip}",
                key=f"upf.gnbs.{gnb}",
                value=address,
                allowed=known,
            )
        _check_role(where, key, hosts[address], role)
        if (other := found.setdefault(hosts[address].name, gnb)) != gnb:
            problem = f"gNB {other} is at the same host; users of a group are counted by host"
            raise BadInput(where, problem, key=f"upf.gnbs.{gnb}", value=address)
    return found


def core_nodes(where: Path, key: str, given: str, role: Role, inventory: Inventory) -> list[str]:
    """Hosts of the data network: `given`, or all on side n6 where that is the role's group."""
    hosts = [host for host in inventory.hosts if host.side == "n6" and (given in (role, host.name))]
    if not hosts:
        names = ", ".join([role, *(host.name for host in inventory.hosts if host.side == "n6")])
        raise BadInput(where, f"no such host of side n6 in {inventory.path}", key=key, value=given, allowed=names)
    able = [host for host in hosts if role in host.roles]
    if not able:
        _check_role(where, key, hosts[0], role)
    return [host.name for host in able]


def _check_role(where: Path, key: str, host: Host, role: str) -> None:
    if role not in host.roles:
        raise BadInput(where, f"{host.name} has no role {role!r}, which this direction needs", key=key)


def check_macs(where: Path, key: str, upf: Upf) -> None:
    for name in ("n3_mac", "n6_mac"):
        if not getattr(upf, name):
            allowed = f"here, or pktswarm_upf: {{{name}: …}} in the inventory"
            raise BadInput(where, f"is missing, and {key} needs it", key=f"upf.{name}", allowed=allowed)


def pairs(
    where: Path, index: int, stream: Stream, upf: Upf, inventory: Inventory
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(sender, receiver) for each gNB, with the hosts of the data network in turn; and host → gNB. Raises BadInput for
    a side without a host or an unknown address."""
    key, up, group = f"streams.{index}", stream.direction == "up", stream.sessions or ""
    check_macs(where, key, upf)
    gnbs = gnb_nodes(where, key, upf, group, "transmit" if up else "receive", inventory)
    if stream.echo:
        gnb_nodes(where, f"{key}.echo", upf, group, "receive", inventory)
    if up:
        core = core_nodes(where, f"{key}.to", stream.target, "receive", inventory)
    else:
        core = core_nodes(where, f"{key}.from", stream.source, "transmit", inventory)
    turns = [(gnb, core[number % len(core)]) for number, gnb in enumerate(gnbs)]
    return turns if up else [(node, gnb) for gnb, node in turns], gnbs
