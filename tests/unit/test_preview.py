"""Preview: every frame counted once wherever it is counted, at its due time, as its engine makes it."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from pktswarm.master.cli.app import app
from pktswarm.master.preview import preview as previews
from pktswarm.master.preview import tables
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.capture.trace import read_packets
from pktswarm.traffic.errors import BadInput, BadInputs, PktswarmError
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.leg import FlowUsers, Leg
from pktswarm.traffic.preview import due_frames
from pktswarm.traffic.preview.due_frames import Gaps, KernelMarks, Marks, Rows, Series
from pktswarm.traffic.preview.frames import KernelMaker
from pktswarm.traffic.random.xorshift import FrameStates, Jump, KernelDraw, drawn
from pktswarm.traffic.schedule import due_times

UPF = Path("configs/upf.yaml")
CONFIGS = [path for path in sorted(Path("configs").glob("*.yaml")) if path != UPF]
DEMO, XDP = Path("configs/demo.yaml"), Path("configs/xdp.yaml")
TRACE = Path("configs/traces/lab.pcapng")
EXAMPLE = Path("hosts/example.yml")
ENDS = {"ethernet": {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}}
IPV4 = {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.7"]}, "dst": {"random": ["10.1.0.0", "10.1.255.255"]}}}
UDP = {"udp": {"src": {"pick": [7, 8, 9], "weights": [1, 2, 3]}, "dst": {"with": "ipv4.dst", "increment": [0, 65535]}}}
MIX = [[64, 7], [594, 4], [1518, 1]]


def a_leg(number: int = 0, **more: Any) -> Leg:
    payload = more.pop("payload", {})
    frame: FrameDescription = {"headers": [ENDS, IPV4, UDP], "payload": payload}
    users = FlowUsers(field="ipv4.src", by="src_ip", first=0x0A000001, step=1, count=7)
    more = {"engine": "xdp", "rate_pps": 1000.0, "count_packets": 100, "users": users, **more}
    return Leg(number, f"s{number}", "a", "b", "stream", frame=frame, **more)


def a_scenario(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text("name: s\n" + text)
    return path


def look(path: Path, hosts: Path | None = None, bin_ns: int | None = None) -> previews.Preview:
    source = previews.Source(path, hosts)
    return previews.look(source, source.select(None, None), bin_ns)


class Called(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def call(*arguments: object) -> Called:
    """The command line, in this process."""
    done = CliRunner().invoke(app, ["preview", *map(str, arguments)], env={"COLUMNS": "80"})
    if isinstance(done.exception, PktswarmError):
        problems = done.exception.problems if isinstance(done.exception, BadInputs) else [done.exception]
        return Called(done.exception.exit_status, done.stdout, "".join(f"pktswarm: {each}\n" for each in problems))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Called(done.exit_code, done.stdout, done.stderr)


# --- the kernel's generator ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [0, 1, 2, 63, 1000])
def test_a_jump_is_so_many_draws(draws: int) -> None:
    one = KernelDraw(0x123456789ABCDEF)
    for _ in range(draws):
        one.next()
    assert int(Jump.over(draws)(np.array([0x123456789ABCDEF], dtype=np.uint64))[0]) == one.state


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("draws", [[3], [3, 3], [2, 5]])
def test_states_of_frames_are_those_of_drawing_one_by_one(draws: list[int], in_turn: bool) -> None:
    slots = [0, len(draws) - 1, 0]
    states = FrameStates(99, draws, slots, in_turn)
    found = np.concatenate([states.take(count) for count in (1, 0, 700, 64)])
    one = KernelDraw(99)
    for index, state in enumerate(found.tolist()):
        assert state == one.state
        first = KernelDraw(one.state).next()
        assert int(drawn(found[index : index + 1], 0)[0]) == first
        for _ in range(draws[slots[(index if in_turn else first) % 3]]):
            one.next()


@pytest.mark.parametrize("payload", [{}, {"random": True}])
def test_sizes_and_users_are_those_of_the_frames(payload: dict[str, Any]) -> None:
    drawn_users = FlowUsers("udp.dst", "dst_port", 0, 1, 65536)
    leg = a_leg(3, sizes=MIX, size_bytes=1518, payload=payload, users=drawn_users, options={"stamp": False})
    marks, maker = KernelMarks(leg), KernelMaker(leg)
    blocks = [marks.take(count) for count in (5, 95)]
    sizes, users = (np.concatenate([block[column] for block in blocks]).tolist() for column in (0, 1))
    frames = [maker.frame(0, size, 0) for size in sizes]
    assert [len(frame) + 4 for frame in frames] == sizes and set(sizes) == {64, 594, 1518}
    assert [int.from_bytes(frame[36:38], "big") for frame in frames] == users
    assert [int.from_bytes(frame[32:34], "big") for frame in frames] == users


def test_a_stamp_tells_the_due_time_and_every_checksum_is_right() -> None:
    leg = a_leg(3, sizes=[[100, 1], [300, 2]], size_bytes=300, payload={"random": True})
    maker, sizes = KernelMaker(leg), KernelMarks(leg).take(50)[0].tolist()
    for index, size in enumerate(sizes):
        frame = maker.frame(index * 7, size, 0)
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found[:4] == (3, index, index * 7, stamp.payload_sum(frame[64:]))
        mended = bytearray(frame)
        build_frame(leg.frame, size).mend(mended)
        assert mended == frame


def test_an_example_draw_keeps_to_the_weights() -> None:
    sizes, _ = Marks(a_leg(sizes=MIX, size_bytes=1518, engine="pktgen", users=None)).take(12_000)
    assert all(abs(int((sizes == size).sum()) - 1000 * weight) < 300 for size, weight in MIX)


# --- counted -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_every_sum_is_the_total(seed: int) -> None:
    """Over bins, sizes, users and gaps, for legs and widths of all kinds."""
    draw = random.Random(seed)
    more: dict[str, Any] = {"rate_pps": draw.uniform(10, 1e6), "count_packets": draw.randrange(1, 3000)}
    more["options"] = {"burst": draw.choice([1, 1, 3, 64])}
    if draw.random() < 0.5:
        more |= {"sizes": MIX, "size_bytes": 1518, "sizes_in_turn": draw.random() < 0.3}
    if draw.random() < 0.5:
        more["gap_table"] = due_times.exponential_gaps(256)
    if draw.random() < 0.3:
        more |= {"rates": [[0, more["rate_pps"]], [10**6, 0], [2 * 10**6, 500.0]], "rates_period_ns": 10**7}
    leg = a_leg(**more)
    series, gaps, users = Series(draw.choice([1000, 77_777, 10**6, 10**9])), Gaps(), due_frames.Counts()
    sizes, total = due_frames.Counts(), 0
    times = []
    if (due_times.due_times(leg).max() // np.uint64(series.bin_ns)) >= due_frames.MOST_BINS:
        series.bin_ns = 10**9
    for block in due_frames.blocks(leg):
        series.add(block.time_ns, block.size_bytes)
        sizes.add(block.size_bytes, block.size_bytes)
        users.add(block.user, block.size_bytes)
        gaps.add(block.time_ns)
        total += int(block.size_bytes.sum())
        times.append(block.time_ns)
    number = leg.count_packets
    assert series.packets.sum() == sizes.packets.sum() == users.packets.sum() == gaps.count + 1 == number
    assert series.bits.sum() == 8 * total and sizes.bytes.sum() == users.bytes.sum() == total
    assert gaps.zero + gaps.histogram.sum() == gaps.count
    whole = np.concatenate(times)
    assert whole.tolist() == due_times.due_times(leg).tolist()
    assert (np.bincount(whole // series.bin_ns) == series.packets).all()
    if gaps.count:
        found = np.diff(whole)
        assert (gaps.least_ns, gaps.largest_ns) == (found.min(), found.max())
        assert gaps.mean_ns == pytest.approx(found.mean())
        assert (gaps.variation or 0) * found.mean() == pytest.approx(found.std(), abs=1e-3 * found.mean())


def test_bins_and_gaps_of_a_leg_that_is_counted_by_hand() -> None:
    leg = a_leg(
        rate_pps=10.0, count_packets=5, sizes=[[64, 1], [100, 1]], size_bytes=100, sizes_in_turn=True, users=None
    )
    series, gaps = Series(200_000_000), Gaps()
    for block in due_frames.blocks(leg):
        series.add(block.time_ns, block.size_bytes)
        gaps.add(block.time_ns)
    assert series.packets.tolist() == [2, 2, 1] and series.bits.tolist() == [1312, 1312, 512]
    assert (gaps.count, gaps.mean_ns, gaps.zero, gaps.last_ns) == (4, 1e8, 0, 400_000_000)


def test_legs_are_put_in_order_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_times, "BLOCK", 16)
    legs = [a_leg(number, rate_pps=rate) for number, rate in enumerate((1000.0, 77.0, 31_000.0))]
    found = np.concatenate(list(due_frames.in_order([due_frames.blocks(leg) for leg in legs])))
    assert found.tolist() == sorted(time for leg in legs for time in due_times.due_times(leg).tolist())


@pytest.mark.parametrize("block", [4, 100])
def test_passes_of_a_trace(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_times, "BLOCK", block)
    rows = Rows(np.array([0, 3, 9]), np.array([64, 65, 66]), np.array([0, 1, 0]), lead_ns=5, period_ns=10)
    leg = Leg(0, "t", "a", "b", "trace", repeat=7, count_packets=21)
    found = list(due_frames.blocks(leg, rows))
    times = [5 + 10 * n + due for n in range(7) for due in (0, 3, 9)]
    assert [value for one in found for value in one.time_ns.tolist()] == times
    assert [value for one in found for value in one.size_bytes.tolist()] == [64, 65, 66] * 7
    assert [value for one in found for value in one.user.tolist()] == [0, 1, 0] * 7


def test_users_of_a_trace_are_the_addresses_that_are_sent(tmp_path: Path) -> None:
    pools = "users: {first: 10.60.0.1, count: 20}, servers: {first: 10.9.0.1, count: 20}, direction: both, scale: 2"
    path = a_scenario(tmp_path, f"traces: [{{name: t, file: {TRACE.resolve()}, repeat: 3, {pools}}}]")
    source = previews.Source(path, None)
    legs = source.select(None, None)
    users = previews.look(source, legs, None).streams["t"].users
    previews.write_pcap(source, legs, tmp_path / "t.pcap")
    sent: dict[str, int] = {}
    for packet in read_packets(tmp_path / "t.pcap"):
        ends = [str(ip_address(packet.data[at : at + 4])) for at in (26, 30)]
        for one in [end for end in ends if packet.data[12:14] == b"\x08\x00" and end.startswith("10.60.")]:
            sent[one] = sent.get(one, 0) + 1
    assert {user: row[0] for user, row in users.items() if user.startswith("10.60.")} == sent and len(sent) == 2
    assert sum(row[0] for row in users.values()) == sum(leg.count_packets or 0 for leg in legs)


def test_widths_of_bins_are_round() -> None:
    widths = [due_frames.nice_bin_ns(seconds * 1e9) / 1e9 for seconds in (0.001, 1, 3, 5, 60, 1e-7)]
    assert widths == [1e-5, 0.01, 0.05, 0.05, 0.5, 1e-9]


# --- scenarios -----------------------------------------------------------------------------------------------------


# The example's hosts have one role each, which a trace of both directions cannot do with.
WITH_HOSTS = [
    (path, hosts)
    for path in CONFIGS
    for hosts in (None, EXAMPLE)
    if hosts is None or "direction: both" not in path.read_text()
]


@pytest.mark.parametrize(("path", "hosts"), WITH_HOSTS, ids=lambda path: path.stem if path else "any hosts")
def test_totals_are_what_the_plan_intends(path: Path, hosts: Path | None) -> None:
    source = previews.Source(path, hosts)
    found = previews.look(source, source.select(None, None), None)
    shares = {share.leg.id: share for stream in found.streams.values() for share in stream.shares}
    for leg in source.plan.legs:
        if leg.id in shares:
            assert shares[leg.id].packets == leg.intended_packets and shares[leg.id].packets > 0
        else:
            assert leg.kind == "connections"
    for stream in found.streams.values():
        assert stream.over_time.packets.sum() == stream.sizes.packets.sum() == stream.packets
        assert stream.over_time.bits.sum() == 8 * stream.bytes
        assert not stream.users or sum(packets for packets, _ in stream.users.values()) == stream.packets


def test_what_goes_through_a_upf_is_refused() -> None:
    with pytest.raises(BadInput, match=r"configs/upf\.yaml: upf: no preview of a scenario with a UPF"):
        previews.Source(UPF, None)


def test_the_users_of_a_tunnel(tmp_path: Path) -> None:
    text = Path("configs/gtpu.yaml").read_text().replace("count_packets: 12000", "count_packets: 1500")
    path = tmp_path / "gtpu.yaml"
    path.write_text(text.replace("    headers:", "    users: gtpu.teid\n    headers:"))
    users = look(path).streams["uplink"].users
    assert len(users) == 1000 and [users[str(teid)][0] for teid in (1, 500, 501, 1000)] == [2, 2, 1, 1]


def test_users_of_a_stream_of_several_sizes_given_by_name(tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [1, 3]}, dst: 9}}]"
    text = (
        f"streams: [{{name: a, size_bytes: imix, rate_pps: 100, count_packets: 9, users: udp.src, headers: {headers}}}]"
    )
    users = look(a_scenario(tmp_path, text)).streams["a"].users
    assert {user: row[0] for user, row in users.items()} == {"1": 3, "2": 3, "3": 3}


@pytest.mark.parametrize("engine", ["xdp", "tcpreplay"])
def test_a_source_of_many_users(engine: str, tmp_path: Path) -> None:
    text = f"sources: [{{name: calls, source: voip, users: 12, duration_s: 3, engine: {engine}}}]"
    source = previews.Source(a_scenario(tmp_path, text), None)
    legs = source.select(None, None)
    found = previews.look(source, legs, None).streams["calls"]
    records = source.plan.sequences[legs[0].id]
    assert found.packets == len(records) == legs[0].intended_packets
    assert [row[0] for row in found.users.values()] == np.bincount(records["user"], minlength=12).tolist()
    previews.write_pcap(source, legs, tmp_path / "calls.pcap")
    sent = read_packets(tmp_path / "calls.pcap")
    assert [packet.time_ns for packet in sent] == records["due_ns"].tolist()
    assert [len(packet.data) for packet in sent] == records["frame_bytes"].tolist()
    ports = [str(int.from_bytes(packet.data[34:36], "big")) for packet in sent]
    assert {port: ports.count(port) for port in found.users} == {user: row[0] for user, row in found.users.items()}


def test_connections_are_blocks_at_their_times(tmp_path: Path) -> None:
    one = "{name: c, block_bytes: 1000, period_s: 0.1, blocks: 4, connections: 2, direction: both}"
    text = f"connections: [{one}, {{name: d, block_bytes: 1000, duration_s: 1}}]"
    paced, free = look(a_scenario(tmp_path, text), bin_ns=10**8).connections
    assert (paced.blocks, paced.bytes) == (16, 16_000) and paced.over_time is not None
    assert paced.over_time.packets.tolist() == [4, 4, 4, 4] and paced.over_time.bits.tolist() == [32_000] * 4
    assert (free.blocks, free.bytes, free.over_time) == (None, None, None)


def test_what_is_sent_as_fast_as_can_be_has_no_picture(tmp_path: Path) -> None:
    text = f"streams: [{{name: fast, duration_s: 1}}]\ntraces: [{{name: top, file: {TRACE.resolve()}, timing: top}}]"
    found = look(a_scenario(tmp_path, text))
    assert [leg.stream for leg, _ in found.untimed] == ["fast", "top"] and not found.streams
    assert "as fast as the engine can" in call(tmp_path / "scenario.yaml").stdout


def test_an_interactive_trace_has_no_times_of_its_own(tmp_path: Path) -> None:
    found = look(a_scenario(tmp_path, f"traces: [{{name: t, file: {TRACE.resolve()}, interactive: true}}]"))
    assert [leg.answers for leg, _ in found.untimed] == [None, 0] and not found.streams
    assert "decided by the device" in call(tmp_path / "scenario.yaml").stdout


def test_a_leg_without_an_end_is_not_counted() -> None:
    assert due_frames.untimed(a_leg(count_packets=None)) == "it has no end"


def test_one_host_of_the_inventory() -> None:
    source = previews.Source(DEMO, EXAMPLE)
    legs = source.select("odroid-t2", "small")
    assert [(leg.source, leg.stream, leg.count_packets) for leg in legs] == [("odroid-t2", "small", 3000)]
    assert list(previews.look(source, legs, None).hosts) == ["odroid-t2"]


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_pcap_of_the_demo_in_the_eyes_of_wireshark(tmp_path: Path) -> None:
    if not shutil.which("capinfos") or not shutil.which("tshark"):
        pytest.skip("capinfos or tshark is not installed")
    path = tmp_path / "demo.pcap"
    done = call(DEMO, "--pcap", path)
    assert done.returncode == 0 and f"{path}: 23,395 packets" in done.stdout
    told = subprocess.run(["capinfos", "-M", path], check=True, capture_output=True, text=True).stdout
    words = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in told.splitlines())}
    assert words["Number of packets"] == "23395" and "nsecpcap" in words["File type"]
    assert words["Capture duration"].startswith("4.928000519 s")
    sums = [word for name in ("ip", "udp", "tcp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    odd = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || tcp.checksum.status == 0"
    command = ["tshark", "-r", str(path), *sums, "-Y", odd]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == ""


def test_the_pcap_has_the_frames_at_their_due_times(tmp_path: Path) -> None:
    source = previews.Source(DEMO, None)
    legs = source.select(None, None)
    assert previews.write_pcap(source, legs, tmp_path / "demo.pcap") == 23_395
    index = index_capture(tmp_path / "demo.pcap")
    recordings = [(leg, source.recording(leg)) for leg in legs]
    due = [list(due_frames.blocks(leg, one.rows if one else None)) for leg, one in recordings]
    rows = [(t, n + 4) for found in due for one in found for t, n in zip(one.time_ns, one.size_bytes - 4, strict=True)]
    assert index.time_ns.tolist() == sorted(time for time, _ in rows)
    assert sorted(index.wire_bytes + 4) == sorted(size for _, size in rows)


def test_engines_that_go_round_a_list_or_number_for_themselves(tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: {increment: [1, 3]}, dst: 9}}]"
    shape = f"size_bytes: 100, rate_pps: 10, count_packets: 7, headers: {headers}"
    text = f"streams: [{{name: t, engine: trafgen, {shape}}}, {{name: p, engine: pktgen, size_bytes: 90, rate_pps: 10, "
    path = a_scenario(tmp_path, text + "count_packets: 4}]")
    source = previews.Source(path, None)
    previews.write_pcap(source, source.select(None, None), tmp_path / "both.pcap")
    packets = read_packets(tmp_path / "both.pcap")
    ports = [int.from_bytes(packet.data[34:36], "big") for packet in packets if len(packet.data) == 96]
    assert ports == [1, 2, 3, 1, 2, 3, 1]
    numbers = [packet.data[42:50].hex() for packet in packets if len(packet.data) == 86]
    assert numbers == [f"be9be955{number:08x}" for number in (1, 2, 3, 4)]


def test_json_csv_and_pictures_agree(tmp_path: Path) -> None:
    pictures = ["--png", tmp_path / "x.png", "--svg", tmp_path / "x.svg"]
    done = call(DEMO, "--hosts", EXAMPLE, "--bin", "0.5", "--json", "--csv", tmp_path / "data", *pictures)
    document = json.loads(done.stdout)
    assert document["packets"] == 23_395 and document["bin_s"] == 0.5
    small = document["streams"][0]
    assert small["packets_in_bins"] == [1500] * 6 and small["bits_in_bins"] == [1500 * 512] * 6
    assert small["peak_pps"] == 3000 and [leg["packets"] for leg in small["legs"]] == [3000] * 3
    assert small["sizes"] == [{"size_bytes": 64, "packets": 9000}]
    rows = {name: list(csv.DictReader((tmp_path / "data" / name).open())) for name in ("rates.csv", "sizes.csv")}
    assert all(sum(int(row["packets"]) for row in found) == 23_395 for found in rows.values())
    gaps = list(csv.DictReader((tmp_path / "data" / "gaps.csv").open()))
    of_hosts = [int(row["packets"]) for row in gaps if row["stream"] == "all"]
    assert sum(of_hosts) == 23_395 - 3
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (tmp_path / "x.svg").read_text()


def test_the_terminal_names_streams_sizes_gaps_and_users() -> None:
    text = call(DEMO).stdout
    for words in ("tx1 → rx1", "9,000", "1518", "333.3", "198.18.0.1", "addresses are assumed for tx1, rx1"):
        assert words in text


FAST = "streams: [{name: fast, duration_s: 1}, {name: slow, rate_pps: 10, count_packets: 5}]"
CONNECTIONS = "connections: [{name: c, block_bytes: 9, blocks: 1}]"


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("streams: []", [], "nothing to send"),
        ("streams: [{name: a, rate_pps: -1, count_packets: 1}]", [], "streams.0.rate_pps = -1: "),
        (FAST, ["--hosts", "nowhere.yml"], "nowhere.yml: there is no such file"),
        (FAST, ["--pcap", "x.pcap"], "fast: no capture possible: it is sent as fast as the engine can"),
        (CONNECTIONS, ["--pcap", "x.pcap"], "--pcap: only connections"),
        (FAST, ["--stream", "slow", "--pcap", "/nowhere/x"], "/nowhere/x: --pcap: cannot be written: No such file"),
        (FAST, ["--stream", "none"], "--stream = 'none': no traffic of this name (allowed: fast, slow)"),
        (FAST, ["--host", "rx1"], "--host = 'rx1': no traffic of this name (allowed: tx1)"),
        (FAST, ["--bin", "0"], "--bin = 0.0: bin width out of range"),
        (FAST, ["--bin", "1e-9"], "--bin = 1e-09: makes more than 1,048,576 bins"),
        (FAST, ["--png", "x.jpg"], "--png = 'x.jpg': wrong file name extension (allowed: .png)"),
        (FAST, ["--svg", "nowhere/x.svg"], "--svg = 'nowhere': there is no such folder"),
        (FAST, ["--csv", "README.md"], "README.md: --csv: cannot be written: File exists"),
    ],
)
def test_bad_input_is_one_message_and_status_2(text: str, arguments: list[str], words: str, tmp_path: Path) -> None:
    done = call(a_scenario(tmp_path, text), *arguments)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert words in done.stderr, done.stderr


def test_a_host_that_sends_nothing_of_a_stream(tmp_path: Path) -> None:
    source = previews.Source(a_scenario(tmp_path, "streams: [{name: one, rate_pps: 1, count_packets: 1}]"), EXAMPLE)
    with pytest.raises(BadInput, match="no traffic of this name"):
        source.select("odroid-t3", None)


def test_the_total_over_time_is_the_sum_of_the_streams() -> None:
    found = look(XDP)
    whole = tables.total(found)
    assert whole.packets.sum() == 72_000 and len(whole.packets) == max(
        len(stream.over_time.packets) for stream in found.streams.values()
    )
