"""trafgen's words are read as they are, and it sends the very bytes that the Template says."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes.senders import trafgen
from pktswarm.traffic.capture.netsniff import CaptureFile
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.capabilities import unable

SAMPLES = Path(__file__).parent / "samples"
MACS = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 46}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2", "flow_label": 5}}
UDP, TCP = {"udp": {"src": 1, "dst": 2}}, {"tcp": {"src": 1, "dst": 2, "seq": 77}}
ARP = {"arp": {"sender_mac": "02:00:00:00:00:0a", "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "udp": [MACS, IPV4, UDP],
    "tcp": [MACS, IPV4, TCP],
    "udp6": [MACS, IPV6, UDP],
    "tcp6": [MACS, IPV6, TCP],
    "icmp": [MACS, IPV4, {"icmp": {"id": 3}}],
    "icmpv6": [MACS, IPV6, {"icmpv6": {"id": 3}}],
    "vlans": [MACS, {"svlan": {"id": 20}}, {"vlan": {"id": {"decrement": [12, 10]}}}, IPV4, UDP],
    "mpls": [MACS, {"mpls": {"label": {"increment": [16, 19]}}}, IPV4, UDP],
    "arp": [MACS, ARP],
    "raw": [MACS, {"raw": {"hex": "deadbeef"}}],
    "gtpu": [
        MACS,
        IPV4,
        {"udp": {"src": 2152, "dst": 2152}},
        {"gtpu": {"teid": {"list": [9, 7, 5]}}},
        {"gtpu_options": {}},
        {"pdu_session": {"qfi": {"pick": [1, 9], "weights": [1, 2]}}},
        {"ipv4": {"src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.3"]}, "dst": "10.9.0.1"}},
        {"udp": {"src": 1, "dst": 2, "checksum": {"off_by": 1}}},
    ],
    "random": [MACS, IPV4, {"udp": {"src": {"random": [1, 65535]}, "dst": {"increment": [1, 3]}}}],
}


@pytest.mark.skipif(not shutil.which("trafgen", path="/usr/sbin:/usr/bin"), reason="trafgen is not installed")
@pytest.mark.parametrize("shape", SHAPES)
def test_trafgen_makes_the_templates_frames(shape: str, tmp_path: Path) -> None:
    template = build_frame({"headers": SHAPES[shape], "payload": {"fill": 7}}, 128)
    config, out = tmp_path / "a.cfg", tmp_path / "a.pcap"
    config.write_text(trafgen.frame_list(template, 5))
    command = ["trafgen", "--no-sock-mem", "--notouch-irq", "--cpus", "1", "--in", str(config), "--out", str(out)]
    ran = subprocess.run(
        [*command, "--num", "9"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/sbin:/usr/bin:/bin"},
    )
    if "permitted" in ran.stderr:
        pytest.skip("trafgen needs root here")
    draw = random.Random(5)
    assert [frame for _, _, frame in CaptureFile(out).frames()] == [template.frame(i, draw) for i in range(9)]


@pytest.mark.parametrize(
    ("sample", "packets", "size_bytes"), [("trafgen-normal", 500, 71000), ("trafgen-interrupted", 54312, 7712304)]
)
def test_closing_words(sample: str, packets: int, size_bytes: int) -> None:
    found = trafgen.parse((SAMPLES / f"{sample}.txt").read_text())
    assert found[:2] == (packets, size_bytes)
    assert 0 < found[2] < 2


def test_an_error_is_not_a_count() -> None:
    with pytest.raises(EngineError, match="Invalid value length 6"):
        trafgen.parse((SAMPLES / "trafgen-error.txt").read_text())


def a_leg(headers: list[dict[str, Any]], **more: Any) -> Leg:
    return Leg(1, "s", "a", "b", "stream", frame={"headers": headers}, **more)


def test_a_rate_and_a_duration_make_a_count() -> None:
    assert trafgen.planned_count(a_leg([], rate_pps=1000.0, duration_s=2.5)) == 2500
    assert trafgen.planned_count(a_leg([], count_packets=7, rate_pps=1.0, duration_s=9.0)) == 7
    assert trafgen.planned_count(a_leg([], duration_s=1.0)) is None


def test_machine_wide_settings_are_never_touched() -> None:
    for rate in (None, 100.0, 1e5):
        words = trafgen.command(a_leg([], rate_pps=rate, size_bytes=64), "x", Path("c"), 3)
        assert {"--no-sock-mem", "--notouch-irq"} <= set(words) and "--jumbo-support" not in words
    assert "--jumbo-support" in trafgen.command(a_leg([], size_bytes=9000), "x", Path("c"), 3)


def test_what_trafgen_cannot_send() -> None:
    long: list[dict[str, Any]] = [MACS, IPV4, {"udp": {"src": {"increment": [1, 5000]}, "dst": 2}}]
    assert "repeat after 5000 frames" in unable("trafgen", a_leg(long))
    assert unable("trafgen", a_leg(SHAPES["random"])) == ""
    listed: list[dict[str, Any]] = [MACS, IPV4, {"udp": {"src": {"list": list(range(1, 5001))}, "dst": 2}}]
    assert "repeat after 5000 frames" in unable("trafgen", a_leg(listed))
    assert unable("trafgen", a_leg(SHAPES["udp"], sizes=[[64, 1], [100, 1]])) == "sends frames of one size only"
    assert "streams only" in unable("trafgen", Leg(1, "t", "a", "b", "trace"))
