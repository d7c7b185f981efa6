"""Connections from the scenario to the results: legs, addresses, what tells their frames, rows, doubts, verdicts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan import durations, plan, resolve
from pktswarm.master.plan.explain import explain
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.folder import Outcome
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.scenario import scenario
from pktswarm.master.scenario.expectations import Expect
from pktswarm.nodes.connections.control import Failed, Message, Ready, Signal, UdpPorts, decode, encode
from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.connections.counts import COLUMNS, EndCount, ReceivedCount, SentCount, values
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import ConnectionShape, Leg
from pktswarm.traffic.protocol.task import ReceiveCount, SendCount, legs_of
from pktswarm.traffic.schedule.capabilities import choose
from run_events import NO_INPUTS, as_event

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}, rx2: {}}}
"""
TCP = "{name: t, block_bytes: 9140, period_s: 0.014, duration_s: 2}"
ONE_PAIR = TCP.replace("name: t", "name: t, from: tx1, to: rx1")
UDP = "{name: u, protocol: udp, block_bytes: 9140, period_s: 0.014, blocks: 10}"


def made(tmp_path: Path, text: str, hosts: str = HOSTS) -> tuple[scenario.Scenario, plan.Plan, inventory.Inventory]:
    (tmp_path / "hosts.yml").write_text(hosts)
    path = tmp_path / "test.yaml"
    path.write_text("name: test\n" + text)
    read = inventory.load(tmp_path / "hosts.yml")
    loaded = scenario.load(path)
    return loaded, plan.plan(loaded, path, read), read


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def report(number: int, mtu: int = 1500) -> dict[str, Any]:
    interface = {"name": "eth1", "exists": True, "carrier": True, "mtu": mtu, "mac": mac(number)}
    return {
        "interface": {**interface, "ipv4": f"10.0.0.{number}"},
        "senders": {"xdp": "no live frames here", "trafgen": "", "tcpreplay": "", "socket": ""},
        "receivers": {"xdp": "not on this node", "netsniff-ng": "", "socket": ""},
    }


def resolved(tmp_path: Path, text: str, hosts: str = HOSTS, mtu: int = 1500) -> Resolved:
    loaded, planned, read = made(tmp_path, text, hosts)
    reports = {host.name: report(number, mtu) for number, host in enumerate(read.hosts, start=1)}
    return resolve.resolve(loaded, planned, {host.name: host for host in read.hosts}, reports)


# --- scenario and plan --------------------------------------------------------------------------------------------


def refused(tmp_path: Path, connection: str) -> str:
    with pytest.raises(BadInput) as caught:
        made(tmp_path, f"connections: [{connection}]")
    assert "test.yaml" in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("block_bytes: 9140, ", "", ["connections.0", "block_bytes or source is needed"]),
        ("period_s: 0.014", "source: {ftp: {}}", ["connections.0", "block_bytes or source is needed, and not both"]),
        (", duration_s: 2", "", ["connections.0", "blocks or duration_s is needed"]),
        ("period_s: 0.014", "period_s: 0", ["connections.0.period_s", "0"]),
        ("period_s: 0.014", "protocol: sctp", ["connections.0.protocol", "'sctp'", "allowed: tcp, udp"]),
        ("period_s: 0.014", "connections: 0", ["connections.0.connections", "0"]),
        ("period_s: 0.014", "direction: sideways", ["connections.0.direction", "'sideways'"]),
        ("period_s: 0.014", "pace: 5", ["connections.0.pace", "unknown key", "pace_bps", "from"]),
        ("period_s: 0.014", "congestion: 'no such'", ["connections.0.congestion", "'no such'"]),
        ("period_s: 0.014", "protocol: udp", ["connections.0", "period_s or pace_bps is needed with UDP"]),
        ("period_s: 0.014", "protocol: udp, nodelay: true", ["connections.0", "protocol: tcp"]),
        ("block_bytes: 9140", "protocol: udp, block_bytes: 31", ["connections.0", "32 or more"]),
        ("name: t,", "name: t, to: rx9,", ["connections.0.to", "'rx9'", "rx1, rx2"]),
        ("name: t,", "name: t, origin: tx1,", ["connections.0.origin", "unknown key"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in TCP
    message = refused(tmp_path, TCP.replace(old, new))
    assert all(word in message for word in words), message


def legs_planned(tmp_path: Path, connection: str) -> tuple[Leg, ...]:
    return made(tmp_path, f"connections: [{connection}]")[1].legs


def test_a_source_gives_its_users_items_to_the_connections_in_turn(tmp_path: Path) -> None:
    text = "{name: t, source: {mpeg: {}}, users: 3, connections: 2, duration_s: 2}"
    items = legs_planned(tmp_path, text)[0].connection.items
    assert items is not None
    first, second = items
    assert (len(first), len(second)) == (120, 60)  # two users and one, 30 pictures a second
    assert first == sorted(first) and all(0 <= due < 2e9 and size >= 1 for due, size in first + second)


def test_pairs_draw_apart_and_a_seed_draws_again(tmp_path: Path) -> None:
    text = "{name: t, source: www, mean_bps: 1e6, duration_s: 2SEED}"
    one, two = [leg.connection.items for leg in legs_planned(tmp_path, text.replace("SEED", ""))][:2]
    assert one != two
    again = [leg.connection.items for leg in legs_planned(tmp_path, text.replace("SEED", ", seed: 1"))][:2]
    assert again == [one, two]
    assert legs_planned(tmp_path, text.replace("SEED", ", seed: 2"))[0].connection.items != one


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("source: {ftp: {items: 3}}, duration_s: 2", "connections.0.source.ftp"),
        ("source: voip, users: 4, mean_bps: 9, duration_s: 2", "connections.0.mean_bps"),
        ("source: voip, profile: {steady: 1}, duration_s: 2", "connections.0.profile"),
        ("source: ftp, duration_s: 0.001", "connections.0.duration_s = 0.001: sends no packet"),
        (
            "source: {mpeg: {i_bytes: 5.0e+9, link_bps: 1.0e+15}}, duration_s: 2",
            "connections.0.source = 5000000000: an item is too large",
        ),
        ("block_bytes: 9, blocks: 2, users: 3", "users goes with a source"),
    ],
)
def test_a_source_that_cannot_be_is_refused(tmp_path: Path, given: str, words: str) -> None:
    assert words in refused(tmp_path, f"{{name: t, {given}}}")


def test_names_are_unique_over_streams_and_connections(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'t'"):
        made(tmp_path, f"connections: [{TCP}]\nstreams: [{{name: t, count_packets: 1}}]")


def test_every_pair_has_the_whole_of_it(tmp_path: Path) -> None:
    _, planned, _ = made(tmp_path, f"connections: [{TCP.replace('name: t', 'name: t, connections: 3')}]")
    assert [(leg.source, leg.target, leg.kind, leg.engine) for leg in planned.legs] == [
        ("tx1", "rx1", "connections", "socket"),
        ("tx2", "rx2", "connections", "socket"),
    ]
    for leg in planned.legs:
        assert (leg.connection.connections, leg.connection.period_ns) == (3, 14_000_000)
        assert leg.connection.duration_ns == 2_000_000_000
    assert planned.expected_s == 2.0


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ("block_bytes: 1000, period_s: 0.5, blocks: 10", 5.0),
        ("block_bytes: 125000, blocks: 10, pace_bps: 2000000", 5.0),
        ("block_bytes: 125000, blocks: 10, period_s: 0.1, pace_bps: 2000000", 5.0),
        ("block_bytes: 125000, blocks: 10", 10 * 125_000 * 8 / durations.SLOWEST_BPS),
    ],
)
def test_the_time_it_takes_bounds_the_run(tmp_path: Path, shape: str, seconds: float) -> None:
    _, planned, _ = made(tmp_path, f"connections: [{{name: t, {shape}}}]")
    assert planned.expected_s == pytest.approx(seconds)


def test_it_is_explained_in_a_line_a_leg(tmp_path: Path) -> None:
    made(tmp_path, f"connections: [{TCP.replace('name: t', 'name: t, direction: both, pace_bps: 5750000')}]")
    lines = explain(tmp_path / "test.yaml", tmp_path / "hosts.yml").splitlines()
    assert lines[1] == (
        "  t: tx1 ↔ rx1, 1 TCP connection, blocks of 9,140 bytes every 14 ms, paced at 5.75 Mbit/s each, by socket"
    )


def test_only_the_socket_engine_makes_connections() -> None:
    leg = Leg(0, "t", "a", "b", "connections", "auto")
    assert choose(leg, {"xdp": "", "pktgen": "", "trafgen": "", "tcpreplay": ""})[0] == ""
    stream = Leg(0, "s", "a", "b", "stream", "socket")
    assert "connections only" in choose(stream, {"socket": ""})[1][0]


# --- addresses and matches ----------------------------------------------------------------------------------------


def test_addresses_follow_the_order_of_hosts_and_are_never_their_own(tmp_path: Path) -> None:
    _, _, read = made(tmp_path, f"connections: [{TCP}]")
    assert [host.socket_ipv4 for host in read.hosts] == [(f"198.19.0.{n}/16",) for n in (1, 2, 3, 4)]


def test_a_host_with_both_roles_has_two(tmp_path: Path) -> None:
    _, _, read = made(tmp_path, f"connections: [{TCP}]", HOSTS.replace("rx2: {}", "tx2: {traffic_interface: eth1}"))
    assert read.host("tx2").socket_ipv4 == ("198.19.0.2/16", "198.19.128.2/15")


def test_two_addresses_of_one_network_are_refused(tmp_path: Path) -> None:
    both = HOSTS.replace("rx2: {}", "tx2: {traffic_interface: eth1}")
    with pytest.raises(BadInput, match=r"tx2.socket_ipv4.*two prefix lengths are needed"):
        made(tmp_path, f"connections: [{TCP}]", both.replace("tx2: {}", "tx2: {socket_ipv4: [10.1.0.1, 10.1.0.2]}"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tx1: {socket_ipv4: 198.19.0.300}", ["tx1.socket_ipv4", "'198.19.0.300'", "not an IPv4 address"]),
        ("tx1: {socket_ipv4: [10.0.0.1, 10.0.0.2]}", ["tx1.socket_ipv4", "2 addresses", "1, as many"]),
        ("tx1: {socket_ipv4: 5}", ["tx1.socket_ipv4", "not an IPv4 address"]),
        ("tx1: {socket_ipv4: 198.19.0.2}", ["tx2 and tx1", "socket_ipv4", "198.19.0.2"]),
        ("tx1: {ipv4: 198.19.0.3}", ["socket_ipv4", "198.19.0.3"]),
    ],
)
def test_wrong_addresses_are_named(tmp_path: Path, given: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        made(tmp_path, f"connections: [{TCP}]", HOSTS.replace("tx1: {}", given))
    assert all(word in str(caught.value) for word in words), caught.value


def test_legs_get_addresses_ports_and_the_mtus_room(tmp_path: Path) -> None:
    found = resolved(tmp_path, f"connections: [{TCP}, {UDP}]", mtu=1400)
    assert [leg.connection.port for leg in found.legs] == [20000, 20001, 20002, 20003]
    first = found.legs[0].connection
    assert (first.source_ipv4, first.target_ipv4) == ("198.19.0.1/16", "198.19.0.3/16")
    assert first.datagram_bytes == 1372
    assert {task.engine for task in found.receives.values()} == {"socket"}


def test_a_block_of_more_datagrams_than_can_be_numbered_is_refused(tmp_path: Path) -> None:
    large = UDP.replace("9140", str(65535 * (576 - 28)))
    assert resolved(tmp_path, f"connections: [{large}]", mtu=576).legs
    with pytest.raises(BadInput, match=r"u: block_bytes = 35913181: .*MTU of 576 bytes .*up to 35913180"):
        resolved(tmp_path, f"connections: [{large.replace('35913180', '35913181')}]", mtu=576)


def test_two_networks_do_not_meet(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rx1.*socket_ipv4 = '10.9.0.1/24'.*one network"):
        resolved(tmp_path, f"connections: [{TCP}]", HOSTS.replace("rx1: {}", "rx1: {socket_ipv4: 10.9.0.1/24}"))


def frame(source: int, target: int, kind: str, body: str) -> bytes:
    return bytes.fromhex((mac(target) + mac(source)).replace(":", "") + kind + body)


def ipv4(source: str, target: str) -> str:
    packed = "".join(f"{int(part):02x}" for address in (source, target) for part in address.split("."))
    return "45000028000000004006" + "0000" + packed + "00" * 20


def arp(source: str) -> str:
    return "00010800060400020200000000aa" + "".join(f"{int(part):02x}" for part in source.split(".")) + "00" * 20


def test_a_trace_is_told_from_connections_of_both_directions_and_their_arp(tmp_path: Path) -> None:
    (tmp_path / "t.pcap").write_bytes(write_pcap([Packet(0, frame(8, 9, "0800", ipv4("1.1.1.1", "2.2.2.2")))]))
    text = f"traces: [{{name: r, file: t.pcap, from: tx1, to: rx1}}]\nconnections: [{ONE_PAIR}]"
    found = resolved(tmp_path, text)
    trace = Match.from_data(next(leg for leg in found.legs if leg.kind == "trace").match)
    assert trace.matches(frame(1, 3, "0800", ipv4("10.0.0.1", "10.0.0.3")))
    assert trace.matches(frame(1, 3, "0806", arp("10.0.0.1")))
    assert not trace.matches(frame(1, 3, "0800", ipv4("198.19.0.1", "198.19.0.3")))
    assert not trace.matches(frame(1, 3, "0806", arp("198.19.0.1")))
    assert found.receives["rx1"].engine == "netsniff-ng+socket"


def test_a_stream_to_the_connections_addresses_is_refused(tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {src: 198.19.0.1, dst: 198.19.0.3}}, {udp: {src: 1, dst: 2}}]"
    stream = f"{{name: s, from: tx1, to: rx1, count_packets: 1, headers: {headers}}}"
    with pytest.raises(BadInput, match="cannot be distinguished"):
        resolved(tmp_path, f"streams: [{stream}]\nconnections: [{ONE_PAIR}]")


def test_frames_and_connections_are_counted_by_different_engines() -> None:
    legs = [Leg(0, "s", "a", "b", "stream"), Leg(1, "t", "a", "b", "connections"), Leg(2, "r", "a", "b", "trace")]
    legs += [Leg(3, "i", "a", "b", "trace", "interactive")]
    assert [leg.id for leg in legs_of("interactive", legs)] == [3]
    assert [leg.id for leg in legs_of("socket", legs)] == [1]
    assert [leg.id for leg in legs_of("xdp", legs)] == [leg.id for leg in legs_of("netsniff-ng", legs)] == [0, 2]


# --- results ------------------------------------------------------------------------------------------------------

TX = Host("tx1", "10.0.0.1", ("transmit",), traffic_interface="eth1")
RX = Host("rx1", "10.0.0.2", ("receive",), traffic_interface="eth1")
COUNTERS = dict.fromkeys(("tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_dropped"), 5000)


def a_leg(
    direction: Literal["up", "down", "both"] = "up", protocol: Literal["tcp", "udp"] = "tcp", background: bool = False
) -> Leg:
    shape = ConnectionShape(protocol=protocol, direction=direction, background=background)
    return Leg(0, "t", "tx1", "rx1", "connections", "socket", connection=shape)


def sent(**changes: Any) -> SentCount:
    known = {"intended_blocks": 10, "intended_bytes": 1000, "sent_blocks": 10, "sent_bytes": 1000}
    return SentCount(**{**known, **changes})


def received(**changes: Any) -> ReceivedCount:
    known = {"blocks": 10, "bytes": 1000, "delay_blocks": 10, "delay_min_ns": 5000, "delay_mean_ns": 6000.0}
    return ReceivedCount(**{**known, "delay_max_ns": 7000, "jitter_sd_ns": 100.4, "first_ns": 12_050, **changes})


def ledger(leg: Leg, here: EndCount | None, there: EndCount | None) -> Ledger:
    book = Ledger([Rank(1, TX, "transmit"), Rank(2, RX, "receive")])
    book.resolved = Resolved([leg])
    book.take(as_event({"event": "phase", "name": "hello", "at_ns": 1}))
    book.take(as_event({"event": "start", "at_ns": 1_000, "utc_ns": 5_000_000_000}))
    for rank, offset_ns in ((1, 50), (2, 2050)):
        clock = {
            "at_ns": 900,
            "offset_ns": offset_ns,
            "bound_ns": 9,
            "round_trip_ns": 18,
            "realtime_minus_monotonic_ns": 10_000,
        }
        book.take(as_event({"event": "clock", "rank": rank, "when": "start", **clock}))
    counts: list[tuple[int, Any]] = []
    if here is not None:
        counts.append((1, SendCount(0, "socket", 0, connections=here.to_json())))
    if there is not None:
        counts.append((2, ReceiveCount(0, "socket", 0, connections=there.to_json())))
    for rank, count in counts:
        book.take(
            as_event(
                {"event": "counts", "rank": rank, "counts": [asdict(count)], "interface": COUNTERS, "captures": []}
            )
        )
    book.take(as_event({"event": "phase", "name": "over", "at_ns": 9}))
    return book


def outcome(leg: Leg, here: EndCount | None, there: EndCount | None, **expect: Any) -> Outcome:
    return ledger(leg, here, there).outcome(Expect(**expect), NO_INPUTS)


@pytest.mark.parametrize("unread", [1, 2])
def test_delays_between_clocks_of_which_one_was_not_read_are_not_known(unread: int) -> None:
    book = ledger(a_leg(), EndCount(sent()), EndCount(received=received()))
    book.nodes[unread].clock.clear()
    (row,) = book.connection_rows()
    assert (row.delay_shift_ns, row.delay_bound_ns) == (None, None)


def test_an_end_that_received_nothing_has_no_times() -> None:
    (row,) = ledger(a_leg(), EndCount(sent()), EndCount(failures=["refused"])).connection_rows()
    assert (row.received, row.first_ns, row.last_ns) == (None, None, None)


def test_a_row_takes_each_figure_from_the_end_that_measured_it() -> None:
    there = EndCount(received=received(), realtime_minus_monotonic_ns=10_000)
    (row,) = ledger(a_leg(), EndCount(sent()), there).connection_rows()
    found = values(row)
    assert set(found) <= set(COLUMNS)
    assert (found["from"], found["to"], found["direction"], found["role"]) == ("tx1", "rx1", "up", "target")
    assert (found["intended_blocks"], found["sent_blocks"], found["received_blocks"]) == (10, 10, 10)
    # The receiver's clock is 2,000 ns ahead of the sender's, and all delays that much too long.
    assert (found["delay_min_ns"], found["delay_mean_ns"], found["delay_max_ns"]) == (3000, 4000, 5000)
    assert found["delay_bound_ns"] == 18 and found["jitter_sd_ns"] == 100
    # By the receiver's clock, which is 2,050 ns ahead of the master's; the start instant was 1,000.
    assert found["first_ns"] == 12_050 - 2050 - 1000
    assert found["lost_datagrams"] is None and found["retransmitted_segments"] is None


def test_the_way_down_has_the_ends_changed_round() -> None:
    here, there = EndCount(received=received()), EndCount(sent())
    (row,) = ledger(a_leg("down"), here, there).connection_rows()
    found = values(row)
    assert (found["from"], found["to"], found["sent_blocks"], found["received_blocks"]) == ("rx1", "tx1", 10, 10)
    assert found["delay_min_ns"] == 5000 + 2000


def test_both_ways_are_two_rows() -> None:
    both = EndCount(sent(), received())
    rows = ledger(a_leg("both"), both, both).connection_rows()
    assert [(row.source, row.target) for row in rows] == [("tx1", "rx1"), ("rx1", "tx1")]


def test_all_is_well_when_both_ends_agree() -> None:
    ends = EndCount(sent()), EndCount(received=received())
    done = outcome(a_leg(), *ends, sent="intended", loss=0, received={"t": 10})
    assert (done.status, done.reason) == (0, "as expected")
    assert [verdict["holds"] for verdict in done.document["verdicts"]] == [True, True, True]
    assert done.rows == [] and len(done.connections) == 1


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (EndCount(sent(sent_bytes=1001)), EndCount(received=received()), "1001 bytes were sent over TCP and 1000"),
        (EndCount(sent(), failures=["connection 1 of 1: Connection reset by peer"]), EndCount(received=received()),
         "tx1 (transmit): t: connection 1 of 1: Connection reset by peer"),
        (EndCount(sent()), EndCount(received=received(dropped=3)), "the receiving socket itself dropped 3 datagrams"),
        (EndCount(sent(sent_bytes=6000)), EndCount(received=received(bytes=6000)), "tx_bytes of the interface is 5000"),
        (EndCount(sent()), None, "no counts for t from tx1"),
        (None, EndCount(received=received()), "no counts for t from tx1"),
    ],
)  # fmt: skip
def test_what_cannot_be_trusted_ends_with_3(here: EndCount | None, there: EndCount | None, words: str) -> None:
    done = outcome(a_leg(), here, there)
    assert done.status == 3 and words in done.reason


def test_datagrams_that_were_never_sent_are_a_doubt() -> None:
    done = outcome(a_leg(protocol="udp"), EndCount(sent(datagrams=9)), EndCount(received=received(datagrams=10)))
    assert done.status == 3 and "1 more datagrams were received than sent" in done.reason


def test_loss_of_udp_is_of_datagrams() -> None:
    ends = EndCount(sent(datagrams=100)), EndCount(received=received(datagrams=99, blocks=9))
    assert values(ledger(a_leg(protocol="udp"), *ends).connection_rows()[0])["lost_datagrams"] == 1
    assert outcome(a_leg(protocol="udp"), *ends, loss="1 %").status == 0
    assert outcome(a_leg(protocol="udp"), *ends, loss=0).status == 1


def test_what_was_not_sent_is_not_as_expected() -> None:
    done = outcome(a_leg(), EndCount(sent(sent_blocks=9)), EndCount(received=received(blocks=9)), sent="intended")
    assert (done.status, done.reason) == (1, "t from tx1 to rx1: sent 9 blocks, expected 10")


def test_a_node_with_connections_only_has_no_packets_of_its_own() -> None:
    done = outcome(a_leg(), EndCount(sent()), EndCount(received=received()))
    assert [row.get("sent_packets", row.get("received_packets")) for row in done.nodes] == [None, None]


def test_an_end_travels_as_json() -> None:
    end = EndCount(sent(), received(), ["x"], True, 7)
    assert EndCount.from_json(end.to_json()) == end


@pytest.mark.parametrize("message", [*Signal, UdpPorts([1, 65535]), Ready(), Ready([7]), Failed("port 7 is in use")])
def test_a_control_message_survives_its_way(message: Message) -> None:
    assert decode(encode(message).rstrip(b"\n")) == message


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"[]", b"{}", b"{", b'{"gone": true}', b'{"go": false}', b'{"go": true, "stop": true}'),
        *(b'{"failed": 1}', b'{"udp_ports": [0]}', b'{"udp_ports": 7}'),
        *(b'{"ready": true}', b'{"ready": true, "udp_ports": [1], "more": 1}'),
    ],
)
def test_an_unknown_control_message_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)
