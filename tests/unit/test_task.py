"""What is scattered, and each engine's share of it."""

from __future__ import annotations

import pytest

from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask, share_of

FRAMES, CONNECTIONS = Leg(0, "s", "a", "b", "stream"), Leg(1, "c", "a", "b", "connections")


@pytest.mark.parametrize(
    ("engines", "given", "wanted"),
    [
        ("xdp+netsniff-ng", ("udp", "port 53"), ["udp", "(udp) and (port 53)"]),
        ("xdp+netsniff-ng", ("", "port 53"), ["", "port 53"]),
        ("xdp+netsniff-ng", ("udp", ""), ["udp", "udp"]),
        ("netsniff-ng+socket", ("udp", "port 53"), ["udp", "udp"]),
    ],
)
def test_a_capture_beside_a_counter_has_a_filter_of_its_own(
    engines: str, given: tuple[str, str], wanted: list[str]
) -> None:
    task = ReceiveTask("eth1", "", [FRAMES, CONNECTIONS], 1.0, filter=given[0], capture_filter=given[1])
    names = engines.split("+")
    assert [share_of(name, names, task).filter for name in names] == wanted


def test_connections_are_the_sockets() -> None:
    task = ReceiveTask("eth1", "", [FRAMES, CONNECTIONS], 1.0)
    assert [share_of(name, ["xdp", "socket"], task).legs for name in ("xdp", "socket")] == [[FRAMES], [CONNECTIONS]]
