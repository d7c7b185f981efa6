"""The counting program by itself, with one leg: frames in by BPF_PROG_RUN, figures out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xdp_frames import B, armed

from nodes import libbpf
from traffic.counters import RawTally
from traffic.tally import Tally
from traffic.task import Leg, ReceiveTask


@dataclass
class Figures:
    """Of one leg that `sent` packets were sent of."""

    tally: Tally
    sent: int

    @property
    def moved(self) -> dict[str, int]:
        one = asdict(self.tally)
        names = ("altered", "duplicated", "reordered", "too_late", "astray", "impossible")
        return {name: one[name] for name in names} | {"lost": self.tally.lost(self.sent) or 0}


class Counter:
    """The program with one leg."""

    def __init__(self, program: Path, spool: Path, leg: Leg, armed_ns: int = 0, **task: Any) -> None:
        self.leg, self.sent = leg, 0
        made = ReceiveTask("lo", B, [leg], 60, **{"mode": "count", "offsets_ns": {"a": 0}, **task})
        self.receiver = armed(armed_ns, program)(made, spool)
        self.receiver.prepare()
        assert self.receiver._object is not None
        self.fd = self.receiver._object.program_fd("count")

    def take(self, frame: bytes) -> None:
        self.sent += 1
        libbpf.run_once(self.fd, frame)

    def figures(self) -> Figures:
        return Figures(self.receiver.tallies()[self.leg.id], self.sent)

    def raw(self) -> RawTally:
        """As the program keeps it."""
        return self.receiver._raw(0)

    def buckets(self) -> list[int]:
        return list(self.receiver._buckets(0))
