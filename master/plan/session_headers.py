"""Headers of a session group's frames, in and outside their tunnels, and the ranges of its users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.upf_shape import Shape
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting.users import MOST_USERS
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.headers import GTPU_PORT, HEADERS
from pktswarm.traffic.frames.values import MOST_VALUES
from pktswarm.traffic.leg import FlowUsers

Headers = list[dict[str, dict[str, object]]]


USER = "gtpu.teid"
"""Field of a frame in its tunnel that the other fields of a user are linked with."""


UPLINK = 1
"""The PDU type of a PDU session container on its way to the UPF (TS 38.415)."""


PREFIX_BITS = 64
"""Length of the prefix of an IPv6 user (TS 23.501, 5.8.2.2.1), and of its interface identifier."""


CONTAINER_BYTES = 8
"""Length of a PDU session container with the optional fields before it."""


TUNNEL_BYTES = sum(HEADERS[name].size_bytes for name in ("ipv4", "udp", "gtpu"))
"""Length of the tunnel headers over IPv4 without a PDU session container."""


@dataclass(frozen=True)
class Tunnels:
    """Users of one gNB in a group, in one direction. `key`: path of the stream in the file; `port`: UDP port of the
    server, and of users with one flow; it distinguishes streams."""

    where: Path
    key: str
    group: str
    gnb: str
    direction: Literal["up", "down"]
    port: int
    ip: str = "ipv4"
    """Address family of the users' packets: "ipv4" or "ipv6"."""
    shape: Shape = field(default_factory=Shape)
    among: dict[str, str] = field(default_factory=dict)
    """Direction down with handover: host → gNB, for all gNBs that the users move among."""
    moved_to: str = ""
    """The gNB after a handover whose frames are described; empty: `gnb`, where the users start."""


@dataclass(frozen=True)
class UserRange:
    """Range of values one step apart, one for each user."""

    first: int
    step: int
    count: int
    low: int | None = None
    """The common interface identifier of IPv6 addresses, whose /64 prefixes are the values."""

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.step

    def add_to(self, users: FlowUsers) -> FlowUsers:
        """The users with the values of this range."""
        shift, low = (0, 0) if self.low is None else (PREFIX_BITS, self.low)
        return replace(users, first=self.first, step=self.step, count=self.count, shift=shift, low=low)

    def address(self, value: int) -> str:
        return str(IPv4Address(value) if self.low is None else IPv6Address(value << PREFIX_BITS | self.low))


def rows_at(sessions: Sessions, tunnels: Tunnels) -> NDArray[np.int64]:
    """Rows of the users at one gNB."""
    rows = sessions.rows_of(tunnels.group)
    return np.compress(sessions.gnb[rows] == sessions.gnbs.index(tunnels.gnb), rows)


def users_range(tunnels: Tunnels, sessions: Sessions, rows: NDArray[np.int64]) -> UserRange:
    if tunnels.ip == "ipv4":
        return run_of(tunnels, "UE addresses", chosen_values(sessions.ue_v4[rows]))
    halves = sessions.ue_v6[rows].view(">u8").astype(np.uint64)
    lows = np.unique(halves[:, 1])
    if len(lows) > 1:
        problem = f"the interface identifiers of its users at {tunnels.gnb} must be equal"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    run = run_of(tunnels, "UE prefixes", chosen_values(halves[:, 0]))
    # A UPF chooses a prefix; :: would be the address of its routers (RFC 4291, 2.6.1).
    return replace(run, first=run.first % 2**PREFIX_BITS, low=int(lows[0]) or 1)


def chosen_values(values: NDArray[Any]) -> NDArray[np.int64]:
    """The chosen values; 1, 2, 3, … before they are known."""
    known = values.astype(np.int64)
    return known if known.any() else np.arange(1, len(known) + 1)


def run_of(tunnels: Tunnels, what: str, values: NDArray[np.int64]) -> UserRange:
    steps = np.unique(np.diff(values))
    if len(values) > MOST_USERS or len(steps) > 1 or (steps < 1).any():
        problem = f"its {what} at {tunnels.gnb} must be one step apart to be counted one by one"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    return UserRange(int(values[0]), int(steps[0]) if len(steps) else 1, len(values))


def field_values(tunnels: Tunnels, values: NDArray[np.int64]) -> dict[str, object]:
    """Values of a field: a counter if they are one step apart, else a list."""
    steps = np.unique(np.diff(values))
    if len(steps) <= 1 and (steps >= 1).all():
        return {"increment": [int(values[0]), int(values[-1])], "step": int(steps[0]) if len(steps) else 1}
    if len(values) > MOST_VALUES:
        problem = "the UPF chose TEIDs that are not consecutive, for more users than a list holds"
        allowed = f"up to {MOST_VALUES} users a gNB, or first_teid"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group, allowed=allowed)
    return {"list": values.tolist()}


def _span(run: UserRange, link: str = "") -> dict[str, object]:
    ends = [run.address(run.first), run.address(run.last)]
    step = run.step << PREFIX_BITS if run.low is not None and run.count > 1 else run.step
    return {"increment": ends, "step": step} | ({"with": link} if link else {})


def ip_of(address: str) -> str:
    """The kind of an address, as headers and the inventory call it."""
    return f"ipv{ip_address(address).version}"


def one_upf_address(tunnels: Tunnels, ip: str, sessions: Sessions, rows: NDArray[np.int64], known: bool) -> str:
    """The UPF's address of the gNB's address family."""
    if ip == "ipv4":
        addresses = [str(IPv4Address(int(one))) for one in np.unique(sessions.upf_v4[rows])]
    else:
        addresses = [str(IPv6Address(one.tobytes())) for one in np.unique(sessions.upf_v6[rows], axis=0)]
    if known and (len(addresses) > 1 or not int(ip_address(addresses[0]))):
        reported = ", ".join(addresses) if len(addresses) > 1 else "none"
        kind = ip.replace("ip", "IP")
        problem = f"the UPF must report one {kind} address for the tunnels of a gNB's users; it reported {reported}"
        raise BadInput(tunnels.where, problem, key=f"{tunnels.key}.sessions", value=tunnels.group)
    return addresses[0]


def ethernet(source_mac: str, target_mac: str) -> dict[str, dict[str, object]]:
    return {"ethernet": {"src": source_mac, "dst": target_mac}}


def tunnel_headers(
    source: str, target: str, teid: dict[str, object], qfi: int | None, source_port: object = GTPU_PORT
) -> Headers:
    """Headers of a GTP-U tunnel. The UDP checksum is 0 over IPv4. Over IPv6 it is computed: a receiver that is not
    configured to accept 0 (RFC 6935), Linux included, drops such packets (RFC 8200, 8.1)."""
    ip = ip_of(source)
    made: Headers = [
        {ip: {"src": source, "dst": target}},
        {"udp": {"src": source_port, "dst": GTPU_PORT} | ({"checksum": 0} if ip == "ipv4" else {})},
        {"gtpu": {"teid": teid}},
    ]
    if qfi is not None:
        made += [{"gtpu_options": {}}, {"pdu_session": {"pdu_type": UPLINK, "qfi": qfi}}]
    return made


def inner_headers(tunnels: Tunnels, ue: UserRange, node: str, link: str = "") -> Headers:
    """Headers of the users' packets. `link`: the field that distinguishes users; empty: their address."""
    shape, up = tunnels.shape, tunnels.direction == "up"
    user = _span(ue, link) if link else _span(ue) | shape.turns
    server = shape.server(node, ue.count, link or f"{tunnels.ip}.{'src' if up else 'dst'}")
    ends = (user, shape.user_port(ue.count, tunnels.port)), (server, tunnels.port)
    source, target = ends if up else ends[::-1]
    return [{tunnels.ip: {"src": source[0], "dst": target[0]}}, {"udp": {"src": source[1], "dst": target[1]}}]


def size_of(headers: Headers) -> int:
    return sum(HEADERS[next(iter(header))].size_bytes for header in headers)
