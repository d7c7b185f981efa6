"""What nodes were seen to do, in plans: limits, streams spread inside them, what is too much, what is stale."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from capacities import figure, written
from pktswarm.master.cli import app
from pktswarm.master.cluster import inventory
from pktswarm.master.plan import capacity as figures
from pktswarm.master.plan import capacity_weights, explain, plan
from pktswarm.master.preview import preview
from pktswarm.master.report import bottlenecks
from pktswarm.master.results.document import RunDocument, empty_document
from pktswarm.master.results.document_rows import StreamRow
from pktswarm.master.results.totals import node_totals
from pktswarm.master.run import run as runs
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.traffic.errors import BadInput

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}, tx3: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}, rx2: {}}}
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yml"
    path.write_text(HOSTS)
    return path


def planned(hosts: Path, streams: str, more: str = "") -> plan.Plan:
    path = hosts.with_name("s.yaml")
    path.write_text(f"name: s\nstreams: [{streams}]\nreceive: {{mode: count}}\n{more}\n")
    return plan.plan(scenarios.load(path), path, inventory.load(hosts), figures.beside(hosts))


def sent(made: plan.Plan, stream: str = "a") -> dict[str, int]:
    return {leg.source: leg.intended_packets or 0 for leg in made.legs if leg.stream == stream}


# --- what is known --------------------------------------------------------------------------------------------------


def test_sizes_between_are_taken_from_their_neighbours_and_never_too_high(hosts: Path) -> None:
    """A node of 10 us a frame on a link of 1 Gbit/s, measured at three sizes."""

    def truth(size: float) -> float:
        return 1 / max(10e-6, 8 * (size + 20) / 1e9)

    written(hosts, *(figure("tx1", truth(size), size) for size in (64, 512, 1518)))
    known = figures.beside(hosts)
    assert known is not None
    for size in range(64, 1519, 7):
        limit = known.limit("tx1", "transmit", "xdp", "", [(size, 1)])
        assert limit is not None and 0.4 * truth(size) <= limit.rate_pps <= truth(size) * (1 + 1e-9)
    for measured in (64, 512, 1518):
        limit = known.limit("tx1", "transmit", "xdp", "", [(measured, 1)])
        assert limit is not None and limit.rate_pps == pytest.approx(truth(measured))
    tagged = known.limit("tx1", "transmit", "xdp", "", [(1522, 1)])
    assert tagged is not None and tagged.rate_pps == pytest.approx(truth(1518) * 1518 / 1522)
    assert known.limit("tx1", "transmit", "xdp", "", [(64, 9), (3036, 1)]) is None, "so large ones were not measured"


def test_a_mix_takes_the_time_of_its_frames(hosts: Path) -> None:
    written(hosts, figure("tx1", 100_000, 64), figure("tx1", 50_000, 1518))
    known = figures.beside(hosts)
    assert known is not None
    limit = known.limit("tx1", "transmit", "xdp", "", [(64, 3), (1518, 1)])
    assert limit is not None and limit.rate_pps == pytest.approx(4 / (3 / 100_000 + 1 / 50_000))


def test_nothing_is_known_of_another_engine_role_mode_or_an_unconfirmed_figure(hosts: Path) -> None:
    written(hosts, figure("tx1", 1000), figure("rx1", 500), figure("tx2", 9, state="not confirmed"))
    known = figures.beside(hosts)
    assert known is not None and known.limit("tx1", "transmit", "xdp", "", [(64, 1)]) is not None
    assert known.limit("tx1", "transmit", "trafgen", "", [(64, 1)]) is None
    assert known.limit("rx1", "receive", "xdp", "capture", [(64, 1)]) is None
    assert known.limit("tx2", "transmit", "xdp", "", [(64, 1)]) is None
    assert figures.beside(hosts.with_name("other.yml")) is None


def test_what_is_written_is_read_again(hosts: Path) -> None:
    made = figures.Capacity(figures.path_of(hosts), (figures.Figure(**figure("tx1", 1000)),), {"tx1": {"pktgen": "no"}})
    made.write()
    assert figures.beside(hosts) == made and figures.path_of(hosts).name == "hosts.capacity.json"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "format": ({"format_version": 2}, "format_version = 2: is of another format (allowed: 1; delete it and make it"),
    "unknown key": ({"rates": 1}, "rates: unknown key (allowed: format_version, pktswarm, wiring, missing, figures)"),
    "no rate": (
        {"figures": [{**figure("tx1", 1), "rate_pps": None}]},
        "figures.0.rate_pps: is missing where the state is 'confirmed'",
    ),
    "a rate below 0": (
        {"figures": [figure("tx1", -1)]},
        "figures.0.rate_pps = -1: out of range (allowed: more than 0 packets/s)",
    ),
    "twice": ({"figures": [figure("tx1", 1), figure("tx1", 2)]}, "figures.1 = 'tx1 transmit xdp  64': stands twice"),
    "state": (
        {"figures": [figure("tx1", 1, state="sure")]},
        "figures.0.state = 'sure': unknown choice (allowed: confirmed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_none_is_refused_in_one_message(name: str, hosts: Path) -> None:
    more, words = REFUSED[name]
    path = written(hosts, **more)
    with pytest.raises(BadInput) as error:
        figures.beside(hosts)
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)


def test_a_file_that_is_no_json_is_refused(hosts: Path) -> None:
    figures.path_of(hosts).write_text("{")
    with pytest.raises(BadInput, match=r"hosts\.capacity\.json: cannot be read: .*pktswarm calibrate --hosts"):
        figures.beside(hosts)


# --- streams spread -------------------------------------------------------------------------------------------------


def test_inside_every_limit_a_stream_is_split_as_without_them(hosts: Path) -> None:
    stream = "{name: a, engine: xdp, rate_pps: 3000, count_packets: 1000}"
    alone = planned(hosts, stream)
    written(hosts, *(figure(f"tx{n}", 1000) for n in (1, 2, 3)))
    known = planned(hosts, stream)
    assert known.legs == alone.legs and not known.warnings
    assert {one.node: one.share for one in known.limits} == {f"tx{n}": pytest.approx(1.0) for n in (1, 2, 3)}


@pytest.mark.parametrize("end", ["count_packets: 30001", "duration_s: 10.0001"])
def test_a_node_that_cannot_take_its_part_leaves_the_rest_to_the_others(end: str, hosts: Path) -> None:
    written(hosts, figure("tx1", 2000), figure("tx2", 500), figure("tx3", 3000))
    made = planned(hosts, f"{{name: a, engine: xdp, rate_pps: 3000, {end}}}")
    counts = sent(made)
    assert sum(counts.values()) == (30001 if "count" in end else 30000)
    assert counts["tx2"] == 5000 and abs(counts["tx1"] - counts["tx3"]) <= 1
    assert sum(leg.rate_pps or 0 for leg in made.legs) == pytest.approx(3000)
    assert all(one.share <= 1 + 1e-9 for one in made.limits) and not made.warnings


@pytest.mark.parametrize("seed", range(20))
def test_any_split_is_whole_and_inside_the_limits_where_it_can_be(seed: int, hosts: Path) -> None:
    chance = random.Random(seed)
    limits = [chance.randint(1, 5000) for _ in range(3)]
    written(hosts, *(figure(f"tx{n}", limit) for n, limit in enumerate(limits, 1)))
    rate, count = chance.randint(1, 2 * sum(limits)), chance.randint(1, 100_000)
    made = planned(hosts, f"{{name: a, engine: xdp, rate_pps: {rate}, count_packets: {count}}}")
    assert sum(sent(made).values()) == count
    seconds = count / rate
    if rate <= sum(limits):
        for one in made.limits:
            assert one.pps <= one.limit.rate_pps + 3 / seconds
    else:
        assert any("can send about" in words for words in made.warnings)


def test_streams_share_a_node_and_what_is_its_own_comes_first(hosts: Path) -> None:
    """tx1 has 600 packets/s of its own to send; what a and b leave of tx2 and tx3 is theirs."""
    written(hosts, *(figure(f"tx{n}", 1000) for n in (1, 2, 3)))
    a, b = (f"{{name: {name}, engine: xdp, rate_pps: {pps}, duration_s: 1}}" for name, pps in (("a", 1500), ("b", 900)))
    made = planned(hosts, f"{a}, {b}, {{name: own, from: tx1, engine: xdp, rate_pps: 600, duration_s: 1}}")
    assert sent(made) == {"tx1": 400, "tx2": 550, "tx3": 550}
    assert sent(made, "b") == {"tx2": 450, "tx3": 450} and sent(made, "own") == {"tx1": 600}
    assert not made.warnings


def test_per_node_stays_and_is_told(hosts: Path) -> None:
    written(hosts, figure("tx1", 100), figure("tx2", 1000), figure("tx3", 1000))
    made = planned(hosts, "{name: a, engine: xdp, per: node, rate_pps: 500, duration_s: 1}")
    assert set(sent(made).values()) == {500}
    assert made.warnings[0].startswith("tx1 sends 500 packets/s, 500% of the 100 that it was seen to send (xdp)")
    assert made.warnings[-1] == "a: of 1,500 packets/s its transmitters can send about 1,100"


def test_a_stream_with_a_node_of_which_nothing_is_known_stays_as_it_is(hosts: Path) -> None:
    written(hosts, figure("tx1", 100), figure("tx2", 1000))
    made = planned(hosts, "{name: a, engine: xdp, rate_pps: 900, duration_s: 1}")
    assert set(sent(made).values()) == {300} and made.warnings[0].startswith("tx1 sends 300 packets/s, 300%")


def test_auto_goes_by_the_first_engine_that_the_node_has(hosts: Path) -> None:
    both = [figure("tx1", 1000), figure("tx1", 100, engine="trafgen")]
    stream = "{name: a, from: tx1, rate_pps: 500, count_packets: 10}"
    written(hosts, *both)
    assert [one.limit.engine for one in planned(hosts, stream).limits] == ["xdp"]
    written(hosts, *both, missing={"tx1": {"xdp": "no native XDP", "tc": "no libbpf", "pktgen": "no module"}})
    made = planned(hosts, stream)
    assert [one.limit.engine for one in made.limits] == ["trafgen"] and made.warnings
    written(hosts, *both, missing={"tx1": {"xdp": "no native XDP", "tc": "no libbpf"}})
    assert not planned(hosts, stream).limits, "pktgen would send, and was not measured"


def test_a_receiver_that_is_offered_too_much_is_told(hosts: Path) -> None:
    written(hosts, figure("rx1", 1000), figure("rx2", 400, state="at least"))
    made = planned(hosts, "{name: a, engine: xdp, rate_pps: 1800, duration_s: 1}")
    told = [words for words in made.warnings if words.startswith("rx")]
    assert [words.partition(": ")[2] for words in told] == [
        "what is lost may be lost by it, not by the device",
        "more was never tried",
    ]
    assert "rx1 receives 1,200 packets/s, 120% of the 1,000 that it was seen to receive" in told[0]
    assert "150% of the 400 or more" in told[1]


def test_a_changing_rate_counts_by_its_peak(hosts: Path) -> None:
    written(hosts, figure("tx1", 1000))
    rate = "{square: {rates: [100, 2000], every_s: 1}}"
    made = planned(hosts, f"{{name: a, from: tx1, engine: xdp, rate: {rate}, duration_s: 2}}")
    assert [one.pps for one in made.limits] == [2000] and made.warnings


def test_spread_is_even_but_for_those_that_are_full() -> None:
    assert capacity_weights.spread(90, [100, 100, 100]) == pytest.approx([30, 30, 30])
    assert capacity_weights.spread(90, [10, 100, 35]) == pytest.approx([10, 45, 35])
    assert capacity_weights.spread(300, [10, 20, 30]) == pytest.approx([50, 100, 150])
    assert capacity_weights.spread(9, [0, 0, 0]) == pytest.approx([3, 3, 3])
    assert capacity_weights.whole_numbers(10, [1, 1, 1], [1, 5, 1]) == [3, 4, 3]


SHIPPED = ["demo", "gtpu", "ericload-tcp", "traffic-mix", "upf", "upf/oversize", "upf/echo", "upf/handover"]


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_planned_whole_with_nodes_that_can_do_little(name: str, tmp_path: Path) -> None:
    path, hosts, limit_pps = Path(f"configs/{name}.yaml"), tmp_path / "hosts.yml", 1
    hosts.write_text(Path("hosts/upf.yml").read_text())
    loaded, scenario = inventory.load(hosts), scenarios.load(path)
    made = [figure(host.name, limit_pps, 1518, role="transmit", mode="") for host in loaded.hosts]
    made += [figure(host.name, limit_pps, 1518, role="receive", mode=scenario.receive.mode) for host in loaded.hosts]
    written(hosts, *made, missing={host.name: {"pktgen": "no module"} for host in loaded.hosts})
    alone, known = (plan.plan(scenario, path, loaded, capacity) for capacity in (None, figures.beside(hosts)))
    assert [leg.intended_packets for leg in known.legs] == [leg.intended_packets for leg in alone.legs]
    assert {one.role for one in known.limits} == {"transmit", "receive"}
    assert any(one.pps > limit_pps for one in known.limits) and known.warnings


# --- check, preview, run --------------------------------------------------------------------------------------------


def test_check_and_preview_show_the_split_and_what_is_too_much(hosts: Path, tmp_path: Path) -> None:
    written(hosts, figure("tx1", 100), figure("tx2", 1000), figure("tx3", 100), figure("rx1", 1e6), figure("rx2", 1e6))
    planned(hosts, "{name: a, engine: xdp, rate_pps: 1300, duration_s: 1}")
    scenario = hosts.with_name("s.yaml")
    told = explain.explain(scenario, hosts)
    assert "  tx2 sends 1,083 packets/s, 108% of the 1,000 that it was seen to send (xdp)" in told.splitlines()
    assert "warning: a: of 1,300 packets/s its transmitters can send about 1,200" in told.splitlines()
    document = json.loads(explain.explain_json(scenario, hosts))
    assert document["warnings"] and {one["node"] for one in document["capacity"]["nodes"]} >= {"tx1", "tx2", "rx1"}
    assert sum(leg["intended_packets"] for leg in document["legs"]) == 1300
    assert "a: of 1,300 packets/s its transmitters can send about 1,200" in preview.Source(scenario, hosts).notes


def report(node: str, **more: Any) -> dict[str, Any]:
    interface = {"driver": "veth", "speed_mbps": None}
    made = {"kernel": "6.18.0", "interface": interface, "senders": {"xdp": "", "pktgen": "", "trafgen": ""}}
    return {**made, **more}


def test_what_is_of_another_kernel_driver_or_link_is_told_and_not_used(hosts: Path) -> None:
    written(hosts, figure("tx1", 1000), figure("tx2", 1000), figure("tx3", 1000, speed_mbps=1000))
    known = figures.beside(hosts)
    assert known is not None
    changed = {
        "tx1": report("tx1", kernel="6.19.0"),
        "tx2": report("tx2"),
        "tx3": report("tx3", interface={"driver": "veth", "speed_mbps": 100}),
    }
    left, told = known.updated_from(changed)
    assert [one.node for one in left.figures] == ["tx2"]
    assert told == [
        "tx1: what it was seen to do is not used any more, it has changed since (kernel 6.18.0 then, 6.19.0 now)",
        "tx3: what it was seen to do is not used any more, it has changed since (speed_mbps 1000 then, 100 now)",
    ]


def run_of(hosts: Path, stream: str) -> runs.Run:
    planned(hosts, stream)
    return runs.Run(hosts.with_name("s.yaml"), hosts, hosts.parent / "results")


def test_a_run_plans_again_without_what_is_stale(hosts: Path) -> None:
    written(hosts, figure("tx1", 2000), figure("tx2", 500), figure("tx3", 3000))
    run = run_of(hosts, "{name: a, engine: xdp, rate_pps: 3000, duration_s: 1}")
    assert sent(run.plan)["tx2"] == 500
    as_it_was = {name: report(name) for name in ("tx1", "tx2", "tx3", "rx1", "rx2")}
    before = run.plan
    run._plan_by_what_holds(as_it_was)
    assert run.plan is before and not run._not_used
    run._plan_by_what_holds({**as_it_was, "tx2": report("tx2", kernel="7.0.0")})
    assert set(sent(run.plan).values()) == {1000} and len(run._not_used) == 1
    assert {one.node for one in run.plan.limits} == {"tx1", "tx3"}


def test_a_stale_node_that_would_have_to_begin_to_send_is_bad_input(hosts: Path) -> None:
    """tx1 is full with a stream of its own, so that it has no part in the other."""
    written(hosts, *(figure(f"tx{n}", 1000) for n in (1, 2, 3)))
    run = run_of(hosts, "{name: a, engine: xdp, rate_pps: 2, count_packets: 2}")
    run.plan = replace(run.plan, limits=())
    run.ranks = run.ranks[1:]
    with pytest.raises(BadInput, match=r"hosts\.capacity\.json: .*other nodes would have to send .*pktswarm calibrate"):
        run._plan_by_what_holds({"tx1": report("tx1")})


def test_a_run_says_what_is_too_much_before_it_starts(
    hosts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(hosts, *(figure(f"tx{n}", 100) for n in (1, 2, 3)))
    planned(hosts, "{name: a, engine: xdp, rate_pps: 3000, duration_s: 1}")

    def execute(self: runs.Run, watch: object) -> None:
        raise BadInput("a test", "nothing is sent here")

    monkeypatch.setattr(runs.Run, "execute", execute)
    with pytest.raises(BadInput, match="nothing is sent here"):
        app.app(["run", str(hosts.with_name("s.yaml")), "--hosts", str(hosts)], standalone_mode=False)
    assert "warning: a: of 3,000 packets/s its transmitters can send about 300\n" in capsys.readouterr().err


# --- in the report --------------------------------------------------------------------------------------------------


def told_by(sent_pps: dict[int, float], lost: int = 0, more: tuple[dict[str, Any], ...] = ()) -> list[str]:
    """Of two legs to rx1, which takes 1,000 packets/s of either, from tx1, which can send 2,000."""
    ends = [(leg, "tx1", "transmit", 2000) for leg in (0, 1)] + [(leg, "rx1", "receive", 1000) for leg in (0, 1)]
    legs = [
        {"leg": leg, "node": node, "role": role, "pps": 600.0, "limit": {"rate_pps": rate}}
        for leg, node, role, rate in ends
    ]
    rows = [{"leg": leg, "to": "rx1", "sent_pps": pps, "lost_packets": lost} for leg, pps in sent_pps.items()]
    document: dict[str, Any] = {**empty_document(), "capacity": {"legs": legs, "not_used": []}, "rows": [*rows, *more]}
    return [words for words in bottlenecks.describe(cast("RunDocument", document), [], None) if "x1: " in words]


def test_the_report_tells_a_receivers_own_loss_from_the_devices() -> None:
    own = "rx1: offered 1.200 kpackets/s, 120.00 % of its calibrated capacity: lost packets can be its own loss"
    assert [words.startswith(own) for words in told_by({0: 600.0, 1: 600.0})] == [True]
    (words,) = told_by({0: 300.0, 1: 200.0}, lost=7)
    assert words.endswith("50.00 % of its calibrated capacity: during calibration it lost nothing at such a rate.")
    assert not told_by({0: 300.0, 1: 200.0}), "nothing is lost, and nothing to be told"
    assert not told_by({0: 300.0, 1: 200.0}, 7, ({"leg": 2, "to": "rx1"},)), "of the third one nothing is known"
    assert not told_by({0: 900.0}), "of the second one nothing was measured"


def test_k_of_each_node_is_of_its_sums() -> None:
    names = ("intended_packets", "sent_packets", "received_packets", "lost_packets")
    rows = [
        {"from": source, "to": target, **dict(zip(names, counts, strict=True))}
        for source, target, counts in (
            ("tx1", "rx1", (100, 90, 80, 10)),
            ("tx2", "rx1", (300, 300, 300, 0)),
            ("tx2", "rx2", (100, None, 50, None)),
        )
    ]
    totals = node_totals(cast("list[StreamRow]", rows))
    found = {(one["node"], one["role"]): (one["k"], one["k_sender"], one["lost_packets"]) for one in totals}
    assert found["tx1", "transmit"] == (0.8, 0.9, 10) and found["rx1", "receive"] == (0.95, 0.975, 10)
    assert found["tx2", "transmit"] == (0.875, None, None) and found["rx2", "receive"] == (0.5, None, None)
