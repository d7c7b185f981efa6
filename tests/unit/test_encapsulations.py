"""Tunnels as tshark dissects them: each by itself and around each other, with no malformed part and every checksum
right."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames.build import build_frame

Headers = list[dict[str, Any]]
ETHERNET = {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}
INNER_ETHERNET = {"ethernet": {"src": "02:00:00:00:01:01", "dst": "02:00:00:00:01:02"}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP = {"udp": {"src": 5000, "dst": 5001}}
TUNNELS: dict[str, tuple[Headers, str, bool]] = {
    "vxlan": ([{"udp": {"src": 50000, "dst": 4789}}, {"vxlan": {"vni": 7001}}], "udp:vxlan", True),
    "geneve": ([{"udp": {"src": 50000, "dst": 6081}}, {"geneve": {"vni": 7002}}], "udp:geneve", True),
    "geneve of IP": ([{"udp": {"src": 50000, "dst": 6081}}, {"geneve": {"vni": 7002}}], "udp:geneve", False),
    "gre": ([{"gre": {}}], "gre", False),
    "gre with a key": ([{"gre": {}}, {"gre_key": {"key": 0x12345}}], "gre", False),
    "gre with all": ([{"gre": {}}, {"gre_key": {"key": 9}}, {"gre_sequence": {"sequence": 3}}], "gre", False),
    "nvgre": ([{"gre": {}}, {"gre_key": {"key": 0x1B5800}}], "gre", True),
    "ip in ip": ([], "", False),
    "l2tpv3": ([{"l2tpv3": {"session": 77}}], "l2tp", True),
}
"""The headers between the outer IP header and what is carried, how tshark names them, and whether that is Ethernet."""
CHECKS = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
WRONG = "_ws.malformed || _ws.expert.severity >= 0x600000 || ip.checksum.status == 0 || udp.checksum.status == 0"


def around(tunnel: str, inside: Headers, outer: dict[str, Any] = IPV4) -> Headers:
    """What is carried begins with an IP header; where the tunnel carries Ethernet, with that."""
    headers, _, has_ethernet = TUNNELS[tunnel]
    return [outer, *headers, *([INNER_ETHERNET] if has_ethernet else []), *inside]


def tshark(frames: list[bytes], folder: Path, *options: str) -> list[str]:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    path = folder / "frames.pcap"
    path.write_bytes(write_pcap([Packet(number * 1000, frame) for number, frame in enumerate(frames)]))
    command = ["tshark", "-r", str(path), *CHECKS, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def protocols(frames: list[bytes], folder: Path) -> list[str]:
    return tshark(frames, folder, "-T", "fields", "-e", "frame.protocols")


def built(headers: Headers, size_bytes: int = 300) -> bytes:
    return build_frame({"headers": [ETHERNET, *headers]}, size_bytes).data


@pytest.mark.parametrize("inner", [IPV4, IPV6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("outer", [IPV4, IPV6], ids=["outer ipv4", "outer ipv6"])
def test_each_tunnel_is_dissected_as_it_is(outer: dict[str, Any], inner: dict[str, Any], tmp_path: Path) -> None:
    frames = [built(around(tunnel, [inner, UDP], outer)) for tunnel in TUNNELS]
    assert tshark(frames, tmp_path, "-Y", WRONG) == []
    ends = {"ipv4": "ip", "ipv6": "ipv6"}
    outer_name, inner_name = (ends[next(iter(one))] for one in (outer, inner))
    for (tunnel, (_, named, has_ethernet)), found in zip(TUNNELS.items(), protocols(frames, tmp_path), strict=True):
        if tunnel == "l2tpv3":  # without the control messages of its session tshark does not know what it carries
            assert found.startswith(f"eth:ethertype:{outer_name}:l2tp"), found
            continue
        parts = [outer_name, named, "eth:ethertype" if has_ethernet else "", inner_name, "udp"]
        assert found.startswith(f"eth:ethertype:{':'.join(filter(None, parts))}"), (tunnel, found)


def test_each_around_each_other(tmp_path: Path) -> None:
    pairs = [pair for pair in itertools.product(TUNNELS, repeat=2) if "l2tpv3" not in pair]
    frames = [built(around(one, around(other, [IPV4, UDP]))) for one, other in pairs]
    assert tshark(frames, tmp_path, "-Y", WRONG) == []
    found = protocols(frames, tmp_path)
    assert len(found) == len(pairs) == 64
    assert all(line.count(":ip") == 3 and ":udp:" in line for line in found)


def test_the_fields_are_those_that_were_given(tmp_path: Path) -> None:
    frames = [built(around(tunnel, [IPV4, UDP])) for tunnel in TUNNELS]
    names = ("vxlan.vni", "geneve.vni", "gre.key", "gre.sequence_number", "gre.proto", "l2tp.sid")
    options = [word for name in names for word in ("-e", name)]
    rows = [line.split("\t") for line in tshark(frames, tmp_path, "-T", "fields", *options)]
    assert rows[0][0] == "7001"
    assert [int(row[1], 0) for row in rows[1:3]] == [7002, 7002]
    assert [(int(row[2] or "0", 0), row[3], int(row[4], 0)) for row in rows[3:7]] == [
        *((0, "", 0x0800), (0x12345, "", 0x0800), (9, "3", 0x0800), (0x1B5800, "", 0x6558))
    ]
    assert int(rows[8][5], 0) == 77


def test_pppoe_igmp_and_esp(tmp_path: Path) -> None:
    session: Headers = [{"pppoe": {"session": 0x11}}, {"ppp": {}}]
    frames = [
        *(built([*session, one, UDP]) for one in (IPV4, IPV6)),
        built([{"ipv4": {**IPV4["ipv4"], "ttl": 1, "dst": "224.0.0.5"}}, {"igmp": {"group": "224.0.0.5"}}], 64),
        built([IPV4, {"esp": {"spi": 0x1001, "sequence": 9}}]),
    ]
    assert tshark(frames[:2], tmp_path, "-Y", WRONG) == []
    found = protocols(frames, tmp_path)
    assert found[0].startswith("eth:ethertype:pppoes:ppp:ip:udp") and found[1].startswith(
        "eth:ethertype:pppoes:ppp:ipv6:udp"
    )
    assert found[2].startswith("eth:ethertype:ip:igmp") and found[3].startswith("eth:ethertype:ip:esp")
    right = ("-Y", "igmp.checksum.status == 1", "-T", "fields", "-e", "igmp.maddr")
    assert tshark(frames[2:3], tmp_path, *right) == ["224.0.0.5"]
    options = (
        "-T",
        "fields",
        "-e",
        "pppoe.payload_length",
        "-e",
        "pppoe.session_id",
        "-e",
        "esp.spi",
        "-e",
        "esp.sequence",
    )
    lengths = [line.split("\t") for line in tshark(frames, tmp_path, *options)]
    assert (int(lengths[0][0]), int(lengths[0][1], 0)) == (296 - 14 - 6, 0x11)
    assert (int(lengths[3][2], 0), lengths[3][3]) == (0x1001, "9")


def test_a_given_value_has_precedence() -> None:
    frame = built([IPV4, {"gre": {"k": 0, "type": 0x88BE}}, {"gre_key": {"key": 1}}])
    assert frame[34:42].hex() == "000088be00000001"


@pytest.mark.parametrize(
    "wrong", [{"udp": {**UDP["udp"], "checksum": {"off_by": 1}}}, {"udp": {**UDP["udp"], "length": 9}}]
)
def test_tshark_finds_what_is_wrong_inside(wrong: dict[str, Any], tmp_path: Path) -> None:
    frames = [built(around(tunnel, [IPV4, wrong])) for tunnel in TUNNELS if tunnel != "l2tpv3"]
    assert len(tshark(frames, tmp_path, "-Y", WRONG)) == len(frames)


def test_fields_inside_a_tunnel_vary_and_keep_their_checksums(tmp_path: Path) -> None:
    headers: Headers = [
        ETHERNET,
        IPV4,
        {"udp": {"src": {"increment": [50000, 50006]}, "dst": 4789}},
        {"vxlan": {"vni": {"increment": [1, 5]}}},
        INNER_ETHERNET,
        {"ipv4": {"src": {"increment": ["10.1.0.1", "10.1.0.3"]}, "dst": "10.1.0.9"}},
        {"udp": {"src": {"increment": [6000, 6001]}, "dst": 5000}},
    ]
    template, draw = build_frame({"headers": headers}, 200), random.Random(1)
    frames = [template.frame(index, draw) for index in range(30)]
    assert tshark(frames, tmp_path, "-Y", WRONG) == []
    names = ("-T", "fields", "-E", "occurrence=l", "-e", "vxlan.vni", "-e", "ip.src", "-e", "udp.srcport")
    found = [line.split("\t") for line in tshark(frames, tmp_path, *names)]
    wanted = [[str(1 + n % 5), f"10.1.0.{1 + n % 3}", str(6000 + n % 2)] for n in range(30)]
    assert found == wanted
