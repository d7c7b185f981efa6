"""The wait for a link that a change restarts."""

from __future__ import annotations

import time
from typing import cast

import pytest

from pktswarm.nodes import carrier
from pktswarm.nodes.carrier import Carrier
from pktswarm.nodes.interface import Interface
from pktswarm.traffic.errors import EngineError


class Link:
    """`seen`: whether each look finds a carrier; the last one stays."""

    name = "eth1"

    def __init__(self, *seen: bool, up: bool = True) -> None:
        self._seen, self._up, self.looks = list(seen), up, 0

    @property
    def carrier(self) -> bool:
        self.looks += 1
        return self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]

    def exists(self) -> bool:
        return True

    def is_up(self) -> bool:
        return self._up


def of(link: Link) -> Carrier:
    return Carrier(cast("Interface", link))


def test_it_is_back_when_it_was_never_there_or_is_there_again() -> None:
    assert of(Link(False)).is_back()
    restarted = of(Link(True, False, False, True))
    assert [restarted.is_back() for _ in range(3)] == [False, False, True]


def test_one_that_does_not_come_back_is_an_error_with_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "BACK_S", 0.0)
    gone = of(Link(True, False))
    with pytest.raises(EngineError, match="eth1 has had no carrier for 0 s"):
        while not gone.is_back():
            time.sleep(0.001)


def test_a_node_is_restored_when_it_is_back() -> None:
    link = Link(True, False, False, False, True)
    of(link).await_back()
    assert link.looks == 5


def test_a_link_that_was_cut_since_is_not_waited_for_and_one_on_its_way_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "RESTORED_S", 0.05)
    cut, on_its_way = Link(True, True, False), Link(True, False)
    of_cut, of_other = of(cut), of(on_its_way)
    assert of_cut.is_back() and not of_other.is_back()
    for one, link, waits in ((of_cut, cut, False), (of_other, on_its_way, True)):
        one.look_again()
        before = link.looks
        one.await_back()
        assert (link.looks > before) == waits


@pytest.mark.parametrize("link", [Link(False), Link(True, False, up=False)], ids=["never there", "set down"])
def test_what_no_restart_took_away_is_not_waited_for(link: Link) -> None:
    begun = time.monotonic()
    of(link).await_back()
    assert time.monotonic() - begun < carrier.RESTORED_S / 2


def test_the_wait_at_the_end_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "RESTORED_S", 0.05)
    link = Link(True, False)
    of(link).await_back()
    assert link.looks > 2
