"""PFCP as bytes: against TS 29.244 by hand, and in the eyes of tshark."""

from __future__ import annotations

import shutil
import struct
import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest

from pktswarm.master.scenario.upf import parse
from pktswarm.master.upf import pfcp_encode
from pktswarm.master.upf.pfcp_encode import GroupMessages, Own
from pktswarm.master.upf.sessions import Sessions
from pktswarm.master.upf.template import WIDTHS, Template, big_endian

OWN = Own("192.0.2.4", "smf.example.org", 3_900_000_001)
VALUES = {
    "sequence": b"\x00\x01\x02",
    "seid": bytes(7) + b"\x09",
    "local_seid": bytes.fromhex("0000000500000006"),
    "uplink_teid": bytes.fromhex("0a0b0c0d"),
    "downlink_teid": bytes.fromhex("00000e0f"),
    "ue_v4": ip_address("10.45.0.7").packed,
    "ue_v6": ip_address("2001:db8:0:7::1").packed,
    "gnb_v4": ip_address("198.51.100.9").packed,
    "gnb_v6": ip_address("2001:db8:f::9").packed,
}


def ie(kind: int, *value: bytes | str) -> bytes:
    body = b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in value)
    return struct.pack("!HH", kind, len(body)) + body


def message(kind: int, *elements: bytes, seid: bytes | None = VALUES["seid"]) -> bytes:
    rest = (seid or b"") + VALUES["sequence"] + b"\0" + b"".join(elements)
    return struct.pack("!BBH", 0x21 if seid is not None else 0x20, kind, len(rest)) + rest


def group_messages(upf: dict[str, Any] | None = None, **group: Any) -> GroupMessages:
    given = {"name": "g", "sessions": 3, "ue_addresses": "10.45.0.7", "first_teid": 1, **group}
    section = {"n4": "192.0.2.8", "n3": "198.51.100.1", "gnbs": {"a": "198.51.100.9"}, "groups": [given], **(upf or {})}
    parsed = parse(Path("here"), section)
    return GroupMessages(parsed, parsed.groups[0], OWN)


NODE_ID = ie(60, "02", b"\x03smf\x07example\x03org")
CP_SEID = ie(57, "02", VALUES["local_seid"], "c0000204")
N3, N6 = ie(160, "0b"), ie(160, "11")
PDN4 = ie(113, "01")


def plain(
    *,
    f_teid: bytes = ie(21, "01", "0a0b0c0d", "c6336401"),
    ue: bytes = ie(93, "06", "0a2d0007"),
    access: bytes = b"",
    core: bytes = b"",
    sdf: bytes = b"",
    n3: bytes = N3,
    n6: bytes = N6,
    precedence: str = "000000ff",
    rules: bytes = b"",
    removal: str = "0000",
    creation: bytes = ie(84, "0100", "00000e0f", "c6336409"),
    bar_of_far: bytes = b"",
    more: bytes = b"",
    pdn: bytes = PDN4,
    dnn: bytes = b"",
) -> bytes:
    """A Session Establishment Request (tables 7.5.2.1-1 to 7.5.2.5-1) of what is always there and what is given."""
    up = ie(2, ie(20, "00"), f_teid, access, sdf, n3)
    down = ie(2, ie(20, "01"), core, ue, sdf, n6)
    return message(
        50,
        NODE_ID,
        CP_SEID,
        ie(1, ie(56, "0001"), ie(29, precedence), up, ie(95, removal), ie(108, "00000001"), rules),
        ie(1, ie(56, "0002"), ie(29, precedence), down, ie(108, "00000002"), rules),
        ie(3, ie(108, "00000001"), ie(44, "0200"), ie(4, ie(42, "01"), core, n6)),
        ie(3, ie(108, "00000002"), ie(44, "0200"), ie(4, ie(42, "00"), access, creation, n3), bar_of_far),
        more,
        pdn,
        dnn,
    )


QER_ID, URR_ID, BAR_ID = ie(109, "00000001"), ie(81, "00000001"), ie(88, "01")
MBR = {"mbr_up_bps": 1e6, "mbr_down_bps": 2e6}
SDF = "permit out ip from any to assigned"


@pytest.mark.parametrize(
    ("upf", "group", "expected"),
    [
        pytest.param({}, {}, plain(), id="plain"),
        pytest.param({"interface_types": False}, {}, plain(n3=b"", n6=b""), id="without interface types"),
        pytest.param({}, {"first_teid": "choose"}, plain(f_teid=ie(21, "05")), id="TEID by the UPF"),
        pytest.param({}, {"ue_addresses": "choose"}, plain(ue=ie(93, "14")), id="UE address by the UPF"),
        pytest.param(
            {},
            {"ue_addresses": "choose", "pdn_type": "ipv4v6"},
            plain(ue=ie(93, "34"), pdn=ie(113, "03")),
            id="both UE addresses by the UPF",
        ),
        pytest.param(
            {},
            {"ue_addresses": ["10.45.0.7", "2001:db8:0:7::1/56"]},
            plain(ue=ie(93, "07", "0a2d0007", VALUES["ue_v6"]), pdn=ie(113, "03")),
            id="IPv4 and IPv6",
        ),
        pytest.param(
            {},
            {"ue_addresses": "2001:db8:0:7::1/56"},
            plain(ue=ie(93, "05", VALUES["ue_v6"]), pdn=ie(113, "02")),
            id="IPv6",
        ),
        pytest.param(
            {"n3": "2001:db8:f::1", "gnbs": {"a": "2001:db8:f::9"}},
            {},
            plain(
                f_teid=ie(21, "02", "0a0b0c0d", ip_address("2001:db8:f::1").packed),
                removal="0100",
                creation=ie(84, "0200", "00000e0f", VALUES["gnb_v6"]),
            ),
            id="GTP-U over IPv6",
        ),
        pytest.param({}, {"access_instance": "access.n3"}, plain(access=ie(22, b"\x06access\x02n3")), id="access"),
        pytest.param({}, {"core_instance": "internet"}, plain(core=ie(22, b"\x08internet")), id="core"),
        pytest.param(
            {"instances_as": "text"}, {"core_instance": "internet"}, plain(core=ie(22, b"internet")), id="core as text"
        ),
        pytest.param({}, {"dnn": "internet"}, plain(dnn=ie(159, b"\x08internet")), id="DNN"),
        pytest.param({}, {"precedence": 7}, plain(precedence="00000007"), id="precedence"),
        pytest.param({}, {"sdf_filters": [SDF]}, plain(sdf=ie(23, "0100", "0022", SDF.encode())), id="SDF filter"),
        pytest.param({}, {"predefined_rule": "simplest"}, plain(rules=ie(106, b"simplest")), id="predefined rule"),
        pytest.param({}, {"qos": {}}, plain(rules=QER_ID, more=ie(7, QER_ID, ie(25, "00"))), id="gates"),
        pytest.param(
            {},
            {"qos": {"qfi": 9, **MBR, "gbr_up_bps": 1000, "gbr_down_bps": 3000, "gate_up": "closed"}},
            plain(
                rules=QER_ID,
                more=ie(
                    7,
                    QER_ID,
                    ie(25, "04"),
                    ie(26, "00000003e8", "00000007d0"),
                    ie(27, "0000000001", "0000000003"),
                    ie(124, "09"),
                ),
            ),
            id="QoS",
        ),
        pytest.param(
            {},
            {"usage": {"volume_threshold_bytes": 256, "period_s": 60}},
            plain(
                rules=URR_ID,
                more=ie(
                    6, URR_ID, ie(62, "02"), ie(37, "030000"), ie(64, "0000003c"), ie(31, "01", "0000000000000100")
                ),
            ),
            id="usage",
        ),
        pytest.param(
            {},
            {"usage": {}},
            plain(rules=URR_ID, more=ie(6, URR_ID, ie(62, "02"), ie(37, "020000"), ie(31, "01", "0000010000000000"))),
            id="usage by volume",
        ),
        pytest.param({}, {"buffer": {}}, plain(bar_of_far=BAR_ID, more=ie(85, BAR_ID)), id="buffer"),
        pytest.param(
            {},
            {"buffer": {"notification_delay_ms": 100, "suggested_packets": 5}},
            plain(bar_of_far=BAR_ID, more=ie(85, BAR_ID, ie(46, "02"), ie(140, "05"))),
            id="buffer with both",
        ),
    ],
)
def test_an_establishment_is_what_the_specification_says(
    upf: dict[str, Any], group: dict[str, Any], expected: bytes
) -> None:
    made = group_messages(upf, **group).establishment({**VALUES, "seid": VALUES["seid"]})
    assert made.hex() == expected.hex()


TO_GNB = (ie(42, "00"), ie(84, "0100", "00000e0f", "c6336409"))


@pytest.mark.parametrize(
    ("group", "action", "end_marker", "inside"),
    [
        ({}, "forward", False, (ie(44, "0200"), ie(11, *TO_GNB, N3))),
        ({}, "forward", True, (ie(44, "0200"), ie(11, *TO_GNB, ie(49, "02"), N3))),
        (
            {"access_instance": "n3"},
            "forward",
            False,
            (ie(44, "0200"), ie(11, TO_GNB[0], ie(22, b"\x02n3"), TO_GNB[1], N3)),
        ),
        ({}, "buffer", False, (ie(44, "0400"),)),
        ({}, "notify", False, (ie(44, "0c00"),)),
        ({"buffer": {}}, "notify", False, (ie(44, "0c00"), BAR_ID)),
    ],
)
def test_a_modification_is_an_update_far(
    group: dict[str, Any], action: str, end_marker: bool, inside: tuple[bytes, ...]
) -> None:
    made = group_messages(**group).modification(action, end_marker)(VALUES)
    assert made.hex() == message(52, ie(10, ie(108, "00000002"), *inside)).hex()


@pytest.mark.parametrize(
    ("node_id", "element"),
    [
        ("smf.example.org", NODE_ID),
        ("192.0.2.4", ie(60, "00", "c0000204")),
        ("2001:db8::4", ie(60, "01", ip_address("2001:db8::4").packed)),
    ],
)
def test_messages_of_the_association(node_id: str, element: bytes) -> None:
    own = Own(OWN.address, node_id, OWN.recovery_stamp)
    sequence = int.from_bytes(VALUES["sequence"], "big")
    stamp, fine = ie(96, struct.pack("!I", OWN.recovery_stamp)), ie(19, "01")
    for made, expected in (
        (pfcp_encode.heartbeat_request(own, sequence), message(1, stamp, seid=None)),
        (pfcp_encode.heartbeat_response(own, sequence), message(2, stamp, seid=None)),
        (pfcp_encode.association_setup_request(own, sequence), message(5, element, stamp, seid=None)),
        (pfcp_encode.association_setup_response(own, sequence, 1), message(6, element, fine, stamp, seid=None)),
        (pfcp_encode.association_update_response(own, sequence, 1), message(8, element, fine, seid=None)),
        (pfcp_encode.association_release_request(own, sequence), message(9, element, seid=None)),
        (pfcp_encode.node_report_response(own, sequence, 1), message(13, element, fine, seid=None)),
        (pfcp_encode.session_report_response(sequence, 9, 65), message(57, ie(19, "41"))),
        (pfcp_encode.session_deletion_request(VALUES), message(54)),
        (group_messages(usage={}).query(VALUES), message(52, ie(77, ie(81, "00000001")))),
    ):
        assert made.hex() == expected.hex()


def test_a_patched_message_is_the_one_that_scapy_encodes() -> None:
    """Every row's, whole: two groups, addresses of both kinds, all that differs."""
    groups = [
        {"name": "four", "sessions": 5, "ue_addresses": "10.45.0.253/16", "first_teid": 254},
        {"name": "both", "sessions": 3, "ue_addresses": ["10.46.0.1", "2001:db8:0:fffe::1/32"], "first_teid": 70000},
    ]
    section = {"n4": "192.0.2.8", "n3": "198.51.100.1", "gnbs": {"a": "198.51.100.9", "b": "198.51.100.10"}}
    upf = parse(Path("here"), {**section, "groups": groups})
    sessions = Sessions(upf)
    sessions.remote_seid[:] = 2**63 + np.arange(8, dtype=np.uint64)
    sessions.generation[:] = 7
    for number, group in enumerate(upf.groups):
        rows = sessions.rows_of(group.name)
        made = GroupMessages(upf, group, OWN)
        for encode in (made.establishment, made.modification("forward", True), pfcp_encode.session_deletion_request):
            columns = {**sessions.columns(rows), "sequence": big_endian(2**24 - 3 + rows, 3)}
            for place, row in enumerate(Template(encode).render(columns, len(rows))):
                values = {name: columns[name][place].tobytes() for name in WIDTHS}
                assert row.tobytes() == encode(values), (number, place)


def test_the_users_of_a_group_are_numbered_on_in_every_address() -> None:
    upf = parse(
        Path("here"),
        {
            "n4": "192.0.2.8",
            "n3": "198.51.100.1",
            "gnbs": {"a": "198.51.100.9", "b": "198.51.100.10"},
            "groups": [
                {"name": "g", "sessions": 300, "ue_addresses": ["22.64.0.1", "2001:db8::5/48"], "first_teid": 839248},
                {"name": "h", "sessions": 2, "ue_addresses": "22.65.0.0/16", "first_teid": "choose", "gnb": "b"},
            ],
        },
    )
    sessions = Sessions(upf)
    assert sessions.user(299) == {
        "group": "g",
        "state": "idle",
        "ue_v4": "22.64.1.44",
        "ue_v6": "2001:db8:0:12b::5",
        "local_seid": 300,
        "remote_seid": 0,
        "uplink_teid": 839547,
        "upf": "198.51.100.1",
        "downlink_teid": 300,
        "gnb": "b",
    }
    last = sessions.user(301)
    assert (last["ue_v4"], last["uplink_teid"], last["downlink_teid"], last["gnb"]) == ("22.65.0.2", 0, 302, "b")


def test_a_value_that_changes_the_length_is_refused() -> None:
    with pytest.raises(ValueError, match="sequence changes the length"):
        Template(lambda values: bytes(2 if values["sequence"][0] else 1))
    with pytest.raises(ValueError, match="not a multiple"):
        Template(lambda values: bytes([values["seid"][0]]))
    with pytest.raises(ValueError, match="consecutive"):
        Template(lambda values: values["gnb_v4"][:2] + b"-" + values["gnb_v4"][2:])


def everything() -> list[bytes]:
    """Every message that can be sent, with nothing and with everything in it."""
    rich = {
        "access_instance": "access",
        "core_instance": "internet.mnc001",
        "dnn": "internet",
        "sdf_filters": [SDF, "permit out 17 from 10.0.0.0/8 to assigned 1000-2000"],
        "predefined_rule": "simplest",
        "qos": {"qfi": 5, **MBR, "gbr_up_bps": 1e6, "gbr_down_bps": 1e6, "gate_down": "closed"},
        "usage": {"period_s": 10},
        "buffer": {"notification_delay_ms": 50, "suggested_packets": 10},
    }
    v6 = {"n3": "2001:db8:f::1", "gnbs": {"a": "2001:db8:f::9"}}
    made = []
    for upf in ({}, {"interface_types": False}, v6):
        for group in (
            {},
            rich,
            {"first_teid": "choose"},
            {"ue_addresses": "choose", "pdn_type": "ipv4v6"},
            {"ue_addresses": ["10.45.0.7", "2001:db8::1/48"]},
            {"ue_addresses": "2001:db8::1/48"},
        ):
            one = group_messages(upf, **group)
            made += [one.establishment(VALUES), one.query(VALUES)]
            made += [one.modification(action)(VALUES) for action in ("forward", "buffer", "notify")]
            made.append(one.modification("forward", True)(VALUES))
    for node_id in ("192.0.2.4", "2001:db8::4", "smf.example.org"):
        own = Own("192.0.2.4", node_id, 3_900_000_000)
        made += [pfcp_encode.heartbeat_request(own, 1), pfcp_encode.heartbeat_response(own, 2)]
        made += [pfcp_encode.association_setup_request(own, 3), pfcp_encode.association_release_request(own, 4)]
        made += [pfcp_encode.association_setup_response(own, 5, 1), pfcp_encode.association_update_response(own, 6, 1)]
        made.append(pfcp_encode.node_report_response(own, 7, 1))
    made += [pfcp_encode.session_report_response(8, 9, 1), pfcp_encode.session_report_response(8, 0, 65)]
    return [*made, pfcp_encode.session_deletion_request(VALUES)]


MUST_AND_MAY: dict[int | str, tuple[set[int], set[int]]] = {
    # message types: mandatory, and conditional or optional, of what an SMF of 5G sends (tables 7.4 and 7.5)
    "1": ({96}, set()),
    "2": ({96}, set()),
    "5": ({60, 96}, {89}),
    "6": ({60, 19, 96}, {89}),
    "8": ({60, 19}, {89}),
    "9": ({60}, set()),
    "13": ({60, 19}, {40}),
    "50": ({60, 57, 1, 3}, {6, 7, 85, 113, 117, 141, 152, 159}),
    "52": (set(), {57, 1, 3, 6, 7, 85, 9, 10, 13, 14, 86, 15, 16, 17, 18, 87, 49, 77, 117, 125}),
    "54": (set(), set()),
    "57": ({19}, {40, 12, 50, 57}),
    # information elements that hold others
    1: ({56, 29, 2}, {95, 108, 81, 109, 106}),
    2: ({20}, {21, 22, 93, 23, 24, 124, 160}),
    3: ({108, 44}, {4, 5, 88}),
    4: ({42}, {22, 38, 84, 30, 41, 160}),
    6: ({81, 62, 37}, {64, 31, 32, 71, 72, 73, 74}),
    7: ({109, 25}, {28, 26, 27, 94, 97, 124, 123}),
    85: ({88}, {46, 140}),
    10: ({108}, {44, 11, 88}),
    11: (set(), {42, 22, 38, 84, 30, 41, 49, 160}),
    77: ({81}, set()),
}
ONCE_OR_MORE = {1, 3, 23, 81, 109, 106}


def check_presence(of: int | str, data: bytes) -> None:
    found = []
    while data:
        kind, length = struct.unpack_from("!HH", data)
        found.append(kind)
        if kind in MUST_AND_MAY:
            check_presence(kind, data[4 : 4 + length])
        data = data[4 + length :]
    mandatory, others = MUST_AND_MAY[of]
    assert mandatory <= set(found) <= mandatory | others, of
    assert all(found.count(kind) == 1 or kind in ONCE_OR_MORE for kind in found), of


def test_every_message_has_what_its_table_demands_and_nothing_else() -> None:
    for data in everything():
        check_presence(str(data[1]), data[16 if data[0] & 1 else 8 :])


def seen_by_tshark(file: Path, made: list[bytes]) -> list[list[str]]:
    """Type, what the experts say, whether it is malformed, and length, of each message."""
    with file.open("wb") as out:
        writer = dpkt.pcap.Writer(out)
        for number, data in enumerate(made):
            udp = dpkt.udp.UDP(sport=8805, dport=8805, ulen=8 + len(data), data=data)
            packet = dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\2", p=17, len=28 + len(data), data=udp)
            writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=packet, type=0x800)), ts=number)
    fields = ["-e", "pfcp.msg_type", "-e", "_ws.expert", "-e", "_ws.malformed", "-e", "pfcp.length"]
    command = ["tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", *fields]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == len(made)
    return [line.split("|") for line in told]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not there")
def test_tshark_finds_nothing_wrong_with_any_message(tmp_path: Path) -> None:
    made = everything()
    for line, data in zip(seen_by_tshark(tmp_path / "made.pcap", made), made, strict=True):
        kind, expert, malformed, length = line
        assert (int(kind), expert, malformed) == (data[1], "", ""), data.hex()
        assert int(length) == len(data) - 4


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not there")
def test_tshark_would_say_so(tmp_path: Path) -> None:
    """The control of the test above: an F-TEID without its address, a Cause that is longer than its message."""
    broken = [plain(f_teid=ie(21, "01", "0a0b0c0d")), message(57, struct.pack("!HH", 19, 9) + b"\1")]
    for _, expert, malformed, _ in seen_by_tshark(tmp_path / "broken.pcap", broken):
        assert expert or malformed


@pytest.mark.parametrize(("release", "octets"), [(15, "02"), (16, "0200"), (18, "0200")])
def test_apply_action_has_the_octets_of_its_release(release: int, octets: str) -> None:
    """TS 29.244, 8.2.26: the flags of octet 6 came with Release 16."""
    made = group_messages({"release": release})
    for one in (made.modification("forward")(VALUES), made.establishment(VALUES)):
        assert ie(108, "00000002") + ie(44, octets) in one


@pytest.mark.parametrize(("release", "octets"), [(15, "0200"), (16, "020000"), (18, "020000")])
def test_reporting_triggers_have_the_octets_of_their_release(release: int, octets: str) -> None:
    """TS 29.244, 8.2.19: the flags of octet 7 came with Release 16."""
    made = group_messages({"release": release}, usage={})
    assert ie(81, "00000001") + ie(62, "02") + ie(37, octets) in made.establishment(VALUES)


@pytest.mark.parametrize(("release", "octets"), [(15, "00"), (16, "0000"), (18, "0000")])
def test_outer_header_removal_has_the_octets_of_its_release(release: int, octets: str) -> None:
    """TS 29.244, 8.2.64: octet 6, GTP-U Extension Header Deletion, came with 15.4.0."""
    assert ie(95, octets) + ie(108, "00000001") in group_messages({"release": release}).establishment(VALUES)
