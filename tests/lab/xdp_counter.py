"""The counting program by itself, with one leg: frames in by BPF_PROG_RUN, figures out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting.kernel_structs import RawTally
from pktswarm.traffic.counting.tally import Tally
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from xdp_frames import B, armed


@dataclass
class Figures:
    """Of one leg that `sent` packets were sent of."""

    tally: Tally
    sent: int

    @property
    def moved(self) -> dict[str, int]:
        names = ("altered", "duplicated", "reordered", "too_late", "invalid_sequence", "impossible")
        return {name: getattr(self.tally, name) for name in names} | {"lost": self.tally.lost(self.sent) or 0}


class Counter:
    """The program with one leg."""

    def __init__(self, program: Path, spool: Path, leg: Leg, armed_ns: int = 0, **task: Any) -> None:
        self.leg, self.sent = leg, 0
        made = ReceiveTask("lo", B, [leg], 60, **{"mode": "count", "offsets_ns": {"a": 0}, **task})
        self.receiver = armed(armed_ns, program)(made, spool)
        self.receiver.prepare()
        self.fd = self.receiver.program.counter_fd

    def take(self, frame: bytes) -> None:
        self.sent += 1
        libbpf.run_once(self.fd, frame)

    def take_packet(self, fragments: list[bytes]) -> None:
        self.sent += 1
        for frame in fragments:
            libbpf.run_once(self.fd, frame)

    def figures(self) -> Figures:
        return Figures(self.receiver.figures.tallies()[self.leg.id], self.sent)

    def raw(self) -> RawTally:
        """As the program keeps it."""
        return self.receiver.figures.raw(0)

    def buckets(self) -> list[int]:
        return list(self.receiver.figures.buckets(0))


def flipped(frame: bytes, bit: int) -> bytes:
    damaged = bytearray(frame)
    damaged[bit // 8] ^= 0x80 >> bit % 8
    return bytes(damaged)


def flip_each(counter: Counter, make: Callable[[int], bytes]) -> set[int]:
    """Each bit of a frame, damaged between whole ones. Returns those that changed no figure."""
    counter.take(make(0))
    return {bit for bit in range(len(make(0)) * 8) if not _flip(counter, make, bit)}


def _flip(counter: Counter, make: Callable[[int], bytes], bit: int) -> bool:
    """Whether it is seen."""
    before, number = counter.figures().moved, counter.sent
    counter.take(flipped(make(number), bit))
    counter.take(make(number + 1))
    seen = change(before, counter.figures().moved)
    assert seen in ({}, {"altered": 1}, {"lost": 1}), (bit // 8, bit % 8)
    return bool(seen)


def change(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}
