"""Bridges, cables (veth pairs) and interfaces, configured so that every frame sent is a frame counted.

Each function works in the network namespace the process is in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET, AF_INET6

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool

from pktswarm.lab.namespaces import network_of
from pktswarm.lab.plan import ETHERNET_BYTES, Bottleneck
from pktswarm.traffic.errors import PktswarmError

MERGE_OR_SPLIT = re.compile(r"tx-.*segmentation|tx-gso-.*|tx-checksum-.*|tx-vlan-.*insert|rx-lro|rx-gro.*")
"""Offloads that merge or split frames, or leave a checksum or a tag to the card.

On a cable there is no card: a frame would arrive unfinished or without its tag, and a burst as one frame of 64 kB.
"""


GRO = "rx-gro"
_NODAD = 2
"""IFA_F_NODAD of linux/if_addr.h."""
_PERMANENT = 0x80
"""NUD_PERMANENT of linux/neighbour.h."""
BURST_S = 0.001
"""Burst of a token bucket, as time at its rate."""


@dataclass(frozen=True)
class Socket:
    """The far end of a cable: a port of a bridge, in the network namespace of process `pid`."""

    pid: int
    bridge: str
    port: str
    live_frames: bool = False
    """Whether XDP live frames may arrive: see take_live_frames()."""
    queues: int = 1
    """Receive queues of the port. XDP puts a frame into that of its processor: with one for each, the frames of a
    sender stay on its processor, and no queue waits for another one."""


def prepare_namespace(quiet: bool) -> None:
    """Configures a new network namespace. `quiet`: the kernel sends nothing by itself on any interface."""
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, "lo"), state="up")
    # Some defaults are the host's: a host with containers forwards, and filters the frames on its bridges.
    write_setting("ipv4/ip_forward", "0")
    for name in ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"):
        write_setting(f"bridge/{name}", "0", optional=True)
    if quiet:
        write_setting("ipv6/conf/all/disable_ipv6", "1", optional=True)
        write_setting("ipv6/conf/default/disable_ipv6", "1", optional=True)


def add_bridge(name: str, mtu: int) -> None:
    """Adds a plain switch, without spanning tree, which floods multicast frames."""
    with IPRoute() as netlink:
        netlink.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, mtu=mtu)
        netlink.link("set", index=_index(netlink, name), state="up")


def add_cable(
    interface: str,
    socket: Socket,
    mtu: int,
    mac: str = "",
    quiet: bool = True,
    live_frames: bool = False,
    queues: int = 1,
) -> None:
    """Adds a cable from `interface` in this namespace to `socket`. The interface stays down: see bring_up().

    `live_frames`, `queues`: of `interface`, as those of Socket.
    """
    with IPRoute() as netlink:
        far_end = {"ifname": socket.port, "net_ns_pid": socket.pid, "mtu": mtu, "num_rx_queues": socket.queues}
        near_end = {"ifname": interface, "mtu": mtu, "num_rx_queues": queues} | ({"address": mac} if mac else {})
        netlink.link("add", kind="veth", peer=far_end, **near_end)
    _harden(interface, quiet)
    if live_frames:
        take_live_frames(interface)
    with network_of(socket.pid):
        plug(socket.port, socket.bridge, quiet)
        if socket.live_frames:
            take_live_frames(socket.port)


def plug(port: str, bridge: str, quiet: bool = True) -> None:
    """Makes interface `port` a port of `bridge`, and brings it up."""
    _harden(port, quiet)
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, port), master=_index(netlink, bridge), state="up")


def add_bottleneck(port: str, bottleneck: Bottleneck, mtu: int) -> None:
    """Limits the rate of frames leaving `port` by a token bucket (TBF), behind a tail-drop queue.

    Raises PktswarmError if the kernel did not take it as asked for.
    """
    burst_bytes = max(2 * (mtu + ETHERNET_BYTES), round(bottleneck.rate_bps / 8 * BURST_S))
    asked = {"rate": bottleneck.rate_bps // 8, "burst": burst_bytes, "limit": bottleneck.queue_bytes}
    with IPRoute() as netlink:
        index = _index(netlink, port)
        netlink.tc("replace", "tbf", index=index, handle="1:", **asked)
        kept = [one for one in netlink.get_qdiscs(index=index) if one.get_attr("TCA_KIND") == "tbf"]
    limits = [qdisc.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS") for qdisc in kept]
    if not limits or (limits[0]["rate"], limits[0]["limit"]) != (asked["rate"], asked["limit"]):
        raise PktswarmError(f"{port}: the kernel did not accept a bottleneck of {bottleneck.rate_bps} bit/s")


def bring_up(interface: str, ipv4: str = "", prefix_length: int = 24) -> None:
    with IPRoute() as netlink:
        index = _index(netlink, interface)
        if ipv4:
            netlink.addr("add", index=index, address=ipv4, prefixlen=prefix_length)
        netlink.link("set", index=index, state="up")


def add_ipv6(interface: str, *addresses: str) -> None:
    """Adds addresses in a /64 of the link. They are unique, so they are used without duplicate address detection."""
    with IPRoute() as netlink:
        for one in addresses:
            netlink.addr(
                "add", index=_index(netlink, interface), address=one, prefixlen=64, family=AF_INET6, flags=_NODAD
            )


def add_neighbours(interface: str, macs: Mapping[str, str]) -> None:
    """Adds permanent neighbour entries."""
    with IPRoute() as netlink:
        index = _index(netlink, interface)
        for address, mac in macs.items():
            family = AF_INET6 if ":" in address else AF_INET
            netlink.neigh("replace", family=family, dst=address, lladdr=mac, ifindex=index, state=_PERMANENT)


def _harden(interface: str, quiet: bool) -> None:
    switch_offloads_off(interface)
    if quiet:
        write_setting(f"ipv6/conf/{interface}/disable_ipv6", "1", optional=True)


def switch_offloads_off(interface: str) -> None:
    """Raises PktswarmError naming the offloads that stayed on."""
    ethtool = IoctlEthtool(interface)
    try:
        features = ethtool.get_features()
        for name in filter(MERGE_OR_SPLIT.fullmatch, features.keys()):
            if features.is_active(name):
                features.set_value(name, False)
        ethtool.set_features(features)
        after = ethtool.get_features()
        left = [name for name in filter(MERGE_OR_SPLIT.fullmatch, after.keys()) if after.is_active(name)]
    finally:
        ethtool.close()
    if left:
        raise PktswarmError(f"{interface}: these offloads cannot be switched off: {', '.join(left)}")


def take_live_frames(port: str) -> None:
    """Switches GRO on: a veth loses frames that XDP sends into it unless its far end receives by NAPI, as with GRO.

    A size limit of one byte then keeps GRO from merging anything.
    """
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, port), gro_max_size=1)
    ethtool = IoctlEthtool(port)
    try:
        features = ethtool.get_features()
        features.set_value(GRO, True)
        ethtool.set_features(features)
        if not ethtool.get_features().is_active(GRO):
            raise PktswarmError(f"{port}: {GRO} cannot be switched on, and XDP live frames would be lost")
    finally:
        ethtool.close()


def _index(netlink: IPRoute, interface: str) -> int:
    found = netlink.link_lookup(ifname=interface)
    if not found:
        raise PktswarmError(f"interface {interface} is not there")
    return int(found[0])


def write_setting(setting: str, value: str, optional: bool = False) -> None:
    """Writes a setting of this network namespace; an `optional` one may be missing from the kernel."""
    path = Path("/proc/sys/net") / setting
    if optional and not path.exists():
        return
    path.write_text(value)
    if path.read_text().strip() != value:
        raise PktswarmError(f"{path}: the kernel rejected {value}")
