"""The script of an interactive replay: flows, the side of each packet, and the packets that each one waits for.

A TCP packet waits for every byte (SYN and FIN count as one) that its ACK number covers and that the recording contains
from the other side. Bytes before the first recorded byte of a side count as received. The order of the packets is the
recorded one, except that an acknowledgement captured before its data is moved behind it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.frames.dissect import CHECKSUM_AT, TCP, Dissected, dissect
from pktswarm.traffic.interactive.flows import flow_keys
from pktswarm.traffic.interactive.sequence import Coverage, Unwrapped

FIN, SYN, RST, ACK = 1, 2, 4, 16
FRAGMENTED = "TCP in IP fragments"
NOT_RECORDED = "their flow acknowledges bytes that were not recorded"
COPIES = "copies of another packet of their flow"

Key = tuple[object, ...]
"""The key of a packet, independent of MACs, addresses, TTL and checksums, which the device can change."""


@dataclass
class Item:
    """One packet. `start` to `end`: its sequence numbers; `ack`: a sequence number of the other side."""

    number: int
    """Number in the trace, from 0."""
    time_ns: int
    frame: bytes
    forward: bool
    """Whether it is from the side that began the flow."""
    start: int = 0
    end: int = 0
    ack: int | None = None
    answers: Item | None = field(default=None, repr=False)
    """The last packet of the other side that it acknowledges."""
    covered_by: Item | None = field(default=None, repr=False)
    """The first packet of the other side that acknowledges all of it; None: none, so it is never sent again."""

    @property
    def covered_after_ns(self) -> int:
        return 0 if self.covered_by is None else max(0, self.covered_by.time_ns - self.time_ns)


@dataclass
class Flow:
    number: int
    label: str
    is_tcp: bool
    items: list[Item]
    """In an order in which they can be sent."""
    bases: dict[bool, int] = field(default_factory=dict)
    """Side (forward or not) → its first recorded sequence number."""

    @property
    def recorded_ns(self) -> int:
        times = [item.time_ns for item in self.items]
        return max(times) - min(times)


@dataclass
class Script:
    flows: list[Flow]
    left_out: dict[str, int]
    """Reason → packets that cannot be replayed."""

    @property
    def items(self) -> list[Item]:
        return sorted((item for flow in self.flows for item in flow.items), key=lambda item: item.number)


Forward = Callable[[bytes], bool]


def read_script(packets: list[Packet], forward: Forward | None = None) -> Script:
    """`forward`: the side of a frame; None: the sender of a flow's first packet is its forward side."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(flow_keys([packet.data for packet in packets])):
        groups[key].append(number)
    flows: list[Flow] = []
    left_out: Counter[str] = Counter()
    for numbers in groups.values():
        numbers.sort(key=lambda number: packets[number].time_ns)
        items = _sided(packets, numbers, forward)
        headers = {item.number: dissect(item.frame) for item in items}
        for connection in _connections(items, headers):
            flow = _flow(len(flows), connection, headers, left_out)
            if flow is not None:
                flows.append(flow)
    return Script(flows, dict(left_out))


def script_of(packets: list[Packet], beginner_mac: str) -> Script:
    """The script that both nodes derive from the packets of traffic.interactive.prepare."""
    mac = bytes.fromhex(beginner_mac.replace(":", ""))
    return read_script(packets, lambda frame: frame[6:12] == mac)


def packet_key(frame: bytes) -> Key:
    """The key of a frame, equal at both ends and for copies in a recording."""
    header = dissect(frame)
    if not header.version:
        return 0, frame[header.l3 - 2 :].rstrip(b"\0")
    body = bytearray(frame[header.l4 : header.end])
    if header.has_transport:
        at = CHECKSUM_AT.get(header.protocol, len(body))
        body[at : at + 2] = bytes(len(body[at : at + 2]))
    identification = frame[header.l3 + 4 : header.l3 + 8] if header.version == 4 else b""
    return header.version, header.protocol, identification, bytes(body)


def _sided(packets: list[Packet], numbers: list[int], forward: Forward | None) -> list[Item]:
    first = _sender(packets[numbers[0]].data)
    is_forward = forward or (lambda frame: _sender(frame) == first)
    return [Item(n, packets[n].time_ns, packets[n].data, is_forward(packets[n].data)) for n in numbers]


def _sender(frame: bytes) -> Hashable:
    header = dissect(frame)
    if not header.version:
        return frame[6:12]
    port = frame[header.l4 : header.l4 + 2] if header.has_ports else b""
    return frame[header.addresses[0]], port


def _connections(items: list[Item], headers: dict[int, Dissected]) -> list[list[Item]]:
    """The packets of one flow, divided where its ports are used for another connection: at a SYN with a new number."""
    found: list[list[Item]] = []
    last_syn = b""
    for item in items:
        header = headers[item.number]
        opens = _is_tcp(header) and item.frame[header.l4 + 13] & (SYN | ACK) == SYN
        number = item.frame[header.l4 + 4 : header.l4 + 8] if opens else last_syn
        if not found or (last_syn and number != last_syn):
            found.append([])
        last_syn = number
        found[-1].append(item)
    return found


def _is_tcp(header: Dissected) -> bool:
    return header.has_transport and header.protocol == TCP


def _flow(number: int, items: list[Item], headers: dict[int, Dissected], left_out: Counter[str]) -> Flow | None:
    is_tcp = [headers[item.number].protocol == TCP and headers[item.number].version != 0 for item in items]
    if not any(is_tcp):
        return Flow(number, _label(items[0], headers), False, items)
    if not all(_is_tcp(headers[item.number]) and headers[item.number].fragment is None for item in items):
        left_out[FRAGMENTED] += len(items)
        return None
    once = list({(packet_key(item.frame), item.forward): item for item in reversed(items)}.values())[::-1]
    bases = _place(once, headers)
    ordered = _playable(once, bases)
    if ordered is None:
        left_out[NOT_RECORDED] += len(items)
        return None
    left_out.update({COPIES: len(items) - len(once)} if len(once) < len(items) else {})
    _bind(ordered)
    return Flow(number, _label(items[0], headers), True, ordered, bases)


def _label(first: Item, headers: dict[int, Dissected]) -> str:
    header, frame = headers[first.number], first.frame
    if not header.version:
        return f"ethertype {header.ethertype:#06x}"
    name = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6"}.get(header.protocol, f"protocol {header.protocol}")
    if not header.has_ports:
        return name
    source, target = (int.from_bytes(frame[header.l4 + at : header.l4 + at + 2], "big") for at in (0, 2))
    ports = (source, target) if first.forward else (target, source)
    return f"{name} {ports[0]} → {ports[1]}"


def _place(items: list[Item], headers: dict[int, Dissected]) -> dict[bool, int]:
    """Sets start, end and ack of every item. Returns the first recorded sequence number of each side."""
    numbers = {True: Unwrapped(), False: Unwrapped()}
    for item in items:
        header, frame = headers[item.number], item.frame
        tcp = frame[header.l4 : header.end]
        flags = tcp[13]
        item.start = numbers[item.forward].of(int.from_bytes(tcp[4:8], "big"))
        payload_bytes = len(tcp) - (tcp[12] >> 4) * 4
        item.end = item.start + payload_bytes + bool(flags & SYN) + bool(flags & FIN)
        if flags & ACK:
            item.ack = numbers[not item.forward].of(int.from_bytes(tcp[8:12], "big"))
    return {side: _base(items, side) for side in (True, False)}


def _base(items: list[Item], side: bool) -> int:
    mine = [item for item in items if item.forward == side]
    starts = [item.start for item in mine if item.end > item.start] or [item.start for item in mine]
    acks = [item.ack for item in items if item.forward != side and item.ack is not None]
    return min(starts or acks or [0])


def _playable(items: list[Item], bases: dict[bool, int]) -> list[Item] | None:
    """The recorded order with every packet behind those that it acknowledges; None if those are not recorded."""
    queues = {side: [item for item in items if item.forward == side][::-1] for side in (True, False)}
    arrived = {side: Coverage(bases[side]) for side in (True, False)}
    order = {item.number: index for index, item in enumerate(items)}
    result: list[Item] = []
    while any(queues.values()):
        heads = [queue[-1] for queue in queues.values() if queue]
        ready = [item for item in heads if item.ack is None or item.ack <= arrived[not item.forward].upto]
        if not ready:
            return None
        item = min(ready, key=lambda one: order[one.number])
        queues[item.forward].pop()
        arrived[item.forward].add(item.start, item.end)
        result.append(item)
    return result


def _bind(items: list[Item]) -> None:
    """Links each item with the packet that it answers, and the one that acknowledges it."""
    open_items: dict[bool, list[tuple[int, int, Item]]] = {True: [], False: []}
    answered: dict[bool, Item | None] = {True: None, False: None}
    for index, item in enumerate(items):
        waiting = open_items[not item.forward]
        while item.ack is not None and waiting and waiting[0][0] <= item.ack:
            covered = heapq.heappop(waiting)[2]
            covered.covered_by = item
            answered[item.forward] = covered
        item.answers = answered[item.forward]
        if item.end > item.start:
            heapq.heappush(open_items[item.forward], (item.end, index, item))
