"""The section upf: what it takes, and one message for each way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.scenario.upf import load, parse
from pktswarm.traffic.errors import BadInput

GROUP = {"name": "base", "sessions": 2, "ue_addresses": "10.45.0.1"}
SECTION = {"n4": "192.0.2.8", "gnbs": {"a": "198.51.100.9", "b": "198.51.100.10"}, "groups": [GROUP]}


def group(**changes: Any) -> dict[str, Any]:
    return {**GROUP, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"groups": [group(sessions=255, ue_addresses="10.45.0.0/24")]},
            "group base: 255 sessions, but 10.45.0.0/24 has 254 addresses from 10.45.0.1 on",
        ),
        (
            {"groups": [group(sessions=3, ue_addresses="10.45.0.253/24")]},
            "group base: 3 sessions, but 10.45.0.253/24 has 2 addresses from 10.45.0.253 on",
        ),
        (
            {"groups": [group(sessions=3, ue_addresses="2001:db8::1/63")]},
            "group base: 3 sessions, but 2001:db8::1/63 has 2 addresses from 2001:db8::1 on",
        ),
        (
            {"groups": [group(sessions=300), group(name="gold", ue_addresses="10.45.1.1")]},
            "groups base and gold overlap: both have ue_addresses from 10.45.1.1 on",
        ),
        (
            {"groups": [group(ue_addresses="2001:db8::1"), group(name="gold", ue_addresses="2001:db8:0:1::1")]},
            "groups base and gold overlap: both have ue_addresses from 2001:db8:0:1::1 on",
        ),
        (
            {"n3": "198.51.100.1", "groups": [group(first_teid=4294967295)]},
            "group base: first_teid = 4294967295, and 2 sessions end at 4294967296: "
            "a TEID is 1 to 4294967295, and its range must not wrap",
        ),
        ({"n3": "198.51.100.1", "groups": [group(first_teid=0)]}, "group base: first_teid = 0"),
        ({"groups": [group(first_downlink_teid=4294967295)]}, "group base: first_downlink_teid = 4294967295, and 2"),
        (
            {
                "n3": "198.51.100.1",
                "groups": [group(first_teid=7), group(name="gold", ue_addresses="10.46.0.1", first_teid=8)],
            },
            "groups base and gold overlap: both have uplink TEIDs from 8 on",
        ),
        (
            {"groups": [group(first_downlink_teid=4), group(name="gold", ue_addresses="10.46.0.1")]},
            "groups gold and base overlap: both have downlink TEIDs from 4 on",
        ),
        (
            {"n6": "10.45.0.2"},
            "group base: ue_addresses 10.45.0.1 to 10.45.0.2 include 10.45.0.2, the address of the UPF on N6",
        ),
        (
            {"gnbs": {"a": "2001:db8:0:1::9"}, "groups": [group(ue_addresses="2001:db8::1")]},
            "group base: ue_addresses 2001:db8::1 to 2001:db8:0:1::1 include 2001:db8:0:1::9, the address of gNB a",
        ),
        (
            {"skip": ["10.45.0.2"], "groups": [group(ue_addresses="10.45.0.1/30")]},
            "group base: 2 consecutive addresses without 10.45.0.2 do not fit in 10.45.0.1/30",
        ),
        ({"skip": ["gateway"]}, "upf.skip.0 = 'gateway': must be an IPv4 or IPv6 address"),
        ({"groups": [group(first_teid=7)]}, "group base: first_teid = 7 needs n3"),
        ({"groups": [group(), group()]}, "two groups are called 'base'"),
        ({"groups": [group(gnb="c")]}, "group base: no gNB 'c'; gnbs are a, b"),
        ({"gnbs": {"a": "198.51.100.9", "b": "2001:db8::9"}}, "group base: its gNBs have IPv4 and IPv6 addresses"),
        (
            {"n3": "2001:db8::1", "groups": [group(first_teid=7)]},
            "group base: its gNB has 198.51.100.9, the UPF n3 = 2001:db8::1",
        ),
        ({"n4": "upf"}, "upf.n4 = 'upf': must be an IPv4 or IPv6 address"),
        ({"node_id": "smf"}, "upf.node_id = 'smf': must be an IPv4 address, an IPv6 address or a name"),
        ({"groups": [group(first_teid="any")]}, "upf.groups.0.first_teid = 'any'"),
        ({"groups": [group(ue_addresses=7)]}, "upf.groups.0.ue_addresses = 7"),
        ({"groups": [group(sessions=0)]}, "upf.groups.0.sessions = 0"),
        ({"gnbs": {}}, "upf.gnbs"),
        ({"window": 0}, "upf.window = 0: out of range (allowed: 1 or more"),
        ({"speed": 1}, "upf.speed: unknown key (allowed: n4, "),
        (
            {"groups": [group(qos={"mbr": 1})]},
            "upf.groups.0.qos.mbr: unknown key; the nearest is 'mbr_up_bps' (allowed: qfi, mbr_up_bps",
        ),
        ({"groups": [group(qos={"mbr_up_bps": 1e6})]}, "mbr_up_bps and mbr_down_bps go together"),
        (
            {"groups": [group(qos={"mbr_up_bps": 1500, "mbr_down_bps": 1000})]},
            "upf.groups.0.qos.mbr_up_bps = 1500: rates must be a multiple of 1000 bit/s",
        ),
        ({"groups": [group(qos={"qfi": 64})]}, "upf.groups.0.qos.qfi = 64"),
        (
            {"groups": [group(sdf_filters=["permit in ip from any to any"])]},
            "upf.groups.0.sdf_filters.0 = 'permit in ip from any to any': must have the form: permit out",
        ),
        ({"groups": [group(ue_addresses="10.45.0.300")]}, "'10.45.0.300' must be an address"),
        ({"groups": [group(ue_addresses="2001:db8::/96")]}, "each user has its own /64"),
        ({"groups": [group(ue_addresses=["10.45.0.1", "10.46.0.1"])]}, "one IPv4 pool, one IPv6 pool or one of each"),
        ({"groups": [group(pdn_type="ipv6")]}, "pdn_type goes with ue_addresses: choose"),
        ({"churn": {"group": "gold", "sessions_per_s": 1}}, "churn: no group 'gold'; groups are base"),
        (
            {"churn": {"group": "base", "sessions_per_s": 10, "lifetime_s": 2}},
            "churn of group base: 10 sessions a second that live 2 s are 21 at once, but the group has 2",
        ),
        (
            {
                "churn": {"group": "base", "sessions_per_s": 1, "lifetime_s": 0},
                "handover": {"group": "base", "users_per_s": 1},
            },
            "churn and handover name the same group base",
        ),
        (
            {"gnbs": {"a": "198.51.100.9"}, "handover": {"group": "base", "users_per_s": 1}},
            "handover of group base: two gNBs of one kind are needed",
        ),
    ],
)
def test_bad_input_is_one_message_with_group_and_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(Path("some.yaml"), {**SECTION, **changes})
    assert str(caught.value).startswith("some.yaml: upf")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "skip", "sessions", "moved"),
    [
        ("10.45.0.1/16", ["10.45.0.1"], 3, "10.45.0.2/16"),
        ("10.45.0.1/16", ["10.45.0.2", "10.45.0.4"], 3, "10.45.0.5/16"),
        ("10.45.0.1/16", ["10.45.0.4", "10.46.0.1", "2001:db8::1"], 3, "10.45.0.1/16"),
        ("10.45.0.1", ["10.45.0.3"], 3, "10.45.0.4"),
        ("2001:db8:45::1/48", ["2001:db8:45:1::9"], 3, "2001:db8:45:2::1/48"),
        (["10.45.0.1/16", "2001:db8:45::1/48"], ["10.45.0.1"], 3, ["10.45.0.2/16", "2001:db8:45::1/48"]),
    ],
)
def test_a_range_of_users_begins_beyond_what_it_skips(given: Any, skip: list[str], sessions: int, moved: Any) -> None:
    upf = parse(Path("some.yaml"), {**SECTION, "skip": skip, "groups": [group(ue_addresses=given, sessions=sessions)]})
    assert upf.groups[0].ue_addresses == moved
    again = parse(Path("some.yaml"), upf.model_dump(exclude_unset=True))
    assert again.groups[0].ue_addresses == moved


def test_groups_side_by_side_are_fine() -> None:
    groups = [
        group(sessions=256),
        group(name="gold", ue_addresses=["10.45.1.1", "2001:db8::1"], sessions=2),
        group(name="more", ue_addresses="2001:db8:0:2::1", sessions=2**20),
        group(name="whose", ue_addresses="choose", first_downlink_teid=2**32 - 2),
    ]
    upf = parse(Path("some.yaml"), {**SECTION, "groups": groups})
    assert upf.first_downlink_teids() == [1, 257, 259, 2**32 - 2]
    assert [one.families() for one in upf.groups] == [(True, False), (True, True), (False, True), (True, False)]


def test_the_shipped_file_loads() -> None:
    assert load(Path("configs/upf/sessions.yaml")).churn is not None


def test_a_file_without_the_section_says_so(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("name: other\n")
    with pytest.raises(BadInput, match=r"other.yaml: has no section upf"):
        load(tmp_path / "other.yaml")


def test_addresses_beside_the_users_are_anybodys() -> None:
    assert parse(Path("here"), {**SECTION, "n6": "10.45.0.3", "n3": "10.45.0.0"}).n6 == "10.45.0.3"
