"""Streams whose rate changes or whose frames arrive at random: from the scenario to legs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import explain, plan
from pktswarm.master.scenario import scenario
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule import due_times, pace
from pktswarm.traffic.schedule.capabilities import unable

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}}}
"""


def files(tmp_path: Path, stream: str, more: str = "") -> tuple[Path, Path]:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "test.yaml").write_text(f"name: test\n{more}\nstreams: [{{name: s, {stream}}}]\n")
    return tmp_path / "test.yaml", tmp_path / "hosts.yml"


def legs(tmp_path: Path, stream: str, more: str = "") -> tuple[Leg, ...]:
    path, hosts = files(tmp_path, stream, more)
    return plan.plan(scenario.load(path), path, inventory.load(hosts)).legs


def test_a_profile_is_split_over_the_nodes(tmp_path: Path) -> None:
    made = legs(tmp_path, "rate: {square: {rates: [1000, 3000], every_s: 1}}, duration_s: 4")
    assert [leg.rates for leg in made] == [[[0, 500], [1e9, 1500], [2e9, 500], [3e9, 1500]]] * 2
    assert [leg.intended_packets for leg in made] == [4000, 4000]


def test_per_node_each_has_the_whole_profile(tmp_path: Path) -> None:
    made = legs(tmp_path, "rate: {square: {rates: [1000, 4000], every_s: 1}}, duration_s: 4, per: node")
    assert [leg.intended_packets for leg in made] == [10_000, 10_000]


@pytest.mark.parametrize(("unit", "overhead"), [("bps", 0), ("l1_bps", 20)])
def test_bits_become_packets_by_the_mean_size(tmp_path: Path, unit: str, overhead: int) -> None:
    stream = f"rate: {{walk: {{between: [1.0e6, 2.0e6], by: 5.0e5, every_s: 1}}, unit: {unit}}}, duration_s: 3"
    made = legs(tmp_path, f"{stream}, from: tx1, size_bytes: [64, 1436]")
    bits = 8 * (750 + overhead)
    assert [rate for _, rate in made[0].rates] == pytest.approx([1e6 / bits, 1.5e6 / bits, 2e6 / bits])


def test_a_steady_rate_stays_one_that_every_engine_can_keep(tmp_path: Path) -> None:
    made = legs(tmp_path, "rate: {steady: 1.0e6, unit: bps}, size_bytes: 125, count_packets: 10")
    assert [(leg.rate_pps, leg.rates, leg.count_packets) for leg in made] == [(500, [], 5)] * 2
    assert legs(tmp_path, "rate: 100, duration_s: 1")[0].rate_pps == 50


def test_poisson_arrivals_have_a_table_and_a_seed_of_their_own_on_each_node(tmp_path: Path) -> None:
    made = legs(tmp_path, "rate_pps: 2000, arrivals: poisson, duration_s: 2")
    assert made[0].gap_table == due_times.exponential_gaps()
    assert made[0].seed != made[1].seed
    counts = [leg.intended_packets or 0 for leg in made]
    assert counts == [due_times.intended_packets(leg) for leg in made]
    assert counts[0] != counts[1]
    assert all(1800 < count < 2200 for count in counts)


def test_other_arrivals_and_bursts(tmp_path: Path) -> None:
    made = legs(tmp_path, "rate_pps: 2000, arrivals: {gamma: {mean: 1, sd: 2}}, burst: 4, duration_s: 1, from: tx1")
    assert len(made[0].gap_table) == 4096
    assert made[0].options == {"burst": 4}
    due = due_times.due_times(made[0])
    assert (due[0:4] == due[0]).all()
    assert due[4] > due[0]


def test_the_same_seed_gives_the_same_packets_and_another_gives_others(tmp_path: Path) -> None:
    stream = "rate: {walk: {between: [1, 9], by: 1, every_s: 1, random: true}}, arrivals: poisson, duration_s: 40"
    first, again = (legs(tmp_path, stream)[0] for _ in range(2))
    assert first == again
    whole, own = legs(tmp_path, stream, "seed: 2")[0], legs(tmp_path, f"{stream}, seed: 2")[0]
    assert whole == own
    assert (first.seed, first.rates) != (own.seed, own.rates)


def test_other_streams_make_no_difference_to_what_is_drawn(tmp_path: Path) -> None:
    stream = "rate_pps: 10, arrivals: poisson, duration_s: 1, from: tx1"
    alone = legs(tmp_path, stream)[0]
    path, hosts = files(tmp_path, stream)
    path.write_text(path.read_text().replace("streams: [", "streams: [{name: other, count_packets: 1, from: tx1}, "))
    beside = plan.plan(scenario.load(path), path, inventory.load(hosts)).legs[1]
    assert due_times.due_times(alone).tolist() == due_times.due_times(beside).tolist()


def test_only_xdp_sends_them_and_the_others_say_why(tmp_path: Path) -> None:
    leg = legs(tmp_path, "rate_pps: 10, arrivals: poisson, duration_s: 1")[0]
    assert unable("pktgen", leg) == unable("trafgen", leg) == "sends at a steady rate only"


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("rate: {sine: {mean: 1, amplitude: 2, day_s: 1}}, duration_s: 1", "streams.0.rate.sine.amplitude"),
        ("rate: {ramp: {from: 0, to: 9, over_s: 1}}, count_packets: 9", "streams.0.count_packets = 9"),
        ("rate: {swing: 3}, duration_s: 1", "not one profile"),
        ("rate: 0, duration_s: 1", "the rate is 0 all the time"),
        ("rate: {square: {rates: [1, 1.0e10], every_s: 1}}, duration_s: 3", "the ratio of the rates is 1e+10"),
        ("rate_pps: 9, arrivals: {pareto: {shape: 1, least: 1}}, duration_s: 1", "streams.0.arrivals"),
        ("rate_pps: 9, arrivals: {uniform: {least: -1, most: 3}}, duration_s: 1", "values below 0"),
        ("rate: {table: nowhere.csv}, duration_s: 1", "nowhere.csv"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_sent(tmp_path: Path, stream: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        legs(tmp_path, stream)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("rate: 9, rate_pps: 9, duration_s: 1", "rate and rate_pps contradict each other"),
        ("arrivals: poisson, duration_s: 1", "arrivals need a rate"),
        ("rate: 9, burst: 2, options: {burst: 3}, duration_s: 1", "burst and options.burst contradict"),
        ("rate: 9, burst: 0, duration_s: 1", "streams.0.burst"),
        ("rate: 9, seed: -1, duration_s: 1", "streams.0.seed"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, stream: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        scenario.load(files(tmp_path, stream)[0])
    assert words in str(caught.value)


def test_check_tells_the_pace(tmp_path: Path) -> None:
    told = explain.explain(*files(tmp_path, "rate: {square: {rates: [20, 60], every_s: 1}}, burst: 2, duration_s: 2"))
    assert "10 to 30 packets/s in 2 steps in bursts of 2" in told
    told = explain.explain(*files(tmp_path, "rate: 20, arrivals: poisson, duration_s: 2"))
    assert "10 packets/s at random" in told


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_one_draw_is_that_of_many(seed: int) -> None:
    numbers = [0, 1, 2**32, 2**63]
    assert [pace.draw(seed, number) for number in numbers] == due_times.draws(
        seed, np.array(numbers, dtype=np.uint64)
    ).tolist()
