"""What a rank counts beside its engines, many times a second: its interface, and how busy the node's processors are.

The files stay open: to open one costs several times what reading it does.
"""

from __future__ import annotations

import os
from pathlib import Path

from pktswarm.nodes.interface import SYS_NET, Counters

STAT = Path("/proc/stat")
_IDLE, _WAITING, _COUNTED = 3, 4, 8
"""proc(5): user nice system idle iowait irq softirq steal; what follows is in these."""
_LINE_BYTES = 256
"""More than any first line of STAT."""


class Meter:
    """Opens its files when it is first read; OSError where the interface is gone."""

    def __init__(self, interface: str) -> None:
        self._folder = SYS_NET / interface
        self._files: dict[str, int] = {}
        self._stat = -1

    def read(self) -> dict[str, int]:
        """The names of nodes.interface.Counters; "link_downs" and "link_ups", how often it lost its carrier
        and got it (not before Linux 4.16); "cpu_busy_ms", of all processors together. All since the kernel counts, but
        for "mtu", which is as it is now."""
        if not self._files:
            self._open()
        counters = {name: int(os.pread(file, _LINE_BYTES, 0)) for name, file in self._files.items()}
        return {**counters, "cpu_busy_ms": busy_ms(os.pread(self._stat, _LINE_BYTES, 0).decode())}

    def _open(self) -> None:
        paths = {name: self._folder / "statistics" / name for name in Counters.__dataclass_fields__}
        carrier = {f"link_{way}s": self._folder / f"carrier_{way}_count" for way in ("down", "up")}
        paths["mtu"] = self._folder / "mtu"
        paths |= {name: path for name, path in carrier.items() if path.exists()}
        self._stat = os.open(STAT, os.O_RDONLY)
        self._files = {name: os.open(path, os.O_RDONLY) for name, path in paths.items()}


def busy_ms(stat: str) -> int:
    """`stat`: what STAT begins with."""
    ticks = [int(word) for word in stat.split(maxsplit=_COUNTED + 1)[1 : _COUNTED + 1]]
    busy = sum(ticks) - ticks[_IDLE] - ticks[_WAITING]
    return busy * 1000 // os.sysconf("SC_CLK_TCK")
