"""How busy a node's processors are, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
_IDLE, _WAITING, _COUNTED = 3, 4, 8
"""proc(5): user nice system idle iowait irq softirq steal; what follows is in these."""


def busy_ms(text: str | None = None) -> int:
    """Of all processors together, since the node came up. `text`: what /proc/stat says."""
    ticks = [int(word) for word in (text or STAT.read_text()).split(maxsplit=_COUNTED + 1)[1 : _COUNTED + 1]]
    busy = sum(ticks) - ticks[_IDLE] - ticks[_WAITING]
    return busy * 1000 // os.sysconf("SC_CLK_TCK")
