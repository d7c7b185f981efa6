"""Packets in tunnels and without, and where they are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.leg import Arrival, FlowUsers, Leg, Oversize
from pktswarm.traffic.schedule.fragments import with_ids
from wire import A, B

Cut = Literal["inner", "outer"]
ETHERNET = {"ethernet": {"src": A, "dst": B}}
OUTER = {"ipv4": {"src": "10.92.0.12", "dst": "10.92.0.1"}}
TUNNEL: Headers = [ETHERNET, OUTER, {"udp": {"src": 2152, "dst": 2152, "checksum": 0}}]
CONTAINER: Headers = [{"gtpu_options": {}}, {"pdu_session": {"pdu_type": 1, "qfi": 9}}]
USER = {"src": {"increment": ["10.45.0.1", "10.45.0.5"], "with": "gtpu.teid"}, "dst": "10.60.0.1", "ttl": 61}
ALONE = {**USER, "src": {"increment": ["10.45.0.1", "10.45.0.5"]}}
TEID = {"gtpu": {"teid": {"increment": [7001, 7005]}}}
UDP_HEADER = {"udp": {"src": 5001, "dst": 5001}}
SHAPES: dict[str, Headers] = {
    "tunnel": [*TUNNEL, TEID, {"ipv4": USER}, UDP_HEADER],
    "container": [*TUNNEL, TEID, *CONTAINER, {"ipv4": USER}, UDP_HEADER],
    "alone": [ETHERNET, {"ipv4": ALONE}, UDP_HEADER],
}
TUNNEL_BYTES = {"tunnel": 36, "container": 44, "alone": 0}
FIRST_ID = 100


def a_leg(shape: str = "container", cut: Cut = "outer", size_bytes: int = 1600, **more: Any) -> Leg:
    """It arrives as it left, and its users are known by their addresses."""
    oversize = Oversize(cut, 1500, (FIRST_ID, 65535), cut=cut)
    payload = more.pop("payload", {"fill": 0xA5})
    frame: FrameDescription = {"headers": with_ids(SHAPES[shape], oversize), "payload": payload}
    number = [next(iter(one)) for one in SHAPES[shape]]
    last = len(number) - 1 - number[::-1].index("ipv4")
    field = f"{last}.ipv4.src" if number.count("ipv4") > 1 else "ipv4.src"
    of = FlowUsers(field, "src_ip", 0x0A2D0001, 1, 5)
    arrives = Arrival(frame["headers"])
    leg = Leg(3, shape, "a", "b", "stream", "xdp", frame, size_bytes, rate_pps=1000, **more)
    return replace(leg, users=of, arrives=arrives, oversize=oversize)
