"""A recorded trace made ready for two nodes: what can be played, cut to their MTU, each side with its own addresses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from traffic.capture_file import Packet
from traffic.errors import BadInput, PktswarmError
from traffic.interactive.readdress import Endpoint, rewrite
from traffic.interactive.script import Script, read_script
from traffic.interactive.segments import cut

ETHERNET_HEADER_BYTES = 14
VLAN_TAG_BYTES = 4
VLAN_TYPES = (b"\x81\x00", b"\x88\xa8")


@dataclass
class Prepared:
    """`packets` are in the order of the trace; a frame's source MAC tells its side. `left_out`: why → packets."""

    packets: list[Packet]
    forward: int
    """Of them, packets of the side that begins the flows."""
    cut: int
    """Frames that had been merged from several segments."""
    mended: int
    moved_flows: int
    left_out: dict[str, int]


def prepare(packets: list[Packet], mtu_bytes: int, beginner: Endpoint, answerer: Endpoint) -> Prepared:
    """The beginner plays whoever sent a flow's first packet."""
    fitting, merged = cut(packets, mtu_bytes)
    script = read_script(fitting)
    items = script.items
    there = rewrite([Packet(item.time_ns, item.frame) for item in items], beginner, answerer)
    back = rewrite([Packet(item.time_ns, item.frame) for item in items], answerer, beginner)
    frames = [there.packets[at] if item.forward else back.packets[at] for at, item in enumerate(items)]
    if len(script_of(frames, beginner.mac).items) != len(frames):
        raise PktswarmError("readdressed, the trace has other flows than before: it cannot be played interactively")
    forward = sum(item.forward for item in items)
    return Prepared(frames, forward, merged, there.mended, there.moved_flows, script.left_out)


def script_of(packets: list[Packet], beginner_mac: str) -> Script:
    """The script that both nodes read from the packets of `prepare`."""
    mac = bytes.fromhex(beginner_mac.replace(":", ""))
    return read_script(packets, lambda frame: frame[6:12] == mac)


def check_mtu(path: Path, packets: list[Packet], mtu_bytes: int, interface: str) -> None:
    """Raises BadInput for the first frame that `interface` cannot send; one VLAN tag does not count."""
    too_long = [(number, packet) for number, packet in enumerate(packets, 1) if _too_long(packet, mtu_bytes)]
    if too_long:
        number, packet = too_long[0]
        more = f" (and {len(too_long) - 1} more)" if len(too_long) > 1 else ""
        raise BadInput(
            path,
            f"packet {number}{more} is longer than the MTU of {interface}: the interface needs a larger MTU",
            value=f"{len(packet.data)} bytes",
            allowed=f"{mtu_bytes + ETHERNET_HEADER_BYTES} bytes, an MTU of {mtu_bytes} and the Ethernet header",
        )


def _too_long(packet: Packet, mtu_bytes: int) -> bool:
    """Linux's own rule: one VLAN tag is on top of the MTU, a second one is not (packet_snd in af_packet.c)."""
    tag_bytes = VLAN_TAG_BYTES if packet.data[12:14] in VLAN_TYPES else 0
    return len(packet.data) > mtu_bytes + ETHERNET_HEADER_BYTES + tag_bytes
