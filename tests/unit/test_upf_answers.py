"""The decoder of what a UPF sends, against messages that scapy made; and the figures made of its answers."""

from __future__ import annotations

import numpy as np
import pytest
from scapy.contrib import pfcp
from scapy.packet import Packet

from pktswarm.master.upf import pfcp_decode
from pktswarm.master.upf.pfcp_decode import Answer, Malformed
from pktswarm.master.upf.signalling_load import Rate
from pktswarm.master.upf.statistics import Times
from pktswarm.traffic.counting.latency_histogram import bucket, middle


def read(message: Packet) -> Answer:
    data = bytes(message)
    return pfcp_decode.answer(data, len(data), pfcp_decode.header(data, len(data)).body)


def response(*elements: Packet, seid: int = 5, sequence: int = 7) -> Packet:
    return pfcp.PFCP(seid=seid, seq=sequence) / pfcp.PFCPSessionEstablishmentResponse(IE_list=list(elements))


RICH = response(
    pfcp.IE_NodeId(id_type=0, ipv4="192.0.2.8"),
    pfcp.IE_Cause(cause=1),
    pfcp.IE_FSEID(v4=1, v6=1, seid=2**63 + 5, ipv4="192.0.2.8", ipv6="2001:db8::8"),
    pfcp.IE_LoadControlInformation(IE_list=[pfcp.IE_SequenceNumber(number=1), pfcp.IE_Metric(metric=9)]),
    pfcp.IE_CreatedPDR(
        IE_list=[
            pfcp.IE_PDR_Id(id=1),
            pfcp.IE_FTEID(V4=1, V6=1, TEID=0xFFFFFFFE, ipv4="198.18.0.9", ipv6="2001:db8::9"),
        ]
    ),
    pfcp.IE_CreatedPDR(
        IE_list=[pfcp.IE_PDR_Id(id=2), pfcp.IE_UE_IP_Address(V4=1, V6=1, ipv4="10.0.0.7", ipv6="2001:db8::7")]
    ),
)


def test_everything_in_an_establishment_response() -> None:
    found = read(RICH)
    assert pfcp_decode.header(bytes(RICH), len(RICH))[:3] == (51, 5, 7)
    assert (found.cause, found.node_id, found.remote_seid) == (1, "192.0.2.8", 2**63 + 5)
    assert (found.teid, found.upf_v4) == (0xFFFFFFFE, 0xC6120009)
    assert found.upf_v6 is not None and found.upf_v6.hex() == "20010db8" + "0" * 22 + "09"
    assert found.ue_v4 == 0x0A000007
    assert found.ue_v6 is not None and found.ue_v6.hex() == "20010db8" + "0" * 22 + "07"


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([pfcp.IE_Cause(cause=80)], "unknown predefined rule (80)"),
        ([pfcp.IE_Cause(cause=99)], "unknown cause (99)"),
        (
            [pfcp.IE_Cause(cause=67), pfcp.IE_OffendingIE(type=113)],
            "conditional IE missing (67), offending IE: PDN Type (113)",
        ),
        (
            [pfcp.IE_Cause(cause=73), pfcp.IE_FailedRuleId(type=1, far_id=70000)],
            "rule creation or modification failure (73), failed rule: FAR 70000",
        ),
        (
            [pfcp.IE_Cause(cause=73), pfcp.IE_FailedRuleId(type=0, pdr_id=2)],
            "rule creation or modification failure (73), failed rule: PDR 2",
        ),
    ],
)
def test_causes_in_words(elements: list[Packet], words: str) -> None:
    assert read(response(*elements)).description == words


def test_usage_reports_tell_what_was_measured_and_nothing_else() -> None:
    volume = pfcp.IE_VolumeMeasurement(DLVOL=1, downlink=2**40)
    one = pfcp.IE_UsageReport_SDR(IE_list=[pfcp.IE_URR_Id(id=4), volume, pfcp.IE_DurationMeasurement(duration=9)])
    two = pfcp.IE_UsageReport_SDR(IE_list=[pfcp.IE_URR_Id(id=5)])
    found = read(response(pfcp.IE_Cause(cause=1), one, two)).usage
    assert found == [pfcp_decode.Usage(4, downlink_bytes=2**40, duration_s=9), pfcp_decode.Usage(5)]


def test_a_message_that_is_cut_is_malformed_and_nothing_worse() -> None:
    data = bytes(RICH)
    for length in range(len(data)):
        with pytest.raises(Malformed):
            pfcp_decode.header(data[:length], length)
    for length in range(16, len(data)):
        # The header's length is right, the last element's is not: it ends early, or in the middle of its value.
        cut = data[:2] + (length - 4).to_bytes(2, "big") + data[4:length]
        try:
            pfcp_decode.answer(cut, length, pfcp_decode.header(cut, length).body)
        except Malformed:
            pass


def test_any_byte_may_be_wrong() -> None:
    random = np.random.default_rng(5)
    for data in (bytes(RICH), bytes(response(pfcp.IE_Cause(cause=1)))):
        for _ in range(3000):
            wrong = bytearray(data)
            wrong[random.integers(len(wrong))] = random.integers(256)
            try:
                header = pfcp_decode.header(wrong, len(wrong))
                pfcp_decode.answer(wrong, len(wrong), header.body)
                pfcp_decode.report(wrong, len(wrong), header.body)
            except Malformed:
                pass


def test_features_of_short_and_long_lists() -> None:
    assert not pfcp_decode.chooses_teids(b"")
    assert pfcp_decode.chooses_teids(b"\x10\x00")
    assert not pfcp_decode.chooses_ue_addresses(b"\x10\x00")
    assert pfcp_decode.chooses_ue_addresses(bytes.fromhex("000004000000"))


def test_response_times_are_counted_as_the_counter_in_the_kernel_does() -> None:
    values = np.random.default_rng(2).lognormal(13, 2, 200_000).astype(np.int64)
    times = Times()
    for value in values.tolist():
        times.add(value)
    told = times.to_json()
    assert (told["count"], told["min_ns"], told["max_ns"]) == (len(values), values.min(), values.max())
    assert told["mean_ns"] == pytest.approx(values.mean())
    ordered = np.sort(values)
    assert told["p50_ns"] == middle(bucket(int(ordered[len(values) // 2 - 1])))
    assert told["p99_ns"] == middle(bucket(int(ordered[len(values) * 99 // 100 - 1])))


def test_no_response_has_no_times() -> None:
    assert Times().to_json() == {
        "count": 0,
        "min_ns": None,
        "mean_ns": None,
        "p50_ns": None,
        "p99_ns": None,
        "max_ns": None,
    }


def test_a_rate_is_due_at_its_instants_and_none_is_forgotten() -> None:
    rate = Rate(10)
    assert rate.intended(10**18) == 0
    rate.start_ns = 1_000
    assert (rate.next_ns, rate.intended(999), rate.intended(1_000)) == (1_000, 0, 1)
    assert rate.due(100, 1_000) == 1
    assert rate.next_ns == 100_001_000
    assert rate.due(3, 1_000_001_000) == 3
    assert rate.due(100, 1_000_001_000) == 7
    rate.stop_ns = 1_050_000_000
    assert rate.next_ns is None
    assert rate.intended(10**18) == 11
