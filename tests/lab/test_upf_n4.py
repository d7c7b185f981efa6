"""The lab's UPF on N4: what it agrees to, what it refuses and why, and what it says of itself."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.contrib import pfcp
from scapy.contrib.gtp import GTP_U_Header
from scapy.packet import Packet

from pktswarm.lab.upf.ie import Cause
from upf_ends import (
    SMF_SEID,
    TEID_UP,
    Ends,
    apply_action,
    cause,
    faulty,
    qer,
    up_far,
    update_far,
    urr,
    user4,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

CHOOSE_BOTH = 0b110
"""CHV4 and CHV6 among the five bits that scapy calls spare."""


@pytest.fixture
def ends(lab_ends: Ends) -> Iterator[Ends]:
    """Newly associated: without any session."""
    assert cause(lab_ends.associate()) == Cause.ACCEPTED
    yield lab_ends


def own_seid(answer: Packet) -> int:
    assert cause(answer) == Cause.ACCEPTED
    return int(answer[pfcp.IE_FSEID].seid)


def offending(answer: Packet) -> int:
    return int(answer[pfcp.IE_OffendingIE].type) if answer.haslayer(pfcp.IE_OffendingIE) else 0


def test_an_association_tells_what_the_upf_can(ends: Ends) -> None:
    answer = ends.associate()
    assert answer[pfcp.IE_NodeId].ipv4 == ends.upf.n4_ipv4
    features = answer[pfcp.IE_UPFunctionFeatures]
    assert (features.FTUP, features.EMPU, features.BUCP) == (1, 1, 0)
    assert ends.ask(pfcp.PFCPAssociationReleaseRequest(IE_list=[ends.node_id()]))[pfcp.IE_Cause].cause == Cause.ACCEPTED
    assert cause(ends.ask(pfcp.PFCPAssociationReleaseRequest(IE_list=[ends.node_id()]))) == Cause.NO_ASSOCIATION
    assert cause(ends.establish()) == Cause.NO_ASSOCIATION


def test_heartbeats_have_a_recovery_time_stamp_that_stays(ends: Ends) -> None:
    first = ends.associate()[pfcp.IE_RecoveryTimeStamp].timestamp
    request = pfcp.PFCPHeartbeatRequest(IE_list=[pfcp.IE_RecoveryTimeStamp(timestamp=1)])
    assert ends.ask(request)[pfcp.IE_RecoveryTimeStamp].timestamp == first
    assert 0 <= time.time() + 2_208_988_800 - first < 3600


def test_a_session_lives_and_ends(ends: Ends) -> None:
    answer = ends.establish()
    seid = own_seid(answer)
    assert answer.seid == SMF_SEID
    assert answer[pfcp.IE_FSEID].ipv4 == ends.upf.n4_ipv4
    assert ends.tell({"status": {}})["sessions"] == 1
    assert cause(ends.modify(seid, update_far(2, ends.gnb.ipv4, 0x3001))) == Cause.ACCEPTED
    answer = ends.delete(seid)
    assert (cause(answer), answer.seid) == (Cause.ACCEPTED, SMF_SEID)
    assert ends.tell({"status": {}})["sessions"] == 0
    answer = ends.delete(seid)
    assert (cause(answer), answer.seid) == (Cause.SESSION_NOT_FOUND, 0)
    assert cause(ends.modify(seid)) == Cause.SESSION_NOT_FOUND


def test_a_request_that_comes_again_is_done_once(ends: Ends) -> None:
    body = pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), *ends.session()])
    answers = []
    sequence = ends.send(body, 0)
    for _ in range(2):
        answers.append(ends.next_message()[1])
        ends.send(body, 0, sequence)
    answers.append(ends.next_message()[1])
    assert answers[0] == answers[1] == answers[2]
    assert ends.tell({"status": {}})["sessions"] == 1


def test_a_second_smf_may_number_its_requests_as_the_first_did(ends: Ends) -> None:
    """Byte for byte the same: after its association is set up they are new requests."""
    recovery = pfcp.IE_RecoveryTimeStamp(timestamp=7)
    setup = pfcp.PFCPAssociationSetupRequest(IE_list=[ends.node_id(), recovery])
    body = pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), *ends.session()])
    seids = []
    for _ in range(2):
        ends.send(setup, sequence=1)
        assert cause(ends.next_message()[0]) == Cause.ACCEPTED
        ends.send(body, 0, sequence=2)
        seids.append(own_seid(ends.next_message()[0]))
        assert ends.tell({"status": {}})["sessions"] == 1
    assert seids[0] != seids[1]


def test_teids_and_addresses_are_chosen_where_asked_for(ends: Ends) -> None:
    teid = pfcp.IE_FTEID(CH=1, CHID=1, V4=1, choose_id=5)
    ue = pfcp.IE_UE_IP_Address(spare=CHOOSE_BOTH, SD=1)
    seen: set[Any] = set()
    for _ in range(3):
        answer = ends.establish(*ends.session(teid=teid, ue=ue))
        own_seid(answer)
        created = [one for one in answer.IE_list if isinstance(one, pfcp.IE_CreatedPDR)]
        assert [one[pfcp.IE_PDR_Id].id for one in created] == [1, 2]
        local, user = created[0][pfcp.IE_FTEID], created[1][pfcp.IE_UE_IP_Address]
        assert (local.V4, local.CH, local.ipv4) == (1, 0, ends.upf.n3_ipv4)
        assert (user.V4, user.V6) == (1, 1)
        seen |= {local.TEID, user.ipv4, user.ipv6}
    assert len(seen) == 9


def test_one_choice_serves_all_pdrs_of_its_number(ends: Ends) -> None:
    teid = pfcp.IE_FTEID(CH=1, CHID=1, V4=1, choose_id=5)
    first, *rest = ends.session(teid=teid)
    third = ends.up_pdr([], teid)
    third.IE_list[0].id = 3
    answer = ends.establish(first, third, *rest)
    own_seid(answer)
    created = [one[pfcp.IE_FTEID].TEID for one in answer.IE_list if isinstance(one, pfcp.IE_CreatedPDR)]
    assert len(created) == 2 and len(set(created)) == 1


def without(packet: Packet, kind: type) -> Packet:
    """A copy with the first element of that kind, however deep, taken out."""
    copy = packet.copy()
    for one in [copy, *[each for each in copy.IE_list if hasattr(each, "IE_list")]]:
        for each in one.IE_list:
            if isinstance(each, kind):
                one.IE_list.remove(each)
                return copy
    raise AssertionError("there is none")


def test_a_session_with_a_part_missing_is_refused(ends: Ends) -> None:
    up, down, far_up, far_down = ends.session()
    cases = [
        ([without(up, pfcp.IE_PDR_Id), down, far_up, far_down], Cause.MANDATORY_MISSING, 56),
        ([without(up, pfcp.IE_Precedence), down, far_up, far_down], Cause.MANDATORY_MISSING, 29),
        ([without(up, pfcp.IE_FTEID), down, far_up, far_down], Cause.CONDITIONAL_MISSING, 21),
        ([without(up, pfcp.IE_FAR_Id), down, far_up, far_down], Cause.CONDITIONAL_MISSING, 108),
        ([without(up, pfcp.IE_OuterHeaderRemoval), down, far_up, far_down], Cause.CONDITIONAL_MISSING, 95),
        ([up, without(down, pfcp.IE_UE_IP_Address), far_up, far_down], Cause.CONDITIONAL_MISSING, 93),
        ([up, down, without(far_up, pfcp.IE_ApplyAction), far_down], Cause.MANDATORY_MISSING, 44),
        ([up, down, far_up, without(far_down, pfcp.IE_OuterHeaderCreation)], Cause.CONDITIONAL_MISSING, 84),
        ([up, down], Cause.MANDATORY_MISSING, 3),
        ([far_up], Cause.MANDATORY_MISSING, 1),
    ]
    for rules, why, element in cases:
        answer = ends.establish(*rules)
        assert (cause(answer), offending(answer), answer.seid) == (why, element, SMF_SEID), (why, element)
    assert ends.tell({"status": {}})["sessions"] == 0
    own_seid(ends.establish())  # nothing of those stayed


def failed_rule(answer: Packet) -> tuple[int, int]:
    data = bytes(answer[pfcp.IE_FailedRuleId])
    return data[4], int.from_bytes(data[5:], "big")


def test_a_rule_that_cannot_be_is_named(ends: Ends) -> None:
    up, down, far_up, far_down = ends.session()
    answer = ends.establish(up, down, far_up)
    assert (cause(answer), failed_rule(answer)) == (Cause.RULE_FAILURE, (0, 2))
    answer = ends.establish(up, down, far_up, far_down, far_down)
    assert (cause(answer), failed_rule(answer)) == (Cause.RULE_FAILURE, (1, 2))
    own_seid(ends.establish())
    answer = ends.establish(seid=SMF_SEID + 1)  # its TEID is another's
    assert (cause(answer), failed_rule(answer)) == (Cause.RULE_FAILURE, (0, 1))


def test_a_teid_on_another_address_is_refused(ends: Ends) -> None:
    answer = ends.establish(*ends.session(teid=pfcp.IE_FTEID(V4=1, TEID=TEID_UP, ipv4="192.0.2.77")))
    assert (cause(answer), offending(answer)) == (Cause.MANDATORY_INCORRECT, 21)


def test_what_it_cannot_do_is_refused_not_passed_over(ends: Ends) -> None:
    flow = pfcp.IE_SDF_Filter(FD=1, flow_description="deny out ip from any to assigned")
    assert offending(ends.establish(*ends.session(flow=flow))) == 23
    up, *rest = ends.session()
    up.IE_list.append(pfcp.IE_ActivatePredefinedRules(name="gold"))
    answer = ends.establish(up, *rest)
    assert (cause(answer), offending(answer)) == (Cause.UNKNOWN_PREDEFINED_RULE, 106)
    up.IE_list[-1] = pfcp.IE_ActivatePredefinedRules(name="simplest")
    own_seid(ends.establish(up, *rest))


def test_a_change_that_is_refused_changes_nothing(ends: Ends) -> None:
    seid = own_seid(ends.establish())
    gone = pfcp.IE_RemovePDR(IE_list=[pfcp.IE_PDR_Id(id=1)])
    bad = pfcp.IE_UpdateFAR(IE_list=[pfcp.IE_FAR_Id(id=99), apply_action(2)])
    answer = ends.modify(seid, gone, bad)
    assert (cause(answer), failed_rule(answer)) == (Cause.RULE_FAILURE, (1, 99))
    ends.up(user4())
    assert ends.at_server(1) == [user4()]


def test_rules_come_and_go(ends: Ends) -> None:
    seid = own_seid(ends.establish())
    more = ends.up_pdr([], pfcp.IE_FTEID(V4=1, TEID=0x5005, ipv4=ends.upf.n3_ipv4))
    more.IE_list[0].id = 7
    more.IE_list[4].id = 7
    far = up_far()
    far.IE_list[0].id = 7
    assert cause(ends.modify(seid, more, far)) == Cause.ACCEPTED
    ends.up(user4(number=1), teid=0x5005)
    assert ends.at_server(1) == [user4(number=1)]
    remove = [
        pfcp.IE_RemovePDR(IE_list=[pfcp.IE_PDR_Id(id=7)]),
        pfcp.IE_RemoveFAR(IE_list=[pfcp.IE_FAR_Id(id=7)]),
    ]
    assert cause(ends.modify(seid, *remove)) == Cause.ACCEPTED
    ends.up(user4(number=2), teid=0x5005)
    assert ends.at_server() == []
    (answer,) = ends.at_gnb()
    assert answer[GTP_U_Header].gtp_type == 26  # an error indication


def test_usage_is_reported_when_asked_for_and_at_the_end(ends: Ends) -> None:
    seid = own_seid(ends.establish(*ends.session(urrs=[urr(packets=True)])))
    for number in range(3):
        ends.up(user4(100, number))
    ends.down(user4(60, down=True))
    ends.at_server(3), ends.at_gnb(1)
    query = pfcp.IE_QueryURR(IE_list=[pfcp.IE_URR_Id(id=1)])
    volume = ends.modify(seid, query)[pfcp.IE_VolumeMeasurement]
    assert (volume.total, volume.uplink, volume.downlink) == (360, 300, 60)
    assert struct.unpack(">3Q", volume.extra_data) == (4, 3, 1)
    ends.up(user4(200))
    ends.at_server(1)
    answer = ends.delete(seid)
    volume = answer[pfcp.IE_VolumeMeasurement]
    assert (volume.total, volume.uplink, volume.downlink) == (200, 200, 0)
    assert answer[pfcp.IE_UR_SEQN].number == 1
    assert answer[pfcp.IE_UsageReportTrigger].TERMR == 1


def test_another_setup_of_the_association_ends_its_sessions(ends: Ends) -> None:
    own_seid(ends.establish())
    ends.associate()
    assert ends.tell({"status": {}})["sessions"] == 0
    own_seid(ends.establish())


def test_every_second_session_is_refused_when_asked_for(ends: Ends) -> None:
    with faulty(ends, n4={"refuse_every": 2, "cause": 75}):
        found = []
        for number in range(4):
            teid = pfcp.IE_FTEID(V4=1, TEID=100 + number, ipv4=ends.upf.n3_ipv4)
            ue = pfcp.IE_UE_IP_Address(V4=1, SD=1, ipv4=f"10.45.1.{number}")
            found.append(cause(ends.establish(*ends.session(teid=teid, ue=ue))))
    assert found == [1, 75, 1, 75]


def test_requests_and_answers_are_lost_when_asked_for(ends: Ends) -> None:
    body = pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), *ends.session()])
    with faulty(ends, n4={"lose_request_every": 3, "lose_answer_every": 1}):
        sequence = ends.send(body, 0)
        ends.send(body, 0, sequence)
        with pytest.raises(AssertionError, match="says nothing"):
            ends.next_message(0.3)
        assert ends.tell({"status": {}})["sessions"] == 1
    ends.send(body, 0, sequence)
    assert cause(ends.next_message()[0]) == Cause.ACCEPTED


def test_answers_come_late_when_asked_for(ends: Ends) -> None:
    with faulty(ends, n4={"delay_ms": 300}):
        before = time.monotonic()
        own_seid(ends.establish())
        assert time.monotonic() - before >= 0.3


def test_a_restart_forgets_and_is_seen_by_its_time_stamp(ends: Ends) -> None:
    before = ends.associate()[pfcp.IE_RecoveryTimeStamp].timestamp
    seid = own_seid(ends.establish())
    ends.tell({"restart": {}})
    request = pfcp.PFCPHeartbeatRequest(IE_list=[pfcp.IE_RecoveryTimeStamp(timestamp=1)])
    assert ends.ask(request)[pfcp.IE_RecoveryTimeStamp].timestamp > before
    assert cause(ends.modify(seid)) == Cause.SESSION_NOT_FOUND
    assert cause(ends.establish()) == Cause.NO_ASSOCIATION
    ends.up(user4())
    assert ends.at_server() == []
    assert len(ends.at_gnb()) == 1  # an error indication


def test_random_bytes_do_not_end_it(ends: Ends) -> None:
    seeded = random.Random(5)
    body = pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), *ends.session()])
    valid = bytes(pfcp.PFCP(version=1, S=1, seid=0, seq=9) / body)
    for count in range(2000):
        data = bytearray(valid)
        for _ in range(seeded.randint(1, 6)):
            data[seeded.randrange(len(data))] = seeded.randrange(256)
        if seeded.random() < 0.3:
            del data[seeded.randrange(16, len(data)) :]
            data[2:4] = (len(data) - 4).to_bytes(2, "big")
        ends.n4.sendto(data, (ends.upf.n4_ipv4, 8805))
        if count % 100 == 99:  # no more at once than the sockets hold
            heartbeat = ends.send(pfcp.PFCPHeartbeatRequest(IE_list=[pfcp.IE_RecoveryTimeStamp(timestamp=2)]))
            while (answer := ends.next_message()[0]).message_type != 2 or answer.seq != heartbeat:
                pass
    assert cause(ends.associate()) == Cause.ACCEPTED
    assert ends.tell({"status": {}})["sessions"] == 0


def test_wireshark_has_nothing_to_say_against_its_messages(ends: Ends, tmp_path: Path) -> None:
    teid = pfcp.IE_FTEID(CH=1, CHID=1, V4=1, choose_id=5)
    ue = pfcp.IE_UE_IP_Address(spare=CHOOSE_BOTH, SD=1)
    rules = ends.session(teid=teid, ue=ue, qers=[qer(mbr_kbps=(1000, 2000), qfi=9)], urrs=[urr(packets=True), urr(2)])
    requests: list[tuple[Packet, int | None]] = [
        (pfcp.PFCPHeartbeatRequest(IE_list=[pfcp.IE_RecoveryTimeStamp(timestamp=1)]), None),
        (pfcp.PFCPAssociationSetupRequest(IE_list=[ends.node_id(), pfcp.IE_RecoveryTimeStamp(timestamp=1)]), None),
        (pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), *rules]), 0),
        (pfcp.PFCPSessionEstablishmentRequest(IE_list=[ends.node_id(), ends.f_seid(), rules[0]]), 0),
        (pfcp.PFCPSessionModificationRequest(IE_list=[pfcp.IE_QueryURR(IE_list=[pfcp.IE_URR_Id(id=1)])]), None),
        (pfcp.PFCPSessionModificationRequest(IE_list=[update_far(12)]), None),
        (pfcp.PFCPSessionDeletionRequest(IE_list=[]), None),
        (pfcp.PFCPAssociationReleaseRequest(IE_list=[ends.node_id()]), None),
    ]
    messages, seid = [], 0
    for body, to in requests:
        of_session = isinstance(body, pfcp.PFCPSessionModificationRequest | pfcp.PFCPSessionDeletionRequest)
        ends.send(body, seid if of_session else to)
        answer, data = ends.next_message()
        messages.append(data)
        if answer.haslayer(pfcp.IE_FSEID):
            seid = answer[pfcp.IE_FSEID].seid
    capture = tmp_path / "n4.pcap"
    with capture.open("wb") as file:
        writer = dpkt.pcap.Writer(file)
        for data in messages:
            udp = dpkt.udp.UDP(sport=8805, dport=8805, data=data, ulen=8 + len(data))
            ip = dpkt.ip.IP(src=b"\xc0\0\2\2", dst=b"\xc0\0\2\1", p=17, data=udp, len=28 + len(data))
            writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=ip, type=0x0800)))
    told = _tshark(capture, "-T", "fields", "-e", "pfcp.msg_type", "-e", "_ws.expert.message", "-e", "_ws.malformed")
    assert [line.split("\t") for line in told] == [[str(kind), "", ""] for kind in (2, 6, 51, 51, 53, 53, 55, 10)]
    supported = {line.split()[-2].rstrip(":") for line in _tshark(capture, "-V") if line.endswith(": Supported")}
    assert supported == {"FTUP", "EMPU", "UEIP", "MNOP"}


def _tshark(capture: Path, *more: str) -> list[str]:
    command = ["tshark", "-r", str(capture), *more]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.waits
def test_an_smf_that_answers_no_heartbeats_is_dropped_with_its_sessions(ends: Ends) -> None:
    own_seid(ends.establish())
    ends.answers_heartbeats = False
    try:
        deadline = time.monotonic() + 40
        while ends.tell({"status": {}})["associations"] and time.monotonic() < deadline:
            time.sleep(0.1)
        status = ends.tell({"status": {}})
        assert (status["associations"], status["sessions"]) == (0, 0)
    finally:
        ends.answers_heartbeats = True
