"""Kernels of boards often have no types of their own (BTF). They refuse a global function with the context as an
argument, so the programs are loaded with those checked at each call: tests of each program once more in that form.

This machine's kernel has types; that it accepts this form shows that its size is within the verifier's limit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import test_fragments
from pktswarm.nodes import libbpf
from test_upf_frames import namespace as namespace  # fixtures
from test_upf_frames import path as path
from test_upf_frames import test_every_changed_byte_ends_in_a_verdict as test_every_changed_byte_ends_in_a_verdict
from test_xdp_receiver_changes import test_damaged_payloads_are_exact as test_damaged_payloads_are_exact
from test_xdp_receiver_frames import test_a_stamp_is_found_in_every_shape as test_a_stamp_is_found_in_every_shape
from test_xdp_receiver_frames import (
    test_malformed_frames_never_stop_the_count as test_malformed_frames_never_stop_the_count,
)
from test_xdp_sender_frames import (
    test_frames_are_the_templates_byte_for_byte as test_frames_are_the_templates_byte_for_byte,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
LINKAGE_STATIC, LINKAGE_GLOBAL = 0, 1


@pytest.fixture(autouse=True)
def without_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libbpf, "KERNEL_TYPES", tmp_path / "vmlinux")


@pytest.mark.parametrize(
    "name", ["count.o", "count_plain.o", "echo.o", "send.o", "send_tc.o", "send_tc_plain.o", "switch.o", "upf.o"]
)
def test_only_functions_with_the_context_are_checked_by_call(name: str) -> None:
    with libbpf.BpfObject(libbpf.OBJECTS / name) as one:
        before = one.types().linkages()
        one.types().make_static()
        after = one.types().linkages()
    assert set(before.values()) <= {LINKAGE_STATIC, LINKAGE_GLOBAL}
    changed = {function for function in before if before[function] != after[function]}
    assert {"parse_ip", "copy_part", "find_gtpu"} & set(before) <= changed
    assert not {"causes_of", "forget", "cover", "conforms"} & changed


class TestFragments:
    bench = test_fragments.bench
    test_a_changed_byte = staticmethod(test_fragments.test_a_byte_that_is_changed_in_any_fragment_is_seen)
    test_a_whole_packet = staticmethod(test_fragments.test_a_packet_counts_once_when_all_of_it_has_come)
    test_a_sent_packet = staticmethod(test_fragments.test_random_payload_and_python_agree_with_the_kernel)
