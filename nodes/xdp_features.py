"""XDP features of a driver, from the kernel's "netdev" family of generic netlink (Linux 6.3 and later).

A veth end says here whether its other end takes live frames now: it does with GRO or with an XDP program.
"""

from __future__ import annotations

import socket
import struct

from pktswarm.nodes.netlink import attributes

# linux/netlink.h, linux/genetlink.h
_NETLINK_GENERIC, _NLM_F_REQUEST, _NLMSG_ERROR = 16, 1, 2
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
# linux/netdev.h
_NETDEV_CMD_DEV_GET, _NETDEV_A_DEV_IFINDEX, _NETDEV_A_DEV_XDP_FEATURES = 1, 1, 3
NATIVE, TAKES_FRAMES = 1 << 0, 1 << 2
"""Bits: runs XDP programs natively; takes frames that are redirected to it, live frames too."""


def features(interface_index: int) -> int | None:
    """The bits of an interface of this network namespace; None where the kernel does not report them."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as link:
            family = _ask(link, _GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_NAME, b"netdev\0")
            number = struct.unpack("=H", family[_CTRL_ATTR_FAMILY_ID])[0]
            index = struct.pack("=I", interface_index)
            device = _ask(link, number, _NETDEV_CMD_DEV_GET, _NETDEV_A_DEV_IFINDEX, index)
            return int(struct.unpack("=Q", device[_NETDEV_A_DEV_XDP_FEATURES])[0])
    except (OSError, KeyError):
        return None


def _ask(link: socket.socket, family: int, command: int, attribute: int, value: bytes) -> dict[int, bytes]:
    """The attributes of the answer."""
    body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), attribute) + value + bytes(-len(value) % 4)
    link.send(struct.pack("=IHHII", 16 + len(body), family, _NLM_F_REQUEST, 0, 0) + body)
    answer = link.recv(65536)
    if struct.unpack_from("=H", answer, 4)[0] == _NLMSG_ERROR:
        raise OSError(-struct.unpack_from("=i", answer, 16)[0], "netlink refuses")
    return attributes(answer[20 : struct.unpack_from("=I", answer)[0]])
