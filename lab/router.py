"""The device under test as a router: the kernel forwards between side a and side b, IPv4 and IPv6."""

from __future__ import annotations

import ipaddress
from socket import AF_INET, AF_INET6

from pyroute2 import IPRoute

from pktswarm.lab import links, release
from pktswarm.lab.node import Facts, Wiring
from pktswarm.lab.plan import Plan, Router

OWN_LINK_LOCAL = "fe80::1"
WAITING_BYTES = 4 << 20
"""Size of the queue for a neighbour that has not answered yet. The kernel's 208 KiB hold 50 frames, because a frame of
XDP takes a page: 0.1 s at 500 packets/s, and a node on a busy machine may answer later."""


def set_up_router(wiring: Wiring) -> Facts:
    """Connects to-a and to-b to the sides' switches, and sets addresses, forwarding and routes.

    It asks for its neighbours, which the nodes answer while a run lasts.
    """
    router = wiring.plan.router
    assert router is not None
    links.prepare_namespace(quiet=False)
    forward()
    for side in ("a", "b"):
        port, socket = f"to-{side}", wiring.socket(side, "to-dut-" + side)
        mac = router.mac[side]
        links.add_cable(port, socket, wiring.plan.mtu, mac, quiet=False, live_frames=wiring.is_xdp)
        links.write_setting(f"ipv6/conf/{port}/addr_gen_mode", "1", optional=True)
        for version in ("ipv4", "ipv6"):
            links.write_setting(f"{version}/neigh/{port}/unres_qlen_bytes", str(WAITING_BYTES), optional=True)
        links.bring_up(port, router.ipv4[side])
        # The kernel solicits neighbours from the link-local address.
        links.add_ipv6(port, router.ipv6[side], OWN_LINK_LOCAL)
        if wiring.plan.bottleneck:
            links.add_bottleneck(port, wiring.plan.bottleneck, wiring.plan.mtu)
            release.release_frames(port)
    _add_routes(wiring.plan, router)
    return Facts()


def forward() -> None:
    """Switches forwarding on and reverse path filters off, for interfaces that are still to come."""
    for setting, value in (("rp_filter", "0"), ("forwarding", "1")):
        for name in ("all", "default"):
            links.write_setting(f"ipv4/conf/{name}/{setting}", value)
    links.write_setting("ipv6/conf/all/forwarding", "1", optional=True)


def _add_routes(plan: Plan, router: Router) -> None:
    nodes = {node.name: node for node in plan.nodes}
    with IPRoute() as netlink:
        for route in router.routes:
            node = nodes[route.node]
            is_ipv4 = ipaddress.ip_network(route.prefix).version == 4
            netlink.route(
                "add",
                family=AF_INET if is_ipv4 else AF_INET6,
                dst=route.prefix,
                gateway=node.ipv4 if is_ipv4 else node.ipv6,
                oif=netlink.link_lookup(ifname=f"to-{node.side}")[0],
            )
