"""Packets in fragments: how they are cut, who cuts them, and one message for each way to be wrong."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState, sum_sent, unfinished
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan import plan, resolve_streams
from pktswarm.master.plan.session_streams import to_cut
from pktswarm.master.scenario import scenario
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Arrival, Leg, Oversize
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount
from pktswarm.traffic.schedule import fragments
from pktswarm.traffic.schedule.fragments import frames_of, parts, parts_of, together_ms, with_ids
from pktswarm.traffic.schedule.records import PartRecord

ETHERNET = {"ethernet": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}}
TUNNEL: Headers = [
    ETHERNET,
    {"ipv4": {"src": "10.92.0.12", "dst": "10.92.0.1"}},
    {"udp": {"src": 2152, "dst": 2152, "checksum": 0}},
]
GTPU: Headers = [{"gtpu": {"teid": 7}}, {"gtpu_options": {}}, {"pdu_session": {"pdu_type": 1, "qfi": 9}}]
USER: Headers = [{"ipv4": {"src": "10.45.0.1", "dst": "10.60.0.1"}}, {"udp": {"src": 5001, "dst": 5001}}]
HEADERS: Headers = [*TUNNEL, *GTPU, *USER]
CUT_AT = {"outer": 14, "inner": 58}
GROUP = {"name": "users", "sessions": 5, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}}
UP = {"name": "up", "sessions": "users", "direction": "up", "rate_pps": 1000, "count_packets": 100, "size_bytes": 1600}
DOWN = {**UP, "name": "down", "direction": "down"}


def word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def header_sum(data: bytes, at: int) -> int:
    """RFC 1071: of a right header all ones."""
    total = sum(word(data, at + place) for place in range(0, 20, 2))
    return (total & 0xFFFF) + (total >> 16)


@pytest.mark.parametrize("size", [1520, 2000, 2995, 3372])
@pytest.mark.parametrize("mtu", [576, 1000, 1500])
@pytest.mark.parametrize("cut", ["outer", "inner"])
def test_fragments_hold_the_packet_byte_for_byte(cut: str, mtu: int, size: int) -> None:
    whole = build_frame({"headers": HEADERS, "payload": {"random": True}}, size)
    data = bytearray(whole.data)
    data[-1000:] = bytes(number % 251 for number in range(1000))
    at = CUT_AT[cut]
    made = parts(HEADERS, len(data), cut, mtu)
    frames = frames_of(bytes(data), made)
    together = bytearray(len(data) - at - 20)
    for number, frame in enumerate(frames):
        last = number == len(frames) - 1
        length = word(frame, at + 2)
        assert 14 + mtu >= at + length > (14 + mtu - 8 if not last else 0)
        offset, more = (word(frame, at + 6) & 0x1FFF) * 8, word(frame, at + 6) & 0x2000
        assert bool(more) is not last
        together[offset : offset + length - 20] = frame[at + 20 : at + length]
        assert header_sum(frame, 14) == header_sum(frame, at) == 0xFFFF
        if cut == "inner":  # each tunnel's lengths are those of what it carries
            assert (word(frame, 16), word(frame, 38), word(frame, 44)) == (44 + length, 24 + length, 8 + length)
        assert len(frame) == max(60, at + length) == made[number].frame_bytes
    assert together == data[at + 20 :]


def test_a_part_is_as_long_as_a_map_has_it() -> None:
    """Values of an array in the kernel begin at multiples of 8 bytes."""
    assert ctypes.sizeof(PartRecord) % 8 == 0


def test_what_fits_is_sent_whole() -> None:
    leg = Leg(
        0, "s", "a", "b", "stream", frame={"headers": HEADERS}, oversize=Oversize("outer", 1500, (0, 9), cut="outer")
    )
    assert [len(parts_of(leg, size)) for size in (200, 1518, 1519, 2998, 2999)] == [0, 0, 2, 2, 3]
    assert fragments.longest_frame_bytes(leg, 3000) == 1518
    assert fragments.longest_frame_bytes(leg, 200) == 200
    assert parts_of(replace(leg, oversize=Oversize("outer", None, (0, 9))), 3000) == []


def test_more_fragments_than_are_sent() -> None:
    with pytest.raises(
        BadInput,
        match=r"mtu_bytes = 300: a packet needs more than 8 fragments \(allowed: 444 or more\)",
    ):
        parts(HEADERS, 3368, "outer", 300)


def test_the_header_that_is_cut_counts_packets() -> None:
    places: dict[Literal["inner", "outer"], int] = {"outer": 1, "inner": 6}
    for cut, place in places.items():
        counted = with_ids(HEADERS, Oversize(cut, 1500, (5, 9), cut=cut))
        assert [n for n, header in enumerate(counted) if "id" in header.get("ipv4", {})] == [place]
        assert counted[place]["ipv4"]["id"] == {"increment": [5, 9]}
    assert with_ids(HEADERS, None) == with_ids(HEADERS, Oversize("outer", None, (5, 9))) == HEADERS


@pytest.mark.parametrize(
    ("rate_pps", "legs", "expected"),
    [(100, 1, 30_000), (10_000, 1, 3277), (10_000, 4, 819), (None, 1, 33), (10**9, 2, 1)],
)
def test_how_long_the_rest_of_a_packet_is_waited_for(rate_pps: float | None, legs: int, expected: int) -> None:
    one = Leg(0, "s", "a", "b", "stream", rate_pps=rate_pps, arrives=Arrival(HEADERS))
    task = ReceiveTask("eth1", "", [one] * legs, 60, mode="count")
    assert together_ms(task) == expected
    assert together_ms(replace(task, mode="capture")) == 0
    assert together_ms(replace(task, legs=[replace(one, arrives=None)])) == 0
    assert together_ms(replace(task, echoes=[one])) == 0


@pytest.mark.parametrize(
    ("share", "legs", "expected"),
    [(65536, 1, 3277), (65536, 4, 819), (16384, 1, 819), (16384, 2, 819), (16384, 8, 410), (10, 1, 1)],
)
def test_a_leg_with_a_share_of_the_identifications_has_them_come_round_sooner(
    share: int, legs: int, expected: int
) -> None:
    oversize = Oversize("outer", 1500, (100, 100 + share - 1), cut="outer")
    one = Leg(0, "s", "a", "b", "stream", rate_pps=10_000, arrives=Arrival(HEADERS), oversize=oversize)
    task = ReceiveTask("eth1", "", [one] * legs, 60, mode="count")
    assert together_ms(task) == expected
    # Of those that the UPF cuts the identifications are its own.
    uncut = replace(task, legs=[replace(one, oversize=replace(oversize, cut=None))] * legs)
    assert together_ms(uncut) == round(65536 / legs / 20)


# --- a scenario ------------------------------------------------------------------------------------------------------


def written(folder: Path, *streams: dict[str, Any], **more: Any) -> Path:
    path = folder / "s.yaml"
    whole = {"name": "s", "upf": {"groups": [GROUP]}, "streams": streams, "receive": {"mode": "count"}, **more}
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize(
    ("streams", "more", "problem"),
    [
        ([{**UP, "oversize": "cut"}], {}, "streams.0.oversize"),
        ([{**UP, "oversize": "outer", "mtu_bytes": 500}], {}, "streams.0.mtu_bytes"),
        ([{**UP, "mtu_bytes": 1400}], {}, "mtu_bytes goes with oversize: inner or outer"),
        ([{"name": "s", "count_packets": 1, "oversize": "outer"}], {}, "oversize goes with sessions"),
        ([{"name": "s", "count_packets": 1, "mtu_bytes": 1400}], {}, "mtu_bytes goes with sessions"),
        ([{**UP, "oversize": "outer", "echo": 10}], {}, "echo cannot send back fragments"),
        ([{**UP, "oversize": "outer"}, {**UP, "name": "e", "echo": 10}], {}, "does not reassemble fragments"),
        ([{**UP, "oversize": "outer"}], {"receive": {"mode": "capture"}}, "fragments are not captured"),
        ([{**UP, "oversize": "outer"}], {"receive": {"mode": "count", "filter": "udp"}}, "receive.filter reads ports"),
        (
            [{**UP, "oversize": "outer"}],
            {"traces": [{"name": "web", "file": "t.pcap", "sessions": "users", "direction": "up"}]},
            "would be taken for a packet without one of the trace web, whose users are the same",
        ),
        (
            [{**UP, "oversize": "inner", "ip": "ipv6"}],
            {"upf": {"groups": [{**GROUP, "ue_addresses": ["10.45.0.1/16", "2001:db8:45::1/48"]}]}},
            "oversize: inner needs IPv4 packets",
        ),
    ],
    ids=str,
)
def test_what_a_scenario_cannot_ask_for(
    tmp_path: Path, streams: list[dict[str, Any]], more: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInput) as caught:
        scenario.load(written(tmp_path, *streams, **more))
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def node(side: str, number: int) -> dict[str, Any]:
    net = {"n3": 92, "n6": 93}[side]
    own = {"mac": f"02:{net}:00:00:00:0{number}", "ipv4": f"10.{net}.0.{10 + number}"}
    return {"traffic_interface": "eth1", "side": side, **own}


def planned(folder: Path, *streams: dict[str, Any]) -> plan.Plan:
    names = {"n4_ipv4": "192.0.2.2", "n3_ipv4": "10.92.0.1", "n3_mac": "02:92:00:00:00:01"}
    upf = {**names, "n6_ipv4": "10.93.0.1", "n6_mac": "02:93:00:00:00:01"}
    nodes = {"tx1": node("n3", 2), "rx1": node("n6", 4)}
    groups: dict[str, Any] = {"master": {"hosts": {"m0": {}}}} | {
        name: {"hosts": nodes} for name in ("transmit", "receive")
    }
    hosts = folder / "hosts.yml"
    hosts.write_text(json.dumps({"all": {"vars": {"pktswarm_upf": upf}, "children": groups}}))
    path = written(folder, *streams)
    return plan.plan(scenario.load(path), path, inventory.load(hosts))


def interfaces(n3: int = 1500, n6: int = 1500) -> dict[str, dict[str, Any]]:
    return {"tx1": {"name": "eth1", "mtu": n3}, "rx1": {"name": "eth1", "mtu": n6}}


def test_streams_share_the_identifications(tmp_path: Path) -> None:
    streams = [
        UP,
        {**UP, "name": "a", "oversize": "outer"},
        {**DOWN, "oversize": "inner"},
        {**UP, "name": "c", "oversize": "outer"},
    ]
    legs = planned(tmp_path, *streams).legs
    assert [leg.oversize and leg.oversize.ids for leg in legs] == [None, (0, 21844), (21845, 43689), (43690, 65534)]


@pytest.mark.parametrize(
    ("stream", "mtus", "cut"),
    [
        ({**UP, "oversize": "outer"}, {}, ("outer", 1500)),
        ({**UP, "oversize": "outer"}, {"n6": 9000}, ("outer", 1500)),
        ({**UP, "oversize": "inner", "mtu_bytes": 1400}, {}, ("inner", 1400)),
        ({**DOWN, "oversize": "inner"}, {}, ("inner", 1456)),
        ({**DOWN, "oversize": "inner"}, {"n3": 9000}, ("inner", 1500)),
        ({**DOWN, "oversize": "inner", "mtu_bytes": 1000}, {}, ("inner", 956)),
        ({**DOWN, "oversize": "outer"}, {}, None),
    ],
)
def test_what_the_sender_cuts(
    tmp_path: Path, stream: dict[str, Any], mtus: dict[str, int], cut: tuple[str, int] | None
) -> None:
    found = planned(tmp_path, stream)
    oversize = to_cut(found.legs[0], found.tunnels[0], interfaces(**mtus)).oversize
    assert oversize is not None
    assert (oversize.cut, oversize.mtu_bytes) == cut if cut else oversize.cut is None


def test_where_users_move_the_smallest_mtu_holds(tmp_path: Path) -> None:
    found = planned(tmp_path, {**DOWN, "oversize": "inner"})
    leg = replace(found.legs[0], handover_targets=["tx2", "tx3"])
    others = {"tx2": {"name": "eth1", "mtu": 1300}, "tx3": {"name": "eth1", "mtu": 9000}}
    cut = to_cut(leg, found.tunnels[0], {**interfaces(), **others}).oversize
    assert cut is not None and cut.mtu_bytes == 1256 and leg.oversize is not None
    with pytest.raises(BadInput, match="mtu_bytes = 1400: more than the MTU of tx2's eth1"):
        oversize = replace(leg.oversize, mtu_bytes=1400)
        to_cut(replace(leg, oversize=oversize), found.tunnels[0], {**interfaces(), **others})


def test_an_mtu_that_the_interface_has_not(tmp_path: Path) -> None:
    found = planned(tmp_path, {**UP, "oversize": "outer", "mtu_bytes": 1600})
    with pytest.raises(BadInput) as caught:
        to_cut(found.legs[0], found.tunnels[0], interfaces())
    told = "streams.0.mtu_bytes = 1600: more than the MTU of tx1's eth1 (allowed: up to 1500)"
    assert told in str(caught.value)


def test_without_a_word_longer_packets_are_refused(tmp_path: Path) -> None:
    """Up, and down where the UPF's tunnel makes them too long."""
    reports = {name: {"interface": one} for name, one in interfaces().items()}
    for stream, size, most in ((UP, 1519, 1518), (DOWN, 1475, 1474)):
        leg = planned(tmp_path, {**stream, "size_bytes": size}).legs[0]
        with pytest.raises(BadInput) as caught:
            resolve_streams.check_mtu(leg, reports)
        told = f"a frame of '{stream['name']}' is longer than its MTU of 1500 bytes allows"
        assert told in str(caught.value)
        assert f"allowed: size_bytes up to {most}, or oversize: inner or outer" in str(caught.value)
        resolve_streams.check_mtu(replace(leg, size_bytes=most), reports)


def test_frames_are_held_against_the_interface_and_what_is_not_whole_is_told() -> None:
    node = NodeState(Rank(1, Host("rx1", "rx1", ("receive",)), "receive"))
    assert unfinished([node]) == []
    node.sent = [SendCount(0, "xdp", 10, sent_frames=25), SendCount(1, "xdp", 5)]
    assert sum_sent(node) == 30
    node.received = [ReceiveCount(0, "xdp", 1, unfinished_packets=1204), ReceiveCount(1, "xdp", 1)]
    assert unfinished([node]) == ["rx1: 1,204 packets with missing fragments"]


def test_the_example_shows_both_ways_to_cut() -> None:
    streams = scenario.load(Path("configs/upf/oversize.yaml")).streams
    assert [(one.direction, one.oversize) for one in streams] == [("up", "outer"), ("up", "inner"), ("down", "inner")]
