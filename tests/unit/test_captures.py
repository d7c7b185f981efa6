"""The captured packets of a leg, out of several files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pktswarm.master.results.captures import captured_packets
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.leg import Leg

MATCH = Match.rest("02:00:00:00:00:0a", "02:00:00:00:00:0b")
MACS = bytes.fromhex("02000000000b02000000000a")


def capture(path: Path, tags: str, times_ns: list[int]) -> Path:
    kind = bytes.fromhex(tags + "0800")
    path.write_bytes(write_pcap([Packet(at, MACS + kind + at.to_bytes(8, "big")) for at in times_ns]))
    return path


def test_the_packets_of_several_captures_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    leg = Leg(3, "t", "a", "b", "trace", "xdp", match=replace(MATCH, tags=(None, (0x8100, 7))).to_data())
    other = tmp_path / "other.pcap"
    other.write_bytes(write_pcap([Packet(2, b"\xff" * 60)]))
    files = [
        capture(tmp_path / "tagged.pcap", "81000007", [3000, 5000, 9000]),
        capture(tmp_path / "plain.pcap", "", [1000, 4000, 6000, 6000]),
        other,
    ]
    packets, unmatched = captured_packets(files, [leg])
    assert [packet.time_ns for packet in packets[3]] == [1000, 3000, 4000, 5000, 6000, 6000, 9000]
    assert unmatched == 1
