"""Bridges, cables (veth pairs) and interfaces, set so that what is counted is what was sent.

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
"""Offloads that turn several frames into one, one into several, or leave a checksum or a tag for a card to fill in.

On a cable there is no card: a frame would arrive unfinished or without its tag, and a burst as one frame of 64 kB.
"""


GRO = "rx-gro"
_NODAD = 2
"""IFA_F_NODAD of linux/if_addr.h."""
_PERMANENT = 0x80
"""NUD_PERMANENT of linux/neighbour.h."""
BURST_S = 0.001
"""What a token bucket lets through at once, as time at its rate."""


@dataclass(frozen=True)
class Socket:
    """Where a cable's far end is plugged in: a port of a bridge, in the network namespace of process `pid`."""

    pid: int
    bridge: str
    port: str
    live_frames: bool = False
    """Whether XDP live frames may come in: see take_live_frames."""


def prepare_namespace(quiet: bool) -> None:
    """Settings of a fresh network namespace. `quiet`: the kernel sends nothing of its own on any interface."""
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, "lo"), state="up")
    # Some defaults come from the host: one with containers forwards, and filters what its bridges carry.
    write_setting("ipv4/ip_forward", "0")
    for name in ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"):
        write_setting(f"bridge/{name}", "0", optional=True)
    if quiet:
        write_setting("ipv6/conf/all/disable_ipv6", "1", optional=True)
        write_setting("ipv6/conf/default/disable_ipv6", "1", optional=True)


def add_bridge(name: str, mtu: int) -> None:
    """A plain switch: no spanning tree, and every multicast frame goes to every port."""
    with IPRoute() as netlink:
        netlink.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, mtu=mtu)
        netlink.link("set", index=_index(netlink, name), state="up")


def add_cable(interface: str, socket: Socket, mtu: int, mac: str = "", quiet: bool = True) -> None:
    """A cable from `interface` here into `socket`. The interface is left down; see bring_up."""
    with IPRoute() as netlink:
        far_end = {"ifname": socket.port, "net_ns_pid": socket.pid, "mtu": mtu}
        netlink.link("add", ifname=interface, kind="veth", peer=far_end, mtu=mtu, **({"address": mac} if mac else {}))
    _harden(interface, quiet)
    with network_of(socket.pid):
        plug(socket.port, socket.bridge, quiet)
        if socket.live_frames:
            take_live_frames(socket.port)


def plug(port: str, bridge: str, quiet: bool = True) -> None:
    """Make interface `port` a port of `bridge`, and up."""
    _harden(port, quiet)
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, port), master=_index(netlink, bridge), state="up")


def add_bottleneck(port: str, bottleneck: Bottleneck, mtu: int) -> None:
    """What leaves by `port` is held to a rate by a token bucket (TBF), with a queue before it that drops at its end.

    Raises PktswarmError if the kernel did not take it as asked for.
    """
    burst_bytes = max(2 * (mtu + ETHERNET_BYTES), round(bottleneck.rate_bps / 8 * BURST_S))
    asked = {"rate": bottleneck.rate_bps // 8, "burst": burst_bytes, "limit": bottleneck.queue_bytes}
    with IPRoute() as netlink:
        index = _index(netlink, port)
        netlink.tc("replace", "tbf", index=index, handle="1:", **asked)
        kept = [one for one in netlink.get_qdiscs(index=index) if one.get_attr("TCA_KIND") == "tbf"]
    told = [one.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS") for one in kept]
    if not told or (told[0]["rate"], told[0]["limit"]) != (asked["rate"], asked["limit"]):
        raise PktswarmError(f"{port}: the kernel does not keep a bottleneck of {bottleneck.rate_bps} bit/s")


def bring_up(interface: str, ipv4: str = "", prefix_length: int = 24) -> None:
    with IPRoute() as netlink:
        index = _index(netlink, interface)
        if ipv4:
            netlink.addr("add", index=index, address=ipv4, prefixlen=prefix_length)
        netlink.link("set", index=index, state="up")


def add_ipv6(interface: str, *addresses: str) -> None:
    """On the link's /64. Nobody else has them: they are used at once, without duplicate address detection."""
    with IPRoute() as netlink:
        for one in addresses:
            netlink.addr(
                "add", index=_index(netlink, interface), address=one, prefixlen=64, family=AF_INET6, flags=_NODAD
            )


def add_neighbours(interface: str, macs: Mapping[str, str]) -> None:
    """By their addresses, for ever."""
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
    """Frames that XDP sends into a veth pair vanish unless its far end receives by NAPI, which a veth does with GRO on.

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
            raise PktswarmError(f"{port}: {GRO} cannot be switched on, and XDP live frames would vanish")
    finally:
        ethtool.close()


def _index(netlink: IPRoute, interface: str) -> int:
    found = netlink.link_lookup(ifname=interface)
    if not found:
        raise PktswarmError(f"interface {interface} is not there")
    return int(found[0])


def write_setting(setting: str, value: str, optional: bool = False) -> None:
    """A setting of this network namespace; `optional` ones belong to kernel parts that may be missing."""
    path = Path("/proc/sys/net") / setting
    if optional and not path.exists():
        return
    path.write_text(value)
    if path.read_text().strip() != value:
        raise PktswarmError(f"{path} does not take {value}")
