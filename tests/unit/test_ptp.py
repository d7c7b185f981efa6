"""PTP: what pmc prints, and the bound of latencies between clocks that PTP steers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results.ptp_clocks import PtpClocks
from pktswarm.nodes import ptp
from pktswarm.traffic.protocol.ptp_reading import PtpReading
from pktswarm.traffic.protocol.rank0_events import Clock

# As pmc 3.1.1 printed it of two ptp4l with software time stamps, less some fields.
AT_THE_MASTER = """\
sending: GET PORT_DATA_SET
sending: GET TIME_STATUS_NP
sending: GET CURRENT_DATA_SET
	6a9f77.fffe.c232ed-1 seq 0 RESPONSE MANAGEMENT PORT_DATA_SET
		portIdentity            6a9f77.fffe.c232ed-1
		portState               MASTER
		logMinDelayReqInterval  -3
		peerMeanPathDelay       0
		delayMechanism          1
		versionNumber           2
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
sending: GET PORT_DATA_SET
sending: GET TIME_STATUS_NP
sending: GET CURRENT_DATA_SET
	d2b1d0.fffe.17a123-1 seq 0 RESPONSE MANAGEMENT PORT_DATA_SET
		portIdentity            d2b1d0.fffe.17a123-1
		portState               SLAVE
		peerMeanPathDelay       0
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


@pytest.mark.parametrize("text", ["", "sending: GET PORT_DATA_SET\n", FOLLOWING.replace("gmIdentity", "gm")])
def test_without_an_answer_nothing_is_known(text: str) -> None:
    assert ptp.parse(text, 37) == ALONE


def test_without_linuxptp_its_absence_is_the_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ptp.read().problem == "linuxptp is not installed"


def node(name: str, utc_ns: int, readings: list[PtpReading], bound_ns: int = 20_000, **more: str) -> NodeState:
    """`utc_ns`: its UTC less the master's, read to twice 20 us and the round trip."""
    made = NodeState(Rank(1, Host(name, "10.0.0.1", ("transmit",)), "transmit"), ptp=readings)
    for at_ns, when in enumerate(("before", "start", "after")):
        # CLOCK_MONOTONIC began at another time on each host.
        offset_ns = len(name) * 10**9
        made.clock[when] = Clock(1, when, at_ns, offset_ns, bound_ns, 2 * bound_ns, 10**18 + utc_ns - offset_ns)  # type: ignore[arg-type]  # a literal
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
    class Report:
        clock = "boot time:[1]"

    nodes = node("gnb", 0, []), node("core", 70_000, [])
    assert bound_ns(*nodes) is None
    for each in nodes:
        each.report = Report()  # type: ignore[assignment]  # all that is read of it
    assert bound_ns(*nodes) == 0


def test_a_clock_that_was_not_read_has_no_bound() -> None:
    unread = node("core", 0, [FOLLOWS])
    unread.clock.clear()
    assert bound_ns(node("gnb", 0, [LEADS]), unread) is None


def test_unequal_tai_offsets_are_named() -> None:
    utc = replace(FOLLOWS, tai_offset_s=0)
    clocks = PtpClocks([node("gnb", 0, [LEADS]), node("core", 0, [utc, utc]), node("other", 0, [])])
    assert clocks.unequal("gnb", "core") == "TAI is UTC + 37 s on gnb and UTC + 0 s on core"
    assert clocks.unequal("gnb", "gnb") == clocks.unequal("gnb", "other") == ""


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
