"""PTP: what pmc prints, and the bound of latencies between clocks that PTP steers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results.clock_faults import ClockFaults
from pktswarm.master.results.ptp_clocks import PtpClocks
from pktswarm.nodes import ptp
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.rank0_events import Clock

# As pmc 3.1.1 printed it of two ptp4l with software time stamps, less some fields.
AT_THE_MASTER = """\
sending: GET PORT_PROPERTIES_NP
sending: GET TIME_STATUS_NP
sending: GET CURRENT_DATA_SET
	6a9f77.fffe.c232ed-1 seq 0 RESPONSE MANAGEMENT PORT_PROPERTIES_NP
		portIdentity            6a9f77.fffe.c232ed-1
		portState               MASTER
		timestamping            SOFTWARE
		interface               v0
	6a9f77.fffe.c232ed-0 seq 1 RESPONSE MANAGEMENT TIME_STATUS_NP
		master_offset              0
		ingress_time               0
		cumulativeScaledRateOffset +0.000000000
		lastGmPhaseChange          0x0000'0000000000000000.0000
		gmPresent                  false
		gmIdentity                 6a9f77.fffe.c232ed
	6a9f77.fffe.c232ed-0 seq 2 RESPONSE MANAGEMENT CURRENT_DATA_SET
		stepsRemoved     0
		offsetFromMaster 0.0
		meanPathDelay    0.0
"""
FOLLOWING = """\
sending: GET PORT_PROPERTIES_NP
sending: GET TIME_STATUS_NP
sending: GET CURRENT_DATA_SET
	d2b1d0.fffe.17a123-1 seq 0 RESPONSE MANAGEMENT PORT_PROPERTIES_NP
		portIdentity            d2b1d0.fffe.17a123-1
		portState               SLAVE
		timestamping            SOFTWARE
		interface               v0
	d2b1d0.fffe.17a123-0 seq 1 RESPONSE MANAGEMENT TIME_STATUS_NP
		master_offset              -192
		ingress_time               1795777963864546406
		gmPresent                  true
		gmIdentity                 6a9f77.fffe.c232ed
	d2b1d0.fffe.17a123-0 seq 2 RESPONSE MANAGEMENT CURRENT_DATA_SET
		stepsRemoved     1
		offsetFromMaster -192.0
		meanPathDelay    1620.0
"""
GM = "6a9f77.fffe.c232ed"
FOLLOWS = PtpReading(37, "", "SLAVE", GM, -192, 1620)
LEADS = PtpReading(37, "", "MASTER", GM)
ALONE = PtpReading(37, "no ptp4l answers")


def test_the_report_of_a_port_that_follows_a_clock() -> None:
    assert ptp.parse(FOLLOWING, 37) == FOLLOWS


def test_the_report_of_the_grandmaster() -> None:
    assert ptp.parse(AT_THE_MASTER, 37) == LEADS


def test_a_boundary_clock_follows_by_one_of_its_ports() -> None:
    ports = AT_THE_MASTER.partition("TIME_STATUS_NP\n")[0] + FOLLOWING
    assert ptp.parse(ports, 37) == FOLLOWS


@pytest.mark.parametrize("state", ["UNCALIBRATED", "LISTENING", "FAULTY"])
def test_a_port_that_follows_no_clock_is_named(state: str) -> None:
    reading = ptp.parse(FOLLOWING.replace("SLAVE", state), 0)
    assert (reading.state, reading.problem, reading.offset_ns) == (state, f"the port of ptp4l is {state}", 0)


@pytest.mark.parametrize("text", [FOLLOWING, AT_THE_MASTER])
def test_with_hardware_time_stamps_the_system_clock_is_not_what_ptp4l_reports(text: str) -> None:
    reading = ptp.parse(text.replace("SOFTWARE", "HARDWARE"), 37)
    assert reading.problem == "ptp4l steers the clock of the card, and phc2sys the system's"


def test_an_offset_that_is_no_number_is_no_offset() -> None:
    reading = ptp.parse(FOLLOWING.replace("master_offset              -192", "master_offset              n/a"), 37)
    assert reading == PtpReading(37, "pmc's answer has no number as offset or path delay")


@pytest.mark.parametrize("text", ["", "sending: GET PORT_PROPERTIES_NP\n", FOLLOWING.replace("gmIdentity", "gm")])
def test_without_an_answer_nothing_is_known(text: str) -> None:
    assert ptp.parse(text, 37) == ALONE


def test_without_linuxptp_its_absence_is_the_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ptp.read().problem == "linuxptp is not installed"


def test_a_pmc_that_cannot_be_started_is_the_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pmc").write_text("no program")
    (tmp_path / "pmc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ptp.read().problem == "pmc does not start: Exec format error"


@pytest.mark.parametrize(("answers_at", "problem"), [(3, ""), (4, "no ptp4l answers")])
def test_an_answer_that_comes_late_is_asked_for_again(
    answers_at: int, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count, answer = tmp_path / "count", tmp_path / "answer"
    answer.write_text(FOLLOWING)
    program = f"echo x >>{count}\n[ $(wc -l <{count}) -lt {answers_at} ] || exec cat {answer}\n"
    (tmp_path / "pmc").write_text(f"#!/bin/sh\n{program}")
    (tmp_path / "pmc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert ptp.read().problem == problem
    assert count.read_text() == 3 * "x\n"


def node(name: str, utc_ns: int, readings: list[PtpReading], read_ns: int = 20_000) -> NodeState:
    """`utc_ns`: its UTC less the master's. `read_ns`: bound of each reading of its clock, half of the round trip."""
    made = NodeState(Rank(1, Host(name, "10.0.0.1", ("transmit",)), "transmit"), ptp=readings)
    whens: tuple[Literal["before", "start", "after"], ...] = ("before", "start", "after")
    for at_ns, when in enumerate(whens):
        offset_ns = len(name) * 10**9 if read_ns else 0  # CLOCK_MONOTONIC began at another time on each host
        made.clock[when] = Clock(1, when, at_ns, offset_ns, read_ns, 2 * read_ns, 10**18 + utc_ns - offset_ns)
    return made


def bound_ns(*nodes: NodeState) -> int | None:
    return PtpClocks(nodes).bound_ns("gnb", "core")


def test_the_offsets_of_the_servos_add_up() -> None:
    far = replace(FOLLOWS, offset_ns=250)
    assert bound_ns(node("gnb", 0, [LEADS, LEADS]), node("core", 900, [FOLLOWS, far])) == 250
    assert bound_ns(node("gnb", 0, [FOLLOWS, FOLLOWS]), node("core", 900, [FOLLOWS, far])) == 192 + 250


@pytest.mark.parametrize(
    "reading",
    [
        ALONE,
        replace(FOLLOWS, problem="the port of ptp4l is FAULTY"),
        replace(FOLLOWS, grandmaster="020000.fffe.000001"),
    ],
)
def test_without_a_servo_to_rely_on_the_readings_of_the_clocks_are_the_bound(reading: PtpReading) -> None:
    assert bound_ns(node("gnb", 0, [LEADS]), node("core", 900, [FOLLOWS, reading])) == 900 + 2 * 60_000


def test_a_servo_that_the_readings_exclude_is_not_relied_on() -> None:
    assert bound_ns(node("gnb", 0, [LEADS]), node("core", 120_191, [FOLLOWS])) == 192
    assert bound_ns(node("gnb", 0, [LEADS]), node("core", -120_193, [FOLLOWS])) == 240_193


def test_one_kernel_clock_cannot_differ_from_itself() -> None:
    """Both are the master's: a bound of 0 is that of one clock."""
    assert bound_ns(node("gnb", 0, [], read_ns=0), node("core", 70_000, [], read_ns=0)) == 0
    assert bound_ns(node("gnb", 0, [], read_ns=0), node("core", 70_000, [])) is None


def test_a_clock_that_was_not_read_has_no_bound() -> None:
    unread = node("core", 0, [FOLLOWS])
    unread.clock.clear()
    assert bound_ns(node("gnb", 0, [LEADS]), unread) is None


def test_unequal_tai_offsets_are_named() -> None:
    utc = replace(FOLLOWS, tai_offset_s=0)
    clocks = PtpClocks([node("gnb", 0, [LEADS]), node("core", 0, [utc, utc]), node("other", 0, [])])
    assert clocks.unequal("gnb", "core") == "TAI is UTC + 37 s on gnb and UTC + 0 s on core"
    assert clocks.unequal("gnb", "gnb") == clocks.unequal("gnb", "other") == ""


def test_unequal_tai_offsets_make_stamps_of_tai_useless() -> None:
    utc = replace(FOLLOWS, tai_offset_s=0)
    faults = ClockFaults([node("gnb", 0, [LEADS]), node("core", 0, [utc])], start_ns=0)
    leg = Leg(0, "s", "gnb", "core", "stream", engine="xdp")
    assert faults.of_stamps(leg, "core", tai=True) == "TAI is UTC + 37 s on gnb and UTC + 0 s on core"
    assert faults.of_stamps(leg, "core", tai=False) == ""
    assert faults.of_stamps(replace(leg, engine="pktgen"), "core", tai=True) == ""
    assert faults.of_stamps(replace(leg, echo_of=1), "core", tai=True) == ""


def test_the_notes_have_what_each_node_reports() -> None:
    far = replace(FOLLOWS, offset_ns=1250)
    nodes = [node("gnb", 0, [LEADS]), node("core", 0, [FOLLOWS, far]), node("far", 0, [ALONE, ALONE]), node("x", 0, [])]
    assert PtpClocks(nodes).notes([("gnb", "core")]) == [
        f"gnb: clock: ptp: it is the grandmaster, {GM}",
        f"core: clock: ptp: follows {GM}, offset at most 1,250 ns, path delay 1,620 ns",
        "far: clock: ptp: no bound by ptp4l: no ptp4l answers",
    ]


@pytest.mark.parametrize(
    ("utc_ns", "reading", "why"),
    [
        (900, replace(FOLLOWS, grandmaster="020000.fffe.000001"), "they follow different grandmasters"),
        (130_000, FOLLOWS, "by the readings the clocks are at least 10,000 ns apart"),
    ],
)
def test_a_pair_whose_servos_are_not_relied_on_has_a_note(utc_ns: int, reading: PtpReading, why: str) -> None:
    clocks = PtpClocks([node("gnb", 0, [LEADS]), node("core", utc_ns, [reading])])
    notes = clocks.notes([("gnb", "core"), ("gnb", "core")])
    assert notes[2:] == [f"gnb and core: clock: ptp: no bound by ptp4l: {why}"]


def test_of_two_ranks_of_a_host_the_one_with_a_task_has_the_reports() -> None:
    core = node("core", 900, [FOLLOWS])
    assert bound_ns(node("gnb", 0, [LEADS]), node("gnb", 0, []), core) == 192
    assert bound_ns(node("gnb", 0, []), node("gnb", 0, [LEADS]), core) == 192
