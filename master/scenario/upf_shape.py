"""Shape of a stream of sessions: the order of its users, their ports and servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from pktswarm.master.scenario.upf_servers import Address
from pktswarm.traffic.frames.headers import GTPU_PORT

MOST_IN_A_ROW = 4096
PER_USER = "per-user"
FIRST_PORT, LAST_PORT = 49152, 65535
"""Dynamic ports (RFC 6335, 6): source ports of users and of GTP-U senders (TS 29.281, 4.4.2)."""
MOST_FLOWS = LAST_PORT - FIRST_PORT + 1


def _a_source_port(given: Any) -> Any:
    if given == PER_USER or _is_port(given):
        return given
    if isinstance(given, list) and len(given) == 2 and all(map(_is_port, given)) and given[0] <= given[1]:
        return given
    raise ValueError(f"a port is 1 to {LAST_PORT}, {PER_USER}, or [first, last] for users in turn, not {given!r}")


def _is_port(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= LAST_PORT


_PORT = {"type": "integer", "minimum": 1, "maximum": LAST_PORT}
SourcePort = Annotated[
    Any,
    AfterValidator(_a_source_port),
    WithJsonSchema(
        {"anyOf": [_PORT, {"const": PER_USER}, {"type": "array", "minItems": 2, "maxItems": 2, "items": _PORT}]}
    ),
]


@dataclass(frozen=True)
class Shape:
    """Shape of a stream, applied at each of its gNBs independently."""

    outer_source_port: Any = GTPU_PORT
    interleave: int = 1
    """Consecutive frames of a user, called its turn."""
    flows: int = 1
    """UDP flows of each user: one port each; the port changes with each turn of the user."""
    servers: tuple[Address, int] | None = None
    """First address and number of the servers; None: the node of the data network."""

    @property
    def turns(self) -> dict[str, int]:
        """Options of the field that identifies users, in addition to its values."""
        return {"every": self.interleave} if self.interleave > 1 else {}

    def user_port(self, users: int, server_port: int) -> Any:
        """UDP port of a user's packets (udp.src uplink). It changes after a turn of every user."""
        if self.flows == 1:
            return server_port
        return {"increment": [FIRST_PORT, FIRST_PORT + self.flows - 1], "every": users * self.interleave}

    def server(self, node: str, users: int, link: str) -> Any:
        """Server address of the users. `node`: address of the data network's node; `link`: as in source_port."""
        return node if self.servers is None else _shared(*self.servers, users, link)

    def source_port(self, users: int, link: str) -> Any:
        """UDP source port of the tunnels at the gNB. `link`: the field that identifies users."""
        given = [FIRST_PORT, LAST_PORT] if self.outer_source_port == PER_USER else self.outer_source_port
        if isinstance(given, int):
            return given
        return _shared(given[0], given[1] - given[0] + 1, users, link)


def _shared(first: int | Address, count: int, users: int, link: str) -> Any:
    """`count` values that users share in turn: user n has value n modulo `count`."""
    last = first + min(count, users) - 1
    ends = [one if isinstance(one, int) else str(one) for one in (first, last)]
    return {"with": link, "wrap": True, "increment": ends} if first != last else ends[0]
