"""The SMF against a UPF's N4 side in another process (tests/upf_peer.py), over UDP on loopback."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.master.scenario.upf import Upf, parse
from pktswarm.master.upf import unreleased
from pktswarm.master.upf.background import Background
from pktswarm.master.upf.control_plane import ControlPlane
from pktswarm.master.upf.session_results import document, failed, write_users
from pktswarm.master.upf.sessions import DELETED, ESTABLISHED, LOST, REFUSED, UNANSWERED
from pktswarm.master.upf.signalling_load import Loads
from pktswarm.master.upf.smf import Smf
from pktswarm.traffic.errors import BadInput

pytestmark = pytest.mark.waits

PROGRAM = Path(__file__).parents[1] / "upf_peer.py"
HERE = f"127.{90 + os.getpid() % 100}.{os.getpid() // 100 % 256}"
"""Addresses of this process's own: tests run side by side, and N4's port is always the same."""
SMF, UPF = f"{HERE}.1", f"{HERE}.2"
PATIENT = {"t1_s": 5, "n1": 3}
"""Where nothing gets lost: a machine that is busy elsewhere must not look like a UPF that does not answer."""


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where associations that were not released are recorded: for each test anew."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / unreleased.FOLDER.name


class Peer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._told: dict[str, Any] | None = None

    def end(self) -> None:
        self.process.terminate()
        output, _ = self.process.communicate(timeout=20)
        self._told = json.loads(output)

    @property
    def saw(self) -> dict[str, Any]:
        """Ends it."""
        if self._told is None:
            self.end()
        assert self._told is not None
        return self._told

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def peer(address: str = UPF, **faults: Any) -> Iterator[Peer]:
    command = [sys.executable, str(PROGRAM), address, json.dumps(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            made = Peer(process)
            yield made
            if process.poll() is None:
                made.end()
        finally:
            process.kill()


def settings(*groups: dict[str, Any], **changes: Any) -> Upf:
    given = groups or ({},)
    made = [
        {"name": f"g{number}", "sessions": 5, "ue_addresses": f"10.{45 + number}.0.1/16", **group}
        for number, group in enumerate(given)
    ]
    section = {"n4": UPF, "bind": SMF, "gnbs": {"a": "198.51.100.9", "b": "198.51.100.10"}, "groups": made}
    return parse(Path("some.yaml"), {**section, **PATIENT, **changes})


def smf(*groups: dict[str, Any], **changes: Any) -> Smf:
    return Smf(Path("some.yaml"), settings(*groups, **changes))


def test_a_whole_life_and_who_has_which_tunnel() -> None:
    told_of: list[tuple[int, int]] = []
    with (
        peer() as upf,
        smf({"sessions": 20, "usage": {}, "qos": {"qfi": 3}}, {"first_teid": 77}, n3="198.51.100.1") as n4,
    ):
        n4.progress = lambda done, asked: told_of.append((done, asked))
        n4.associate()
        n4.establish()
        sessions = n4.sessions
        assert (sessions.state == ESTABLISHED).all() and told_of[0] == (0, 25)
        # The peer chose these, in the order in which it got the requests; with one socket that is ours.
        assert sessions.uplink_teid[:20].tolist() == [0xABC00001 + i for i in range(20)]
        assert sessions.user(0)["upf"] == "198.18.3.1"
        assert sessions.uplink_teid[20:].tolist() == [77, 78, 79, 80, 81]
        assert sessions.user(24)["upf"] == "198.51.100.1"
        assert sessions.remote_seid.tolist() == [0x7000000000000001 + i for i in range(25)]
        n4.end()
        told = document(n4, Loads(n4))
        assert (sessions.state == DELETED).all()
        assert told["operations"]["deletion"]["accepted"] == 25
        assert told["groups"][0]["uplink_bytes"] == 20 * 500
        assert told["groups"][0]["downlink_bytes"] == 20 * 1000
        assert not failed(n4, Loads(n4))
    assert upf.saw["seen"] == {"5": 1, "1": 1, "50": 25, "54": 25, "9": 1}
    assert upf.saw["sessions"] == {}


def test_the_next_smf_is_not_taken_for_the_one_before_it() -> None:
    """From the same address and port: a UPF that knew its requests by their sequence numbers would answer as before."""
    with peer() as upf:
        for _ in range(2):
            with smf() as n4:
                n4.associate()
                n4.establish()
            assert (n4.sessions.state == DELETED).all()
        assert upf.saw["established"] == 10


def test_what_the_upf_was_told_of_each_user() -> None:
    with peer() as upf, smf({"sessions": 300, "ue_addresses": ["10.45.0.250/16", "2001:db8::1/48"]}) as n4:
        n4.associate()
        n4.establish()
        n4.alive = False  # leave them there
        standing = sorted(upf.saw["sessions"].values(), key=lambda one: int(one["cp_seid"]))
        users = [n4.sessions.user(row) for row in range(300)]
        for told, user in zip(standing, users, strict=True):
            assert told["cp_seid"] == user["local_seid"]
            assert (told["ue_v4"], told["ue_v6"]) == (user["ue_v4"], user["ue_v6"])
            assert told["downlink_teid"] == user["downlink_teid"]
            assert told["gnb"] == {"a": "198.51.100.9", "b": "198.51.100.10"}[user["gnb"]]
        assert len({told["ue_v6"] for told in standing}) == 300


def test_addresses_that_the_upf_chooses() -> None:
    with peer(), smf({"ue_addresses": "choose"}) as n4:
        n4.associate()
        n4.establish()
        assert [n4.sessions.user(row)["ue_v4"] for row in range(5)] == [f"10.60.0.{i}" for i in range(1, 6)]


@pytest.mark.parametrize(
    ("group", "features", "words"),
    [
        (
            {"first_teid": "choose"},
            "00000400",
            "upf.groups.0.first_teid = 'choose': group g0: the UPF does not announce the feature FTUP",
        ),
        ({}, "00000400", "it does not choose TEIDs (allowed: numbers, with upf.n3 of IPv4)"),
        (
            {"ue_addresses": "choose"},
            "1000",
            "upf.groups.0.ue_addresses = 'choose': group g0: the UPF does not announce the feature UEIP",
        ),
    ],
)
def test_a_upf_that_cannot_choose_is_bad_input(group: dict[str, Any], features: str, words: str) -> None:
    with peer(features=features) as upf, smf(group) as n4, pytest.raises(BadInput) as caught:
        n4.associate()
    assert words in str(caught.value)
    assert "50" not in upf.saw["seen"]


def test_a_upf_that_does_not_choose_teids_has_them_numbered() -> None:
    """Only if the file does not say `choose`; above the TEIDs of the groups that have a number."""
    groups: list[dict[str, Any]] = [{}, {"first_teid": 7}, {}]
    with peer(features="00000400") as upf, smf(*groups, n3="198.51.100.1") as n4:
        n4.associate()
        n4.establish()
        assert n4.sessions.uplink_teid.tolist() == [*range(12, 17), *range(7, 12), *range(17, 22)]
        words = [event.words for event in n4.events if event.kind == "numbered"]
        assert words[0] == "group g0: the UPF does not choose TEIDs (FTUP): numbered from 12 to 16" and len(words) == 2
        assert {n4.sessions.user(row)["upf"] for row in range(15)} == {"198.51.100.1"}
        assert not failed(n4, Loads(n4))
        n4.end()
    assert upf.saw["seen"]["50"] == 15


@pytest.mark.parametrize(
    ("gnb", "n3", "numbered", "chosen"),
    [
        ("198.51.100.9", "198.51.100.1", ["teids"], False),
        ("198.51.100.9", "198.51.100.1", ["teids_ipv6"], True),
        ("2001:db8::9", "2001:db8::1", ["teids_ipv6"], False),
    ],
)
def test_what_a_profile_says_is_numbered_is_not_left_to_the_upf(
    gnb: str, n3: str, numbered: list[str], chosen: bool
) -> None:
    with peer() as upf, smf({}, gnbs={"a": gnb}, n3=n3, numbered=numbered) as n4:
        n4.associate()
        n4.establish()
        assert n4.establishing.statistics.accepted == 5
        n4.sessions.remote_seid[:] = 0  # so that the peer keeps them
    assert {one["choose"] for one in upf.saw["sessions"].values()} == {chosen}


def test_a_upf_that_does_not_choose_addresses_has_users_numbered() -> None:
    """Only if the file does not say `choose`, and beyond what is skipped."""
    upf = settings({"first_teid": 1}, n3="198.51.100.1", skip=["10.45.0.1"])
    section = upf.model_dump(exclude_unset=True)
    del section["groups"][0]["ue_addresses"]
    with peer(features="1000") as told, Smf(Path("some.yaml"), parse(Path("some.yaml"), section)) as n4:
        n4.associate()
        n4.establish()
        assert [n4.sessions.user(row)["ue_v4"] for row in range(5)] == [f"10.45.0.{last}" for last in range(2, 7)]
        words = [event.words for event in n4.events if event.kind == "numbered"]
        expected = "group g0: the UPF does not choose UE addresses (UEIP): numbered from 10.45.0.2 to 10.45.0.6"
        assert words == [expected]
    assert [one["ue_v4"] for one in told.saw["sessions"].values()] == []
    assert told.saw["seen"]["54"] == 5


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def moved_and_deleted(loads: Loads, least: int) -> bool:
    """At least so many users have moved, and so many sessions of the churn are deleted."""
    assert loads.churn is not None and loads.handover is not None
    return min(loads.handover.moving.statistics.accepted, loads.churn.deleting.statistics.accepted) >= least


def test_sessions_of_churn_have_the_teids_that_were_numbered() -> None:
    """Messages are encoded in advance, but only once it is known who chooses."""
    churn = {"churn": {"group": "g1", "sessions_per_s": 50, "lifetime_s": 0, "modify": False}}
    with peer(features="00000400", refuse={"54": 77}) as upf:
        plane = ControlPlane(Path("some.yaml"), settings({}, {}, n3="198.51.100.1", **churn))
        try:
            plane.begin()
            plane.start_loads(time.monotonic_ns())
            assert plane.loads is not None and plane.loads.churn is not None
            established = plane.loads.churn.establishing.statistics
            wait_until(lambda: established.accepted >= 5)
        finally:
            plane.end()
    teids = [session["teid"] for session in upf.saw["sessions"].values()]
    assert teids[:10] == list(range(1, 11)) and not any(session["choose"] for session in upf.saw["sessions"].values())


def test_an_address_that_does_not_answer_is_bad_input_within_five_seconds() -> None:
    started = time.monotonic()
    with smf({}, {}, t1_s=60, n1=20) as n4, pytest.raises(BadInput) as caught:
        n4.associate()
    assert time.monotonic() - started < 5.5
    words = str(caught.value)
    assert f"some.yaml: upf.n4 = '{UPF}': no response to 1 Association Setup Request(s)" in words
    assert f"Node ID {SMF}, sent from {SMF} to UDP port 8805" in words
    assert "no session of group g0, g1" in words


def test_a_upf_that_refuses_the_association_is_bad_input() -> None:
    with peer(refuse={"5": 74}, offending={"5": 60}) as upf, smf() as n4, pytest.raises(BadInput) as caught:
        n4.associate()
    assert "the UPF refuses the association" in str(caught.value)
    assert "PFCP entity in congestion (74), offending IE: Node ID (60); no session of group g0" in str(caught.value)
    assert upf.saw["seen"] == {"5": 2, "9": 1}  # an association of before could have been the reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"bind": "203.0.113.1"},
            "upf.bind = '203.0.113.1': cannot bind UDP port 8805 of 203.0.113.1: Cannot",
        ),
        ({"n4": "2001:db8::1"}, "UDP port 8805 of"),
    ],
)
def test_an_address_that_is_not_ours_is_bad_input(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        smf(**changes)
    assert words in str(caught.value)


def test_a_port_that_another_smf_has_is_bad_input() -> None:
    with smf(), pytest.raises(BadInput) as caught:
        smf()
    assert f"upf.bind = '{SMF}': cannot bind UDP port 8805 of {SMF}: Address already in use" in str(caught.value)


def test_lost_requests_are_repeated_and_none_is_lost() -> None:
    with peer(drop={"5": 1, "50": 7, "54": 3, "9": 2}) as upf, smf({"sessions": 20}, t1_s=0.4, n1=20) as n4:
        n4.associate()
        n4.establish()
        assert (n4.sessions.state == ESTABLISHED).all()
        assert n4.establishing.statistics.repeated >= 7
        n4.end()
        assert (n4.sessions.state == DELETED).all()
        assert n4.establishing.statistics.requested == n4.establishing.statistics.accepted == 20
    assert (upf.saw["established"], upf.saw["sessions"]) == (20, {})


def test_answers_that_come_twice_count_once() -> None:
    with peer(repeat=[50, 54]) as upf, smf() as n4:
        n4.associate()
        n4.establish()
        n4.end()
        assert (n4.sessions.state == DELETED).all()
        assert n4.establishing.statistics.accepted == n4.deleting.statistics.accepted == 5
    assert upf.saw["established"] == 5


def test_an_answer_that_cannot_be_read_is_a_failure() -> None:
    with peer(garble=["50"]), smf({"sessions": 2}) as n4:
        n4.associate()
        statistics = n4.establish()
        assert statistics.failed == n4.exchange.counts.unreadable == 2
        assert "group g0: malformed response: information element 19" in next(iter(statistics.failures))


def alone_on_ipv6(**changes: Any) -> Smf:
    """There is one IPv6 loopback address: another run of these tests may have its port for a while."""
    for _ in range(200):
        try:
            return smf(n4="::1", bind="::1", **changes)
        except BadInput as problem:
            assert "in use" in str(problem)
            time.sleep(0.1)
    raise AssertionError("UDP port 8805 of ::1 is taken for good")


def test_n4_over_ipv6_and_at_another_port() -> None:
    port = 20000 + os.getpid() % 20000
    with peer("::1", port=port) as upf, alone_on_ipv6(n4_port=port, node_id="smf.example.org") as n4:
        n4.associate()
        n4.establish()
        assert (n4.sessions.state == ESTABLISHED).all()
    assert upf.saw["seen"] == {"5": 1, "1": 1, "50": 5, "54": 5, "9": 1}


def test_refusals_are_told_by_group_and_cause_in_words() -> None:
    with peer(refuse={"50": 75}, offending={"50": 22}) as upf, smf({}, {"sessions": 2}) as n4:
        n4.associate()
        statistics = n4.establish()
        assert dict(statistics.failures) == {
            "group g0: no resources available (75), offending IE: Network Instance (22)": 5,
            "group g1: no resources available (75), offending IE: Network Instance (22)": 2,
        }
        assert (n4.sessions.state == REFUSED).all()
        n4.end()
        assert failed(n4, Loads(n4))
    assert upf.saw["seen"] == {"5": 1, "1": 1, "50": 7, "9": 1}


def test_an_answer_that_comes_late_is_a_failure_and_its_session_is_deleted() -> None:
    with peer(delay_s={"50": 0.9}) as upf, smf({"sessions": 1}, t1_s=0.3, n1=2) as n4:
        n4.associate()
        n4.exchange.received_ns = 2**63  # it is slow, not silent
        statistics = n4.establish()
        assert dict(statistics.failures) == {"group g0: no answer (sent 2 times)": 1}
        assert n4.sessions.state.tolist() == [UNANSWERED]
        n4.exchange.run(lambda: statistics.late > 0, 10)
        assert statistics.late == 1
        assert n4.sessions.remote_seid[0] != 0
        n4.upf.t1_s, n4.exchange.t1_ns = 5, 5 * 10**9
        n4.end()
        assert n4.sessions.state.tolist() == [DELETED]
    assert upf.saw["seen"]["54"] == 1


def test_a_upf_that_restarts_has_lost_its_sessions() -> None:
    with peer(restart_after=10) as upf, smf({"sessions": 10}, heartbeat_s=0.1) as n4:
        n4.associate()
        n4.establish()
        n4.run(20)
        assert [event.kind for event in n4.events] == ["associated", "restarted"]
        assert "from 3900000000 to 3900000060; 10 sessions are lost" in n4.events[-1].words
        assert (n4.sessions.state == LOST).all()
        n4.end()
        assert failed(n4, Loads(n4))
    assert "54" not in upf.saw["seen"]


def test_a_upf_that_goes_away_in_the_middle_ends_it() -> None:
    with peer(silent_after=30), smf({"sessions": 1000}, t1_s=0.3, n1=3, window=8) as n4:
        n4.associate()
        n4.establish()
        assert [event.kind for event in n4.events] == ["associated", "gone"]
        statistics = n4.establishing.statistics
        # Two windows at most: the requests that were sent before the last answer came are given up one by one.
        assert statistics.accepted == 30
        assert statistics.requested <= 30 + 2 * 8
        assert statistics.outstanding == 0
        assert np.count_nonzero(n4.sessions.state == LOST) == 30
        n4.end()


def test_a_upf_that_is_killed_while_sessions_are_held_is_told() -> None:
    with peer() as upf, smf(heartbeat_s=0.2, t1_s=0.3, n1=2) as n4:
        n4.associate()
        n4.establish()
        n4.run(0.5)
        assert n4.heartbeats.statistics.accepted > 0
        upf.kill()
        n4.run(30)
        assert n4.events[-1].kind == "gone"
        assert "5 sessions are lost" in n4.events[-1].words


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (
            {"drop": {"9": 99}},
            "Association Release Request: no answer (sent 2 times); the sessions were deleted before",
        ),
        ({"refuse": {"9": 72}}, "Association Release Request refused: no established PFCP association (72)"),
    ],
)
def test_a_upf_that_does_not_know_a_release_has_done_nothing_wrong(faults: dict[str, Any], words: str) -> None:
    """Nor is one gone that is silent from then on: of heartbeats that were on their way no answer is missed."""
    with peer(**faults) as upf, smf(heartbeat_s=0.1, t1_s=0.3, n1=2) as n4:
        n4.associate()
        n4.establish()
        n4.run(0.3)
        n4.end()
        assert [(event.kind, event.words) for event in n4.events[1:]] == [("unreleased", words)]
        assert not failed(n4, Loads(n4))
    assert upf.saw["seen"]["54"] == 5 and not upf.saw["sessions"]


def test_a_upf_that_is_gone_with_nothing_to_lose_is_told_without_a_number() -> None:
    with peer() as upf, smf(heartbeat_s=0.2, t1_s=0.3, n1=2) as n4:
        n4.associate()
        upf.kill()
        n4.run(30)
        assert n4.events[-1].kind == "gone" and "lost" not in n4.events[-1].words


def test_an_association_that_is_refused_is_released_and_set_up_again() -> None:
    with peer(refuse_once={"5": 64}) as upf, smf() as n4:
        n4.associate()
        words = "the UPF held a previous association (request rejected, no reason given (64)): released and "
        assert [event.words for event in n4.events if event.kind == "replaced"] == [words + "set up again"]
        assert not failed(n4, Loads(n4))
    assert upf.saw["seen"] == {"5": 2, "9": 2, "1": 1}


def age(records: Path, seconds: float) -> None:
    """Makes what is recorded so much older."""
    (file,) = records.iterdir()
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"seen_s": told["seen_s"] - seconds}))


def leave_an_association(records: Path, seconds: float, **faults: Any) -> None:
    with peer(drop={"9": 99}, **faults), smf(t1_s=0.1) as n4:
        n4.associate()
    age(records, seconds)


def waits(n4: Smf) -> list[str]:
    return [event.words for event in n4.events if event.kind == "waited"]


def test_the_next_run_waits_until_a_heartbeat_of_the_upf_is_answered(records: Path) -> None:
    """Its unanswered ones count against the association (eUPF), which is kept by an answer."""
    leave_an_association(records, 10)
    with peer(beat_after_s=0.5) as upf, smf() as n4:
        n4.associate()
        assert n4.heartbeats_answered == 1
        assert len(waits(n4)) == 1 and "the UPF may hold an association that an earlier run did" in waits(n4)[0]
    assert upf.saw["seen"]["5"] == 1 and [one["type"] for one in upf.saw["answers"]] == [2]
    assert list(records.iterdir()) == []  # released


def test_where_no_heartbeat_comes_the_association_is_set_up_once_more(records: Path) -> None:
    with peer(drop={"9": 3}) as upf:
        with smf(t1_s=0.1) as n4:
            n4.associate()
        age(records, unreleased.MOST_HELD_S - 3)
        with smf() as n4:
            n4.associate()
            assert len(waits(n4)) == 1
    assert upf.saw["seen"]["5"] == 3


@pytest.mark.parametrize(
    ("seconds", "faults"),
    [(unreleased.MOST_HELD_S + 1, {}), (-3600, {}), (10, {"stamp": 3_900_000_500})],
    ids=["after its time", "of another boot", "of a UPF that restarted"],
)
def test_what_the_upf_cannot_hold_is_not_waited_for(records: Path, seconds: float, faults: dict[str, Any]) -> None:
    leave_an_association(records, seconds)
    with peer(**faults), smf() as n4:
        n4.associate()
        assert waits(n4) == []


def test_a_upf_that_takes_the_next_run_for_a_restart_keeps_its_sessions() -> None:
    """open5gs looks at the recovery time stamp in heartbeats only, and then deletes all sessions."""
    with peer(restores=True, drop={"9": 3}) as upf:
        for run in range(2):
            with smf(t1_s=0.2, heartbeat_s=0.1) as n4:
                n4.own = dataclasses.replace(n4.own, recovery_stamp=n4.own.recovery_stamp + run)
                n4.associate()
                n4.establish()
                n4.run(0.5)
                assert n4.heartbeats.statistics.accepted > 0
                n4.end()
                assert n4.deleting.statistics.accepted == 5 and not n4.deleting.statistics.failed
    assert upf.saw["seen"]["50"] == 10


@pytest.mark.parametrize(("age_s", "left_s"), [(0, 0), (4.9, 0), (5.5, 14.5), (19.5, 0.5), (20, 0), (-1, 0)])
def test_how_long_a_upf_may_hold_an_association(monkeypatch: pytest.MonkeyPatch, age_s: float, left_s: float) -> None:
    monkeypatch.setattr(unreleased, "now_s", lambda: 1000.0 + age_s)
    assert unreleased.Unreleased(7, 1000.0).left_s(7) == left_s
    assert unreleased.Unreleased(7, 1000.0).left_s(8) == 0


def test_a_record_that_cannot_be_read_is_none(records: Path) -> None:
    leave_an_association(records, 10)
    (file,) = records.iterdir()
    file.write_text('{"upf_stamp": 1, "when": 2}')
    with peer(), smf() as n4:
        n4.associate()
        assert waits(n4) == []


def test_an_association_that_dies_under_a_run_is_told_with_its_cause() -> None:
    """Cause 72 of a request within a session: all sessions are lost, and nothing more is asked."""
    with peer(refuse={"52": 72}) as upf, smf({"modify": "forward", "sessions": 300}, window=8) as n4:
        n4.associate()
        n4.establish()
        assert n4.events[-1].kind == "forgotten" and not n4.alive
        assert (
            "no longer has an association with this SMF (cause 72); probable cause: it deleted" in n4.events[-1].words
        )
        assert "300 sessions are lost" in n4.events[-1].words
        assert failed(n4, Loads(n4))
        assert (n4.sessions.state == LOST).all()
    assert upf.saw["seen"]["52"] <= 8 and "54" not in upf.saw["seen"]


def test_the_upf_s_own_requests_are_answered_and_count_once() -> None:
    """From another port, each sent twice: heartbeats, usage reports, downlink data of a session that buffers."""
    group = {"usage": {}, "buffer": {}, "modify": "notify"}
    with peer(ask=["heartbeat", "usage", "data"]) as upf, smf(group) as n4:
        n4.associate()
        n4.establish()
        n4.run(0.2)
        n4.end()
        assert n4.heartbeats_answered == 10
        # One report while it stood, and the one that came with its deletion.
        assert n4.sessions.usage_reports.tolist() == [2] * 5
        assert n4.sessions.downlink_bytes.tolist() == [2000] * 5
        assert n4.sessions.notifications.tolist() == [1] * 5
        assert n4.modifying["forward"].statistics.accepted == 5
    answers = [(one["type"], one["cause"]) for one in upf.saw["answers"]]
    assert answers.count((57, 1)) == 20
    assert answers.count((2, None)) == 10
    assert [one["far"]["notify"] for one in upf.saw["log"]].count(1) == 5
    assert [one["far"]["forward"] for one in upf.saw["log"]].count(1) == 5


def test_a_report_about_a_session_that_is_not_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(ask=["usage"]) as upf, smf({"sessions": 1}) as n4:
        n4.associate()
        monkeypatch.setattr(n4.sessions, "row_of", lambda seid: None)
        n4.establish()
        n4.run(0.2)
    assert [one["cause"] for one in upf.saw["answers"]] == [65, 65]


def test_churn_and_handover_beside_sessions_that_stay() -> None:
    changes = {
        "churn": {"group": "g1", "sessions_per_s": 40, "lifetime_s": 0.2},
        "handover": {"group": "g0", "users_per_s": 30},
    }
    with peer() as upf, smf({"sessions": 6, "gnb": "a"}, {"sessions": 200}, **changes) as n4:
        n4.associate()
        n4.establish()
        assert n4.establishing.statistics.accepted == 6
        loads = Loads(n4)
        with Background(n4):
            loads.start(time.monotonic_ns())
            wait_until(lambda: moved_and_deleted(loads, 13))  # each of the 6 users to and fro
        loads.stop()
        assert loads.churn is not None and loads.handover is not None
        done = loads.churn.establishing.statistics
        assert 0 < done.requested == done.accepted == loads.churn.deleting.statistics.accepted
        assert done.requested <= loads.churn.rate.intended(time.monotonic_ns()) <= 40 * 20
        moves = loads.handover.moves
        assert len(moves[0]) == loads.handover.moving.statistics.accepted > 6
        # Each user in turn, to and fro; in the end everybody is where the last move took him.
        assert list(moves[1][:6]) == [0, 1, 2, 3, 4, 5]
        last = dict(zip(moves[1], moves[2], strict=True))
        assert n4.sessions.gnb[:6].tolist() == [last.get(row, 0) for row in range(6)]
        assert (n4.sessions.state[:6] == ESTABLISHED).all()
        n4.end()
        assert not failed(n4, loads)
        told = document(n4, loads)
        assert told["churn_intended"] >= done.requested
    assert upf.saw["sessions"] == {}
    moved = [one["far"] for one in upf.saw["log"] if one["far"]["end_marker"]]
    assert [one["gnb"] for one in moved[:7]] == ["198.51.100.10"] * 6 + ["198.51.100.9"]
    assert [one["teid"] for one in moved[:6]] == [1, 2, 3, 4, 5, 6]
    assert len(moved) == len(moves[0])


def test_a_upf_that_dies_under_load_ends_the_load() -> None:
    changes = {
        "churn": {"group": "g1", "sessions_per_s": 50, "lifetime_s": 0.2},
        "handover": {"group": "g0", "users_per_s": 20},
    }
    with peer() as upf, smf({}, {"sessions": 100}, **{**changes, "t1_s": 0.4, "n1": 2}) as n4:
        loads = Loads(n4)
        n4.associate()
        n4.establish()
        with Background(n4):
            loads.start(time.monotonic_ns())
            wait_until(lambda: moved_and_deleted(loads, 5))
            upf.kill()
            wait_until(lambda: not n4.alive)
        loads.stop()
        assert [event.kind for event in n4.events] == ["associated", "gone"]
        assert failed(n4, loads)
        assert not n4.exchange.outstanding
        for one in loads.operations().values():
            assert one.statistics.outstanding == 0
        assert not np.count_nonzero(n4.sessions.state == ESTABLISHED)


def test_users_are_written_as_csv(tmp_path: Path) -> None:
    with peer(), smf() as n4:
        n4.associate()
        n4.establish()
        write_users(tmp_path / "users.csv", n4.sessions)
    lines = (tmp_path / "users.csv").read_text().splitlines()
    assert lines[0].startswith("group,state,ue_v4,ue_v6,local_seid")
    assert lines[5].split(",")[:5] == ["g0", "established", "10.45.0.5", "", "5"]


def test_ctrl_c_deletes_what_was_established(tmp_path: Path) -> None:
    config = tmp_path / "n4.yaml"
    gnbs, group = {"a": "198.51.100.9"}, {"name": "base", "sessions": 5, "ue_addresses": "10.45.0.1/24"}
    config.write_text(json.dumps({"upf": {"n4": UPF, "bind": SMF, "gnbs": gnbs, "groups": [group], **PATIENT}}))
    users = tmp_path / "users.csv"
    command = [
        sys.executable,
        "-m",
        "pktswarm.master.cli.app",
        "sessions",
        str(config),
        "--hold",
        "60",
        "--users",
        str(users),
        "--results",
        str(tmp_path / "results"),
    ]
    with peer() as upf, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: users.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=40)
        assert (process.returncode, words) == (3, "pktswarm: interrupted\n")
        assert upf.saw["seen"] == {"5": 1, "1": 1, "50": 5, "54": 5, "9": 1}
        assert upf.saw["sessions"] == {}
    assert list((tmp_path / "results").iterdir()) == []


def test_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "n4.yaml"
    section = {
        "n4": UPF,
        "bind": SMF,
        "gnbs": {"a": "198.51.100.9"},
        "groups": [{"name": "base", "sessions": 5, "ue_addresses": "10.45.0.1/24", "core_instance": "internet"}],
        **PATIENT,
    }
    config.write_text(json.dumps({"upf": section}))
    results = tmp_path / "results"
    command = [sys.executable, "-m", "pktswarm", "sessions", str(config), "--results", str(results), "--json"]
    with peer() as upf:
        made = subprocess.run(command, capture_output=True, text=True, timeout=60)
        (folder,) = results.glob("*-n4-sessions")
        assert (made.returncode, made.stderr) == (0, f"report: {folder}/report.html\n")
        printed = json.loads(made.stdout)
        assert printed["groups"][0]["states"] == {"deleted": 5} and printed["results"] == str(folder)
        assert {"results": str(folder), **json.loads((folder / "sessions.json").read_text())} == printed
        assert len((folder / "sessions.csv").read_text().splitlines()) == 6
        assert "5 deleted" in (folder / "report.html").read_text()
        assert upf.saw["sessions"] == {}
    with peer(refuse={"50": 75}):
        made = subprocess.run(command[:-1], capture_output=True, text=True, timeout=60)
        assert made.returncode == 3
        assert "5 x group base: no resources available (75)" in made.stdout
    config.write_text(json.dumps({"upf": {**section, "n4": "no"}}))
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert made.returncode == 2
    assert made.stderr == f"pktswarm: {config}: upf.n4 = 'no': must be an IPv4 or IPv6 address\n"
