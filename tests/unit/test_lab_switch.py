"""Which switch a lab has, and its limits."""

import re
from pathlib import Path

import pytest

from pktswarm.lab import api, plan
from pktswarm.lab.switch import xdp
from pktswarm.nodes import libbpf
from pktswarm.traffic.errors import BadInput


def test_the_default_is_what_machine_and_mtu_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xdp, "missing", lambda: "")
    assert api._switch("l", None, 1500) == ("xdp", [])
    assert api._switch("l", None, 9000) == ("bridge", ["the switches are bridges: an MTU of 9000 is above 3000"])
    assert api._switch("l", "bridge", 1500) == ("bridge", [])
    monkeypatch.setattr(xdp, "missing", lambda: "it needs Linux 6.3 or newer")
    assert api._switch("l", None, 1500) == ("bridge", ["the switches are bridges: it needs Linux 6.3 or newer"])
    with pytest.raises(BadInput, match=r"lab l: switch = 'xdp': it needs Linux 6.3 or newer \(allowed: bridge\)"):
        api._switch("l", "xdp", 1500)


def test_a_kernel_that_does_not_load_the_program_has_bridges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libbpf, "kernel", lambda: (6, 2))
    assert xdp.missing() in ("it needs Linux 6.3 or newer", libbpf.missing())
    monkeypatch.setattr(libbpf, "kernel", lambda: (6, 3))
    monkeypatch.setattr(xdp, "OBJECT", tmp_path / "none.o")
    assert "the kernel does not load its program" in xdp.missing() or libbpf.missing()


def test_a_bottleneck_is_a_bridge_between_switches_in_xdp() -> None:
    made = plan.plan("l", switch="xdp", bottleneck_bps=10_000_000)
    assert (made.switch, made.dut_switch) == ("xdp", "bridge") and made.arguments()["switch"] == "xdp"
    assert plan.plan("l", switch="xdp").dut_switch == "xdp"
    with pytest.raises(BadInput, match=r"mtu = 9000: too large for a switch in XDP.*up to 3000, or --switch bridge"):
        plan.plan("l", switch="xdp", mtu=9000)
    with pytest.raises(BadInput, match=r"switch = 'hub': unknown switch.*xdp, bridge"):
        plan.plan("l", switch="hub")  # type: ignore[arg-type] # the test's point


def test_the_numbers_of_ports_are_those_of_the_program() -> None:
    header = Path("kernel/switch.h").read_text()
    assert re.findall(r"define MOST_PORTS (\d+)", header) == [str(xdp.MOST_PORTS)]
