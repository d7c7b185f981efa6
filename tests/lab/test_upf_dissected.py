"""Every PFCP and GTP-U message of runs through the lab's UPF, captured at the switch and read by tshark's dissectors.

At the switch, for at neither end of the wire a capture sees what XDP sends or takes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dpkt
import pytest

from running import cluster_of, wait_for
from test_upf_run import ECHO
from upf_cluster import UpfCluster, ended

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
    pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not there"),
]
cluster = cluster_of(lambda folder: UpfCluster(folder, 2, 2, switch="bridge"))
MOST_FRAMES = 100_000
UNDECODED = ["pfcp.ie_data_not_decoded", "pfcp.ie_not_decoded_null", "pfcp.ie_not_decoded", "pfcp.ie_enterprise_3gpp"]
UNDECODED += ["gtp.undecoded", "gtp.unknown_extension_header"]
WRONG = ["_ws.malformed", "_ws.expert", *UNDECODED]
ECHO_REQUEST, ECHO_RESPONSE, END_MARKER, G_PDU = 1, 2, 254, 255
"""GTP-U message types (TS 29.281, 6.1)."""
PEOPLE: dict[str, Any] = {
    "name": "users",
    "sessions": 40,
    "ue_addresses": ["10.45.0.1/16", "2001:db8:45::1/48"],
    "qos": {"qfi": 9, "mbr_up_bps": 10**9, "mbr_down_bps": 10**9, "gbr_up_bps": 10**6, "gbr_down_bps": 10**6},
    "usage": {"period_s": 1},
    "buffer": {"notification_delay_ms": 50, "suggested_packets": 10},
    "sdf_filters": ["permit out ip from any to assigned"],
}
PAGED = {"name": "paged", "sessions": 10, "ue_addresses": "10.47.0.1/16", "buffer": {}, "modify": "notify"}
COMING = {"name": "coming", "sessions": 60, "ue_addresses": "choose"}
LOADS = {
    "churn": {"group": "coming", "sessions_per_s": 40, "lifetime_s": 0.2},
    "handover": {"group": "users", "users_per_s": 20},
    "heartbeat_s": 0.5,
    "t1_s": 5,
}
STREAM = {"sessions": "users", "size_bytes": 250, "rate_pps": 500, "count_packets": 1000}


@contextmanager
def captured(cluster: UpfCluster, folder: Path) -> Iterator[None]:
    """All of UDP on N3 and N4, both ways, at the switch's ports to the UPF; every frame, or the test fails."""
    inside = ["nsenter", f"--net=/proc/{cluster.pids['switch']}/ns/net", "tcpdump", "-U", "--immediate-mode", "-w", "-"]
    sniffers = []
    try:
        for side in ("n3", "n4"):
            with (folder / side).open("wb") as file:
                command = [*inside, "-c", str(MOST_FRAMES), "-i", f"{side}-upf", "udp"]
                sniffers.append(subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True))
            wait_for(sniffers[-1], "listening on")
        yield
        time.sleep(0.5)
    finally:
        for sniffer in sniffers:
            sniffer.terminate()
        words = [sniffer.communicate(timeout=20)[1] for sniffer in sniffers]
    assert all(re.search(r"^0 packets dropped by kernel", one, re.M) for one in words), words


def dissected(capture: Path, protocol: str, kind: str) -> Counter[int]:
    """Messages by type, none of which has anything wrong."""
    fields = [word for field in ("frame.number", kind, *WRONG) for word in ("-e", field)]
    command = ["tshark", "-r", str(capture), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    command += ["-Y", protocol, "-T", "fields", "-E", "separator=|", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line for line in lines if any(line[2:])] == []
    return Counter(int(number, 0) for line in lines for number in line[1].split(","))


def pfcp_by_the_run(told: dict[str, Any]) -> Counter[int]:
    """Messages by type, as the run's document has them; nothing was repeated."""
    upf, counts = told["upf"], Counter[int]()
    assert upf["datagrams"]["repeated"] == 0
    for name, one in upf["operations"].items():
        kind = 50 if "establishment" in name else 54 if "deletion" in name else 52
        counts += Counter({kind: one["requested"], kind + 1: one["accepted"]})
    beats, answered = upf["heartbeats"], upf["heartbeats_answered"]
    reports = sum(group["notifications"] for group in upf["groups"])
    counts += Counter({1: beats["requested"] + answered, 2: beats["accepted"] + answered})
    return counts + Counter({5: 1, 6: 1, 9: 1, 10: 1, 56: reports, 57: reports})


def streams(**more: Any) -> list[dict[str, Any]]:
    """Up and down, of both IP versions."""
    each = [(way, ip) for way in ("up", "down") for ip in ("ipv4", "ipv6")]
    return [{**STREAM, "name": f"{way}-{ip}", "direction": way, "ip": ip, **more} for way, ip in each]


def sums(told: dict[str, Any], name: str) -> int:
    return sum(row[f"{name}_packets"] for row in told["rows"])


def test_sessions_that_come_move_and_go(cluster: UpfCluster, tmp_path: Path) -> None:
    """Beside them the UPF asks whether a gNB is alive, and sessions that buffer are paged."""
    with captured(cluster, tmp_path):
        groups = [PEOPLE, COMING, PAGED]
        paged = {**STREAM, "name": "paged", "sessions": "paged", "direction": "down", "ip": "ipv4"}
        process = cluster.launch({"upf": {"groups": groups, **LOADS}, "streams": [*streams(), paged]})
        wait_for(process, "sending")
        inside = ["nsenter", f"--net=/proc/{cluster.pids['dut']}/ns/net", sys.executable, "-c", ECHO]
        subprocess.run([*inside, cluster.nodes["tx1"].ipv4], check=True, timeout=30)
        status, told = ended(process)
    assert (status, told["reason"]) == (0, "as expected")
    assert dissected(tmp_path / "n4", "pfcp", "pfcp.msg_type") == pfcp_by_the_run(told)
    assert told["upf"]["groups"][2]["notifications"] == PAGED["sessions"]
    moved = told["handover"]["accepted"]
    assert moved > PEOPLE["sessions"] / 2
    expected = {G_PDU: 5000, END_MARKER: moved, ECHO_REQUEST: 1, ECHO_RESPONSE: 1}
    assert sums(told, "received") == 5000
    assert dissected(tmp_path / "n3", "gtp", "gtp.message") == expected


def test_echoes_in_tunnels_over_ipv6(cluster: UpfCluster, tmp_path: Path) -> None:
    ups = [{**one, "echo": 100} for one in streams() if one["direction"] == "up"]
    with captured(cluster, tmp_path):
        status, told = ended(cluster.launch({"upf": {"n3_ip": "ipv6", "groups": [PEOPLE], "t1_s": 5}, "streams": ups}))
    assert (status, told["reason"]) == (0, "as expected")
    assert dissected(tmp_path / "n4", "pfcp", "pfcp.msg_type") == pfcp_by_the_run(told)
    assert sums(told, "received") == 4000
    assert dissected(tmp_path / "n3", "gtp && ipv6.dst == 2001:db8::/32", "gtp.message") == {G_PDU: 4000}


@pytest.mark.parametrize(
    ("port", "protocol", "kind", "message"),
    [
        (8805, "pfcp", "pfcp.msg_type", "2001000c00000700" + "0060000300e87547"),  # a Recovery Time Stamp too short
        (8805, "pfcp", "pfcp.msg_type", "2001001100000700" + "00600004e8754700" + "7ffd000100"),  # IE 32765
        (2152, "gtp", "gtp.message", "34ff000800000001" + "00000085" + "02000900"),  # an extension header too long
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, port: int, protocol: str, kind: str, message: str) -> None:
    """The control of the tests above."""
    with pytest.raises(AssertionError, match=r"^assert \[\['1', "):
        dissected(written(tmp_path / "wrong", port, message), protocol, kind)


def test_what_is_right_is_not(tmp_path: Path) -> None:
    right = written(tmp_path / "right", 8805, "2001000c00000700" + "00600004e8754700")
    assert dissected(right, "pfcp", "pfcp.msg_type") == {1: 1}


def written(file: Path, port: int, message: str) -> Path:
    data = bytes.fromhex(message)
    with file.open("wb") as out:
        udp = dpkt.udp.UDP(sport=port, dport=port, ulen=8 + len(data), data=data)
        packet = dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\2", p=17, len=28 + len(data), data=udp)
        dpkt.pcap.Writer(out).writepkt(bytes(dpkt.ethernet.Ethernet(data=packet, type=0x800)), ts=1)
    return file
