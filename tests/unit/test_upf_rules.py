"""What the lab's UPF reads: PFCP headers and elements, flow descriptions, orders for faults."""

import re
import struct
from typing import Any

import pytest

from pktswarm.lab.upf import faults, ie
from pktswarm.lab.upf.faults import N4Faults
from pktswarm.lab.upf.ie import Cause, Refused
from pktswarm.lab.upf.rules import Filter, read_filter
from pktswarm.traffic.errors import BadInput


def sdf(text: str) -> bytes:
    return b"\x01\x00" + struct.pack(">H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("permit out ip from any to assigned", Filter()),
        ("permit out ip from 0.0.0.0/0 to assigned", Filter()),
        ("permit out 17 from 10.60.0.0/16 to assigned", Filter(b"\x0a\x3c\0\0", b"\xff\xff\0\0", protocol=17)),
        (
            "permit out 6 from 10.60.0.1 80 to any",
            Filter(b"\x0a\x3c\0\x01", b"\xff" * 4, ports=(80, 80), protocol=6),
        ),
        ("permit out 17 from any 5000-6000 to assigned", Filter(ports=(5000, 6000), protocol=17)),
    ],
)
def test_a_flow_description_is_read(text: str, found: Filter) -> None:
    assert read_filter(sdf(text)) == found


@pytest.mark.parametrize(
    "value",
    [
        sdf("permit in ip from any to assigned"),
        sdf("deny out ip from any to assigned"),
        sdf("permit out ip from 10.0.0.300 to assigned"),
        sdf("permit out ip from any 1,2 to assigned"),
        sdf("permit out ip from any 9-1 to assigned"),
        sdf("permit out 300 from any to assigned"),
        sdf(""),
        b"\x10\x00\x00\x00\x00\x01",
        b"",
    ],
)
def test_a_flow_description_that_cannot_be_done_is_refused(value: bytes) -> None:
    with pytest.raises(Refused) as error:
        read_filter(value)
    assert (error.value.cause, error.value.offending) == (Cause.NOT_SUPPORTED, ie.Ie.SDF_FILTER)


def test_a_message_is_read_as_it_was_written() -> None:
    data = ie.message(52, 0x123456, b"body", seid=0xFEDCBA9876543210)
    assert ie.parse_header(data) == (52, 0xFEDCBA9876543210, 0x123456, 16)
    data = ie.message(1, 7, b"body")
    assert ie.parse_header(data) == (1, None, 7, 8)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "short"),
        (ie.message(1, 7, b"")[:7], "short"),
        (b"\x40" + ie.message(1, 7, b"")[1:], "version"),
        (ie.message(1, 7, b"xy")[:-1], "length"),
        (ie.message(1, 7, b"", seid=3), "SEID"),
        (ie.message(50, 7, b""), "SEID"),
    ],
)
def test_what_is_no_message_is_told(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ie.parse_header(data)


def test_an_element_longer_than_its_message_is_refused() -> None:
    assert list(ie.elements(ie.ie(19, b"\1") + ie.ie(56, b"\0\1"))) == [(19, b"\1"), (56, b"\0\1")]
    for data in (ie.ie(19, b"\1")[:-1], b"\0\x13", b"\0\x13\0"):
        with pytest.raises(Refused) as error:
            list(ie.elements(data))
        assert error.value.cause == Cause.INVALID_LENGTH


def test_faults_are_listed_by_direction_and_number() -> None:
    order = {
        "uplink": {"drop": [0, 7], "delay_ms": {"3": 20}, "hold": {"9": 2}},
        "downlink": {"wrong_teid": [4]},
        "n4": {"refuse_every": 10, "cause": 75},
    }
    found = faults.read(order)
    assert found.n4 == N4Faults(refuse_every=10, cause=75)
    assert {key: fault[:2] for key, fault in found.listed.items()} == {
        (0, 0): (1, 0),
        (0, 7): (1, 0),
        (0, 3): (3, 0),
        (0, 9): (4, 0),
        (0, 11): (0, 1),
        (1, 4): (2, 0),
    }
    assert found.listed[0, 3][2] == 20_000_000
    assert found.listed[0, 9][2] == 2
    assert faults.read({}) == faults.Faults()


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([], "faults = .*uplink, downlink, n4"),
        ({"sideways": {}}, "faults.sideways.*uplink, downlink, n4"),
        ({"uplink": {"wrong_teid": [1]}}, "uplink.wrong_teid.*drop, delay_ms, hold"),
        ({"uplink": {"drop": 3}}, r"uplink.drop = 3.*e.g. \[0, 7\]"),
        ({"uplink": {"drop": [-1]}}, "uplink.drop = -1.*0 to"),
        ({"uplink": {"drop": [True]}}, "uplink.drop = True"),
        ({"uplink": {"delay_ms": {"1": 0}}}, "uplink.delay_ms.1 = 0.*1 to 60000"),
        ({"uplink": {"delay_ms": {"x": 1}}}, "uplink.delay_ms = .*packet to value"),
        ({"uplink": {"drop": [1, 1]}}, "uplink.drop = 1.*two faults"),
        ({"uplink": {"drop": [2], "hold": {"1": 1}}}, "uplink.hold = 1.*fault of its own"),
        ({"n4": {"cause": 1}}, "n4.cause = 1.*64 to 255"),
        ({"n4": {"every": 1}}, "n4.every.*refuse_every, cause"),
        ({"n4": {"no_end_marker_every": -1}}, "n4.no_end_marker_every = -1.*0 to"),
        ({"n4": 7}, "n4 = 7"),
    ],
)
def test_an_order_that_cannot_be_is_refused(order: Any, message: str) -> None:
    with pytest.raises(BadInput) as error:
        faults.read(order)
    assert re.search(message, str(error.value), re.DOTALL)
