"""What a guard writes down before it changes its node, and what is made of it when the guard is gone."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pktswarm.nodes import changes, stale_spools, tune
from pktswarm.nodes.changes import Change, Place
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.offloads import OffloadsOff
from pktswarm.traffic.errors import EngineError


class Card:
    """An interface's offloads, and every change of them with what the record said at that moment."""

    def __init__(self, folder: Path, **offloads: bool) -> None:
        self.folder, self.offloads = folder, offloads
        self.refuses, self.there = "", True
        self.log: list[tuple[str, bool, list[str]]] = []

    def set(self, interface: Interface, name: str, on: bool) -> None:
        if name == self.refuses:
            raise EngineError("ethtool", f"{interface.name}: {name} cannot be set")
        found = changes.read(self.folder)
        self.log.append((name, on, [one.name for one in found[1]] if found else []))
        self.offloads[name] = on


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "pktswarm-one"
    folder.mkdir()
    changes.begin(folder)
    return folder


@pytest.fixture
def card(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    one = Card(spool, gro=True, lro=False, rxvlan=True)
    monkeypatch.setattr(Interface, "index", property(lambda _: 7))
    monkeypatch.setattr(Interface, "exists", lambda _: one.there)
    monkeypatch.setattr(Interface, "offload", lambda _, name: one.offloads[name])
    monkeypatch.setattr(Interface, "set_offload", lambda self, name, on: one.set(self, name, on))
    monkeypatch.setattr(tune, "keeps", lambda *_: False)
    yield one


def switch_off(spool: Path) -> OffloadsOff:
    offloads = OffloadsOff(Interface("eth1"), spool)
    offloads.switch_off("gro", "lro")
    offloads.switch_off("rxvlan")
    return offloads


def test_each_change_is_written_down_before_it_is_made(spool: Path, card: Card) -> None:
    offloads = switch_off(spool)
    assert card.log == [("gro", False, ["gro"]), ("rxvlan", False, ["gro", "rxvlan"])]
    offloads.restore()
    assert card.offloads == {"gro": True, "lro": False, "rxvlan": True}


def test_an_interface_that_is_gone_has_taken_its_settings_along(spool: Path, card: Card) -> None:
    offloads = switch_off(spool)
    card.there = False
    offloads.restore()
    assert len(card.log) == 2


def test_what_is_written_down_is_on_the_disk(spool: Path, card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    switch_off(spool)
    assert synced[:2] == [str(spool / f"{changes.RECORD}.draft"), str(spool)]


def test_the_next_one_puts_back_what_still_stands(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    card.offloads["gro"] = True  # by hand, since
    assert stale_spools.report(tmp_path, tmp_path, "eth1", None).changed == ["rxvlan of eth1 (was on)"]
    assert card.offloads["rxvlan"] is False
    told = "rxvlan of eth1 (was on) was restored: a killed guard had changed it"
    assert stale_spools.mend(tmp_path, tmp_path) == [told]
    assert card.offloads == {"gro": True, "lro": False, "rxvlan": True}
    assert not spool.exists() and stale_spools.mend(tmp_path, tmp_path) == []


def test_a_guard_that_lives_is_left_alone(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    handle = stale_spools.lock(spool)
    assert stale_spools.report(tmp_path, tmp_path, "eth1", None).changed == []
    assert stale_spools.mend(tmp_path, tmp_path) == [] and spool.exists() and not card.offloads["gro"]
    os.close(handle)
    assert len(stale_spools.mend(tmp_path, tmp_path)) == 2


def test_so_is_a_folder_in_which_an_engine_still_works(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    engine = subprocess.Popen(["sleep", "60"], cwd=spool)
    try:
        assert stale_spools.mend(tmp_path, tmp_path) == [] and spool.exists()
    finally:
        engine.kill()
        engine.wait()


def test_what_cannot_be_put_back_is_told_and_found_again(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    card.refuses = "rxvlan"
    done = stale_spools.mend(tmp_path, tmp_path)
    assert [("cannot be restored" in words, words.split()[0]) for words in done] == [(True, "rxvlan"), (False, "gro")]
    assert "eth1: rxvlan cannot be set" in done[0]
    assert stale_spools.report(tmp_path, tmp_path, "eth1", None).changed == ["rxvlan of eth1 (was on)"]


def of_another_place(spool: Path, **other: object) -> None:
    document = json.loads((spool / changes.RECORD).read_text())
    document["place"] |= other
    (spool / changes.RECORD).write_text(json.dumps(document))


@pytest.mark.parametrize("other", [{"namespace": 1}, {"cookie": 1 << 40}])
def test_another_namespaces_record_is_nobodys_here(
    spool: Path, card: Card, tmp_path: Path, other: dict[str, int]
) -> None:
    switch_off(spool)
    of_another_place(spool, **other)
    assert stale_spools.report(tmp_path, tmp_path, "eth1", None).folders == []
    assert stale_spools.mend(tmp_path, tmp_path) == [] and spool.exists() and not card.offloads["gro"]
    stale_spools.clear(tmp_path, {2})
    assert spool.exists()


def test_of_a_namespace_that_ended_the_folder_goes(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    of_another_place(spool, namespace=1)
    handle = stale_spools.lock(spool)
    stale_spools.clear(tmp_path, {1})
    assert spool.exists(), "its guard lives"
    os.close(handle)
    stale_spools.clear(tmp_path, {1})
    assert not spool.exists() and not card.offloads["gro"]


def test_a_boot_since_has_set_everything_back(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    of_another_place(spool, boot="another")
    found = stale_spools.report(tmp_path, tmp_path, "eth1", None)
    assert found.folders == [str(spool)] and found.changed == []
    assert stale_spools.mend(tmp_path, tmp_path) == [] and not spool.exists() and not card.offloads["gro"]


def test_what_provisioning_switched_off_since_stays_off(
    spool: Path, card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(spool)
    monkeypatch.setattr(tune, "keeps", lambda *_: True)
    assert stale_spools.mend(tmp_path, tmp_path) == [] and not card.offloads["gro"] and not spool.exists()


def test_an_interface_made_anew_under_the_same_name_is_another(spool: Path, card: Card, tmp_path: Path) -> None:
    switch_off(spool)
    (found, made) = changes.read(spool) or (Place.here(), [])
    document = {"place": vars(found), "changes": [vars(replace(one, index=6)) for one in made]}
    (spool / changes.RECORD).write_text(json.dumps(document))
    assert stale_spools.mend(tmp_path, tmp_path) == [] and not card.offloads["gro"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"place": {}, "changes": []}', '{"changes": [{"name": "x"}]}'])
def test_a_record_that_cannot_be_read_is_none(spool: Path, tmp_path: Path, text: str) -> None:
    (spool / changes.RECORD).write_text(text)
    assert changes.read(spool) is None
    assert stale_spools.mend(tmp_path, tmp_path) == [] and spool.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_folder_that_somebody_else_made_is_not_obeyed(spool: Path, card: Card, tmp_path: Path) -> None:
    """Where guards have their folders everybody may write."""
    switch_off(spool)
    os.chown(spool, 65534, 65534)
    assert stale_spools.mend(tmp_path, tmp_path) == [] and not card.offloads["gro"]
    os.chown(spool, 0, 0)
    other = tmp_path / "pktswarm-link"
    other.symlink_to(spool)
    assert changes.read(other) is None


def test_a_setting_that_an_engine_changes_is_written_back(spool: Path, tmp_path: Path) -> None:
    setting = tmp_path / "bpf_jit_enable"
    setting.write_text("0\n")
    changes.write_down(spool, changes.of_file(setting, "0\n"))
    assert stale_spools.report(tmp_path, tmp_path, "eth1", None).changed == []
    setting.write_text("1\n")
    assert stale_spools.mend(tmp_path, tmp_path) == [f"{setting} (was 0) was restored: a killed guard had changed it"]
    assert setting.read_text() == "0\n"


def test_a_change_of_what_is_gone_does_not_stand() -> None:
    assert not Change("nothing0", 3, "gro", "on", "off").stands()
    assert not Change("", 0, "/nowhere/at/all", "0", "").stands()
