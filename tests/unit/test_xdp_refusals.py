"""What the receiver in XDP refuses: frames whose VLAN tags a card may take out, and more flows than it can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pktswarm.nodes.interface import Interface
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.nodes.receivers.xdp_matching import MOST_LEGS, matching
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask

ETHERNET = {"ethernet": {"dst": "02:00:00:00:00:0b", "src": "02:00:00:00:00:0a"}}
ABOVE: Headers = [{"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, {"udp": {"src": 7, "dst": 8}}]
UNTAGGED: Headers = [ETHERNET, *ABOVE]
TAGGED: Headers = [ETHERNET, {"vlan": {"id": 7}}, *ABOVE]


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    monkeypatch.setattr("pktswarm.nodes.offloads.OffloadsOff.switch_off", lambda _, *names: log.extend(names))
    monkeypatch.setattr(Interface, "driver", "st_gmac")
    return log


def receiver(tmp_path: Path, headers: Headers) -> XdpReceiver:
    match = Match.from_template(build_frame({"headers": headers}, 128)).to_data()
    leg = Leg(0, "voice", "tx1", "rx1", "stream", frame={"headers": headers}, match=match)
    return XdpReceiver(ReceiveTask("eth1", "02:00:00:00:00:0b", [leg], 60, mode="count"), tmp_path)


@pytest.mark.parametrize(("on", "fixed", "off"), [(False, True, []), (True, False, ["rxvlan"]), (True, True, [])])
def test_tags_are_left_in_frames_where_the_driver_lets_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switched: list[str], on: bool, fixed: bool, off: list[str]
) -> None:
    monkeypatch.setattr(Interface, "offload", lambda *_: on)
    monkeypatch.setattr(Interface, "is_fixed", lambda *_: fixed)
    receiver(tmp_path, UNTAGGED)._show_tags()
    assert switched == off


def test_frames_whose_tags_may_be_hidden_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switched: list[str]
) -> None:
    monkeypatch.setattr(Interface, "offload", lambda *_: True)
    monkeypatch.setattr(Interface, "is_fixed", lambda *_: True)
    why = r"xdp: eth1: st_gmac may hide VLAN tags, which voice has \(allowed: receive: {engine: netsniff-ng}\)"
    with pytest.raises(EngineError, match=why):
        receiver(tmp_path, TAGGED)._show_tags()
    assert switched == []


def test_more_flows_than_the_verifier_follows_are_refused() -> None:
    task = ReceiveTask("eth1", "02:00:00:00:00:0b", [Leg(0, "s", "tx1", "rx1", "stream")] * (MOST_LEGS + 1), 60)
    with pytest.raises(BadInput, match=r"eth1: 40001 flows to one receiver \(allowed: up to 40000\)"):
        matching(task)


def test_the_kernel_says_what_is_fixed() -> None:
    """A loopback has neither."""
    assert Interface("lo").is_fixed("rxvlan") and Interface("lo").is_fixed("lro")
