"""GTP-U: the bits where the standard has them, what tshark reads in them, and stamps behind them."""

from __future__ import annotations

import copy
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.check import check_frame
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.schedule.leg_frames import stamp_is_found

ETHERNET: dict[str, Any] = {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}
IPV4: dict[str, Any] = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6: dict[str, Any] = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
PORTS: dict[str, Any] = {"udp": {"src": 2152, "dst": 2152}}
UDP: dict[str, Any] = {"udp": {"src": 1000, "dst": 2000}}
TCP: dict[str, Any] = {"tcp": {"src": 1000, "dst": 2000}}
TEID: dict[str, Any] = {"gtpu": {"teid": {"increment": [0x1000, 0x1003]}}}
USER4: dict[str, Any] = {
    "ipv4": {"src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.4"]}, "dst": "10.9.0.1"}
}
USER6: dict[str, Any] = {"ipv6": {"src": {"with": "gtpu.teid", "increment": ["fd00::1", "fd00::4"]}, "dst": "fd00::9"}}
OPTIONS: dict[str, Any] = {"gtpu_options": {}}


def session(**fields: Any) -> dict[str, Any]:
    return {"pdu_session": {"qfi": 9, **fields}}


STACKS: dict[str, list[dict[str, Any]]] = {
    "plain": [ETHERNET, IPV4, PORTS, TEID, USER4, UDP],
    "over IPv6": [ETHERNET, IPV6, PORTS, TEID, USER4, TCP],
    "of IPv6": [ETHERNET, IPV4, PORTS, TEID, USER6, TCP],
    "tagged": [ETHERNET, {"vlan": {"id": 7}}, IPV4, PORTS, TEID, OPTIONS, session(), USER6, UDP],
    "numbered": [ETHERNET, IPV4, PORTS, TEID, {"gtpu_options": {"sequence": 7}}, USER4, UDP],
    "downlink": [ETHERNET, IPV4, PORTS, TEID, OPTIONS, session(rqi=1), USER4, UDP],
    "uplink": [ETHERNET, IPV4, PORTS, TEID, {"gtpu_options": {"npdu": 3}}, session(pdu_type=1), USER4, UDP],
    "without outer checksum": [ETHERNET, IPV4, {"udp": {**PORTS["udp"], "checksum": 0}}, TEID, USER4, UDP],
}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([TEID, USER4], "30ff 005a 00001000 45"),
        ([TEID, OPTIONS, USER4], "32ff 005a 00001000 0000 00 00 45"),
        ([TEID, {"gtpu_options": {"sequence": 7, "npdu": 3}}, USER4], "33ff 005a 00001000 0007 03 00 45"),
        ([TEID, OPTIONS, session(), USER6], "34ff 005a 00001000 0000 00 85 01 00 09 00 60"),
        ([TEID, {"gtpu_options": {"npdu": 1}}, session(pdu_type=1), USER4],
         "35ff 005a 00001000 0000 01 85 01 10 09 00 45"),
        ([TEID, OPTIONS, session(pdu_type="0x0", ppp=1, rqi=1, qfi=63)], "34ff 005a 00001000 0000 00 85 01 00 ff 00"),
        ([{"gtpu": {"teid": 5, "s": 1, "type": 254, "version": 2, "pt": 0, "length": 4}}], "42fe 0004 00000005"),
        ([TEID, {"gtpu_options": {"next_type": 0xC0}}, {"raw": {"hex": "01 beef 00"}}],
         "34ff 005a 00001000 0000 00 c0 01 beef 00"),
    ],
)  # fmt: skip
def test_bits_stand_in_their_place(headers: list[dict[str, Any]], expected: str) -> None:
    data = build_frame({"headers": copy.deepcopy([ETHERNET, IPV4, PORTS, *headers])}, 144).data
    assert data[42 : 42 + len(bytes.fromhex(expected))].hex() == bytes.fromhex(expected).hex()


@pytest.mark.parametrize(
    ("headers", "key", "words"),
    [
        ([ETHERNET, IPV4, TCP, TEID], "3", "'gtpu': cannot follow tcp"),
        ([ETHERNET, IPV4, PORTS, {"gtpu": {}}], "3.gtpu.teid", "missing (allowed: a whole number from 0 to 4294967295"),
        ([ETHERNET, IPV4, PORTS, TEID, session()], "4", "'pdu_session': cannot follow gtpu (allowed: gtpu_options"),
        ([ETHERNET, IPV4, PORTS, TEID, UDP], "4", "'udp': cannot follow gtpu"),
        ([ETHERNET, IPV4, PORTS, TEID, OPTIONS, session(qfi=64)], "5.pdu_session.qfi", "64: out of range"),
        ([ETHERNET, IPV4, PORTS, TEID, OPTIONS, session(pdu_type=1, rqi=1)], "5.pdu_session.rqi",
         "exists in downlink containers only (allowed: pdu_type: 0)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(headers: list[dict[str, Any]], key: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_frame({"headers": headers}, "a.yaml", "streams.0", 200)
    assert caught.value.key == f"streams.0.headers.{key}"
    assert words in str(caught.value)


@pytest.mark.parametrize("stack", STACKS)
def test_a_stamp_is_found_behind_it(stack: str) -> None:
    headers = STACKS[stack]
    template = build_frame({"headers": headers}, stamp.least_size_bytes(headers))
    assert stamp_is_found(template, headers)
    found = layout(template.data)
    assert found.payload_bytes == stamp.PLAIN_BYTES and "teid" in found.spans


def dissected(folder: Path, frames: list[bytes], *fields: str) -> list[list[str]]:
    """What tshark reads: of each frame the fields, innermost last. It checks all checksums and lengths."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    path = folder / "a.pcap"
    path.write_bytes(write_pcap([Packet(index, frame) for index, frame in enumerate(frames)]))
    words = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=a"]
    words += [word for name in ("ip", "udp", "tcp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    words += [word for field in fields for word in ("-e", field)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split("\t") for line in lines]


WARNING = 0x600000
"""PI_WARN of tshark's epan/proto.h; errors are above, its notes on TCP's handshake below."""


@pytest.mark.parametrize("stack", STACKS)
def test_tshark_finds_nothing_wrong_and_each_user_in_place(stack: str, tmp_path: Path) -> None:
    template, draw = build_frame({"headers": STACKS[stack], "payload": {"random": True}}, 200), random.Random(1)
    frames = [template.frame(index, draw) for index in range(4)]
    flow = "gtp.ext_hdr.pdu_ses_con.qos_flow_id"
    found = dissected(tmp_path, frames, "_ws.expert.severity", "_ws.malformed", "gtp.teid", flow, "ip.src", "ipv6.src")
    assert len(found) == 4
    for index, (expert, malformed, teid, qfi, ip, ipv6) in enumerate(found):
        assert all(int(severity) < WARNING for severity in expert.split(",") if severity)
        assert malformed == ""
        assert int(teid, 16) == 0x1000 + index
        assert qfi == ("9" if any("pdu_session" in header for header in STACKS[stack]) else "")
        assert f"10.60.0.{index + 1}" in ip.split(",") or f"fd00::{index + 1}" in ipv6.split(",")


BAD, GOOD, NONE = "0", "1", "3"


@pytest.mark.parametrize(
    ("outer_ip", "outer_udp", "inner_ip", "inner_udp", "ip_status", "udp_status"),
    [
        ({}, {}, {}, {}, [GOOD, GOOD], [GOOD, GOOD]),
        ({"off_by": 1}, {}, {}, {}, [BAD, GOOD], [GOOD, GOOD]),
        ({}, {"off_by": -1}, {}, {}, [GOOD, GOOD], [BAD, GOOD]),
        ({}, {}, {"off_by": 300}, {}, [GOOD, BAD], [GOOD, GOOD]),
        ({}, {}, {}, {"off_by": 65534}, [GOOD, GOOD], [GOOD, BAD]),
        ({"off_by": 1}, {"off_by": 2}, {"off_by": 3}, {"off_by": 4}, [BAD, BAD], [BAD, BAD]),
        ({}, 0, {}, {"off_by": 1}, [GOOD, GOOD], [NONE, BAD]),
    ],
)
def test_tshark_calls_bad_what_is_wrong_on_purpose_and_nothing_else(
    tmp_path: Path, outer_ip: Any, outer_udp: Any, inner_ip: Any, inner_udp: Any, ip_status: Any, udp_status: Any
) -> None:
    headers = copy.deepcopy([ETHERNET, IPV4, PORTS, TEID, USER4, UDP])
    for header, given in zip((1, 2, 4, 5), (outer_ip, outer_udp, inner_ip, inner_udp), strict=True):
        if given != {}:
            next(iter(headers[header].values()))["checksum"] = given
    template, draw = build_frame({"headers": headers, "payload": {"random": True}}, 200), random.Random(1)
    frames = [template.frame(index, draw) for index in range(4)]
    for ip, udp in dissected(tmp_path, frames, "ip.checksum.status", "udp.checksum.status"):
        assert (ip.split(","), udp.split(",")) == (ip_status, udp_status)


@pytest.mark.parametrize(
    ("header", "name", "by", "field"),
    [
        (1, "ipv4", 40, "ip.len"),
        (2, "udp", 3, "udp.length"),
        (3, "gtpu", -4, "gtp.length"),
        (4, "ipv6", -9, "ipv6.plen"),
    ],
)
def test_tshark_reads_a_wrong_length(header: int, name: str, by: int, field: str, tmp_path: Path) -> None:
    headers = copy.deepcopy([ETHERNET, IPV4, PORTS, TEID, USER6, UDP])
    right = build_frame({"headers": headers}, 200).data
    headers[header][name]["length"] = {"off_by": by}
    wrong = build_frame({"headers": headers}, 200).data
    found = [int(one[0].split(",")[0]) for one in dissected(tmp_path, [right, wrong], field)]
    assert found[1] - found[0] == by
