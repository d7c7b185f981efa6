"""NetSpec's six sets: what each point runs, that kept points are not run again, and the figures made of them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.results.document import empty_document
from pktswarm.master.results.document_rows import ConnectionResult
from pktswarm.master.results.folder import Outcome
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.tables.netspec import FULL_S, SETS, Netspec, figures, tables

HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}, tx3: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}, rx2: {}, rx3: {}}}
"""


class Runs:
    """In place of a run: a result that is known, and a note of what was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 0

    def __call__(self, path: Path) -> tuple[Outcome, Path]:
        self.asked.append(yaml.safe_load(path.read_text()))
        rows = [self._row(one) for one in self.asked[-1]["connections"]]
        document = empty_document()
        document["connections"] = cast(list[ConnectionResult], rows)
        return Outcome(self.status, "a reason", document=document), path.parent

    @staticmethod
    def _row(connection: dict[str, Any]) -> dict[str, Any]:
        udp = connection.get("protocol") == "udp"
        row = {"connections": connection["name"], "role": "background" if connection.get("background") else "target"}
        row |= {"goodput_bps": 5_000_000, "jitter_sd_ns": 250_000, "retransmitted_segments": None if udp else 3}
        return row | ({"lost_datagrams": 5, "sent_datagrams": 1000} if udp else {"lost_datagrams": None})


def netspec(tmp_path: Path, runs: Runs, backgrounds: tuple[int, ...] = (25, 60), seconds: float = 2.0) -> Netspec:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    return Netspec(inventory.load(tmp_path / "hosts.yml"), tmp_path / "points", seconds, backgrounds, runs)


def test_six_sets_of_six_target_flows_against_each_background(tmp_path: Path) -> None:
    work = netspec(tmp_path, Runs())
    points = work.points()
    assert len(points) == len({point.key for point in points}) == 6 * 2 * 6
    rates = [work.target_mbps(point) for point in points[:6]]
    assert rates == [5.22, 10.45, 15.67, 20.89, 26.11, 31.34]  # the reference's own
    assert pytest.approx(700, abs=1) == FULL_S


@pytest.mark.parametrize("rate", [25, 60])
def test_the_background_adds_up_to_the_mix(tmp_path: Path, rate: int) -> None:
    mix = [one for one in netspec(tmp_path, Runs()).scenarios[rate].connections if one.background]
    # The reference's fifth source, telnet, is in neither of its mixes.
    assert [one.name for one in mix] == ["www", "ftp", "mpeg", "video"]
    assert sum(one.mean_bps or 0 for one in mix) == pytest.approx(rate * 1e6)
    assert [one.source if isinstance(one.source, str) else next(iter(one.source or {})) for one in mix] == [
        *["www", "ftp", "mpeg", "videoconference"]
    ]


@pytest.mark.parametrize("rate", [25, 60])
def test_what_the_mix_draws_is_near_its_rate(tmp_path: Path, rate: int) -> None:
    path = Path(f"configs/netspec-{rate}.yaml")
    (tmp_path / "hosts.yml").write_text(HOSTS)
    made = plan.plan(scenarios.load(path), path, inventory.load(tmp_path / "hosts.yml"))
    items = [item for leg in made.legs if leg.source == "tx1" for each in leg.connection.items or [] for item in each]
    # Headers are in the mean rate, and not in what connections are given.
    assert 0.8 < sum(8 * size for _, size in items) / 10 / (rate * 1e6) < 1.1


@pytest.mark.parametrize("one", SETS, ids=lambda one: one.key)
def test_a_point_paces_what_its_set_paces_and_loads_as_a_scenario(tmp_path: Path, one: Any) -> None:
    runs = Runs()
    work = netspec(tmp_path, runs, (25,))
    point = next(point for point in work.points() if point.set == one)
    made = work.scenario(point)
    connections = made["connections"]
    assert isinstance(connections, list)
    target, *background = connections
    assert target["name"] == "t05" and target["protocol"] == one.protocol and len(background) == 4
    assert ("pace_bps" in target) == (one.paced == "target")
    assert {"pace_bps" in flow for flow in background} == {one.paced == "background"}
    assert all("protocol" not in flow and flow["background"] for flow in background)
    assert (target["from"], target["to"]) == ("tx1", "rx1")
    assert {(flow["from"], flow["to"]) for flow in background} == {("tx2", "rx2"), ("tx3", "rx3")}
    path = tmp_path / "point.yaml"
    path.write_text(yaml.safe_dump(made))
    assert plan.plan(scenarios.load(path), path, work.inventory).expected_s == 2.0


def test_a_table_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    runs = Runs()
    first = netspec(tmp_path, runs, (25,)).run()
    done = [next(first), next(first)]
    assert isinstance(first, Generator)
    first.close()
    again = list(netspec(tmp_path, runs, (25,)).run())
    assert again[:2] == done and len(again) == len(runs.asked) == 36
    assert list(netspec(tmp_path, runs, (25,)).run()) == again and len(runs.asked) == 36


def test_points_of_another_length_are_run_again(tmp_path: Path) -> None:
    runs = Runs()
    next(netspec(tmp_path, runs, (25,)).run())
    next(netspec(tmp_path, runs, (25,), seconds=3.0).run())
    assert [asked["connections"][0]["duration_s"] for asked in runs.asked] == [2.0, 3.0]


def test_a_point_that_went_wrong_is_told_and_run_again(tmp_path: Path) -> None:
    runs = Runs()
    runs.status = 3
    assert next(netspec(tmp_path, runs, (25,)).run()).problem == "a reason"
    runs.status = 0
    assert next(netspec(tmp_path, runs, (25,)).run()).problem == ""
    assert len(runs.asked) == 2


def test_a_broken_file_of_a_point_is_measured_again(tmp_path: Path) -> None:
    runs = Runs()
    next(netspec(tmp_path, runs, (25,)).run())
    (tmp_path / "points" / "tcp-25-t05.json").write_text("{")
    next(netspec(tmp_path, runs, (25,)).run())
    assert len(runs.asked) == 2


def test_figures_and_tables_have_every_point(tmp_path: Path) -> None:
    measured = list(netspec(tmp_path, Runs()).run())
    made = {one["figure"]: one for one in figures(measured)}
    assert list(made) == [5, 6, 7, 8, 9]
    assert made[5]["curves"]["25"][0] == [5.22, 0.25] and len(made[5]["curves"]["60"]) == 6
    assert made[7]["curves"]["60"][5] == [31.34, 0.5]
    assert list(made[9]["curves"]) == ["60"]
    shown = tables(measured)
    assert len(shown) == 2 * 4
    assert {(one.row_count, len(one.columns)) for one in shown} == {(6, 7), (6, 4)}
