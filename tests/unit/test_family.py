"""A family of runs: its points, the scenario of each, what is measured, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from typer.testing import CliRunner

from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory
from pktswarm.master.plan import plan
from pktswarm.master.results.document import RunDocument
from pktswarm.master.results.folder import Outcome
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.tables import failure_table, measures
from pktswarm.master.tables import family as families
from pktswarm.master.tables.storage import Storage
from pktswarm.traffic.errors import BadInput

SHIPPED = sorted(Path("configs/tables").glob("*.yaml"))
SMALL: dict[str, Any] = {
    "table": "small",
    "title": "a small one",
    "reference_seconds": 60,
    "axes": [
        {"name": "way", "values": [{"way": "half", "share": 0.5}, {"way": "whole", "share": 1}]},
        {"name": "rate", "title": "packets/s", "values": [1000, 2000]},
        {"name": "size", "values": [64]},
    ],
    "measures": ["loss_ratio", "received_gbps", "latency_p50_ms"],
    "scenario": {
        "streams": [
            {"name": "s", "size_bytes": "$size", "rate_pps": "$rate*$share", "duration_s": "$seconds"},
            {"only": {"way": ["half"]}, "name": "t", "rate_pps": "$rate*$share", "duration_s": "$seconds"},
        ]
    },
    "reference": {"source": "somebody", "figures": {"half": {"1000": [[0.1, 2, 3]]}}},
}
ROWS = [
    {
        "group": "target",
        "stream": "s",
        "intended_packets": 125,
        "sent_packets": 100,
        "lost_packets": 10,
        "received_packets": 90,
        "received_bps": 2e9,
        "latency_p50_ns": 5e6,
        "latency_bound_ns": 1e5,
    },
    {
        "group": "target",
        "stream": "s",
        "intended_packets": 125,
        "sent_packets": 100,
        "lost_packets": 0,
        "received_packets": 100,
        "received_bps": 1e9,
        "latency_p50_ns": 3e6,
        "latency_bound_ns": 2e5,
    },
    {"group": "background", "sent_packets": 9, "lost_packets": 9, "received_packets": 0, "received_bps": 0.0},
]


class Done:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 0

    def __call__(self, path: Path) -> tuple[Outcome, Path]:
        self.asked.append(yaml.safe_load(path.read_text()))
        document = cast("RunDocument", {"rows": ROWS})
        return Outcome(self.status, "a reason", [], [], [], document, [], []), path.parent / "result"


def samples(path: Path, *rows: tuple[int, str, str, str, str]) -> Path:
    """Of (time_ns, node, stream, sent, received); from and to are left out."""
    names = "time_ns,node,stream,sent_packets,received_packets,from,to"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "family.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def runs(tmp_path: Path, done: Done, seconds: float | None = 2.0) -> families.Runs:
    path = written(tmp_path)
    return families.Runs(path, families.load(path), tmp_path / "points", seconds, done)


def test_every_point_is_a_scenario_of_its_values(tmp_path: Path) -> None:
    done = Done()
    told = list(runs(tmp_path, done).run())
    assert [one["labels"] for one in told] == [
        *[("half", "1000", "64"), ("half", "2000", "64"), ("whole", "1000", "64"), ("whole", "2000", "64")]
    ]
    assert done.asked[1] == {
        "name": "small-half-2000-64",
        "streams": [
            {"name": "s", "size_bytes": 64, "rate_pps": 1000.0, "duration_s": 2.0},
            {"name": "t", "rate_pps": 1000.0, "duration_s": 2.0},
        ],
    }
    assert [stream["rate_pps"] for stream in done.asked[3]["streams"]] == [2000]


def test_what_is_measured_is_of_the_targets(tmp_path: Path) -> None:
    first, second, *_ = runs(tmp_path, Done()).run()
    # Of 190 packets the 95th has 3 ms: 100 of them have.
    always = {"sent_ratio": 0.8, "latency_bound_ms": 0.2}
    assert first["measured"] == {"loss_ratio": 0.05, "received_gbps": 3.0, "latency_p50_ms": 3.0, **always}
    assert first["reference"] == {"loss_ratio": 0.1, "received_gbps": 2.0, "latency_p50_ms": 3.0}
    assert second["reference"] == {}


def test_what_was_measured_is_kept_and_what_went_wrong_is_not(tmp_path: Path) -> None:
    done = Done()
    done.status = 3
    assert next(runs(tmp_path, done).run())["problem"] == "a reason"
    done.status = 0
    first = list(runs(tmp_path, done).run())
    assert list(runs(tmp_path, done).run()) == first and len(done.asked) == 1 + 4
    list(runs(tmp_path, done, None).run())
    assert len(done.asked) == 1 + 4 + 4, "another length is another point"


def test_the_table_has_the_references_figures_in_brackets(tmp_path: Path) -> None:
    work = runs(tmp_path, Done())
    half, whole = families.tables(work.family, list(work.run()))
    assert half.title == "way: half" and half.row_count == 2
    assert [str(column.header) for column in half.columns] == [*["packets/s", "Ratio", "Gbps", "Delay, ms"]]
    assert list(half.columns[1].cells) == ["0.0500 [dim](0.1)[/]", "0.0500"]
    assert list(whole.columns[3].cells) == ["3.000", "3.000"]


def test_what_takes_one_value_is_not_shown(tmp_path: Path) -> None:
    one = {"name": "way", "values": [{"way": "half", "share": 0.5}]}
    two = {"name": "size", "values": [64, 128]}
    path = written(tmp_path, axes=[one, SMALL["axes"][1], two], reference=None, measures=["loss_ratio"])
    work = families.Runs(path, families.load(path), tmp_path / "points", 2, Done())
    (table,) = families.tables(work.family, list(work.run()))
    assert table.title is None
    assert [str(column.header) for column in table.columns] == ["packets/s", "size 64\nRatio", "size 128\nRatio"]


def test_points_that_are_skipped_are_not_run(tmp_path: Path) -> None:
    path, done = written(tmp_path, skip=[{"way": ["half"], "rate": [2000, 3000]}]), Done()
    work = families.Runs(path, families.load(path), tmp_path / "points", 2, done)
    told = list(work.run())
    assert [one["labels"][:2] for one in told] == [("half", "1000"), ("whole", "1000"), ("whole", "2000")]
    half, whole = families.tables(work.family, told)
    assert (half.row_count, whole.row_count) == (1, 2), "a row without points is not shown"


def test_a_figure_that_the_reference_does_not_tell(tmp_path: Path) -> None:
    path = written(tmp_path, reference={"source": "s", "figures": {"half": {"1000": [[0.1, None, 3]]}}})
    work = families.Runs(path, families.load(path), tmp_path / "points", 2, Done())
    half, _ = families.tables(work.family, list(work.run()))
    figures = [next(iter(column.cells)) for column in half.columns[1:]]
    assert figures == ["0.0500 [dim](0.1)[/]", "3.000", "3.000 [dim](3)[/]"]


def test_a_tester_that_could_not_keep_up_is_told(tmp_path: Path) -> None:
    told = list(runs(tmp_path, Done()).run())
    line = "the tester sent less than intended at 4 of 4 points: half, 1000, 64: 80%; half, 2000, 64: 80%"
    assert families.not_sent(told).startswith(line)
    for one in told:
        one["measured"]["sent_ratio"] = 0.995
    told[0]["measured"]["sent_ratio"] = None
    assert families.not_sent(told) == ""


def test_a_delay_is_told_no_better_than_it_is_known(tmp_path: Path) -> None:
    work = runs(tmp_path, Done())
    told = list(work.run())
    told[0]["measured"]["latency_bound_ms"] = 0.31
    half, _ = families.tables(work.family, told)
    assert list(half.columns[3].cells) == ["3.000 ±0.310 [dim](3)[/]", "3.000"]


def test_what_was_kept_without_a_measure_is_measured_again(tmp_path: Path) -> None:
    done = Done()
    list(runs(tmp_path, done).run())
    samples(tmp_path / "points" / "result" / "samples.csv")
    path = written(tmp_path, measures=[*SMALL["measures"], "peak_sent_packets"], reference=None)
    work = families.Runs(path, families.load(path), tmp_path / "points", 2, done)
    assert [one["measured"]["peak_sent_packets"] for one in work.run()] == [None] * 4 and len(done.asked) == 8


def test_a_trace_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    traced = {"traces": [{"only": {"way": ["whole"]}, "name": "t", "file": "no.pcap"}]}
    path, done = written(tmp_path, scenario=traced), Done()
    work = families.Runs(path, families.load(path), tmp_path / "points", 2, done)
    with pytest.raises(BadInput, match=r"traces\.file = .*no\.pcap': there is no such trace .*lab record --large"):
        list(work.run())
    assert not done.asked


@pytest.mark.parametrize("traces", [[{"name": "t"}], ["t"], "t", None], ids=str)
def test_traces_without_a_file_are_left_to_the_scenarios_own_check(tmp_path: Path, traces: object) -> None:
    path, done = written(tmp_path, scenario={"traces": traces}), Done()
    list(families.Runs(path, families.load(path), tmp_path / "points", 2, done).run())
    assert [one["traces"] for one in done.asked] == [traces] * 4


def test_the_peak_is_that_of_all_nodes_together(tmp_path: Path) -> None:
    ms = 1_000_000
    path = samples(
        tmp_path / "r" / "samples.csv",
        *[(0, "a", "s", "0", ""), (0, "b", "s", "0", ""), (0, "b", "other", "0", "")],
        # a: 100 in the second tenth, in two legs; b between its samples 30 a tenth; "other" is no target.
        *[(100 * ms, "a", "s", "0", ""), (100 * ms, "b", "other", "999", "")],
        *[(200 * ms, "a", "s", "60", ""), (200 * ms, "a", "s", "40", ""), (300 * ms, "b", "s", "90", "")],
        *[(300 * ms, "a", "s", "100", ""), (300 * ms, "a", "", "", "")],
    )
    assert measures.peak_packets(path, "sent_packets", {"s"}) == 130
    assert measures.peak_packets(path, "received_packets", {"s"}) is None


def test_a_sample_that_lacks_a_leg_makes_no_peak(tmp_path: Path) -> None:
    tenth = 100_000_000
    told = [(n * tenth, "a", name, str(50 * n), "") for n in range(4) for name in "st" if (n, name) != (2, "t")]
    path = samples(tmp_path / "r" / "samples.csv", *told)
    assert measures.peak_packets(path, "sent_packets", {"s", "t"}) == 100


def test_what_came_before_the_first_sample_is_in_a_peak(tmp_path: Path) -> None:
    ms = 1_000_000
    path = samples(tmp_path / "r" / "samples.csv", (50 * ms, "a", "s", "70", ""), (150 * ms, "a", "s", "90", ""))
    assert measures.peak_packets(path, "sent_packets", {"s"}) == 80


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip": [{"colour": ["red"]}]}, "skip: no axis sets colour; allowed: rate, share, size, way"),
        ({"skip": [{"size": [64]}]}, "skip: all points are excluded"),
        ({"table": "A table"}, "table"),
        ({"axes": SMALL["axes"][:2]}, "axes"),
        ({"axes": [{"name": "way", "values": [{"share": 1}]}, *SMALL["axes"][1:]]}, "must have the key way"),
        ({"measures": ["loss"]}, "measures: loss: unknown; allowed: loss_ratio, received_gbps"),
        ({"reference": {"source": "s", "figures": {"no": {"1000": [[1, 2, 3]]}}}}, "no, 1000: not a part and row"),
        ({"reference": {"source": "s", "figures": {"half": {"1000": [[1, 2]]}}}}, "1 lists of 3 figures"),
        ({"failures": "k"}, "failures: k: not in measures: loss_ratio"),
        (
            {"axes": [*SMALL["axes"][:2], {"name": "size", "values": [64], "full": [64, 512]}]},
            "size: the columns cannot",
        ),
        ({"colour": "red"}, "unknown key .*table, title, seconds"),
        (
            {"scenario": {"streams": [{"rate_pps": "$speed"}]}},
            r"'\$speed': no axis sets this variable .*seconds, share, way, rate, size",
        ),
        ({"scenario": {"streams": [{"only": {"colour": [1]}}]}}, r"\$colour.*no axis sets this variable"),
        ({"scenario": {"streams": [{"rate_pps": "$rate + 1"}]}}, "neither a variable nor a product"),
        ({"scenario": {"streams": [{"rate_pps": "$way*$rate"}]}}, "a factor is not a number"),
    ],
)
def test_a_family_that_cannot_be_is_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(BadInput, match=message) as caught:
        families.load(path)
    assert str(caught.value).startswith(str(path))


def test_a_family_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such file"):
        families.load(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[]")
    with pytest.raises(BadInput, match="must be a mapping"):
        families.load(tmp_path / "list.yaml")


HOSTS = Path("hosts/upf.yml")
SHORT_TRACE = Path("configs/traces/lab.pcapng").resolve()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_points_of_a_family_that_ships_can_be_planned(path: Path, tmp_path: Path) -> None:
    family = families.load(path)
    for one in family.scenario.get("traces", []):
        one["file"] = str(SHORT_TRACE)  # the large ones are not in the repository
    work = families.Runs(path, family, tmp_path, None, Done())
    hosts = inventory.load(HOSTS)
    for point in work.points[:: 1 if len(work.points) < 100 else 7]:
        file = work.storage.write_scenario(point.key, work.scenario(point))
        assert plan.plan(scenarios.load(file), file, hosts).expected_s > 0
    family = family.in_full()
    if family.reference and not family.skip:
        shape = [[len(row) for row in part.values()] for part in family.reference.figures.values()]
        rows, columns = (len(axis.values) for axis in family.axes[1:])
        assert shape == [[columns] * rows] * len(family.axes[0].values)


def test_in_full_there_are_more_points_and_none_of_the_small_form_is_lost(tmp_path: Path) -> None:
    rates = {"name": "rate", "values": [1000], "full": [1000, 2000]}
    path = written(tmp_path, axes=[SMALL["axes"][0], rates, SMALL["axes"][2]])
    family, done = families.load(path), Done()
    list(families.Runs(path, family, tmp_path / "points", 2, done).run())
    assert len(done.asked) == 2
    told = list(families.Runs(path, family.in_full(), tmp_path / "points", 2, done).run())
    assert len(done.asked) == 4 and [one["labels"][1] for one in told] == ["1000", "2000"] * 2


def test_how_many_points_went_wrong_stands_beside_the_references(tmp_path: Path) -> None:
    figures = {"half": {"1000": [[0.1, 2, 3]], "2000": [[0, 2, 3]]}}
    path = written(tmp_path, failures="loss_ratio", reference={"source": "s", "figures": figures})
    family = families.load(path)
    told = list(families.Runs(path, family, tmp_path / "points", 2, Done()).run())
    told[0]["measured"] |= {"loss_ratio": 0.0}
    told[2]["problem"], told[3]["measured"] = "interrupted", {"loss_ratio": None}
    half = {"part": "half", "points": 2, "failed": 1, "reference_points": 2, "reference_failed": 1}
    whole = {"part": "whole", "points": 0, "failed": 0, "reference_points": 0, "reference_failed": 0}
    assert failure_table.rows(family, told) == [half, whole]
    assert list(failure_table.table(family, told).columns[3].cells) == ["50 [dim](50)[/]", "–"]


def test_the_zero_drop_tests_are_the_references_hundred() -> None:
    """Figure 6.7 is read off table B.1: of 30 tests at 50,000 packets/s none lost anything."""
    family = families.load(Path("configs/tables/dirnberger-b.1.yaml")).in_full()
    assert len(families.points(family)) == 100
    told: list[families.PointResult] = [
        {"labels": point.labels, "measured": {}, "reference": {}, "problem": ""} for point in families.points(family)
    ]
    theirs = {
        one["part"]: (one["reference_failed"], one["reference_points"]) for one in failure_table.rows(family, told)
    }
    assert theirs["90000"] == (5, 10) and theirs["50000"] == (0, 30)
    assert sum(points for _, points in theirs.values()) == 100


def test_k_and_rates_of_a_point() -> None:
    rows = [{"intended_packets": 100, "received_packets": 80, "sent_pps": 10.0, "sent_bps": 8e6, "lost_packets": 5}] * 2
    names = ("k", "sent_pps", "sent_mbps", "lost_packets")
    of = {name: measures.MEASURES[name].of(measures.Measured(rows, Path())) for name in names}
    assert of == {"k": 0.8, "sent_pps": 20, "sent_mbps": 16, "lost_packets": 10}


def test_a_point_of_another_device_is_measured_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path, {"settings": {"bottleneck_bps": 40_000_000}})
    storage.write_scenario("p", {"name": "p"})
    storage.keep("p", {"name": "p"}, tmp_path, {"k": 1.0})
    assert storage.measured("p", {"name": "p"}) == {"k": 1.0}
    assert Storage(tmp_path, {"settings": {"bottleneck_bps": 30_000_000}}).measured("p", {"name": "p"}) is None
    assert Storage(tmp_path).measured("p", {"name": "p"}) is None


def test_as_long_as_a_reference_that_does_not_say_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pktswarm.master.cli.table.enter_lab", lambda hosts: None)
    path = written(tmp_path, reference_seconds=None)
    done = CliRunner().invoke(app, ["table", str(path), "--hosts", str(HOSTS), "--full"])
    assert isinstance(done.exception, BadInput) and "missing, and required by --full" in str(done.exception)
