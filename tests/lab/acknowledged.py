"""Does a host acknowledge what it does not have? Read from its packets alone, with nothing of pktswarm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

import dpkt

WRAP = 1 << 32
Seen = tuple[str, bytes]
"""("in" or "out", the frame), in the order in which the host's interface saw them."""


def tcp_of(frame: bytes) -> tuple[dpkt.tcp.TCP, int] | None:
    """The TCP header and the bytes of its payload (what IP says, not what Ethernet padded)."""
    packet = dpkt.ethernet.Ethernet(frame).data
    if not isinstance(packet, (dpkt.ip.IP, dpkt.ip6.IP6)) or not isinstance(packet.data, dpkt.tcp.TCP):
        return None
    return packet.data, len(packet.data.data)


def acknowledged_too_early(seen: Iterable[Seen], recorded: Iterable[bytes]) -> tuple[list[str], int]:
    """What is wrong, and how many acknowledgements were looked at.

    `recorded`: the frames of the recording; a direction's bytes before its first recorded one count as come.
    """
    first: dict[Hashable, int] = {}
    for frame in recorded:
        if (found := tcp_of(frame)) and (found[1] or found[0].flags & (dpkt.tcp.TH_SYN | dpkt.tcp.TH_FIN)):
            first.setdefault((found[0].sport, found[0].dport), found[0].seq)
    came: dict[Hashable, set[int]] = defaultdict(set)
    upto: dict[Hashable, int] = defaultdict(int)
    wrong, checked = [], 0
    for index, (direction, frame) in enumerate(seen):
        if (found := tcp_of(frame)) is None:
            continue
        tcp, payload_bytes = found
        if direction == "in" and (tcp.sport, tcp.dport) in first:
            flow = (tcp.sport, tcp.dport)
            length = payload_bytes + bool(tcp.flags & dpkt.tcp.TH_SYN) + bool(tcp.flags & dpkt.tcp.TH_FIN)
            start = (tcp.seq - first[flow] + WRAP // 2) % WRAP - WRAP // 2
            came[flow].update(range(start, start + length))
            while upto[flow] in came[flow]:
                upto[flow] += 1
        elif direction == "out" and tcp.flags & dpkt.tcp.TH_ACK and (tcp.dport, tcp.sport) in first:
            flow = (tcp.dport, tcp.sport)
            acknowledged = (tcp.ack - first[flow] + WRAP // 2) % WRAP - WRAP // 2
            checked += 1
            if acknowledged > upto[flow]:
                wrong.append(f"frame {index} {tcp.sport}→{tcp.dport} acknowledges {acknowledged}, has {upto[flow]}")
    return wrong, checked
