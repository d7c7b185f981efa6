"""The data network's echo: how many frames go back, whose they are, and what a run says of them."""

from __future__ import annotations

import ctypes
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank, ranks
from pktswarm.master.plan import explain, plan
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.scenario import scenario
from pktswarm.master.scenario.expectations import Expect
from pktswarm.nodes import libbpf
from pktswarm.nodes.receivers.echo import OBJECT
from pktswarm.traffic.counting import echo, expect, users
from pktswarm.traffic.counting.echo import MOST_PERCENT
from pktswarm.traffic.counting.kernel_structs import NUMBERED_BY_US
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask, SendCount, receive_task_from_json, to_json
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from run_events import NO_INPUTS, as_event
from test_ledger import COUNTERS
from test_upf_tunnels import DOWN, UP, UPF, ends, hosts_file, in_place, planned

PERCENTS = (0, 1, 7, 33, 50, 99, 100, 101, 250, 333, 499, 500)


@pytest.mark.parametrize("percent", PERCENTS)
def test_the_proportion_is_exact_in_each_hundred_and_within_one_frame_always(percent: int) -> None:
    total = 0
    for number in range(5050):
        assert echo.due(number, percent) == total
        assert abs(total - number * percent / 100) < 1
        if number % 100 == 0 or number < 100:
            assert total == number * percent // 100
        copies = echo.copies(number, percent)
        assert percent // 100 <= copies <= -(-percent // 100)
        total += copies


@pytest.mark.parametrize("count", [2, 10, 50, 100, 1000])
@pytest.mark.parametrize("percent", [10, 50, 250])
def test_users_who_take_turns_have_their_share_each(count: int, percent: int) -> None:
    rounds = 100_000 // count
    shares = [0] * count
    for number in range(rounds * count):
        shares[number % count] += echo.copies(number, percent)
    assert sum(shares) == echo.due(rounds * count, percent) == rounds * count * percent // 100
    furthest = max(abs(share - rounds * percent / 100) for share in shares)
    draws = min(rounds, 1000)  # one a hundred
    assert furthest <= 5 * rounds / draws * math.sqrt(draws) / 2 + 1


def test_what_comes_back_is_a_leg_of_its_own(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    found = planned(tmp_path, hosts, {**UP, "echo": 50}, DOWN)
    names = [(leg.id, leg.stream, leg.source, leg.target, leg.echo_of, leg.echo_percent) for leg in found.legs[:4]]
    assert names == [
        (0, "up", "tx1", "rx1", None, 0),
        (1, "up", "tx2", "rx1", None, 0),
        (2, "up-echo", "rx1", "tx1", 0, 50),
        (3, "up-echo", "rx1", "tx2", 1, 50),
    ]
    assert [leg.id for leg in found.legs] == list(range(6))
    up, _, back, *_ = in_place(found, hosts)
    for index in range(5):
        at_core, going_back = ends(up, index)[1], ends(back, index)[0]
        assert going_back[:12] == at_core[6:12] + at_core[:6]
        assert going_back[26:34] == at_core[30:34] + at_core[26:30]
        assert going_back[34:38] == at_core[36:38] + at_core[34:36]
        assert len(going_back) == len(at_core)
        # As a packet to that user from the data network would arrive.
        tunnel, arrived = 14 + 36, ends(back, index)[1]
        assert arrived[tunnel:] == going_back[14:]
    assert back.users is not None and up.users is not None
    assert users.values(back.users) == users.values(up.users)
    assert expect.numbered(back) == NUMBERED_BY_US


def test_ipv6_users_have_theirs_back(tmp_path: Path) -> None:
    """Told apart as they come back by their tunnels, and as they are sent back by their prefixes."""
    hosts = hosts_file(tmp_path, UPF)
    section = {"groups": [{"name": "users", "sessions": 5, "ue_addresses": "2001:db8:45::7/48"}]}
    up, _, back, _ = in_place(planned(tmp_path, hosts, {**UP, "echo": 50}, **section), hosts)
    assert back.users is not None and back.users.session is not None and up.users is not None
    assert back.users.session.direction == "down" and users.values(back.users) == users.values(up.users)
    for index in range(5):
        at_core, (going_back, arrived) = ends(up, index)[1], ends(back, index)
        assert going_back[:14] == at_core[6:12] + at_core[:6] + b"\x86\xdd"
        assert going_back[22:54] == at_core[38:54] + at_core[22:38]
        assert going_back[54:58] == at_core[56:58] + at_core[54:56]
        assert arrived[14 + 36 :] == going_back[14:]
    as_sent = replace(back.users, received=None)
    rule = users.rule(next(iter(templates_as_sent(back).values())), as_sent, 0)
    assert (rule.first, rule.step, rule.mask) == (0x2001_0DB8_0045_0000, 2, 2**64 - 1)


def test_only_receivers_have_to_do_with_it(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, UPF)
    found = planned(tmp_path, hosts, {**UP, "echo": 100})
    found_ranks = ranks(inventory.load(hosts), found.legs)
    assert [rank.host.name for rank in found_ranks if rank.role == "transmit"] == ["tx1", "tx2"]
    assert [rank.host.name for rank in found_ranks if rank.role == "receive"] == ["tx1", "tx2", "rx1"]
    task = ReceiveTask("eth1", "", [found.legs[0]], 9, echoes=[found.legs[2]])
    assert receive_task_from_json(to_json(task)) == task


def test_it_is_cut_off_with_what_it_is_of(tmp_path: Path) -> None:
    seldom = {**UP, "rate_pps": 0.2, "count_packets": 10, "echo": 100}
    found = planned(tmp_path, hosts_file(tmp_path, UPF), seldom, DOWN)
    some = [replace(leg, count_packets=0) if leg.stream == "up" else leg for leg in found.legs]
    assert [leg.stream for leg in plan._cut(some, 1.0, {}, {})] == ["down", "down"]
    # By the scenario's own cut-off the whole stream has no packet left.
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "stop_after_s": 1.0}))
    cut_off = plan.plan(scenario.load(file), file, inventory.load(hosts_file(tmp_path, UPF)))
    assert [leg.stream for leg in cut_off.legs] == ["down", "down"]
    left = plan._cut(list(found.legs), 10.0, {}, {})
    assert [leg.stream for leg in left] == ["up", "up", "up-echo", "up-echo", "down", "down"]


def test_what_it_does_is_told_before_a_host_is_touched(tmp_path: Path) -> None:
    back = planned(tmp_path, hosts_file(tmp_path, UPF), {**UP, "echo": 150}).legs[2]
    assert explain._line(back, 1) == "  up-echo: rx1 → tx1, 150 % of what arrives there comes back"


def test_the_scenario_that_ships_loads() -> None:
    assert [stream.echo for stream in scenario.load(Path("configs/upf/echo.yaml")).streams] == [100]


def test_percent_0_is_no_echo(tmp_path: Path) -> None:
    found = planned(tmp_path, hosts_file(tmp_path, UPF), {**UP, "echo": 0})
    assert [leg.stream for leg in found.legs] == ["up", "up"]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({"echo": MOST_PERCENT + 1}, r"streams\.0\.echo = 501: out of range \(allowed: up to 500"),
        ({"echo": -1}, r"streams\.0\.echo = -1: out of range \(allowed: 0 or more"),
        ({"echo": 33.3}, r"streams\.0\.echo = 33\.3: cannot be used \(allowed: a whole number"),
        ({"echo": True}, r"streams\.0\.echo = True: cannot be used \(allowed: a whole number"),
        ({"echo": 50, "direction": "down"}, r"streams\.0: echo needs direction: up"),
        ({"echo": 50, "sessions": None, "direction": None}, r"streams\.0: echo goes with sessions and direction: up"),
    ],
)
def test_a_wrong_echo_is_told(tmp_path: Path, stream: dict[str, object], words: str) -> None:
    given = {name: value for name, value in {**UP, **stream}.items() if value is not None}
    with pytest.raises(BadInput, match=words):
        planned(tmp_path, hosts_file(tmp_path, UPF), given)


def test_a_name_that_is_taken_and_a_node_that_cannot_receive_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"two streams, sources, traces or connections are called 'up-echo'"):
        planned(tmp_path, hosts_file(tmp_path, UPF), {**UP, "echo": 5}, {**UP, "name": "up-echo"})
    with pytest.raises(BadInput, match=r"streams\.0\.echo: tx1 has no role 'receive', which this direction needs"):
        planned(tmp_path, hosts_file(tmp_path, UPF, roles="one"), {**UP, "echo": 5})


# --- what a run says -------------------------------------------------------------------------------------------------

N3 = Host("tx1", "10.0.0.1", ("transmit", "receive"), traffic_interface="eth1")
N6 = Host("rx1", "10.0.0.2", ("receive",), traffic_interface="eth1")
LEGS = [
    Leg(0, "up", "tx1", "rx1", "stream", "xdp", intended_packets=1000),
    Leg(1, "up-echo", "rx1", "tx1", "stream", "xdp", echo_of=0, echo_percent=33),
]
TALLY = {"altered": 0, "duplicated": 0, "reordered": 0, "too_late": 0, "invalid_sequence": 0}
LATENCY = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), 700) | {"mean_ns": 700.0}


def a_run(received: int, sent_back: int, came_back: int) -> Ledger:
    """1,000 packets up and 33 % back, as the nodes tell it; the clocks are 5 s apart."""
    made = Ledger([Rank(1, N3, "transmit"), Rank(2, N3, "receive"), Rank(3, N6, "receive")])
    made.resolved = Resolved(list(LEGS))
    made.take(as_event({"event": "start", "at_ns": 1_000, "utc_ns": 5_000_000_000}))
    for rank in (1, 2, 3):
        clock = {"at_ns": 900, "offset_ns": 5_000_000_000 * (rank == 3), "bound_ns": 9, "round_trip_ns": 18}
        for when in ("before", "start"):
            made.take(
                as_event({"event": "clock", "rank": rank, "when": when, "realtime_minus_monotonic_ns": 0, **clock})
            )

    def arrived(leg: int, packets: int) -> ReceiveCount:
        latency = {"frames": packets, **LATENCY}
        tally = {"packets": packets, "bytes": 0, "distinct": packets, **TALLY, "latency": latency}
        return ReceiveCount(leg, "xdp", packets, 60 * packets, 1, 2, tally=tally)

    counts: dict[int, list[SendCount | ReceiveCount]] = {
        1: [SendCount(0, "xdp", 1000, 60_000)],
        2: [arrived(1, came_back)],
        3: [arrived(0, received), SendCount(1, echo.NAME, sent_back, 60 * sent_back)],
    }
    interface = {**COUNTERS, "tx_packets": 5000, "rx_packets": 5000}
    for rank, told in counts.items():
        event = {"event": "counts", "rank": rank, "counts": [asdict(one) for one in told]}
        made.take(as_event({**event, "interface": interface}))
    made.take(as_event({"event": "phase", "name": "over", "at_ns": 9}))
    return made


def test_sent_up_echoed_and_received_back_each_are_told() -> None:
    made = a_run(received=1000, sent_back=330, came_back=330)
    up, back = (stream_values(row) for row in made.rows())
    assert (up["sent_packets"], up["received_packets"], up["latency_by"]) == (1000, 1000, "stamps")
    assert (back["intended_packets"], back["sent_packets"], back["received_packets"]) == (330, 330, 330)
    assert (back["lost_packets"], back["engine"]) == (0, "echo")
    # One clock: what the nodes' clocks stand apart is no part of it.
    assert (back["latency_by"], back["latency_p50_ns"], back["latency_bound_ns"]) == ("round trip", 700, 0)
    outcome = made.outcome(Expect(loss=0, sent="intended"), NO_INPUTS)
    assert (outcome.status, outcome.reason) == (0, "as expected")
    assert "echo" not in outcome.document["first_frame_skew_ns"]


def test_what_the_upf_lost_on_the_way_up_was_not_to_go_back() -> None:
    made = a_run(received=990, sent_back=echo.due(990, 33), came_back=320)
    verdicts = made.outcome(Expect(loss=0, sent="intended"), NO_INPUTS).document["verdicts"]
    failed = [one["text"] for one in verdicts if not one["holds"]]
    lost = echo.due(990, 33) - 320
    assert failed == ["up: lost 10, expected at most 0", f"up-echo: lost {lost}, expected at most 0"]


def test_an_echo_that_is_not_in_proportion_is_told() -> None:
    made = a_run(received=1000, sent_back=329, came_back=329)
    outcome = made.outcome(Expect(sent="intended"), NO_INPUTS)
    assert (outcome.status, outcome.reason) == (1, "up-echo: sent 329, expected 330")


def test_what_comes_back_takes_as_long_as_what_goes() -> None:
    """Against an MBR stands what a user received over the time that was sent in."""
    made = a_run(received=1000, sent_back=330, came_back=330)
    user = FlowUsers("ipv4.src", "src_ip", 1, 1, 1)
    made.resolved = Resolved([replace(leg, users=user) for leg in LEGS])
    assert made.nodes[1].sent is not None
    made.nodes[1].sent[0] = replace(made.nodes[1].sent[0], seconds=1.998, users=[1000])
    assert [row.users.sending_s for row in made.rows() if row.users is not None] == pytest.approx([2.0, 2.0])


def test_too_few_frames_for_one_to_go_back_are_no_loss() -> None:
    made = a_run(received=1000, sent_back=0, came_back=0)
    made.resolved.legs[1] = replace(LEGS[1], echo_percent=0)
    assert made.outcome(Expect(loss=0), NO_INPUTS).status == 0


# --- the shared structs ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing())
@pytest.mark.parametrize("name", echo.SHARED)
def test_both_sides_have_the_same_structs(name: str) -> None:
    record = echo.SHARED[name]
    places = {field: getattr(record, field) for field, *_ in record._fields_}
    layout = libbpf.struct_layout(OBJECT, name)
    assert layout == {field: (place.offset, place.size) for field, place in places.items()}
    assert ctypes.sizeof(record) == max(at + size for at, size in layout.values())
