"""Interactive replay without a network: two machines over a channel that delays, loses, copies and reorders."""

from __future__ import annotations

import heapq
import random
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import dpkt
import pytest

from acknowledged import Seen, acknowledged_too_early
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.interactive.machine import LINGER_NS, MOST_TRIES, Machine, Sending
from pktswarm.traffic.interactive.prepare import Endpoint, Prepared, load, prepare
from pktswarm.traffic.interactive.script import COPIES, NOT_RECORDED, read_script, script_of
from pktswarm.traffic.interactive.sequence import Coverage
from pktswarm.traffic.protocol.flow_report import FlowReport

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "configs" / "traces" / "lab.pcapng"
SHARED = ROOT.parent / "shared" / "traces"
GIT = ROOT.parent / "shared" / "traces" / "git.pcap"
A, B = Endpoint("02:00:00:00:0a:01", "10.77.0.1"), Endpoint("02:00:00:00:0a:02", "10.77.0.2")
START_NS = 5_000_000_000


@dataclass
class Channel:
    """What becomes of each frame: when it arrives, none, once or more often."""

    delay_ns: int = 0
    loss: float = 0.0
    copies: float = 0.0
    jitter_ns: int = 0
    seed: int = 1
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def arrivals_ns(self, now_ns: int) -> list[int]:
        if self.chance.random() < self.loss:
            return []
        times = 2 if self.chance.random() < self.copies else 1
        return [now_ns + self.delay_ns + round(self.chance.random() * self.jitter_ns) for _ in range(times)]


@dataclass
class Played:
    here: list[FlowReport]
    there: list[FlowReport]
    seen: dict[str, list[Seen]]
    sent: dict[str, list[bytes]]
    """All frames that a side sent, again or not."""
    took_ns: int


def play(prepared: Prepared, channel: Channel, most_events: int = 200_000) -> Played:
    script, other = script_of(prepared.packets, A.mac), script_of(prepared.packets, A.mac)
    machines = {"a": Machine(script, True), "b": Machine(other, False)}
    machines["a"].start(START_NS)
    flying: list[tuple[int, int, str, bytes]] = []
    seen: dict[str, list[Seen]] = {"a": [], "b": []}
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    now_ns = START_NS
    for event in range(most_events):
        times = [machine.next_ns for machine in machines.values()] + [flying[0][0] if flying else None]
        upcoming = [time for time in times if time is not None]
        if not upcoming:
            break
        now_ns = max(now_ns, min(upcoming))
        sendings: dict[str, list[Sending]] = {name: [] for name in machines}
        if flying and flying[0][0] <= now_ns:
            _, _, name, frame = heapq.heappop(flying)
            seen[name].append(("in", frame))
            sendings[name] = machines[name].arrived(frame, now_ns)
        else:
            sendings = {name: machine.due(now_ns) for name, machine in machines.items()}
        for name, out in sendings.items():
            for number, sending in enumerate(out):
                frame = sending.item.frame
                seen[name].append(("out", frame))
                sent[name].append(frame)
                for at_ns in channel.arrivals_ns(now_ns):
                    heapq.heappush(flying, (at_ns, event * 1000 + number, "b" if name == "a" else "a", frame))
    else:
        pytest.fail("it does not come to an end")
    assert machines["a"].over(now_ns + LINGER_NS)
    return Played(machines["a"].reports(), machines["b"].reports(), seen, sent, now_ns - START_NS)


def prepared(path: Path, mtu_bytes: int = 1500) -> Prepared:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    trace = load([path], mtu_bytes)
    return prepare(trace, trace.flow, A, B)


CHANNELS = {
    "a wire": Channel(),
    "50 ms": Channel(delay_ns=50_000_000),
    "50 ms and 1 % lost": Channel(delay_ns=50_000_000, loss=0.01),
    "reordered": Channel(delay_ns=5_000_000, jitter_ns=30_000_000),
    "copied": Channel(delay_ns=5_000_000, copies=1.0),
    "copied late": Channel(delay_ns=1_000_000, copies=0.5, jitter_ns=900_000_000),
    "everything": Channel(delay_ns=20_000_000, loss=0.05, copies=0.1, jitter_ns=40_000_000),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("path", [RECORDED, GIT], ids=lambda path: path.name)
def test_no_packet_acknowledges_what_has_not_come(path: Path, name: str, seed: int) -> None:
    ready = prepared(path)
    how = CHANNELS[name]
    channel = Channel(how.delay_ns, how.loss, how.copies, how.jitter_ns, seed)
    played = play(ready, channel)
    for side in ("a", "b"):
        wrong, checked = acknowledged_too_early(played.seen[side], [packet.data for packet in ready.packets])
        assert wrong == []
        assert checked > 10
    tcp = [report for report in (*played.here, *played.there) if report.label.startswith("tcp")]
    assert {report.state for report in tcp} == {"complete"}
    for side in ("a", "b"):
        mine = [p.data for p in ready.packets if (p.data[6:12] == A.mac_bytes) == (side == "a")]
        assert set(played.sent[side]) >= {frame for frame in mine if frame[23] == 6}
    counts = [(len(played.sent["a"]), played.here), (len(played.sent["b"]), played.there)]
    assert all(number == sum(one.sent + one.resent for one in reports) for number, reports in counts)


@pytest.mark.parametrize("name", ["443-firefox.pcap", "teams.pcap", "telegram_videocall.pcapng", "youtube_quic.pcap"])
def test_real_traces_come_to_their_end(name: str) -> None:
    ready = prepared(GIT.with_name(name))
    played = play(ready, Channel(delay_ns=50_000_000, loss=0.01))
    for side in ("a", "b"):
        assert acknowledged_too_early(played.seen[side], [packet.data for packet in ready.packets])[0] == []
    assert {report.state for report in (*played.here, *played.there)} == {"complete"}


# --- connections made for the purpose ------------------------------------------------------------------------------

CLIENT, SERVER = (bytes([10, 0, 0, 1]), 40000), (bytes([10, 0, 0, 2]), 80)
S, SA, AK, FA = 2, 18, 16, 17
MS = 1_000_000


def segment(
    at_ms: float, forward: bool, flags: int, seq: int, ack: int, payload: bytes = b"", ident: int = 0, port: int = 40000
) -> Packet:
    (source, sport), (target, dport) = (CLIENT, SERVER) if forward else (SERVER, CLIENT)
    sport, dport = (port, dport) if forward else (sport, port)
    tcp = dpkt.tcp.TCP(sport=sport, dport=dport, seq=seq % 2**32, ack=ack % 2**32, flags=flags, data=payload)
    ip = dpkt.ip.IP(src=source, dst=target, p=6, id=ident, data=tcp)
    ip.len = 20 + len(bytes(tcp))
    return Packet(round(at_ms * MS), bytes(dpkt.ethernet.Ethernet(data=ip, type=0x800)))


def exchange(start: int = 0, ms: float = 0.0, port: int = 40000) -> list[Packet]:
    """A request of 10 bytes, an answer of 20 after 5 ms, and the acknowledgement of it after 40 ms."""
    steps = [
        (0, True, S, 0, 0, b""),
        (1, False, SA, 500, 1, b""),
        (2, True, AK, 1, 501, b""),
        (3, True, AK, 1, 501, b"r" * 10),
        (8, False, AK, 501, 11, b"a" * 20),
        (48, True, AK, 11, 521, b""),
    ]
    return [
        segment(ms + at, way, flags, start + seq, 0 if flags == S else start + ack, data, number, port)
        for number, (at, way, flags, seq, ack, data) in enumerate(steps)
    ]


def ready(packets: list[Packet], mtu_bytes: int = 1500) -> Prepared:
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        Path(file.name).write_bytes(write_pcap(packets))
        return prepared(Path(file.name), mtu_bytes)


def test_a_flow_is_as_long_as_recorded_on_a_wire_and_longer_by_each_turn_through_a_slow_device() -> None:
    (wire,) = play(ready(exchange()), Channel()).here
    assert (wire.recorded_ns, wire.replayed_ns) == (48 * MS, 48 * MS)
    (slow,) = play(ready(exchange()), Channel(delay_ns=50 * MS)).here
    assert slow.replayed_ns == (48 + 2 * 2 * 50) * MS  # SYN and request go and come back
    assert (slow.sent, slow.resent, slow.received, slow.duplicates) == (4, 0, 2, 0)


def test_sequence_numbers_may_wrap() -> None:
    played = play(ready(exchange(start=2**32 - 505)), Channel(delay_ns=MS))
    assert [report.state for report in (*played.here, *played.there)] == ["complete", "complete"]


def test_an_answer_recorded_before_its_question_goes_behind_it() -> None:
    packets = exchange()
    packets[3], packets[4] = Packet(packets[4].time_ns, packets[3].data), Packet(packets[3].time_ns, packets[4].data)
    packets.sort(key=lambda packet: packet.time_ns)
    script = read_script(packets)
    assert [len(item.frame) for item in script.flows[0].items] == [54, 54, 54, 64, 74, 54]
    assert {report.state for report in play(ready(packets), Channel()).here} == {"complete"}


def test_what_was_sent_before_the_recording_began_counts_as_come() -> None:
    script = read_script(exchange()[3:])
    assert script.left_out == {} and len(script.items) == 3


def test_a_flow_that_acknowledges_what_was_not_recorded_is_left_out_and_told() -> None:
    packets = [*exchange(port=40001), *(packet for number, packet in enumerate(exchange()) if number != 3)]
    made = ready(packets)
    assert made.left_out == {NOT_RECORDED: 5}
    assert len(made.packets) == 6


def test_copies_are_sent_once_and_told() -> None:
    packets = exchange()
    made = ready([*packets[:3], packets[2], *packets[3:]])
    assert made.left_out == {COPIES: 1}
    assert len(made.packets) == 6


def test_a_port_that_is_used_twice_is_two_flows() -> None:
    made = ready([*exchange(), *exchange(start=7777, ms=1000)])
    played = play(made, Channel(delay_ns=MS))
    assert [report.state for report in played.here] == ["complete", "complete"]


def test_a_flow_whose_frames_are_all_lost_is_given_up_after_a_bounded_number_of_tries() -> None:
    played = play(ready(exchange()), Channel(loss=1.0))
    (here,) = played.here
    assert (here.state, here.sent, here.resent, here.received) == ("given up", 1, MOST_TRIES, 0)
    assert played.there[0].state == "unfinished"


def test_a_lost_last_acknowledgement_is_said_again() -> None:
    class LosesTheFourth(Channel):
        """Of the beginner's packets: the one that acknowledges the answer."""

        number = 0

        def arrivals_ns(self, now_ns: int) -> list[int]:
            self.number += 1
            return [] if self.number == 6 else [now_ns + 5 * MS]

    played = play(ready(exchange()), LosesTheFourth())
    assert [report.state for report in (*played.here, *played.there)] == ["complete", "complete"]
    assert (played.here[0].resent, played.there[0].resent) == (1, 1)


def test_what_a_recording_host_merged_is_played_in_segments() -> None:
    steps = exchange()
    merged = segment(8, False, AK | 8, 501, 11, bytes(range(256)) * 12, 4)
    made = ready([*steps[:4], merged, segment(48, True, AK, 11, 501 + 3072, ident=5)], mtu_bytes=1040)
    assert (made.cut, len(made.packets), made.forward) == (1, 9, 4)
    answers = [dpkt.ethernet.Ethernet(p.data).data.data for p in made.packets if p.data[6:12] == B.mac_bytes]
    assert b"".join(one.data for one in answers) == bytes(range(256)) * 12
    assert [one.seq for one in answers[1:]] == [501, 1501, 2501, 3501]
    played = play(made, Channel(delay_ns=MS))
    assert [report.state for report in (*played.here, *played.there)] == ["complete", "complete"]


def test_each_side_of_a_flow_is_told_by_its_first_packet_and_has_its_nodes_addresses() -> None:
    """Two hosts that each begin a flow with the other: the beginner plays both beginnings."""
    back = [segment(100, False, S, 0, 0, port=50000), segment(101, True, SA, 0, 1, port=50000)]
    made = ready([*exchange(), *back])
    senders = [frame.data[6:12] for frame in made.packets]
    assert senders[-2:] == [A.mac_bytes, B.mac_bytes] and made.forward == 5
    for packet in made.packets:
        ends = (A, B) if packet.data[6:12] == A.mac_bytes else (B, A)
        frame = dpkt.ethernet.Ethernet(packet.data)
        assert frame.dst == ends[1].mac_bytes
        addresses = [socket.inet_ntoa(address) for address in (frame.data.src, frame.data.dst)]
        assert addresses == [end.ipv4 for end in ends]


def test_a_packet_that_fits_no_frame_and_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    udp = dpkt.udp.UDP(sport=1, dport=2, data=bytes(1400), ulen=1408)
    ip = dpkt.ip.IP(src=CLIENT[0], dst=SERVER[0], p=17, data=udp, len=1428)
    file = tmp_path / "long.pcap"
    long = Packet(0, bytes(dpkt.ethernet.Ethernet(data=ip, type=0x800)))
    file.write_bytes(write_pcap([long, *exchange()]))
    assert len(prepared(file).packets) == 7
    told = "long.pcap: 1 packets are longer than the MTU of tx1, 1400 bytes and cannot be cut"
    with pytest.raises(BadInput, match=told):
        load([file], 1400, "tx1")


def test_coverage_knows_the_first_missing_byte() -> None:
    chance = random.Random(5)
    for _ in range(50):
        came, bytes_there = Coverage(0), set()
        for _ in range(40):
            start = chance.randrange(100)
            end = start + chance.randrange(12)
            came.add(start, end)
            bytes_there |= set(range(start, end))
            assert came.upto == next(n for n in range(200) if n not in bytes_there)
