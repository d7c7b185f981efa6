"""Streams of a session group: who sends them to whom, and their frames on both sides of the UPF.

Up: a gNB's node sends its users' packets in their tunnels, a node of the data network receives them without. Down: a
node of the data network sends to the users' addresses, each gNB's node receives what is for its users in their tunnels.
Each user of a gNB has one position in the frame's fields: his tunnel and his address move together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.scenario.addresses import PLACEHOLDERS
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.scenario.upf_servers import played
from pktswarm.master.scenario.upf_shape import Shape
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting.users import MOST_USERS
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import check_frame
from pktswarm.traffic.frames.headers import GTPU_PORT, HEADERS
from pktswarm.traffic.frames.stamp import PLAIN_BYTES
from pktswarm.traffic.frames.stamp import least_size_bytes as stamp_size_bytes
from pktswarm.traffic.frames.values import MOST_VALUES
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.schedule.fragments import with_ids
from pktswarm.traffic.schedule.leg_frames import sizes_bytes, stamped

Headers = list[dict[str, dict[str, Any]]]
USER = "gtpu.teid"
"""The field of a frame in its tunnel that the user's others go with."""
UPLINK = 1
"""The PDU type of a PDU session container on its way to the UPF (TS 38.415)."""
PREFIX_BITS = 64
"""Of an IPv6 user, who has them to himself (TS 23.501, 5.8.2.2.1), and as many behind them."""
CONTAINER_BYTES = 8
"""What a PDU session container, and the optional fields before it, take of a tunnelled frame."""


TUNNEL_BYTES = sum(HEADERS[name].size_bytes for name in ("ipv4", "udp", "gtpu"))
"""Without one."""


@dataclass(frozen=True)
class Tunnels:
    """The users of one gNB in a group, in one direction. `key`: the stream's place in the file; `port`: of the
    server, and of a user who has one flow; it tells streams apart."""

    where: Path
    key: str
    group: str
    gnb: str
    direction: Literal["up", "down"]
    port: int
    ip: str = "ipv4"
    """Which of their addresses the users have: "ipv4" or "ipv6"."""
    shape: Shape = field(default_factory=Shape)
    among: dict[str, str] = field(default_factory=dict)
    """Down, of users that move: host → gNB, of all that they move among."""
    moved_to: str = ""
    """The one of these where they are looked at, if that is not `gnb`, where they begin."""


def gnb_nodes(where: Path, key: str, upf: Upf, group_name: str, role: Any, inventory: Inventory) -> dict[str, str]:
    """Host → the gNB that it plays, of those that the group's users are at."""
    group = upf.group(group_name)
    gnbs = list(dict.fromkeys(upf.gnbs_of(group)))
    if len(gnbs) < len(upf.gnbs_of(group)):
        problem = "users of a gNB that comes twice cannot be counted one by one"
        raise BadInput(where, problem, key=f"upf.groups.{group.name}.gnb", value=upf.gnbs_of(group))
    return _hosts_of(where, key, upf, gnbs[: group.sessions], role, inventory)


def moved_among(where: Path, key: str, upf: Upf, stream: Any, inventory: Inventory) -> dict[str, str]:
    """Host → the gNB that it plays, of all that the stream's users may move to; down only, for up they go on from
    where they are. Empty where they stay."""
    if upf.handover is None or upf.handover.group != stream.sessions or stream.direction == "up":
        return {}
    return _hosts_of(where, key, upf, upf.moved_among(), "receive", inventory)


def _hosts_of(where: Path, key: str, upf: Upf, gnbs: list[str], role: Any, inventory: Inventory) -> dict[str, str]:
    n3 = [host for host in inventory.hosts if host.side == "n3"]
    hosts = {address: host for host in n3 for address in (host.ipv4, host.ipv6) if address}
    found: dict[str, str] = {}
    for gnb in gnbs:
        address = upf.gnbs[gnb]
        if address not in hosts:
            ip = _ip(address)
            known = ", ".join(f"{host.name} {getattr(host, ip)}" for host in n3 if getattr(host, ip)) or "there is none"
            raise BadInput(
                where,
                f"{key} needs a node there, and no host of side n3 in {inventory.path} has that {ip}",
                key=f"upf.gnbs.{gnb}",
                value=address,
                allowed=known,
            )
        _check_role(where, key, hosts[address], role)
        if (other := found.setdefault(hosts[address].name, gnb)) != gnb:
            problem = f"gNB {other} is at the same host, and users of a group are counted by host"
            raise BadInput(where, problem, key=f"upf.gnbs.{gnb}", value=address)
    return found


def core_nodes(where: Path, key: str, given: str, role: Any, inventory: Inventory) -> list[str]:
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
        raise BadInput(where, f"{host.name} has no role {role!r}, which that direction needs", key=key)


def check_macs(where: Path, key: str, upf: Upf) -> None:
    for name in ("n3_mac", "n6_mac"):
        if not getattr(upf, name):
            allowed = f"here, or pktswarm_upf: {{{name}: …}} in the inventory"
            raise BadInput(where, f"is missing, and {key} needs it", key=f"upf.{name}", allowed=allowed)


def pairs(
    where: Path, index: int, stream: Any, upf: Upf, inventory: Inventory
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(sender, receiver) for each gNB, the data network's hosts in turn; and host → gNB. BadInput where a side has no
    host for it, or an address is not known."""
    key, up = f"streams.{index}", stream.direction == "up"
    check_macs(where, key, upf)
    gnbs = gnb_nodes(where, key, upf, stream.sessions, "transmit" if up else "receive", inventory)
    if stream.echo:
        gnb_nodes(where, f"{key}.echo", upf, stream.sessions, "receive", inventory)
    other = (f"{key}.to", stream.target, "receive") if up else (f"{key}.from", stream.source, "transmit")
    core = core_nodes(where, *other, inventory)
    turns = [(gnb, core[number % len(core)]) for number, gnb in enumerate(gnbs)]
    return turns if up else [(node, gnb) for gnb, node in turns], gnbs


def in_tunnels(
    leg: Leg, tunnels: Tunnels, upf: Upf, sessions: Sessions, hosts: Mapping[str, Host] | None = None
) -> Leg:
    """The leg with its frames, sent and received, and its users. Without `hosts` (those that have answered), and
    before the sessions stand, made-up values stand in for what is not known yet."""
    source, target = PLACEHOLDERS if hosts is None else (hosts[leg.source], hosts[leg.target])
    gnb_host, core_host = (source, target) if tunnels.direction == "up" else (target, source)
    server = getattr(core_host, tunnels.ip)
    if not server:
        problem = f"no address known for the users' server; give {tunnels.ip} in the inventory"
        raise BadInput(core_host.name, problem, key=tunnels.ip)
    rows = rows_at(sessions, tunnels)
    ue = _users_run(tunnels, sessions, rows)
    teids = _chosen((sessions.uplink_teid if tunnels.direction == "up" else sessions.downlink_teid)[rows])
    gnb_address = upf.gnbs[tunnels.moved_to or tunnels.gnb]
    upf_address = one_upf_address(tunnels, _ip(gnb_address), sessions, rows, hosts is not None)
    if tunnels.direction == "up":
        qos = upf.group(tunnels.group).qos
        qfi = None if qos is None else qos.qfi
        source_port = tunnels.shape.source_port(len(rows), USER)
        numbers = _values(tunnels, teids) | tunnels.shape.turns
        tunnel = _tunnel(gnb_address, upf_address, numbers, qfi, source_port)
        sent = [_ethernet(gnb_host.mac, upf.n3_mac), *tunnel, *_inside(tunnels, ue, server, USER)]
        received = [_ethernet(upf.n6_mac, core_host.mac), *_inside(tunnels, ue, server)]
        # The tunnel's header of the same kind makes two of them, which are told apart by their numbers.
        twice = f"{len(tunnel) + 1}." if tunnels.ip == _ip(gnb_address) else ""
        users = {"field": f"{twice}{tunnels.ip}.src", "by": "src_ip", "received": {"field": f"{tunnels.ip}.src"}}
        added = -_size(tunnel)
    else:
        run = _run(tunnels, "downlink TEIDs", teids)
        numbers = {"increment": [run.first, run.last], "step": run.step, **tunnels.shape.turns}
        tunnel = _tunnel(upf_address, gnb_address, numbers, None)
        sent = [_ethernet(core_host.mac, upf.n6_mac), *_inside(tunnels, ue, server)]
        received = [_ethernet(upf.n3_mac, gnb_host.mac), *tunnel, *_inside(tunnels, ue, server, USER)]
        # The tunnel is what a gNB knows a user by: one in another's is the other's packet too many.
        by_teid = {"field": "gtpu.teid", "by": "teid", "first": run.first, "step": run.step}
        users = {"field": f"{tunnels.ip}.dst", "by": "dst_ip", "received": by_teid}
        added = _size(tunnel)
    made = replace(
        leg,
        frame={**leg.frame, "headers": with_ids(sent, leg.oversize)},
        arrives={"headers": received, "added_bytes": added},
        users={**users, **ue.told, **told_of_users(tunnels, upf, _size(tunnel))},
        # A UPF is a router, and may say so.
        expect={"ttl": None, **leg.expect},
        engine="xdp",
    )
    _check_sizes(tunnels, made)
    return made


def notes(stream: Any, upf: Upf) -> list[str]:
    """What a stream of users that move is not."""
    if upf.handover is None or upf.handover.group != stream.sessions or stream.direction == "down":
        return []
    told = "users that move go on sending from the gNB where they began, into the same tunnel"
    return [f"{stream.name}: {told}; what comes down moves with them"]


def moved_in_tunnels(leg: Leg, tunnels: Tunnels, upf: Upf, sessions: Sessions, hosts: Mapping[str, Host]) -> list[Leg]:
    """The leg as it comes to each other gNB that its users may move to. They keep their TEIDs, which no other user has
    at any gNB."""
    return [
        in_tunnels(_received_at(leg, host), replace(tunnels, moved_to=tunnels.among[host]), upf, sessions, hosts)
        for host in leg.handover_targets
    ]


def _received_at(leg: Leg, host: str) -> Leg:
    return replace(leg, target=host, handover_targets=[other for other in leg.receivers if other != host])


def users_at(sessions: Sessions, group: str, gnb: str) -> int:
    return int(np.count_nonzero(sessions.gnb[sessions.rows_of(group)] == sessions.gnbs.index(gnb)))


def ends_of(leg: Leg, tunnels: Tunnels, upf: Upf, hosts: Mapping[str, Host]) -> dict[str, list[str]]:
    """Host → the addresses that it plays: the gNB's; its own in the data network, and the servers' of its users."""
    gnb_host, core_host = (leg.source, leg.target) if tunnels.direction == "up" else (leg.target, leg.source)
    core = [getattr(hosts[core_host], tunnels.ip), *played(tunnels.shape.servers)]
    return {gnb_host: [upf.gnbs[tunnels.gnb]], core_host: core}


def echo_of(leg: Leg, stream: Any, number: int) -> Leg:
    """What comes back of an uplink leg, as a leg of its own: without its tunnel, from its receiver to its sender."""
    added = leg.arrives["added_bytes"]
    return replace(
        leg,
        id=number,
        stream=stream.echo_name,
        source=leg.target,
        target=leg.source,
        size_bytes=leg.size_bytes + added,
        sizes=[[size + added, weight] for size, weight in leg.sizes],
        rate_pps=None,
        rates=[],
        gap_table=[],
        count_packets=None,
        intended_packets=None,
        timing={},
        expect=dict.fromkeys(leg.expect),  # what the UPF changes on the way up has another value on the way back
        options={},
        echo_of=leg.id,
        echo_percent=stream.echo,
    )


def told_of_users(tunnels: Tunnels, upf: Upf, tunnel_bytes: int) -> dict[str, Any]:
    """For Leg.users: whose they are, their MBR, and what is around an IP packet of theirs in a frame as sent and as
    received."""
    up, qos = tunnels.direction == "up", upf.group(tunnels.group).qos
    limits = (None, None) if qos is None else (qos.mbr_up_bps, qos.mbr_down_bps)
    container = CONTAINER_BYTES if not up and qos is not None and qos.qfi is not None else 0
    ethernet = HEADERS["ethernet"].size_bytes
    around = ethernet + tunnel_bytes + container
    return {
        "group": tunnels.group,
        "gnb": tunnels.gnb,
        "direction": tunnels.direction,
        "mbr_bps": limits[not up],
        "outer_bytes": [around, ethernet] if up else [ethernet, around],
    }


def check_cut(where: Path, key: str, stream: Any, upf: Upf, gnbs: Iterable[str]) -> None:
    """Only IPv4 packets are cut here; down, `outer` leaves it to the UPF."""
    cuts = stream.oversize == "inner" or (stream.oversize == "outer" and stream.direction == "up")
    if cuts and (over_ipv6 := next((gnb for gnb in gnbs if _ip(upf.gnbs[gnb]) == "ipv6"), None)):
        problem = f"fragments go in tunnels over IPv4, and {over_ipv6} has {upf.gnbs[over_ipv6]}"
        raise BadInput(where, problem, key=f"{key}.oversize", value=stream.oversize, allowed="refuse; down also outer")


def to_cut(leg: Leg, tunnels: Tunnels, interfaces: Mapping[str, Mapping[str, Any]]) -> Leg:
    """With what its sender is to cut, now that the MTUs are known (`interfaces`: by host). Down, fragments of a tunnel
    are the UPF's to make; those of a user's packets are as long as the tunnel leaves room for."""
    if not leg.oversize:
        return leg
    by, given = leg.oversize["by"], leg.oversize["mtu_bytes"]
    gnbs, core = ([leg.source], leg.target) if tunnels.direction == "up" else (leg.receivers, leg.source)
    gnb_host = min(gnbs, key=lambda host: int(interfaces[host]["mtu"]))  # users may move to any of them
    n3, n6 = interfaces[gnb_host], interfaces[core]
    if given is not None and given > n3["mtu"]:
        problem, allowed = f"more than the MTU of {gnb_host}'s {n3['name']}", f"up to {n3['mtu']}"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.mtu_bytes", value=given, allowed=allowed)
    mtu_bytes = given or n3["mtu"]
    if tunnels.direction == "up":
        return replace(leg, oversize={**leg.oversize, "cut": by, "mtu_bytes": mtu_bytes})
    if by == "outer":
        return leg
    mtu_bytes = min(mtu_bytes - TUNNEL_BYTES - CONTAINER_BYTES, n6["mtu"])
    return replace(leg, oversize={**leg.oversize, "cut": by, "mtu_bytes": mtu_bytes})


def largest_received_bytes(leg: Leg) -> int:
    """Without FCS. Whether the UPF puts a PDU session container into a tunnel is its own affair."""
    added = int(leg.arrives.get("added_bytes", 0))
    return max(size for size, _ in sizes_bytes(leg)) - FCS_BYTES + added + (CONTAINER_BYTES if added > 0 else 0)


def _check_sizes(tunnels: Tunnels, leg: Leg) -> None:
    least = min(size for size, _ in sizes_bytes(leg))
    check_frame(leg.frame, tunnels.where, tunnels.key, least)
    if not stamped(leg):
        needed = stamp_size_bytes(leg.frame["headers"])
        problem = f"its frames are known by their stamps, which need {PLAIN_BYTES} bytes of free payload"
        allowed = f"{needed} or more, as sent, and no payload in hex"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.size_bytes", value=least, allowed=allowed)


@dataclass(frozen=True)
class _Run:
    """Values one step apart, each a user's."""

    first: int
    step: int
    count: int
    low: int | None = None
    """Of IPv6 addresses, whose /64 prefixes the values are: the interface identifier that all have."""

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.step

    @property
    def told(self) -> dict[str, int]:
        """For Leg.users."""
        lower = {} if self.low is None else {"shift": PREFIX_BITS, "low": self.low}
        return {"first": self.first, "step": self.step, "count": self.count, **lower}

    def address(self, value: int) -> str:
        return str(IPv4Address(value) if self.low is None else IPv6Address(value << PREFIX_BITS | self.low))


def rows_at(sessions: Sessions, tunnels: Tunnels) -> NDArray[np.int64]:
    """Of the users at one gNB."""
    rows = sessions.rows_of(tunnels.group)
    return np.compress(sessions.gnb[rows] == sessions.gnbs.index(tunnels.gnb), rows)


def _users_run(tunnels: Tunnels, sessions: Sessions, rows: NDArray[np.int64]) -> _Run:
    if tunnels.ip == "ipv4":
        return _run(tunnels, "UE addresses", _chosen(sessions.ue_v4[rows]))
    halves = sessions.ue_v6[rows].view(">u8").astype(np.uint64)
    lows = np.unique(halves[:, 1])
    if len(lows) > 1:
        problem = f"the interface identifiers of its users at {tunnels.gnb} are not the same"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    run = _run(tunnels, "UE prefixes", _chosen(halves[:, 0]))
    # A UPF chooses a prefix; :: would be the address of its routers (RFC 4291, 2.6.1).
    return replace(run, first=run.first % 2**PREFIX_BITS, low=int(lows[0]) or 1)


def _chosen(values: NDArray[Any]) -> NDArray[np.int64]:
    """The values; before they are known, 1, 2, 3, …"""
    known = values.astype(np.int64)
    return known if known.any() else np.arange(1, len(known) + 1)


def _run(tunnels: Tunnels, what: str, values: NDArray[np.int64]) -> _Run:
    steps = np.unique(np.diff(values))
    if len(values) > MOST_USERS or len(steps) > 1 or (steps < 1).any():
        problem = f"its {what} at {tunnels.gnb} are not one step apart, and cannot be counted one by one"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    return _Run(int(values[0]), int(steps[0]) if len(steps) else 1, len(values))


def _values(tunnels: Tunnels, values: NDArray[np.int64]) -> dict[str, Any]:
    """Of a field: one step apart where they are, a list where the UPF chose otherwise."""
    steps = np.unique(np.diff(values))
    if len(steps) <= 1 and (steps >= 1).all():
        return {"increment": [int(values[0]), int(values[-1])], "step": int(steps[0]) if len(steps) else 1}
    if len(values) > MOST_VALUES:
        problem = "the UPF chose TEIDs that do not follow one another, of more users than a list holds"
        allowed = f"up to {MOST_VALUES} users a gNB, or first_teid"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group, allowed=allowed)
    return {"list": values.tolist()}


def _span(run: _Run, link: str = "") -> dict[str, Any]:
    ends = [run.address(run.first), run.address(run.last)]
    step = run.step << PREFIX_BITS if run.low is not None and run.count > 1 else run.step
    return {"increment": ends, "step": step} | ({"with": link} if link else {})


def _ip(address: str) -> str:
    """The kind of an address, as headers and the inventory call it."""
    return f"ipv{ip_address(address).version}"


def one_upf_address(tunnels: Tunnels, ip: str, sessions: Sessions, rows: NDArray[np.int64], known: bool) -> str:
    """Of the gNB's kind."""
    if ip == "ipv4":
        addresses = [str(IPv4Address(int(one))) for one in np.unique(sessions.upf_v4[rows])]
    else:
        addresses = [str(IPv6Address(one.tobytes())) for one in np.unique(sessions.upf_v6[rows], axis=0)]
    if known and (len(addresses) > 1 or not int(ip_address(addresses[0]))):
        told = ", ".join(addresses) if len(addresses) > 1 else "none"
        kind = ip.replace("ip", "IP")
        problem = f"the UPF has to have one {kind} address for the tunnels of a gNB's users, and told {told}"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    return addresses[0]


def _ethernet(source_mac: str, target_mac: str) -> dict[str, dict[str, Any]]:
    return {"ethernet": {"src": source_mac, "dst": target_mac}}


def _tunnel(source: str, target: str, teid: dict[str, Any], qfi: int | None, source_port: Any = GTPU_PORT) -> Headers:
    """Over IPv4 a tunnel's UDP checksum is 0: what it carries has its own. Over IPv6 it is there, and right: who is not
    told that it may be 0 (RFC 6935) drops such packets (RFC 8200, 8.1), Linux too."""
    ip = _ip(source)
    made: Headers = [
        {ip: {"src": source, "dst": target}},
        {"udp": {"src": source_port, "dst": GTPU_PORT} | ({"checksum": 0} if ip == "ipv4" else {})},
        {"gtpu": {"teid": teid}},
    ]
    if qfi is not None:
        made += [{"gtpu_options": {}}, {"pdu_session": {"pdu_type": UPLINK, "qfi": qfi}}]
    return made


def _inside(tunnels: Tunnels, ue: _Run, node: str, link: str = "") -> Headers:
    """The users' packets. `link`: the field by which they are told apart, if that is another than their address."""
    shape, up = tunnels.shape, tunnels.direction == "up"
    user = _span(ue, link) if link else _span(ue) | shape.turns
    server = shape.server(node, ue.count, link or f"{tunnels.ip}.{'src' if up else 'dst'}")
    ends = (user, shape.user_port(ue.count, tunnels.port)), (server, tunnels.port)
    source, target = ends if up else ends[::-1]
    return [{tunnels.ip: {"src": source[0], "dst": target[0]}}, {"udp": {"src": source[1], "dst": target[1]}}]


def _size(headers: Headers) -> int:
    return sum(HEADERS[next(iter(header))].size_bytes for header in headers)
