"""Users that move to other gNBs: where their frames are counted, what nodes' counts come to together, what is told."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank, ranks
from pktswarm.master.plan.plan import Plan
from pktswarm.master.plan.session_streams import moved_in_tunnels
from pktswarm.master.results import handover_report, handover_rows, samples
from pktswarm.master.results.count_verdicts import judge_tunnels
from pktswarm.master.results.row import ReceivedCounts, ReceiverCounts, Row, SentCounts
from pktswarm.master.results.users import Users
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.upf.moves import Move, Moves
from pktswarm.master.upf.sessions import Sessions
from pktswarm.traffic.counting import sequence_bitmap, users
from pktswarm.traffic.counting.tally import Latency, Tally
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Arrival, FlowUsers, Leg, SessionUsers
from pktswarm.traffic.protocol.proxy_count import ProxyCount
from pktswarm.traffic.protocol.rank_events import Sample
from pktswarm.traffic.schedule.leg_frames import templates_as_received
from run_events import as_event, packed
from test_upf_tunnels import DOWN, GROUP, UP, UPF, hosts_file, node, planned, session_of, users_of

HANDOVER = {"group": "users", "users_per_s": 10}
THREE = {
    "tx1": node("n3", 2),
    "tx2": node("n3", 3),
    "tx3": node("n3", 5),
    "rx1": node("n6", 4, ipv6="2001:db8:93::e"),
}


def moving(folder: Path, *streams: dict[str, Any], **section: Any) -> tuple[Plan, Path]:
    hosts = hosts_file(folder, UPF, nodes=THREE)
    return planned(folder, hosts, *streams, **{"handover": HANDOVER, **section}), hosts


# --- the plan --------------------------------------------------------------------------------------------------------


def test_down_a_leg_is_counted_at_every_gnb_and_up_where_it_was(tmp_path: Path) -> None:
    found, hosts = moving(tmp_path, UP, DOWN)
    assert [leg.receivers for leg in found.legs if leg.stream == "up"] == [["rx1"]] * 3
    assert [leg.receivers for leg in found.legs if leg.stream == "down"] == [
        ["tx1", "tx2", "tx3"],
        ["tx2", "tx1", "tx3"],
        ["tx3", "tx1", "tx2"],
    ]
    assert found.legs[-1].to == "tx3+tx1+tx2"
    (note,) = found.notes
    assert note.startswith("up: users that move continue to send from their first gNB")
    receiving = {rank.host.name for rank in ranks(inventory.load(hosts), found.legs) if rank.role == "receive"}
    assert receiving == {"tx1", "tx2", "tx3", "rx1"}


def test_users_of_one_gnb_may_move_to_those_where_nobody_began(tmp_path: Path) -> None:
    found, hosts = moving(tmp_path, DOWN, groups=[{**GROUP, "gnb": "tx2"}, {**GROUP, "name": "others", **OTHERS}])
    assert [leg.receivers for leg in found.legs] == [["tx2", "tx1", "tx3"]]
    assert {rank.host.name for rank in ranks(inventory.load(hosts), found.legs)} == {"tx1", "tx2", "tx3", "rx1"}
    others, _ = moving(tmp_path, {**DOWN, "sessions": "others"}, groups=[GROUP, {**GROUP, "name": "others", **OTHERS}])
    assert [leg.handover_targets for leg in others.legs] == [[]] * 3


OTHERS = {"ue_addresses": "10.46.0.1/16"}


def test_at_another_gnb_a_user_has_the_same_tunnel_to_another_address(tmp_path: Path) -> None:
    found, hosts = moving(tmp_path, DOWN)
    assert found.upf is not None
    sessions = Sessions(found.upf)
    sessions.upf_v4[:] = int(IPv4Address("10.92.0.1"))
    known = {host.name: host for host in inventory.load(hosts).hosts}
    legs = [(leg, found.tunnels[leg.id]) for leg in found.legs]
    for (home, tunnels), rows in zip(legs, ([0, 3], [1, 4], [2]), strict=True):
        there = moved_in_tunnels(home, tunnels, found.upf, sessions, known)
        assert [leg.target for leg in there] == home.handover_targets
        for leg in there:
            assert (leg.id, sorted(leg.receivers)) == (home.id, ["tx1", "tx2", "tx3"])
            (template,) = templates_as_received(leg).values()
            for number, row in enumerate(rows):
                frame = template.frame(number, random.Random(1))
                assert frame[:6].hex(":") == known[leg.target].mac
                assert frame[30:34] == IPv4Address(known[leg.target].ipv4).packed
                assert int.from_bytes(frame[46:50], "big") == row + 1
            assert users.values(users_of(leg)) == [f"10.45.0.{row + 1}" for row in rows]
            assert session_of(leg).gnb == home.target


@pytest.mark.parametrize(
    ("stream", "section", "words"),
    [
        ({"echo": 100}, {}, r"streams\.0\.sessions = 'users': its users move \(upf\.handover\); echo would measure"),
        ({"direction": "down", "rate_pps": None}, {}, r"its users move .* counted at several gNBs: a rate is needed"),
        (
            {"direction": "down"},
            {"gnbs": {"a": "10.92.0.12", "far": "10.99.0.1"}, "groups": [{**GROUP, "gnb": "a"}]},
            r"upf\.gnbs\.far = '10\.99\.0\.1': streams\.0 needs a node there.*tx1 10\.92",
        ),
        (
            {"direction": "down"},
            {"gnbs": {"a": "10.92.0.12"}},
            r"handover of group users: two gNBs of one kind are needed",
        ),
        ({}, {"handover": {**HANDOVER, "users_per_s": 0}}, r"upf\.handover\.users_per_s = 0"),
        ({}, {"handover": {**HANDOVER, "group": "nobody"}}, r"handover: no group 'nobody'; groups are users"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, stream: dict[str, Any], section: dict[str, Any], words: str) -> None:
    given = {name: value for name, value in {**UP, **stream}.items() if value is not None}
    with pytest.raises(BadInput, match=words):
        moving(tmp_path, given, **section)


def test_what_moves_is_not_captured(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    for way, refused in ((UP, False), (DOWN, True)):
        path = tmp_path / "s.yaml"
        planned(tmp_path, hosts, way, handover=HANDOVER)
        whole = json.loads(path.read_text())
        path.write_text(json.dumps({**whole, "receive": {"mode": "capture"}}))
        if refused:
            with pytest.raises(BadInput, match=r"its users move .* and are not captured: set receive: \{mode: count\}"):
                scenario_of(path)
        else:
            assert scenario_of(path).upf is not None


def scenario_of(path: Path) -> Any:
    from pktswarm.master.scenario import scenario

    return scenario.load(path)


# --- what several nodes counted --------------------------------------------------------------------------------------

LEG = Leg(
    7,
    "down",
    "rx1",
    "tx1",
    "stream",
    "xdp",
    intended_packets=200,
    arrives=Arrival([]),
    users=FlowUsers("ipv4.dst", "dst_ip", 1, 1, 2, session=SessionUsers("users", "a", "down")),
    handover_targets=["tx2"],
)


def counted(came: set[int], delay_ns: int, shift_ns: int = 0, **more: int) -> ReceiverCounts:
    """What a node counted of a leg whose two users take turns: each number came once."""
    each = [[n for n in came if n % 2 == user] for user in (0, 1)]
    received = ReceivedCounts(len(came) + more.get("duplicated", 0), 100 * len(came))
    marks = sequence_bitmap.pack(
        struct.pack("=4Q", *(sum(1 << n - at for n in came if at <= n < at + 64) for at in AT))
    )
    points = dict.fromkeys(("p50_ns", "p90_ns", "p99_ns", "p999_ns"), delay_ns + shift_ns)
    latency = Latency(len(came), delay_ns + shift_ns, delay_ns + shift_ns, **points, max_ns=delay_ns + shift_ns)
    figures: dict[str, Any] = {
        "duplicated": 0,
        "reordered": 0,
        "too_late": 0,
        "invalid_sequence": 0,
        "altered": 0,
        **more,
    }
    received.tally = Tally(received.packets or 0, 0, distinct=len(came), latency=latency if came else None, **figures)
    received.delays = [(delay_ns + shift_ns, len(came))]
    counts = ReceiverCounts(received, Users(LEG, True, shift_ns=shift_ns), marks)
    count = [len(one) for one in each] + [0]
    times = [[delay_ns if one else 0 for one in count]] * 2
    sums = [delay_ns * one for one in count]
    columns = dict(zip(users.COLUMNS, (count, count, count, count, sums, *times, [0] * 3), strict=True))
    columns["packets"] = [count[0] + more.get("duplicated", 0), count[1], 0]
    counts.users.received = columns
    received.latency_bound_ns = delay_ns // 10
    received.first_ns, received.last_ns = min(came, default=None), max(came, default=None)
    return counts


AT = (0, 64, 128, 192)


def together(**receivers: ReceiverCounts) -> Row:
    row = Row(LEG, 200, SentCounts("xdp", 200), users=Users(LEG))
    assert row.users is not None
    row.users.sent = [100, 100]
    handover_rows.merge(row, receivers)
    return row


def test_lost_is_what_came_to_no_node() -> None:
    row = together(
        tx1=counted(set(range(80)) - {3}, 1000, shift_ns=50), tx2=counted(set(range(80, 200)) - {101, 190}, 3000)
    )
    assert (row.received.packets, row.lost, row.received.bytes, row.handover.duplicated) == (197, 3, 19700, 0)
    assert row.received.tally is not None and row.received.tally.jitter is None and row.users is not None
    assert (
        row.received.tally.distinct,
        row.received.tally.duplicated,
        row.received.first_ns,
        row.received.last_ns,
    ) == (197, 0, 0, 199)
    assert row.users.lost() == [1, 2]
    latency = row.received.tally.latency
    assert latency is not None and (latency.min_ns, latency.max_ns, latency.p50_ns) == (1050, 3000, 3000)
    assert latency.mean_ns == (79 * 1050 + 118 * 3000) / 197 and latency.frames == 197
    assert row.users.row(0)["latency_min_ns"] == 1050 and row.users.row(0)["latency_max_ns"] == 3000
    assert row.users.latency_means_ns()[0] == (40 * 1050 + 59 * 3000) / 99
    assert row.received.latency_bound_ns == 300
    assert [one["received_packets"] for one in handover_rows.document(row)["each"]] == [79, 118]


def test_what_came_to_two_nodes_hides_no_loss() -> None:
    row = together(tx1=counted(set(range(100)), 1000), tx2=counted(set(range(90, 200)) - {150}, 1000, duplicated=1))
    assert (row.received.packets, row.lost, row.handover.duplicated) == (210, 1, 10)
    assert row.received.tally is not None and row.received.tally.duplicated == 11
    (note,) = handover_rows.notes([row])
    assert note.startswith("down from rx1: 10 packets arrived at more than one gNB and count as duplicates")
    # Of users it is not known; nor are these packets taken for another user's.
    assert row.users is not None and sum(row.users.lost() or []) == 1 - 10
    assert judge_tunnels(Expect(loss=0), [row])[0]["holds"]
    row.users.received = {**(row.users.received or {}), "distinct": [120, 90, 0]}
    assert judge_tunnels(Expect(loss=0), [row])[0]["text"] == "down: 10 arrived as another user's, expected 0"


def test_packets_in_fragments_are_told_by_the_frames_of_all_nodes() -> None:
    whole, cut = counted(set(range(80)), 1000), counted(set(range(80, 200)), 1000)
    assert together(tx1=whole, tx2=cut).received.frames is None
    cut.received.frames = 300
    row = together(tx1=whole, tx2=cut)
    assert (row.received.packets, row.received.frames) == (200, 380)
    assert [one["received_frames"] for one in handover_rows.document(row)["each"]] == [None, 300]


def test_a_node_where_nothing_came_and_one_that_said_nothing() -> None:
    row = together(tx1=counted(set(range(200)), 1000), tx2=counted(set(), 0))
    assert (row.received.packets, row.lost) == (200, 0)
    assert (
        row.received.tally is not None
        and row.received.tally.latency is not None
        and row.received.tally.latency.max_ns == 1000
    )
    missing = together(tx1=counted(set(range(200)), 1000))
    assert (missing.received.packets, missing.received.tally, missing.lost) == (None, None, None)
    assert missing.users is not None and missing.users.received is None


def test_frames_of_packets_in_fragments_are_those_of_all_nodes() -> None:
    """A node where none came in fragments does not tell: there a packet was a frame."""
    here, there = counted(set(range(80)), 1000), counted(set(range(80, 200)), 1000)
    assert together(tx1=here, tx2=there).received.frames is None
    here.received.frames = 240
    row = together(tx1=here, tx2=there)
    assert row.received.frames == 240 + 120
    assert [one["received_frames"] for one in handover_rows.document(row)["each"]] == [240, None]


def test_a_sample_tells_where_it_was_taken_and_not_what_is_missing_there() -> None:
    interface = {"tx_packets": 5, "tx_bytes": 300, "rx_packets": 1, "rx_bytes": 60, "rx_dropped": 0}
    taken = {"event": "sample", "rank": 1, "at_ns": 0, "interface": interface}
    event = as_event({**taken, **packed({7: {"packets": 3, "missing": 9}})})
    assert isinstance(event, Sample)
    row = dict(zip(samples.COLUMNS, samples.rows(event, "tx2", "receive", 12, {7: LEG})[1], strict=True))
    assert (row["from"], row["to"], row["received_packets"], row["missing_packets"]) == ("rx1", "tx2", 3, None)
    event = as_event({**taken, **packed({7: {"sent_packets": 3}})})
    assert isinstance(event, Sample)
    row = dict(zip(samples.COLUMNS, samples.rows(event, "rx1", "transmit", 12, {7: LEG})[1], strict=True))
    assert (row["from"], row["to"], row["sent_packets"]) == ("rx1", "tx1+tx2", 3)


# --- what is told ----------------------------------------------------------------------------------------------------


def host_state(name: str, ended: dict[str, int] | None) -> NodeState:
    host = Host(name, name, ("receive",))
    counts = {"end_marker": sum((ended or {}).values())}
    told = None if ended is None else ProxyCount(counts, {}, ended, 0)
    return NodeState(Rank(1, host, "receive"), played=told)


PLAYS = {"tx1": ["10.92.0.12"], "tx2": ["10.92.0.13"], "rx1": ["10.93.0.14"]}
MOVES = Moves(
    group="users",
    end_marker=True,
    intended=7,
    requested=6,
    failures={"group users: no answer (sent once)": 1},
    accepted=[
        Move(10, "10.92.0.12", 1),
        Move(20, "10.92.0.13", 2),
        Move(30, "10.92.0.13", 1),
        Move(40, "10.99.0.1", 3),
        Move(50, "10.92.0.12", 1),
    ],
    by_user={"a": ([3, 0, 0], [0, 1, 0]), "b": ([1, 1], [0, 0])},
)


def fared(direction: Literal["up", "down"], gnb: str, sent: list[int], lost: list[int]) -> Users:
    told = FlowUsers("ipv4.dst", count=len(sent), session=SessionUsers("users", gnb, direction))
    one = Users(replace(LEG, users=told), True, sent)
    one.received = {
        "distinct": [all_ - gone for all_, gone in zip(sent, lost, strict=True)],
        "damaged": [0] * len(sent),
    }
    one.moves = MOVES.of(one.leg)
    return one


def test_end_markers_are_looked_for_in_the_tunnel_that_was_left_at_the_gnb_that_was_left() -> None:
    nodes = [host_state("tx1", {"1": 1, "2": 1}), host_state("tx2", {"2": 1, "1": 1}), host_state("rx1", {})]
    told = handover_report.report(MOVES, [], PLAYS, nodes, gathered_ns=45)
    # TEID 2 ended at the wrong gNB; 10.99.0.1 is nobody's, and the last move was answered too late.
    assert told["end_markers"] == {"asked": 3, "came": 3, "others": 1, "not_looked_for": 2}
    later = handover_report.report(MOVES, [], PLAYS, [*nodes[:1], host_state("tx2", None)], gathered_ns=None)
    assert later["end_markers"] == {"asked": 2, "came": 1, "others": 1, "not_looked_for": 3}
    assert handover_report.report(replace(MOVES, end_marker=False), [], PLAYS, nodes, 45)["end_markers"] is None


def test_users_that_moved_are_told_apart_from_those_that_did_not() -> None:
    each = [
        fared("down", "a", [10, 10, 10], [2, 1, 0]),
        fared("down", "b", [10, 10], [-1, 3]),
        fared("up", "a", [10, 10, 10], [0, 0, 4]),
    ]
    other = Users(
        replace(LEG, users=FlowUsers("ipv4.dst", count=1, session=SessionUsers("others", "a", "down"))), True, [5]
    )
    other.moves = MOVES.of(other.leg)
    told = handover_report.report(MOVES, [*each, other], PLAYS, [], 45)
    assert told["users"] == {"moved": 3, "failed": 1, "stayed": 1}
    assert told["lost"] == {
        "down": {
            "moved": {"users": 3, "lost_packets": 5, "sent_packets": 30},
            "failed": {"users": 1, "lost_packets": 1, "sent_packets": 10},
            "stayed": {"users": 1, "lost_packets": 0, "sent_packets": 10},
        },
        "up": {
            "moved": {"users": 1, "lost_packets": 0, "sent_packets": 10},
            "failed": {"users": 1, "lost_packets": 0, "sent_packets": 10},
            "stayed": {"users": 1, "lost_packets": 4, "sent_packets": 10},
        },
    }
    first, down, up = handover_report.lines(told)
    assert first == (
        "handover of users: 5 of 6 requests accepted (7 intended), 3 of 5 users moved; "
        "0 of 0 end markers arrived at the gNBs that users left, 5 not counted"
    )
    assert down == (
        "handover, down: users that moved (3) lost 5 of 30 packets; users with failed handovers (1) "
        "lost 1 of 10 packets; users that stayed (1) lost 0 of 10 packets"
    )
    assert up.endswith("users that stayed (1) lost 4 of 10 packets")
    assert (each[0].moves, other.moves) == (([3, 0, 0], [0, 1, 0]), None)


def test_what_was_not_measured_is_not_told_as_nothing() -> None:
    one = fared("down", "b", [10, 10], [0, 0])
    one.received = None
    told = handover_report.report(MOVES, [one], PLAYS, [], 45)
    assert told["lost"] == {"down": dict.fromkeys(("moved", "failed", "stayed"))}
    assert "loss of users that moved not measured" in handover_report.lines(told)[1]
