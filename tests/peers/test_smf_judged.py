"""Every message of the SMF, decoded by go-pfcp (upf/), over UDP on loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from go_programs import HERE, go
from pktswarm.master.scenario.upf import parse
from pktswarm.master.upf.background import Background
from pktswarm.master.upf.probe.probe import Probe
from pktswarm.master.upf.probe.signalling import Signalling
from pktswarm.master.upf.probe.users import DEFAULT_USERS, section
from pktswarm.master.upf.session_results import failed
from pktswarm.master.upf.sessions import DELETED, ESTABLISHED
from pktswarm.master.upf.signalling_load import Loads
from pktswarm.master.upf.smf import Smf

pytestmark = pytest.mark.waits

OWN = f"127.{40 + os.getpid() % 50}.{os.getpid() // 50 % 256}"
"""Addresses of this process's own: tests run side by side, and N4's port is always the same."""
SMF, UPF = f"{OWN}.1", f"{OWN}.2"
QOS = {"qfi": 9, "mbr_up_bps": 5e6, "mbr_down_bps": 9e6, "gbr_up_bps": 1e6, "gbr_down_bps": 2e6, "gate_down": "closed"}
NAMES = {"access_instance": "access", "core_instance": "internet.mnc001", "dnn": "internet"}
FILTERS = ["permit out ip from any to assigned", "permit out 17 from 198.51.100.0/24 5000-6000 to assigned"]
GROUPS: list[dict[str, Any]] = [
    {"name": "plain", "ue_addresses": "10.45.0.1/16", "first_teid": 1000},
    {
        "name": "full",
        "ue_addresses": ["10.46.0.1/16", "2001:db8:46::1/48"],
        "qos": QOS,
        "usage": {"period_s": 60, "volume_threshold_bytes": 10**9},
        "buffer": {"notification_delay_ms": 100, "suggested_packets": 7},
        "sdf_filters": FILTERS,
        "predefined_rule": "rule-1",
        "modify": "notify",
        **NAMES,
    },
    {"name": "prefixes", "ue_addresses": "2001:db8:47::1/48", "usage": {}, "modify": "forward"},
    {"name": "chosen4", "ue_addresses": "choose", "buffer": {}, "modify": "buffer"},
    {"name": "chosen6", "sessions": 3, "ue_addresses": "choose", "pdn_type": "ipv6", "qos": {"gate_up": "closed"}},
    {"name": "both", "ue_addresses": "choose", "pdn_type": "ipv4v6", "precedence": 1},
    {"name": "coming", "sessions": 100, "ue_addresses": "10.48.0.1/16"},
]
EVERY_IE = {
    "Create PDR", "PDI", "Create FAR", "Forwarding Parameters", "Create URR", "Create QER", "Create BAR", "Update FAR",
    "Update Forwarding Parameters", "Cause", "Source Interface", "Destination Interface", "F-TEID",
    "Network Instance", "SDF Filter", "Gate Status", "MBR", "GBR", "Precedence", "Volume Threshold",
    "Reporting Triggers", "Apply Action", "Downlink Data Notification Delay", "PFCPSMReq-Flags", "PDR ID", "F-SEID",
    "Node ID", "Measurement Method", "Measurement Period", "URR ID", "Outer Header Creation", "BAR ID",
    "Outer Header Removal", "Recovery Time Stamp", "Activate Predefined Rules", "FAR ID", "QER ID", "PDN Type", "QFI",
    "Suggested Buffering Packets Count", "UE IP Address", "APN/DNN", "3GPP Interface Type",
}  # fmt: skip
EVERY_MESSAGE = {
    "Heartbeat Request", "Heartbeat Response", "Association Setup Request", "Association Setup Response",
    "Association Update Response", "Association Release Request", "Node Report Response",
    "Session Establishment Request", "Session Modification Request", "Session Deletion Request",
    "Session Report Response",
}  # fmt: skip


class Judge:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def end(self) -> dict[str, Any]:
        self.process.terminate()
        output, _ = self.process.communicate(timeout=20)
        return dict(json.loads(output))


@contextmanager
def judge(programs: Path, *words: str, address: str = UPF) -> Iterator[Judge]:
    command = [str(programs / "upf"), "-address", address, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield Judge(process)
        finally:
            process.kill()


def live(**changes: Any) -> None:
    """Everything that an SMF can do with its groups, once."""
    groups = [{"sessions": 4, **group} for group in GROUPS]
    loads = {
        "churn": {"group": "coming", "sessions_per_s": 40, "lifetime_s": 0.2},
        "handover": {"group": "plain", "users_per_s": 20},
    }
    section = {"n4": UPF, "bind": SMF, "n3": "198.51.100.1", "heartbeat_s": 0.2, "t1_s": 5, "n1": 3, "groups": groups}
    gnbs = {"a": "198.51.100.9", "b": "198.51.100.10"}
    with Smf(Path("some.yaml"), parse(Path("some.yaml"), {**section, "gnbs": gnbs, **loads, **changes})) as n4:
        n4.associate()
        n4.establish()
        assert (n4.sessions.state[n4.lasting()] == ESTABLISHED).all()
        load = Loads(n4)
        with Background(n4):
            load.start(time.monotonic_ns())
            assert load.churn is not None and load.handover is not None
            moved, deleted = load.handover.moving.statistics, load.churn.deleting.statistics
            deadline = time.monotonic() + 40
            while min(moved.accepted, deleted.accepted) < 9:
                assert time.monotonic() < deadline, (moved, deleted)
                time.sleep(0.01)
        load.stop()
        n4.end()
        assert not failed(n4, load) and (n4.sessions.state[n4.lasting()] == DELETED).all()


@pytest.mark.parametrize("release", [15, 16, 18])
def test_everything_that_is_sent_is_understood(programs: Path, release: int) -> None:
    with judge(programs, "-ask", "20", "-release", str(release)) as upf:
        live(release=release)
        saw = upf.end()
    assert saw["findings"] == []
    assert (set(saw["messages"]), set(saw["elements"])) == (EVERY_MESSAGE, EVERY_IE)
    assert saw["sessions"] == 0
    forms = {name: set(seen) for name, seen in saw["forms"].items()}
    spare = "00" if release > 15 else ""
    assert forms["F-TEID"] == {"01", "05"}  # V4 with a TEID; V4 and CH
    assert forms["UE IP Address"] == {"05", "06", "07", "14", "24", "34"}  # S/D with V6, V4, both; CHV4, CHV6, both
    assert forms["Apply Action"] == {f"02{spare}", f"04{spare}", f"0c{spare}"}  # FORW; BUFF; BUFF and NOCP
    assert saw["forms"]["Gate Status"] == {"01": 4, "04": 3}  # downlink closed in `full`, uplink in `chosen6`
    assert forms["PDN Type"] == {"01", "02", "03"}
    assert forms["PFCPSMReq-Flags"] == {"02"}  # SNDEM
    assert forms["Network Instance"] == {"06", "08"}  # labels: the first one's length


def test_everything_over_ipv6_with_names_as_text(programs: Path) -> None:
    """N4, N3 and the gNBs; no 3GPP Interface Type; the SMF's Node ID is a name."""
    port = 20000 + os.getpid() % 20000
    upf6 = {"n4": "::1", "n4_port": port, "bind": "::1", "n3": "2001:db8:3::9", "node_id": "smf.example.org"}
    gnbs = {"a": "2001:db8:99::1", "b": "2001:db8:99::2"}
    with judge(programs, "-ask", "20", "-port", str(port), address="::1") as upf:
        live(**upf6, gnbs=gnbs, interface_types=False, instances_as="text")
        saw = upf.end()
    assert saw["findings"] == []
    assert set(saw["elements"]) == EVERY_IE - {"3GPP Interface Type"}
    forms = {name: set(seen) for name, seen in saw["forms"].items()}
    assert (forms["F-TEID"], forms["F-SEID"], forms["Node ID"]) == ({"02", "06"}, {"01"}, {"02"})
    assert (forms["Outer Header Creation"], forms["Outer Header Removal"]) == ({"0200"}, {"0100"})
    assert forms["Network Instance"] == {"61", "69"}  # the first letters


def ie(kind: int, *value: bytes | str) -> bytes:
    """An information element; text is hexadecimal."""
    payload = b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in value)
    return struct.pack("!HH", kind, len(payload)) + payload


def message(kind: int, *elements: bytes, seid: int | None = None, sequence: int = 7) -> bytes:
    rest = (b"" if seid is None else seid.to_bytes(8, "big")) + sequence.to_bytes(3, "big") + b"\0" + b"".join(elements)
    return struct.pack("!BBH", 0x20 if seid is None else 0x21, kind, len(rest)) + rest


STAMP, PDR_ID, FAR_ID = ie(96, "e8754700"), ie(56, "0001"), ie(108, "00000001")
NODE_ID, F_SEID, FORWARD = ie(60, "007f000001"), ie(57, "02", bytes(8), "7f000001"), ie(44, "0200")
PRECEDENCE, F_TEID, ONWARD = ie(29, "000000ff"), ie(21, "01000000017f000002"), ie(4, ie(42, "01"))


def establishment(
    *,
    pdr: bytes = PDR_ID + PRECEDENCE,
    pdi: bytes = ie(20, "00") + F_TEID,
    removal: bytes = ie(95, "0000"),
    far_id: bytes = FAR_ID,
    far: bytes = FAR_ID + FORWARD + ONWARD,
    more: bytes = b"",
    seid: int | None = 0,
) -> bytes:
    """The smallest one that is right, but for what is given."""
    create = ie(1, pdr, ie(2, pdi), removal, far_id)
    return message(50, NODE_ID, F_SEID, create, ie(3, far), more, seid=seid)


def judged(programs: Path, *datagrams: bytes) -> list[str]:
    """What the judge finds in them."""
    with judge(programs) as upf, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as smf:
        smf.bind((SMF, 0))
        smf.settimeout(0.5)
        for datagram in datagrams:
            smf.sendto(datagram, (UPF, 8805))
            with suppress(TimeoutError):  # what cannot be decoded has no answer
                smf.recv(65535)
        return [f"{one['at']}: {one['problem']}" for one in upf.end()["findings"]]


def test_the_smallest_establishment_is_right(programs: Path) -> None:
    assert judged(programs, message(1, STAMP), establishment()) == []


@pytest.mark.parametrize(
    ("datagram", "words"),
    [
        (message(1), ": mandatory IE missing: Recovery Time Stamp"),
        (message(1, STAMP, STAMP), "Recovery Time Stamp: more than one"),
        (message(1, STAMP, ie(999, "00")), "IE 999: unknown IE type 999"),
        (message(1, STAMP, ie(124, "09")), "QFI: no such IE here"),
        (message(1, STAMP, ie(96)[:3]), ": go-pfcp cannot decode it"),
        (message(1, STAMP) + b"\0" * 4, "header: length 12, but 16 octets follow"),
        (b"\x40" + message(1, STAMP)[1:], "header: version 2, 1 is expected"),
        (message(4, STAMP), ": message type 4 is not one that an SMF sends"),
        (establishment(seid=None), "header: SEID present: false"),
        (establishment(seid=5), "header: SEID 5"),
        (establishment(pdr=ie(56, "000100") + PRECEDENCE), "Create PDR/PDR ID: its value 000100 is 0001 when"),
        (establishment(pdr=PDR_ID), "Create PDR: mandatory IE missing: Precedence"),
        (establishment(pdi=F_TEID), "Create PDR/PDI: mandatory IE missing: Source Interface"),
        (establishment(pdi=ie(20, "09") + F_TEID), "Create PDR/PDI/Source Interface: its value 09 does not decode"),
        (establishment(pdi=ie(20, "00") + ie(21, "0100000001")), "F-TEID: its value 0100000001 does not decode"),
        (establishment(pdi=ie(20, "00") + ie(21, "05", "00000001")), "F-TEID: its value 0500000001 is 05 when"),
        (establishment(pdi=ie(20, "00") + ie(93, "060a2d000100")), "UE IP Address: its value 060a2d000100 is"),
        (establishment(pdi=ie(20, "00") + ie(22, "0361")), "Network Instance: its value 0361 does not decode"),
        (establishment(pdi=ie(20, "00") + ie(25, "00")), "Create PDR/PDI/Gate Status: no such IE here"),
        (establishment(removal=ie(95, "00")), "Outer Header Removal: 1 octets, Release 16 has 2"),
        (establishment(far_id=ie(108, "00000002")), "Create PDR: no rule has FAR ID 00000002"),
        (establishment(far=FAR_ID + ie(44, "0300") + ONWARD), "Apply Action: its value 0300 does not decode"),
        (establishment(far=FAR_ID + ie(44, "0800") + ONWARD), "Apply Action: its value 0800 does not decode"),
        (establishment(far=FAR_ID + ie(44, "02") + ONWARD), "Create FAR/Apply Action: 1 octets, Release 16 has 2"),
        (establishment(far=FAR_ID + FORWARD), "Create FAR: FORW without Forwarding Parameters"),
        (establishment(more=ie(3, FAR_ID, FORWARD, ONWARD)), "Create FAR: its FAR ID 00000001 is taken"),
        (establishment(more=ie(159, b"internet")), "APN/DNN: its value 696e7465726e6574 is"),
        (establishment(more=ie(7, ie(109, "00000001"), ie(25, "03"))), "Gate Status: its value 03 does not decode"),
        (message(54, seid=3), "header: no session has SEID 3"),
        (message(57, ie(19, "01"), seid=3), "header: answers no request: sequence number 7"),
    ],
)
def test_what_is_wrong_is_found(programs: Path, datagram: bytes, words: str) -> None:
    """The control of the tests above: each of these is reported."""
    found = judged(programs, datagram)
    assert any(words in one for one in found), found


def test_a_sequence_number_of_two_requests_is_found(programs: Path) -> None:
    found = judged(programs, message(1, STAMP), message(1, STAMP), message(1, ie(96, "e8754701")))
    assert found == ["header: sequence number 7 is used again for another request"]


def test_the_programs_are_formatted_and_vetted(programs: Path) -> None:
    done = go("vet", "./...")
    assert (done.returncode, done.stderr) == (0, "")
    formatter = shutil.which("gofmt")
    if formatter is None:
        pytest.skip("no gofmt here")
    files = [str(path) for path in HERE.rglob("*.go")]
    assert subprocess.run([formatter, "-l", *files], capture_output=True, text=True, check=True).stdout == ""


def test_of_a_probe_only_its_older_form_is_a_finding(programs: Path) -> None:
    """The session with one octet of Apply Action is the one that is not of Release 16."""
    given = {"n4": UPF, "bind": SMF, "n3": "198.51.100.1", "gnbs": {"gnb": "198.51.100.9"}}
    upf = section(Path("some.yml"), None, DEFAULT_USERS, given)
    with judge(programs, "-release", "16") as peer:
        probe = Probe(Signalling(Path("some.yml"), upf), None, "", {}, lambda name: None)
        with closing(probe.n4):
            findings = probe.run()
        saw = peer.end()
    assert findings.left_sessions == 0
    assert {(one["at"], one["problem"]) for one in saw["findings"]} == {
        ("Create PDR/Outer Header Removal", "1 octets, Release 16 has 2"),
        ("Create FAR/Apply Action", "1 octets, Release 16 has 2"),
    }
    assert {"Time Threshold", "User Plane Inactivity Timer", "Query URR"} <= set(saw["elements"])
