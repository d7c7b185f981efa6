"""The orders of the process that holds a node's connections, as a JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import Role, leg_from_json


@dataclass(frozen=True)
class Work:
    """`result`: the file for the counts. `release`: the FIFO through which the start time comes."""

    role: Role
    interface: str
    legs: list[Leg]
    result: str
    release: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({**vars(self), "legs": [leg.to_json() for leg in self.legs]}))

    @classmethod
    def read(cls, path: Path) -> Work:
        fields = json.loads(path.read_text())
        return cls(**{**fields, "legs": [leg_from_json(leg) for leg in fields["legs"]]})
