"""The profile of a UPF: where it is found, what it changes in a section upf, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster.inventory import Host, Inventory
from pktswarm.master.scenario import upf_profile as profiles
from pktswarm.master.scenario.upf import Upf, filled_in, parse
from pktswarm.master.scenario.upf_profile import Profile
from pktswarm.traffic.errors import BadInput

SECTION: dict[str, Any] = {
    "n4": "192.0.2.2",
    "gnbs": {"a": "198.51.100.9", "b": "198.51.100.10"},
    "groups": [{"name": "g", "sessions": 4, "ue_addresses": "10.45.0.1/16"}],
    "handover": {"group": "g", "users_per_s": 1},
}
OLD = Profile(release=15, interface_types=False, association_release=False, end_markers=False, numbered=["teids"])


def inventory(folder: Path, **upf: Any) -> Inventory:
    path = folder / "shelf.yml"
    return Inventory(path, Host("m", "192.0.2.9", ()), (), {"pktswarm_upf": upf})


def write(path: Path, profile: Profile = OLD) -> Path:
    path.write_text(profiles.text(profile))
    return path


def filled(folder: Path, named: Inventory | None, **changes: Any) -> Upf:
    return filled_in(folder / "some.yaml", parse(folder / "some.yaml", {**SECTION, **changes}), named)


def test_the_profile_beside_the_inventory_is_taken(tmp_path: Path) -> None:
    write(profiles.beside(tmp_path / "shelf.yml"))
    upf = filled(tmp_path, inventory(tmp_path))
    assert (upf.release, upf.interface_types, upf.association_release, upf.numbered) == (15, False, False, ["teids"])
    assert upf.handover is not None and not upf.handover.end_marker
    assert upf.profile == str(tmp_path / "shelf.upf.yml") and upf.found_profile == OLD
    words = "release 15, no 3GPP interface types, teids numbered by the SMF, no association release, no end markers"
    assert OLD.describe() == words


def test_network_instances_of_the_profile_are_those_of_groups_without(tmp_path: Path) -> None:
    one = OLD.model_copy(update={"groups": {"access_instance": "ran", "dnn": "internet"}})
    write(profiles.beside(tmp_path / "shelf.yml"), one)
    group = filled(tmp_path, inventory(tmp_path)).groups[0]
    assert (group.access_instance, group.core_instance, group.dnn) == ("ran", None, "internet")
    given = [{**SECTION["groups"][0], "dnn": "ims"}]
    assert filled(tmp_path, inventory(tmp_path), groups=given).groups[0].dnn == "ims"


def test_without_one_nothing_changes(tmp_path: Path) -> None:
    upf = filled(tmp_path, inventory(tmp_path))
    assert (upf.release, upf.interface_types, upf.association_release, upf.numbered) == (16, True, True, [])
    assert upf.handover is not None and upf.handover.end_marker and upf.found_profile is None


def test_a_key_of_the_scenario_has_precedence(tmp_path: Path) -> None:
    write(profiles.beside(tmp_path / "shelf.yml"))
    handover = {**SECTION["handover"], "end_marker": True}
    upf = filled(tmp_path, inventory(tmp_path), release=17, handover=handover, association_release=True)
    assert (upf.release, upf.interface_types, upf.association_release) == (17, False, True)
    assert upf.handover is not None and upf.handover.end_marker


def test_a_profile_that_is_named_comes_before_the_one_beside(tmp_path: Path) -> None:
    write(profiles.beside(tmp_path / "shelf.yml"))
    write(tmp_path / "of-inventory.yml", replace_release(17))
    write(tmp_path / "of-scenario.yml", replace_release(18))
    assert filled(tmp_path, inventory(tmp_path, profile="of-inventory.yml")).release == 17
    assert filled(tmp_path, inventory(tmp_path, profile="of-inventory.yml"), profile="of-scenario.yml").release == 18
    assert filled(tmp_path, None, profile="of-scenario.yml").release == 18


def replace_release(release: Any) -> Profile:
    return OLD.model_copy(update={"release": release})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    found = {"heartbeat": "works", "largest packet": "works; 1464 bytes"}
    one = OLD.model_copy(update={"node_id": "upf.example.org", "features": ["FTUP"], "found": found})
    assert profiles.load(write(tmp_path / "x.yml", one)) == one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "x.yml: is not the profile of a UPF (allowed: what pktswarm upf probe writes)"),
        ("format_version: 2\n", "x.yml: format_version = 2: was written by a newer pktswarm (allowed: 1)"),
        ("release: 14\n", "x.yml: release = 14"),
        ("speed: 1\n", "x.yml: speed: unknown key (allowed: format_version, made"),
        ("release: [\n", "x.yml:2:"),
    ],
)
def test_a_file_that_cannot_be_a_profile_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(BadInput) as caught:
        filled(tmp_path, inventory(tmp_path, profile="x.yml"))
    assert words in str(caught.value)


def test_a_profile_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        filled(tmp_path, None, profile="none.yml")
    assert "none.yml: there is no such file" in str(caught.value)


def test_a_profile_of_another_upf_is_seen() -> None:
    one = OLD.model_copy(update={"node_id": "192.0.2.2", "features": ["FTUP"]})
    assert one.of_another("192.0.2.2", ["FTUP"]) == ""
    assert one.of_another("192.0.2.7", ["FTUP"]) == "of a UPF with Node ID 192.0.2.2, but this one has 192.0.2.7"
    assert one.of_another("192.0.2.2", []) == "of a UPF with the features FTUP, not none"


def test_addresses_of_the_data_network_and_of_the_inventory_are_kept_from_users(tmp_path: Path) -> None:
    server = Host("rx1", "192.0.2.8", ("transmit", "receive"), side="n6", ipv4="10.45.0.2")
    named = replace(inventory(tmp_path), hosts=(server,))
    with pytest.raises(BadInput) as caught:
        filled(tmp_path, named)
    assert "include 10.45.0.2, the address of rx1 on N6 (skip: [10.45.0.2] begins beyond it)" in str(caught.value)
    skipping = replace(inventory(tmp_path, skip=["10.45.0.2"]), hosts=(server,))
    assert filled(tmp_path, skipping).groups[0].ue_addresses == "10.45.0.3/16"
