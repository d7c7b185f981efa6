"""The translation of filters as text and bytes; what it does to frames is in tests/lab/test_xdp_filter.py."""

from __future__ import annotations

import struct
import sys

import pytest

from pktswarm.traffic.capture import ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.capture.cbpf import LOAD_WORD, RETURN, VLAN_TCI, Instruction
from pktswarm.traffic.errors import BadInput


def test_the_maps_descriptors_are_put_in_on_the_node() -> None:
    program = ebpf.translate([Instruction(LOAD_WORD, 0, 0, 4), Instruction(RETURN, 0, 0, 1)])
    made = ebpf.native(ebpf.to_hex(program), {ebpf.COUNTING: 77, ebpf.FILTERED: 78})
    assert len(made) == 8 * len(program)
    loads = [imm for code, _, _, imm in struct.iter_unpack("=BBhi", made) if code == 0x18]
    assert sorted(loads) == [77, 78]


def test_registers_are_in_this_machines_order() -> None:
    first = ebpf.native(ebpf.to_hex(ebpf.translate([Instruction(RETURN, 0, 0, 1)])), {0: 0, 1: 0})[:8]
    assert first[1] == (0x16 if sys.byteorder == "little" else 0x61), "r6 = r1"


def test_what_only_a_packet_socket_knows_is_refused() -> None:
    with pytest.raises(BadInput, match="packet metadata that XDP does not have"):
        ebpf.translate([Instruction(LOAD_WORD, 0, 0, VLAN_TCI), Instruction(RETURN, 0, 0, 1)])


def test_a_scratch_word_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no such scratch word.*allowed: 0 to 15"):
        ebpf.translate([Instruction(0x60, 0, 0, 16), Instruction(RETURN, 0, 0, 1)])


def test_a_jump_that_is_too_far_is_refused() -> None:
    long = [Instruction(0x15, 9000, 0, 1), *[Instruction(LOAD_WORD, 0, 0, 4)] * 9000, Instruction(RETURN, 0, 0, 1)]
    with pytest.raises(BadInput, match="filter too long"):
        ebpf.translate(long)


@pytest.mark.skipif(bool(pcap.missing()), reason=pcap.missing())
def test_what_is_no_filter_is_told_in_libpcaps_words() -> None:
    with pytest.raises(BadInput, match=r"filter = 'udp prot 7': invalid filter: .*syntax error"):
        pcap.compile_ethernet("udp prot 7", "receive")
    assert pcap.compile_ethernet("vlan 10", "receive")[0].k == 12, "the tag is looked for in the frame"
