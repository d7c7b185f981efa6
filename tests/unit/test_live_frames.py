"""What the kernel reports of a driver's XDP, and the reason that is given for it."""

from __future__ import annotations

from typing import cast

import pytest

from pktswarm.nodes import engines, libbpf, live_frames, xdp_features
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.xdp_features import NATIVE, TAKES_FRAMES

REDIRECTS = 1 << 1


class Card:
    name, index, carrier = "eth1", 2, True

    def __init__(self, driver: str) -> None:
        self.driver = driver


@pytest.mark.parametrize(
    ("driver", "bits", "reason"),
    [
        ("enetc", NATIVE | REDIRECTS | TAKES_FRAMES, ""),
        ("mlx5_core", None, ""),
        ("igc", None, "eth1: its driver igc takes live frames only while an XDP program is attached"),
        ("igc", NATIVE | REDIRECTS, "eth1: its driver igc takes live frames only while an XDP program is attached"),
        ("virtio_net", None, "eth1: Linux before 6.4 damages live frames for its driver virtio_net"),
        ("virtio_net", NATIVE, "eth1: its driver virtio_net takes live frames only while an XDP program is attached"),
        ("r8169", 0, "eth1: its driver r8169 has no native XDP"),
        ("veth", NATIVE | REDIRECTS, "eth1: its other end takes no live frames (ethtool -K … gro on, or an XDP"),
    ],
    ids=[
        "takes them",
        "Linux before 6.3",
        "Linux before 6.3, with a program",
        "with a program",
        "damaged",
        "virtual, with a program",
        "not native",
        "veth",
    ],
)
def test_the_reason_is_the_drivers(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, driver: str, bits: int | None, reason: str
) -> None:
    monkeypatch.setattr(xdp_features, "features", lambda index: bits)
    monkeypatch.setattr(libbpf, "attached_program", lambda index: 0)
    monkeypatch.setattr(libbpf, "kernel", lambda: (6, 1) if bits is None else (6, 12))
    card = cast("Interface", Card(driver))
    found = live_frames.takes_none(card)
    assert found.startswith(reason) and bool(found) == bool(reason)
    assert engines.on_request(card, ["xdp", "tc"]) == (["xdp"] if "with a program" in request.node.name else [])


def test_a_driver_that_takes_none_with_a_program_either_is_not_made_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xdp_features, "features", lambda index: NATIVE)
    monkeypatch.setattr(libbpf, "attached_program", lambda index: 7)
    card = cast("Interface", Card("nfp"))
    found = live_frames.takes_none(card)
    assert found == "eth1: its driver nfp takes no live frames, though an XDP program is attached to the interface"
    assert engines.on_request(card, ["xdp"]) == []


def test_without_a_carrier_no_request_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xdp_features, "features", lambda index: NATIVE)
    monkeypatch.setattr(libbpf, "attached_program", lambda index: 0)
    monkeypatch.setattr(Card, "carrier", False)
    assert engines.on_request(cast("Interface", Card("igc")), ["xdp"]) == []
