"""pktgen for real: counts to the packet, frames as asked for, and nothing left that sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from wires import Wire, leg

SIZES = [64, 512, 1500]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_as_many_arrive_as_were_asked_for(wire: Wire, tmp_path: Path, size_bytes: int) -> None:
    before = wire.settled()
    (count,) = wire.send(tmp_path, leg(size_bytes=size_bytes, count_packets=5000))
    assert count.sent_packets == 5000
    assert count.sent_bytes == 5000 * (size_bytes - 4)
    assert wire.settled() - before == 5000
    assert wire.devices() == []
