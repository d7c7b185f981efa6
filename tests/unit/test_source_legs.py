"""Application sources: from the scenario to legs with records, users shared out, headers for each user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import explain, plan, resolve, sources
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.scenario import scenario
from pktswarm.traffic.capture.files import read_capture
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.leg import FlowUsers
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.sequence import Records

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {TX}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}}}
"""
GTPU = """
      - {ethernet: {}}
      - {ipv4: {}}
      - {udp: {src: 2152, dst: 2152}}
      - {gtpu: {teid: {increment: [1000, 9000], step: 2}}}
      - {ipv4: {src: {increment: [10.60.0.1, 10.60.250.1], step: 16, with: gtpu.teid}, dst: 10.9.0.1}}
      - {udp: {src: 7, dst: 8}}
"""


def files(tmp_path: Path, source: str, nodes: int = 1, more: str = "") -> tuple[Path, Path]:
    names = ", ".join(f"tx{number}: {{}}" for number in range(1, nodes + 1))
    (tmp_path / "hosts.yml").write_text(HOSTS.replace("TX", names))
    (tmp_path / "test.yaml").write_text(f"name: test\n{more}\nsources:\n  - name: web\n    {source}\n")
    return tmp_path / "test.yaml", tmp_path / "hosts.yml"


def planned(tmp_path: Path, source: str, nodes: int = 1, more: str = "") -> plan.Plan:
    path, hosts = files(tmp_path, source, nodes, more)
    return plan.plan(scenario.load(path), path, inventory.load(hosts))


def lines(**keys: str) -> str:
    return "\n    ".join(f"{key}: {value}" for key, value in keys.items())


WWW = lines(source="{www: {request_gap_s: {exponential: 2}}}", users="200", duration_s="2")


def merged(made: plan.Plan) -> Records:
    """Of all nodes, in the order of time, with the users' numbers in the whole source."""
    first, parts = 0, []
    for leg in made.legs:
        part = made.sequences[leg.id].copy()
        part["user"] += first
        assert leg.users is not None
        first += leg.users.count if leg.users.by else len(ports(leg))
        parts.append(part)
    whole: Records = np.concatenate(parts)
    return whole[np.argsort(whole, order=["due_ns", "user", "frame_bytes"])]


def ports(leg: Any) -> range:
    low, high = leg.frame["headers"][-1]["udp"]["src"]["increment"]
    return range(low, high + 1)


def test_the_intended_count_is_that_of_the_records(tmp_path: Path) -> None:
    made = planned(tmp_path, WWW)
    (leg,) = made.legs
    records = made.sequences[leg.id]
    assert leg.intended_packets == leg.count_packets == len(records) > 100
    assert (leg.kind, leg.rate_pps, leg.user_field) == ("stream", None, "udp.src")
    assert leg.sizes == [[int(records["frame_bytes"].min()) + 4, 1], [1518, 1]]
    assert records["due_ns"].max() < 2e9
    assert made.expected_s == 2


def test_users_are_split_in_blocks_and_send_the_same_on_any_number_of_nodes(tmp_path: Path) -> None:
    one, three = planned(tmp_path, WWW), planned(tmp_path, WWW, nodes=3)
    assert [len(ports(leg)) for leg in three.legs] == [128, 64, 8]
    assert [ports(leg)[0] for leg in three.legs] == [10_000, 10_128, 10_192]
    whole, parts = merged(one), merged(three)
    assert whole.tolist() == parts.tolist()


def test_the_same_seed_draws_the_same_and_a_name_makes_it_ones_own(tmp_path: Path) -> None:
    def drawn(*given: Any) -> list[Any]:
        found: list[Any] = planned(tmp_path, *given).sequences[0].tolist()
        return found

    first = drawn(WWW)
    assert first == drawn(WWW)
    assert first != drawn(WWW, 1, "seed: 2")
    assert drawn(WWW, 1, "seed: 2") == drawn(f"{WWW}\n    seed: 2")


def test_nodes_without_users_send_nothing_and_are_named(tmp_path: Path) -> None:
    made = planned(tmp_path, WWW.replace("200", "70"), nodes=3)
    assert [leg.source for leg in made.legs] == ["tx1", "tx2"]
    assert "web: tx3 sends nothing: it has no users, or none that sends within the duration" in made.notes


def test_a_share_by_mean_rate(tmp_path: Path) -> None:
    made = planned(tmp_path, lines(source="voip", mean_bps="1e6", duration_s="1"))
    assert 25 < len(ports(made.legs[0])) < 35
    assert any("Mbit/s in theory" in note for note in made.notes)


def test_a_profile_steers_arrivals(tmp_path: Path) -> None:
    profile = "{square: {rates: [1, 0], every_s: 1}}"
    made = planned(tmp_path, f"{WWW}\n    profile: {profile}")
    due = made.sequences[0]["due_ns"]
    assert (due < 1e9).sum() > 4 * (due >= 1e9).sum()


def test_tunnels_come_on_top_of_the_sources_sizes_and_every_header_moves_with_the_user(tmp_path: Path) -> None:
    telnet = "{telnet: {session_gap_s: {exponential: 200}}}"
    source = lines(source=telnet, users="80", duration_s="20", headers=GTPU)
    made = planned(tmp_path, source, nodes=2)
    first, second = sorted(made.legs, key=lambda leg: leg.id)
    assert first.frame["headers"][3] == {"gtpu": {"teid": {"increment": [1000, 1126], "step": 2}}}
    assert second.frame["headers"][3] == {"gtpu": {"teid": {"increment": [1128, 1158], "step": 2}}}
    inner = {"increment": ["10.60.4.1", "10.60.4.241"], "step": 16, "with": "gtpu.teid"}
    assert second.frame["headers"][4]["ipv4"]["src"] == inner
    assert min(size for size, _ in first.sizes) == 64 + 36
    assert sources.encapsulation_bytes(first.frame["headers"]) == 36


def test_one_user_needs_no_counter(tmp_path: Path) -> None:
    headers = "[{ethernet: {}}, {ipv4: {}}, {udp: {src: 7, dst: 8}}]"
    made = planned(tmp_path, lines(source="mpeg", users="1", duration_s="1", headers=headers))
    assert made.legs[0].user_field == ""
    assert set(made.sequences[0]["user"].tolist()) == {0}


def test_a_list_of_values_is_cut_too(tmp_path: Path) -> None:
    listed = "[" + ", ".join(str(2 * n) for n in range(1, 101)) + "]"
    headers = f"[{{ethernet: {{}}}}, {{ipv4: {{}}}}, {{udp: {{src: {{list: {listed}}}, dst: 8}}}}]"
    keys = {"source": "mpeg", "users": "65", "duration_s": "1", "headers": headers, "count_users": "false"}
    _, second = planned(tmp_path, lines(**keys), nodes=2).legs
    assert second.frame["headers"][2]["udp"]["src"] == {"list": [130]}
    assert second.users is None


def report(number: int, **senders: str) -> dict[str, Any]:
    known = {"name": "eth1", "exists": True, "carrier": True, "mtu": 1500, "driver": "veth"}
    return {
        "interface": {**known, "mac": f"02:00:00:00:00:{number:02x}", "ipv4": f"10.0.0.{number}"},
        "senders": {"xdp": "", "pktgen": "", "trafgen": "", "tcpreplay": "", **senders},
        "receivers": {"netsniff-ng": "", "xdp": ""},
    }


def resolved(tmp_path: Path, source: str, **senders: str) -> tuple[plan.Plan, Resolved]:
    path, hosts = files(tmp_path, source)
    loaded, machines = scenario.load(path), inventory.load(hosts)
    made = plan.plan(loaded, path, machines)
    told = {host.name: report(number, **senders) for number, host in enumerate(machines.hosts, 1)}
    return made, resolve.resolve(loaded, made, {host.name: host for host in machines.hosts}, told)


def test_the_records_are_shipped_and_users_are_counted(tmp_path: Path) -> None:
    made, done = resolved(tmp_path, WWW)
    (leg,) = done.legs
    assert leg.engine == "xdp"
    assert leg.users == FlowUsers("udp.src", "src_port", 10_000, 1, 200)
    assert leg.match is not None and leg.match.length is None
    ((name, data),) = done.files["tx1"]
    assert name == leg.sequence_file
    assert sequence.unpack(bytes(data), name).tolist() == made.sequences[0].tolist()


def test_tcpreplay_is_given_the_frames_themselves(tmp_path: Path) -> None:
    made, done = resolved(tmp_path, f"{WWW}\n    engine: tcpreplay")
    (leg,), ((name, data),) = done.legs, done.files["tx1"]
    (tmp_path / name).write_bytes(data)
    played = list(read_capture(tmp_path / str(leg.trace_file)))
    records = made.sequences[0]
    assert [packet.time_ns for packet in played] == records["due_ns"].tolist()
    assert leg.timing.lead_ns == int(records["due_ns"][0])
    for record, packet in list(zip(records, played, strict=True))[:50]:
        template = build_frame(leg.frame, int(record["frame_bytes"]) + 4)
        data = bytearray(template.data)
        data[34:36] = (10_000 + int(record["user"])).to_bytes(2, "big")
        template.mend(data)
        assert packet.data == bytes(data)


def test_auto_does_not_fall_back_on_what_has_no_users(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no live frames here; tc: no libbpf; pktgen: cannot send frames with times"):
        resolved(tmp_path, WWW, xdp="no live frames here", tc="no libbpf")


def test_check_tells_users_and_rates(tmp_path: Path) -> None:
    told = explain.explain(*files(tmp_path, WWW))
    assert "at its source's own times, by the first of xdp, tc that the node has" in told
    assert "web: 200 users of www, " in told


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lines(source="wwww", users="1", duration_s="1"), "sources.0.source = {'wwww': {}}: not one source"),
        (lines(source="{www: {gap: 1}}", users="1", duration_s="1"), "sources.0.source.www"),
        (lines(source="voip", users="5", mean_bps="1", duration_s="1"), "sources.0.mean_bps"),
        (lines(source="voip", users="60000", duration_s="1"), "sources.0.users = 60000: too many users for one port"),
        (lines(source="iot", users="1", duration_s="0.001"), "sources.0.duration_s = 0.001: sends no packet"),
        (lines(source="voip", users="2", duration_s="1", profile="{steady: 1}"), "sources.0.profile"),
        (lines(source="voip", users="9", duration_s="1", user_field="udp.dst"), "sources.0.user_field = 'udp.dst'"),
        (
            lines(
                source="voip",
                users="2",
                duration_s="1",
                headers="[{ethernet: {}}, {ipv4: {id: {increment: [1, 2], every: 3}}}]",
            ),
            "sources.0.headers.1.ipv4.id.every = 3: a source sets the user of each frame (allowed: leave it out)",
        ),
        (
            lines(source="voip", users="9", duration_s="1", headers="[{ethernet: {}}, {ipv4: {}}]"),
            "sources.0.user_field: no counter with a value for each of 9 users",
        ),
        (lines(source="voip", users="9", duration_s="1", headers="[{ipv4: {}}]"), "sources.0.headers.0"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_sent(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        planned(tmp_path, source)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lines(source="voip"), "sources.0.duration_s"),
        (lines(source="voip", duration_s="1", size_bytes="64"), "unknown key"),
        (lines(source="voip", duration_s="1", users="0"), "sources.0.users"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        scenario.load(files(tmp_path, source)[0])
    assert words in str(caught.value)


def test_from_and_to_are_as_everywhere(tmp_path: Path) -> None:
    made = planned(tmp_path, lines(source="mpeg", duration_s="1", to="rx1", **{"from": "tx2"}), nodes=2)
    assert [(leg.source, leg.target) for leg in made.legs] == [("tx2", "rx1")]
    assert made.legs[0].to_json()["sequence_file"] == "leg-0.sequence"
