"""The lab's learning switches in XDP: where a frame goes, by packet sockets on the nodes."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pktswarm import lab
from pktswarm.lab import namespaces
from pktswarm.lab.switch import xdp
from pktswarm.nodes import libbpf
from pktswarm.traffic.errors import BadInput

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
    pytest.mark.skipif(bool(xdp.missing()), reason=f"no switch in XDP: {xdp.missing()}"),
]
NODES = ("tx1", "tx2", "rx1", "rx2")
BROADCAST = "ff:ff:ff:ff:ff:ff"
A, B, C = "02:aa:00:00:00:01", "02:aa:00:00:00:02", "02:aa:00:00:00:03"
WITHIN_S = 10.0


class Ends:
    """A socket on the test interface of each node, which sees all that arrives there."""

    def __init__(self, state: lab.LabState) -> None:
        self.inventory = state.inventory
        self.sockets = {}
        self._marks = 0
        for node in NODES:
            with namespaces.network_of(state.keeper.pids[node]):
                self.sockets[node] = end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            end.bind(("eth1", 3))
            end.settimeout(WITHIN_S)

    def close(self) -> None:
        for end in self.sockets.values():
            end.close()

    def send(self, node: str, source: str, target: str, vlan: int | None = None) -> set[str]:
        """Sends a frame from a node; returns the nodes where it arrives.

        A broadcast behind it arrives after it, wherever it goes.
        """
        self._marks += 1
        frame, untagged = (ethernet(source, target, self._marks, tag) for tag in (vlan, None))
        mark = ethernet("02:bb:00:00:00:01", BROADCAST, 0)
        self.sockets[node].send(frame)
        self.sockets[node].send(mark)
        arrived = set()
        for name, end in self.sockets.items():
            while name != node and (seen := end.recvfrom(2048))[0] != mark:
                # The kernel has taken the tag out.
                arrived |= {name} if seen[0] == untagged else set()
        return arrived


def ethernet(source: str, target: str, number: int, vlan: int | None = None) -> bytes:
    macs = bytes.fromhex((target + source).replace(":", ""))
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return macs + tag + struct.pack("!HI", 0x88B5, number) + bytes(50)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    folder, name = tmp_path_factory.mktemp("hosts"), f"sw{os.getpid()}"
    state = lab.up(name, 2, 2, folder, switch="xdp")
    made = Ends(state)
    try:
        yield made
    finally:
        made.close()
        lab.down(name, folder)


def others(node: str) -> set[str]:
    return set(NODES) - {node}


def test_an_unknown_station_is_looked_for_everywhere_and_then_found(ends: Ends) -> None:
    assert ends.send("tx1", A, B) == others("tx1")
    assert ends.send("rx2", B, A) == {"tx1"}
    assert ends.send("tx1", A, B) == {"rx2"} == ends.send("tx2", C, B)


def test_a_station_that_moves_is_found_at_its_new_port(ends: Ends) -> None:
    ends.send("rx2", B, BROADCAST)
    assert ends.send("tx1", A, B) == {"rx2"}
    ends.send("tx2", B, BROADCAST)
    assert ends.send("tx1", A, B) == {"tx2"}


def test_groups_go_to_all_and_the_bridges_own_addresses_to_none(ends: Ends) -> None:
    assert ends.send("rx1", A, BROADCAST) == others("rx1") == ends.send("rx1", A, "01:00:5e:00:00:01")
    # As a Linux bridge without spanning tree: its messages pass.
    assert ends.send("rx1", A, "01:80:c2:00:00:00") == others("rx1")
    for last in ("01", "02", "0e", "0f"):
        assert ends.send("rx1", A, f"01:80:c2:00:00:{last}") == set()
    assert ends.send("rx1", A, "01:80:c2:00:00:10") == others("rx1")


def test_stations_are_apart_by_vlan(ends: Ends) -> None:
    ends.send("rx1", "02:aa:00:00:05:01", BROADCAST, vlan=5)
    assert ends.send("tx1", A, "02:aa:00:00:05:01", vlan=5) == {"rx1"}
    assert ends.send("tx1", A, "02:aa:00:00:05:01", vlan=6) == others("tx1")
    assert ends.send("tx1", A, "02:aa:00:00:05:01") == others("tx1")
    # Priority and drop eligibility are no part of the VLAN's number.
    assert ends.send("tx1", A, "02:aa:00:00:05:01", vlan=0xF005) == {"rx1"}


def test_a_frame_does_not_leave_by_the_port_that_it_came_from(ends: Ends) -> None:
    ends.send("tx1", "02:aa:00:00:06:01", BROADCAST)
    assert ends.send("tx1", A, "02:aa:00:00:06:01") == set()


def test_the_group_bit_makes_no_station(ends: Ends) -> None:
    ends.send("tx1", "03:aa:00:00:00:01", BROADCAST)
    assert ends.send("rx1", A, "03:aa:00:00:00:01") == others("rx1")


def test_the_program_is_at_every_port(ends: Ends, tmp_path: Path) -> None:
    """A port without it would be the kernel's bridge's, and every frame there an skb."""
    folder, name = tmp_path, f"sp{os.getpid()}"
    for asked in lab.plan.SWITCHES:
        state = lab.up(name, 1, 1, folder, switch=asked)
        try:
            for node, ports in (("switch", ("tx1", "rx1", "to-dut-a", "to-dut-b")), ("dut", ("to-a", "to-b"))):
                with namespaces.network_of(state.keeper.pids[node]):
                    programs = [libbpf.attached_program(socket.if_nametoindex(port)) for port in ports]
                assert all(programs) if asked == "xdp" else not any(programs)
            if asked == "bridge":
                with pytest.raises(BadInput, match=r"the lab has bridges.*bridge fdb show"):
                    lab.switches(state.inventory)
        finally:
            lab.down(name, folder)


def ports_of(ends: Ends) -> dict[str, list[int]]:
    """Port of side a's switch → forwarded, flooded, filtered, discarded."""
    (side,) = [one for one in lab.switches(ends.inventory) if one["switch"] == "a"]
    return {
        port["port"]: [port["forwarded"], port["flooded"], port["filtered"], port["discarded"]]
        for port in side["ports"]
    }


def test_stations_and_frames_by_port_can_be_read(ends: Ends) -> None:
    ends.send("tx2", "02:aa:00:00:07:02", BROADCAST)
    before = ports_of(ends)
    assert sorted(before) == ["to-dut-a", "tx1", "tx2"]
    assert ends.send("tx1", "02:aa:00:00:07:01", "02:aa:00:00:07:02", vlan=7) == others("tx1")
    for _ in range(3):
        ends.send("tx1", "02:aa:00:00:07:01", "02:aa:00:00:07:02")
    ends.send("tx1", "02:aa:00:00:07:01", "02:aa:00:00:07:01")
    ends.send("tx1", "02:aa:00:00:07:01", "01:80:c2:00:00:0e")
    after = ports_of(ends)["tx1"]
    # Each frame has a broadcast behind it.
    assert [now - then for now, then in zip(after, before["tx1"], strict=True)] == [3, 1 + 6, 1, 1]
    (side_a,) = [one for one in lab.switches(ends.inventory) if one["switch"] == "a"]
    known = {(one["vlan"], one["mac"]): one["port"] for one in side_a["stations"]}
    assert known[0, "02:aa:00:00:07:01"] == known[7, "02:aa:00:00:07:01"] == "tx1"
    assert known[0, "02:aa:00:00:07:02"] == "tx2" and all(0 <= one["age_s"] < 300 for one in side_a["stations"])
    assert [one["switch"] for one in lab.switches(ends.inventory)] == ["a", "b", "dut"]
