"""The messages of the processes that bring up a lab: a JSON object a line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Started:
    """The keeper runs, with this process number outside of the lab."""

    keeper_pid: int


@dataclass(frozen=True)
class Built:
    """The lab is up. `pids`: node → process number outside of the lab. `notes`: what the lab lacks."""

    pids: dict[str, int]
    notes: list[str]


@dataclass(frozen=True)
class Failed:
    """The lab did not come up."""

    error: str


@dataclass(frozen=True)
class NodeUp:
    """A node is up. `pid`: in the lab; `outer_pid`: outside of it. Keys are public ones, empty where there is none."""

    node: str
    pid: int
    outer_pid: int
    host_key: str = ""
    client_key: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class NodeFailed:
    """A node did not come up."""

    node: str
    error: str


Message = Started | Built | Failed | NodeUp | NodeFailed
_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (Started, Built, Failed, NodeUp, NodeFailed)}


def write(pipe: int, message: Message) -> None:
    """Writes one line. Lines of up to 4096 bytes do not mix in a pipe; only the builder's last one is longer."""
    os.write(pipe, json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n")


def decode(line: bytes) -> Message:
    """Raises KeyError or TypeError for anything that write() does not make."""
    fields = json.loads(line)
    return _KINDS[fields.pop("kind")](**fields)
