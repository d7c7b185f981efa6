"""Frame shapes and flows of the tests of the xdp sender, and a listener at the far end of a wire."""

from __future__ import annotations

import math
import random
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import forked
from pktswarm.nodes.libbpf import run_once
from pktswarm.nodes.senders.ways_out import LIVE_FRAMES, WayOut
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.frames.template import Template, get_bits, put_bits
from pktswarm.traffic.leg import FlowUsers, Leg, Timing
from pktswarm.traffic.protocol.task import Clock
from pktswarm.traffic.random.xorshift import KernelDraw
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import pace as schedule_pace
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.assemble import assemble
from pktswarm.traffic.schedule.records import NEVER
from wire import A, B, Wire
from xdp_ends import XDP_REDIRECT, all_of_sending, loaded, made_by

SLOW = "an emulated processor does not keep up"


ETHERNET = {"ethernet": {"src": A, "dst": B}}


IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}


IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}


UDP, TCP = {"udp": {"src": 1000, "dst": 2000}}, {"tcp": {"src": 1000, "dst": 2000}}


VARYING4 = {
    "ipv4": {
        "src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2},
        "dst": {"random": ["10.0.0.0", "10.255.255.255"]},
    }
}


VARYING6 = {"ipv6": {"src": "fd00::1", "dst": {"decrement": ["fd00::ffff:ffff", "fd00::5"], "step": 9}}}


VARYING_UDP = {"udp": {"src": {"random": [0, 65535]}, "dst": {"decrement": [20003, 20000]}}}


VARYING_ETHERNET = {"ethernet": {"src": A, "dst": {"increment": ["02:00:00:00:00:01", "02:ff:00:00:00:00"]}}}


SHAPES: dict[str, Headers] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp4 varying": [ETHERNET, VARYING4, VARYING_UDP],
    "udp6 varying": [ETHERNET, VARYING6, VARYING_UDP],
    "tcp4 varying": [
        ETHERNET,
        VARYING4,
        {"tcp": {"src": {"random": [1, 9]}, "dst": 2, "seq": {"increment": [0, 2**32 - 1], "step": 2**31 + 1}}},
    ],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7, "sequence": {"increment": [0, 65535]}}}],
    "icmpv6": [ETHERNET, VARYING6, {"icmpv6": {"id": {"random": [0, 65535]}}}],
    "vlan": [VARYING_ETHERNET, {"vlan": {"id": {"increment": [100, 107]}, "priority": 5}}, VARYING4, VARYING_UDP],
    "mpls": [ETHERNET, {"mpls": {"label": {"random": [16, 1048575]}}}, VARYING4, UDP],
    "odd offset": [
        ETHERNET,
        {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "ttl": {"increment": [1, 255]}, "dscp": {"random": [0, 63]}}},
        UDP,
    ],
    "checksum given": [ETHERNET, VARYING4, {"udp": {"src": {"random": [0, 65535]}, "dst": 1, "checksum": 0xBAD}}],
    "arp": [
        ETHERNET,
        {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": {"increment": ["10.0.0.2", "10.0.0.9"]}}},
    ],
}


def a_leg(shape: str = "udp4", number: int = 0, **more: Any) -> Leg:
    payload = more.pop("payload", {"fill": 0xA5})
    frame: FrameDescription = {"headers": SHAPES[shape], "payload": payload}
    return Leg(number, shape, "a", "b", "stream", engine="xdp", frame=frame, **{"size_bytes": 100, **more})


def frames(
    compiled: list[schedule.CompiledLeg], number: int, clock: Clock = "monotonic", way: WayOut = LIVE_FRAMES
) -> list[bytes]:
    with loaded(assemble(compiled), clock, way=way) as program:
        return made_by(program, number)


def mended(template: Template, frame: bytes) -> bytes:
    """The frame with its checksums computed over whole data."""
    data = bytearray(frame)
    template.mend(data)
    return bytes(data)


def check_fields(template: Template, frame: bytes, index: int) -> None:
    for field in template.fields:
        found = get_bits(frame, field.bit, field.width_bits)
        if field.drawn or field.link is not None:
            assert field.first <= found <= field.last
        else:
            assert found == field.value(index, random.Random())


OUTER: Headers = [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152}}]


TEID = {"gtpu": {"teid": {"increment": [1, 7]}}}


LINKED4 = {
    "ipv4": {
        "src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.31"], "step": 5},
        "dst": {"list": ["10.9.0.1", "192.168.7.9", "10.9.0.2"]},
    }
}


LINKED6 = {
    "ipv6": {"src": {"with": "gtpu.teid", "list": [f"fd00::{n}:9" for n in (5, 1, 7, 9, 2, 4, 6)]}, "dst": "fd00::2"}
}


SESSION: Headers = [{"gtpu_options": {}}, {"pdu_session": {"qfi": {"pick": [1, 5, 9], "weights": [2, 1, 4]}}}]


NEW_SHAPES: dict[str, Headers] = {
    "gtpu": [*OUTER, TEID, LINKED4, VARYING_UDP],
    "gtpu session": [*OUTER, TEID, *SESSION, LINKED6, TCP],
    "gtpu outer without": [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152, "checksum": 0}}, TEID, LINKED4, UDP],
    "gtpu in gtpu": [
        *OUTER,
        TEID,
        {"ipv6": {"src": {"with": "3.gtpu.teid", "increment": ["fd00::1", "fd00::7"]}, "dst": "fd00::9"}},
        {"udp": {"src": 2152, "dst": 2152}},
        {"gtpu": {"teid": {"with": "3.gtpu.teid", "decrement": [9, 3]}}},
    ],
    "users drawn": [*OUTER, {"gtpu": {"teid": {"random": [1, 7]}}}, LINKED4, UDP],
    "users by weight": [
        *OUTER,
        {"gtpu": {"teid": {"pick": [11, 12, 13], "weights": [1, 1, 5]}}},
        {"ipv4": {"src": {"with": "gtpu.teid", "decrement": ["10.60.0.9", "10.60.0.7"]}, "dst": "10.9.0.1"}},
        {"udp": {"src": {"with": "4.ipv4.src", "list": [70, 60, 50]}, "dst": 2}},
    ],
    "users in turns, of several servers and ports": [
        *OUTER[:-1],
        {"udp": {"src": {"with": "gtpu.teid", "wrap": True, "increment": [49152, 49155]}, "dst": 2152, "checksum": 0}},
        {"gtpu": {"teid": {"increment": [11, 16], "every": 3}}},
        {
            "ipv4": {
                "src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.6"]},
                "dst": {"with": "2.udp.src", "wrap": True, "list": ["10.9.0.7", "10.9.0.1", "10.9.0.4"]},
            }
        },
        {"udp": {"src": {"increment": [70, 73], "every": 18}, "dst": 2}},
    ],
    "wrong sums": [
        ETHERNET,
        {"ipv4": {**VARYING4["ipv4"], "checksum": {"off_by": 1}}},
        {"udp": {**VARYING_UDP["udp"], "checksum": {"off_by": -7}}},
    ],
    "wrong sum inside": [
        *OUTER,
        TEID,
        {"ipv4": {**LINKED4["ipv4"], "checksum": {"off_by": 0x1234}}},
        {"udp": {**VARYING_UDP["udp"], "checksum": {"off_by": 65534}}},
    ],
    "wrong lengths": [
        ETHERNET,
        {"ipv4": {**VARYING4["ipv4"], "length": {"off_by": -4}}},
        {"udp": {**VARYING_UDP["udp"], "length": {"off_by": 3}}},
    ],
    "wrong lengths inside": [
        *OUTER,
        {"gtpu": {"teid": 5, "length": {"off_by": 1}}},
        {"ipv6": {**LINKED6["ipv6"], "src": "fd00::1", "length": {"off_by": -1}}},
        VARYING_UDP,
    ],
}


PORT_USERS = {"udp": {"src": {"increment": [5000, 5006]}, "dst": 2000}}


SEQUENCE_SHAPES: dict[str, tuple[str, Headers]] = {
    "udp4": ("udp.src", [ETHERNET, VARYING4, PORT_USERS]),
    "udp6": ("udp.src", [ETHERNET, IPV6, PORT_USERS]),
    "tcp4": ("tcp.dst", [ETHERNET, IPV4, {"tcp": {"src": 1, "dst": {"list": [9, 8, 7, 60000, 5, 4, 3]}}}]),
    "tcp6": ("tcp.dst", [ETHERNET, IPV6, {"tcp": {"src": 1, "dst": {"decrement": [9, 3]}}}]),
    "vlan": (
        "ipv4.src",
        [
            ETHERNET,
            {"vlan": {"id": 9}},
            {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.7"]}, "dst": "10.1.1.1"}},
            UDP,
        ],
    ),
    "gtpu": ("gtpu.teid", [*OUTER, TEID, LINKED4, VARYING_UDP]),
    "gtpu session": ("gtpu.teid", [*OUTER, TEID, *SESSION, LINKED6, TCP]),
    "gtpu outer without": (
        "gtpu.teid",
        [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152, "checksum": 0}}, TEID, LINKED4, UDP],
    ),
    "gtpu in gtpu": ("3.gtpu.teid", NEW_SHAPES["gtpu in gtpu"]),
    "wrong on purpose": (
        "udp.src",
        [
            ETHERNET,
            {"ipv4": {**IPV4["ipv4"], "checksum": {"off_by": 1}}},
            {"udp": {**PORT_USERS["udp"], "length": {"off_by": 3}}},
        ],
    ),
    "no user": ("", [ETHERNET, IPV4, UDP]),
    "icmpv6": ("icmpv6.id", [ETHERNET, IPV6, {"icmpv6": {"id": {"increment": [1, 7]}}}]),
}


def a_sequence(shape: str, sizes: list[int], **more: Any) -> tuple[Leg, sequence.Records]:
    user_field, headers = SEQUENCE_SHAPES[shape]
    draw = random.Random(7)
    users = [draw.randrange(7) if user_field else 0 for _ in sizes]
    records = sequence.make([1000 * number for number in range(len(sizes))], users, sizes)
    leg = Leg(
        3,
        shape,
        "a",
        "b",
        "stream",
        frame={"headers": headers, "payload": {}},
        size_bytes=max(sizes),
        sizes=sequence.sizes_bytes(records),
        sequence_file="leg-3.sequence",
        user_field=user_field,
        count_packets=len(sizes),
        intended_packets=len(sizes),
    )
    return replace(leg, **more), records


def expected(leg: Leg, records: sequence.Records) -> list[bytes]:
    """Each as the template of its size has it, its counters but the user's one further with each frame."""
    draw, made = KernelDraw(schedule.compile_leg(leg, 5, sequence=records).record.random), []
    for index, record in enumerate(records):
        template = build_frame(leg.frame, int(record["frame_bytes"]) + 4)
        data, positions = bytearray(template.data), list[int]()
        for one in template.fields:
            own = int(record["user"]) if one.name == leg.user_field else None
            linked = positions[one.link] if one.link is not None else own
            positions.append(one.position(index, draw) if linked is None else linked)
            put_bits(data, one.bit, one.width_bits, one.at(positions[-1]))
        made.append(mended(template, bytes(data)))
    return made


SOME_SIZES = [200, 1514, 161, 160, 1514, 173, 999, 1000, 160, 512, 201, 1513, 160, 1514] * 4


def due_in_the_kernel(leg: Leg, most: int) -> tuple[list[int], int]:
    """Each frame's due time, from the start, which is so long ago that nothing waits: an hour, or when the machine came
    up. Ends where the leg does, or with what is due by now: the second figure.
    """
    whole = assemble([schedule.compile_leg(leg, schedule_pace.seed_of(leg))])
    now_ns = time.monotonic_ns()
    start_ns = max(1, now_ns - 4000 * 10**9)
    due: list[int] = []
    with loaded(whole, start_ns=start_ns) as program:
        program.legs[0].give_up_ns = NEVER
        while len(due) < most and program.state.due_ns[0] < now_ns:
            due_ns = program.state.due_ns[0]
            verdict, _ = run_once(program.fd, bytes(96))
            if verdict == XDP_REDIRECT:
                due.append(due_ns - start_ns)
            assert not program.state.broken
    return due, now_ns - start_ns


WALK = [[n * 5_000_000, 80_000.0 + 40_000 * math.sin(n / 16)] for n in range(100)]


SHORT = [[n * 1_000_000, 90.0 + 80 * math.sin(n / 16)] for n in range(100)]


PACES: dict[str, dict[str, Any]] = {
    "steady": {"rates": [[0, 12_345.6]]},
    "walk": {"rates": WALK, "rates_period_ns": 500_000_000},
    "shorter than gaps": {"rates": SHORT, "rates_period_ns": 100_000_000, "duration_s": 20.0},
    "silence first": {"rates": [[0, 0], [5 * 10**8, 9e3], [9 * 10**8, 0], [10**9, 3.0]], "rates_period_ns": 2 * 10**9},
    "silence at the end": {"rates": [[0, 9e3], [10**8, 0]]},
    "far apart": {"rates": [[0, 0.1], [2 * 10**8, 2e6], [2 * 10**8 + 500_000, 1.0]], "rates_period_ns": 3 * 10**8},
    "burst": {"rates": [[0, 1000.0], [123_456_789, 33_333.3]], "options": {"burst": 7}},
    "100 million": {"rates": [[0, 1e8], [20_000, 7e7]], "rates_period_ns": 33_333, "duration_s": 0.0002},
    "a count": {"rates": [[0, 1000.0]], "count_packets": 77},
    "slow": {"rates": [[0, 0.1], [10**11, 0.04]], "duration_s": 3000.0},
}


LISTENER = """
import signal, socket
# Blocked: a signal in the midst of a long line to a full pipe cuts it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ear.bind(("rx0", 0))
ear.setsockopt(socket.SOL_SOCKET, 33, 512 << 20)  # SO_RCVBUFFORCE: a live frame weighs a page, whatever its size
ear.settimeout(0.2)
print("ready", flush=True)
while True:
    try:
        print(ear.recv(20000).hex())
    except TimeoutError:
        if signal.SIGTERM in signal.sigpending():
            break
"""


def send_and_listen(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
    done, frames = done_and_frames(wire, spool, legs, **extra)
    return done["counts"], frames


def done_and_frames(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> tuple[dict[str, Any], list[bytes]]:
    """All that the sender prints, and the frames."""
    words = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", LISTENER]
    listener = forked.popen(words, stdout=PIPE)
    try:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        # What it prints is read at the end; until then its socket holds what the pipe has no room for.
        done = all_of_sending(wire, spool, legs, **extra)
        listener.terminate()
        text, _ = listener.communicate(timeout=120)
        return done, [bytes.fromhex(line) for line in text.split()]
    finally:
        listener.kill()
        listener.wait()


def told_s(count: dict[str, Any], words: str) -> float:
    """A time of the engine's own note: by how much it was late, for how long it did not look."""
    found = re.search(rf"{words} ([\d.]+) us", count["note"])
    assert found is not None, count["note"]
    return (float(found[1]) + 0.1) / 1e6


def latest_s(count: dict[str, Any]) -> float:
    """No frame goes before it is due, and none later than this: so much may a busy machine take, and it is told."""
    return told_s(count, "at most")


def away_s(count: dict[str, Any]) -> float:
    return told_s(count, "away at most")


def a_trace_leg(spool: Path, packets: list[Packet], mode: str = "original", value: float = 1.0, **more: Any) -> Leg:
    number = more.pop("number", 0)
    (spool / f"{number}.pcap").write_bytes(write_pcap(packets))
    timing = replace(more.pop("timing", Timing()), mode=mode, value=value)
    count = {"count_packets": len(packets)} if "duration_s" not in more else {}
    return Leg(number, "t", "a", "b", "trace", trace_file=f"{number}.pcap", timing=timing, **{**count, **more})


def a_recording(packets: int, seed: int = 1) -> list[Packet]:
    """Exponential gaps of 100 us on average; every size up to 1514; not TCP, which the receiver would merge."""
    draw, time_ns, made = random.Random(seed), 10**18, []
    for number in range(packets):
        body = draw.randbytes(draw.randrange(4, 1500))
        made.append(
            Packet(time_ns, bytes.fromhex("02000000000b02000000000a88b5") + number.to_bytes(4, "big") + body[4:])
        )
        time_ns += round(draw.expovariate(1 / 100_000))
    return made


def complete(count: dict[str, Any], packets: int) -> bool:
    """All that were due in the duration, less what the interface's full ring dropped; fewer only if the machine took
    the processor away beyond its end's grace."""
    short_s = max(away_s(count), latest_s(count)) - schedule.GRACE_NS / 1e9
    made = count["sent_packets"] + count["failed_packets"]
    return bool(made == packets or (made < packets and short_s > 0))


USERS = FlowUsers("ipv4.src", "src_ip", 0x0A000001, 2, 5)


def by_user(frames: list[bytes]) -> list[int]:
    found = [(int.from_bytes(frame[26:30], "big") - 0x0A000001) // 2 for frame in frames]
    return [found.count(user) for user in range(5)]
