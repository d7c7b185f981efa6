"""A probe's N4 side against a peer in another process (tests/upf_peer.py), and what is concluded from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pktswarm.master.scenario.upf_features import names
from pktswarm.master.upf.probe import conclusions, procedures, signalling, tables, variants
from pktswarm.master.upf.probe.findings import WORKS, Finding, Findings, Outcome
from pktswarm.master.upf.probe.outcome import Probed
from pktswarm.master.upf.probe.probe import Probe
from pktswarm.master.upf.probe.signalling import Signalling
from pktswarm.master.upf.probe.trials import UpfLostError
from pktswarm.master.upf.probe.users import DEFAULT_USERS, section
from pktswarm.master.upf.unreleased import Record, now_s
from pktswarm.traffic.errors import BadInput

pytestmark = pytest.mark.waits

PROGRAM = Path(__file__).parents[1] / "upf_peer.py"
HERE = f"127.{190 + os.getpid() % 60}.{os.getpid() // 60 % 256}"
SMF, UPF = f"{HERE}.1", f"{HERE}.2"


@pytest.fixture(autouse=True)
def _short_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer answers at once, or never."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(procedures, "REPORT_S", 0.2)
    monkeypatch.setattr(signalling, "T1_S", 0.2)


@contextmanager
def peer(**faults: Any) -> Iterator[dict[str, Any]]:
    """What it saw is there at the end."""
    saw: dict[str, Any] = {}
    command = [sys.executable, str(PROGRAM), UPF, json.dumps(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield saw
            process.send_signal(signal.SIGTERM)
            saw |= json.loads(process.communicate(timeout=20)[0])
        finally:
            process.kill()


def probe(base: dict[str, Any] | None = None, told: list[str] | None = None) -> Probe:
    """Not run yet; N4 by itself."""
    given = {"n4": UPF, "bind": SMF, "n3": "198.51.100.1", "gnbs": {"gnb": "198.51.100.9"}}
    upf = section(Path("hosts.yml"), None, DEFAULT_USERS, given)
    steps: list[str] = [] if told is None else told
    return Probe(Signalling(Path("hosts.yml"), upf), None, "", base or {}, steps.append)


def run(**faults: Any) -> tuple[Findings, dict[str, Any]]:
    with peer(**faults) as saw:
        made = probe()
        with closing(made.n4):
            findings = made.run()
    return findings, saw


def outcome(findings: Findings, name: str) -> tuple[str, str]:
    row = findings.get(name)
    assert row is not None and row.n4 is not None, name
    return row.n4.state, row.n4.words


def test_a_peer_that_accepts_everything() -> None:
    findings, saw = run(ask=["usage"])
    assert findings.features == ["FTUP", "UEIP"] and findings.node_id == "upf.example.org"
    assert {row.name for row in findings.rows if row.n4 is not None and row.n4.state == "refused"} == set()
    assert outcome(findings, variants.CHOSEN_TEID.name)[0] == "works"
    assert outcome(findings, variants.VOLUME.name) == (
        "works",
        "uplink 500 bytes, downlink 1000 bytes, total 1500 bytes",
    )
    assert outcome(findings, variants.TIME.name) == ("wrong", "report without a duration")
    assert outcome(findings, variants.BUFFER.name) == ("works", "")
    assert outcome(findings, "association release") == ("works", "")
    assert outcome(findings, "association update") == ("no answer", "")  # the peer does not know it
    for over_ipv6 in (variants.OUTER_IPV6, variants.CHOSEN_TEID_IPV6):
        assert outcome(findings, over_ipv6.name)[0] == "not asked"
    assert {one.state for row in findings.rows for one in (row.up, row.down) if one is not None} == {"not asked"}
    assert findings.left_sessions == 0 and saw["sessions"] == {}
    assert conclusions.status(findings) == 0


def test_every_session_has_a_user_and_teids_of_its_own() -> None:
    told: list[str] = []
    with peer(refuse={"54": 77}) as saw:
        made = probe(told=told)
        with closing(made.n4):
            findings = made.run()
    sessions = saw["sessions"].values()
    assert len({one["downlink_teid"] for one in sessions}) == len(sessions) > 20
    given = [one["ue_v4"] for one in sessions if one["ue_v4"] is not None]
    assert len(set(given)) == len(given) and given[0] == "10.45.0.10"
    assert findings.left_sessions == len(sessions) and conclusions.status(findings) == 3
    assert told[:2] == ["association", variants.TWO_OCTETS.name] and len(told) > 25


@pytest.mark.parametrize(
    ("faults", "changes"),
    [
        ({}, {"release": 16, "numbered": [], "association_release": True}),
        ({"octets": 2}, {"release": 16}),
        ({"octets": 1}, {"release": 15, "interface_types": True}),
        ({"never_chooses": True}, {"numbered": ["teids", "ue_addresses"]}),
        ({"never_chooses": True, "features": "00"}, {"numbered": [], "features": []}),
        ({"drop": {"9": 99}}, {"association_release": False}),
        ({"refuse": {"9": 68}}, {"association_release": False}),
    ],
)
def test_the_profile_is_what_the_upf_was_seen_to_take(faults: dict[str, Any], changes: dict[str, Any]) -> None:
    findings, _ = run(**faults)
    profile = conclusions.profile(findings, "2026-01-01T00:00:00Z")
    assert profile is not None
    assert profile.model_dump() | changes == profile.model_dump()


def test_an_octet_too_few_costs_one_row_and_no_more() -> None:
    findings, saw = run(octets=1)
    assert outcome(findings, variants.TWO_OCTETS.name) == ("no answer", "")
    assert outcome(findings, "SDF filter") == ("works", "")  # with the release that was found
    assert saw["established"] > 20


def test_a_upf_that_refuses_every_session_has_no_profile(tmp_path: Path) -> None:
    findings, _ = run(refuse={"50": 75}, offending={"50": 22})
    words = ("refused", "no resources available (75), offending IE: Network Instance (22)")
    assert outcome(findings, variants.TWO_OCTETS.name) == words
    assert conclusions.status(findings) == 1
    assert outcome(findings, "association release") == ("works", "")
    probed = Probed(findings, "", tmp_path / "x.upf.yml")
    folder = probed.write(tmp_path, "pktswarm upf probe")
    assert not (tmp_path / "x.upf.yml").exists() and probed.document["profile"] is None
    assert "No session passes packets both ways" in (folder / "report.html").read_text()


def test_a_upf_that_stops_answering_ends_the_probe() -> None:
    with peer(silent_after=3):
        made = probe()
        with closing(made.n4), pytest.raises(UpfLostError) as caught:
            made.run()
    assert "the UPF stopped responding after: " in str(caught.value)
    assert outcome(made.findings, variants.TWO_OCTETS.name)[0] == "works"


def test_no_association_is_bad_input() -> None:
    made = probe()
    with closing(made.n4), pytest.raises(BadInput) as caught:
        made.run()
    assert str(caught.value).startswith(f"hosts.yml: upf.n4 = '{UPF}': no response (Association Setup Request from")
    with peer(refuse={"5": 74}):
        made = probe()
        with closing(made.n4), pytest.raises(BadInput) as caught:
            made.run()
    assert "refuses the association: PFCP entity in congestion (74)" in str(caught.value)


@pytest.mark.parametrize(("faults", "left"), [({}, False), ({"drop": {"9": 99}}, True)])
def test_an_association_that_stays_is_recorded_for_the_next_run(faults: dict[str, Any], left: bool) -> None:
    run(**faults)
    record = Record(SMF, UPF).read()
    assert (record is not None) == left
    if record is not None:
        assert record.upf_stamp == 3_900_000_000 and now_s() - record.seen_s < 60


def test_network_instances_that_every_session_needs() -> None:
    base = {"group": {"access_instance": "ran", "core_instance": "internet"}}
    with peer() as saw:
        made = probe(base)
        with closing(made.n4):
            encoder = made.users.messages(variants.TWO_OCTETS, made.users.next(), "198.51.100.9", "198.51.100.1")
            assert (encoder.group.access_instance, encoder.group.core_instance) == ("ran", "internet")
            findings = made.run()
    profile = conclusions.profile(findings, "")
    assert profile is not None and profile.groups == base["group"]
    assert saw["established"] > 20


def whole(**rows: Finding) -> Findings:
    findings = Findings("192.0.2.2", "upf", 1, ["FTUP"], 3.0)
    plain = Finding("session", variants.TWO_OCTETS.name, "", WORKS, WORKS, WORKS)
    for row in [plain, *rows.values()]:
        findings.add(row)
    return findings


def test_packets_that_do_not_pass_count_against_the_verdict() -> None:
    lost = Outcome("no answer", "no packet received by the gNB")
    findings = whole()
    findings.rows[0] = replace(findings.rows[0], down=lost)
    assert conclusions.status(findings) == 1
    without = Finding("session", variants.WITHOUT_TYPES.name, "", WORKS, WORKS, WORKS)
    findings.add(without)
    assert conclusions.status(findings) == 0
    profile = conclusions.profile(findings, "")
    assert profile is not None and not profile.interface_types and profile.release == 16


def test_end_markers_that_do_not_come_are_in_the_profile() -> None:
    row = Finding(
        "session", variants.HANDOVER.name, "", Outcome("no answer", "accepted, but no end marker received"), None, WORKS
    )
    profile = conclusions.profile(whole(row=row), "")
    assert profile is not None and not profile.end_markers and "no end markers" in profile.describe()
    assert profile.found[variants.HANDOVER.name] == "N4: no answer (accepted, but no end marker received)"


def test_table_and_page_show_every_row(tmp_path: Path) -> None:
    findings, _ = run()
    console = Console(width=400, record=True, file=(tmp_path / "out").open("w"))
    tables.print_findings(console, findings)
    text = console.export_text()
    probed = Probed(findings, "", tmp_path / "lab-x.upf.yml")
    page = (probed.write(tmp_path, "pktswarm upf probe --hosts hosts/<x>.yml") / "report.html").read_text()
    assert "hosts/&lt;x&gt;.yml" in page
    for row in findings.rows:
        assert row.name in text and row.name in page
    assert f"{sum(row.works for row in findings.rows)} of {len(findings.rows)} work" in text


def test_features_have_the_names_of_the_specification() -> None:
    """TS 29.244, table 8.2.25-1: octet 5 bit 5 is FTUP, octet 7 bit 3 UEIP."""
    assert names(bytes([0x10, 0x01, 0x04])) == ["FTUP", "EMPU", "UEIP"]
    assert names(bytes(11) + b"\x80") == ["16.8"]
