"""Whether a node can send with the engine tc."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from pktswarm.nodes import availability, clones, engines, libbpf
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders import ways_out
from pktswarm.traffic.errors import EngineError


def test_the_kernel_s_result_is_told_in_words() -> None:
    assert clones.why_not(1) == "its ring or its qdisc dropped the frame"
    assert clones.why_not(2) == "its qdisc dropped a frame"
    assert clones.why_not(2**32 - errno.ENETDOWN) == "the kernel refuses clones: Network is down"


def test_no_interface_is_no_program() -> None:
    assert clones.trouble(Interface("none0")) == "none0 is not there, or has no carrier"


def test_an_old_kernel_and_a_missing_object_are_reasons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libbpf, "missing", lambda: "")
    monkeypatch.setattr(libbpf, "kernel", lambda: (5, 10))
    assert availability.tc_sender() == ""
    assert availability.xdp_sender() == "Linux 5.10 has no XDP live frames (5.18 has)"
    monkeypatch.setattr(libbpf, "kernel", lambda: (5, 9))
    assert availability.tc_sender() == "it needs Linux 5.10, this is 5.9"
    monkeypatch.setattr(libbpf, "kernel", lambda: (6, 1))
    monkeypatch.setattr(availability, "CLONER", tmp_path / "send_tc.o")
    assert availability.tc_sender() == "nodes/bpf/send_tc.o is not there (kernel/build.sh compiles it)"


def test_both_field_engines_are_tried_on_an_interface() -> None:
    assert [name for name, known in engines.SENDERS.items() if known.unfit] == ["xdp", "tc"]


def test_32_bit_arm_sends_clones_without_callbacks_and_counts_without_tail_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(availability, "CONFIGURATION", tmp_path / "config.gz")
    monkeypatch.setattr(availability, "BOOT", tmp_path)
    uname = os.uname_result(("Linux", "board", "6.1.0-50-armmp", "#1", "armv7l"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert availability.tc_sender() == ""
    why = "the kernel of armv7l does not compile a program with callbacks"
    assert availability.xdp_sender() == why
    assert availability.xdp_receiver() == libbpf.missing()
    assert availability.counter() == availability.PLAIN_COUNTER
    assert availability.tail_calls() == "the kernel of armv7l takes no tail call in a program with functions"
    assert ways_out.CLONES.program_for((6, 1), noisy=False) == availability.PLAIN_CLONER
    (tmp_path / "config-6.1.0-50-armmp").write_text("CONFIG_BPF=y\nCONFIG_BPF_JIT_ALWAYS_ON=y\n")
    only = "the kernel of armv7l compiles no program with functions, and interprets none (CONFIG_BPF_JIT_ALWAYS_ON=y)"
    assert availability.tc_sender() == availability.xdp_receiver() == only
    (tmp_path / "config.gz").write_bytes(gzip.compress(b"# CONFIG_BPF_JIT_ALWAYS_ON is not set\n"))
    assert availability.tc_sender() == ""
    with pytest.raises(EngineError, match=rf"tc: random payload: {why} \(allowed: fill or hex"):
        ways_out.CLONES.program_for((6, 1), noisy=True)
