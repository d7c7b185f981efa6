"""A family of runs: its points, the scenario of each, what is measured, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from master import cli_table, inventory, plan
from master import scenario as scenarios
from master.results import Outcome
from master.tables import family as families
from traffic.errors import BadInput

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
        "sent_packets": 100,
        "lost_packets": 10,
        "received_packets": 90,
        "received_bps": 2e9,
        "latency_p50_ns": 5e6,
    },
    {
        "group": "target",
        "sent_packets": 100,
        "lost_packets": 0,
        "received_packets": 100,
        "received_bps": 1e9,
        "latency_p50_ns": 3e6,
    },
    {"group": "background", "sent_packets": 9, "lost_packets": 9, "received_packets": 0, "received_bps": 0.0},
]


class Done:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 0

    def __call__(self, path: Path) -> tuple[Outcome, Path]:
        self.asked.append(yaml.safe_load(path.read_text()))
        return Outcome(self.status, "a reason", [], [], [], {"rows": ROWS}, [], []), path.parent / "result"


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
    assert first["measured"] == {"loss_ratio": 0.05, "received_gbps": 3.0, "latency_p50_ms": 3.0}
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
    assert [str(column.header) for column in half.columns] == [
        *["packets/s", "size 64\nRatio", "size 64\nGbps", "size 64\nDelay, ms"]
    ]
    assert list(half.columns[1].cells) == ["0.0500 [dim](0.1)[/]", "0.0500"]
    assert list(whole.columns[3].cells) == ["3.000", "3.000"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "A table"}, "table"),
        ({"axes": SMALL["axes"][:2]}, "axes"),
        ({"axes": [{"name": "way", "values": [{"share": 1}]}, *SMALL["axes"][1:]]}, "has to set way too"),
        ({"measures": ["loss"]}, "loss is none of loss_ratio, received_gbps"),
        ({"reference": {"source": "s", "figures": {"no": {"1000": [[1, 2, 3]]}}}}, "no, 1000 is no part and row"),
        ({"reference": {"source": "s", "figures": {"half": {"1000": [[1, 2]]}}}}, "1 lists of 3 figures"),
        ({"colour": "red"}, "unknown key .*table, title, seconds"),
        (
            {"scenario": {"streams": [{"rate_pps": "$speed"}]}},
            r"'\$speed': no axis sets this variable .*seconds, share, way, rate, size",
        ),
        ({"scenario": {"streams": [{"only": {"colour": [1]}}]}}, r"\$colour.*no axis sets this variable"),
        ({"scenario": {"streams": [{"rate_pps": "$rate + 1"}]}}, "is neither a variable nor a product"),
        ({"scenario": {"streams": [{"rate_pps": "$way*$rate"}]}}, "multiplies what is no number"),
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


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_point_of_a_family_that_ships_can_be_planned(path: Path, tmp_path: Path) -> None:
    family = families.load(path)
    work = families.Runs(path, family, tmp_path, None, Done())
    hosts = inventory.load(HOSTS)
    for point in work.points:
        file = work.kept.write_scenario(point.key, work.scenario(point))
        assert plan.plan(scenarios.load(file), file, hosts).expected_s > 0
    if family.reference:
        shape = [[len(row) for row in part.values()] for part in family.reference.figures.values()]
        rows, columns = (len(axis.values) for axis in family.axes[1:])
        assert shape == [[columns] * rows] * len(family.axes[0].values)


def test_as_long_as_a_reference_that_does_not_say_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("master.cli._enter_lab", lambda hosts: None)
    path = written(tmp_path, reference_seconds=None)
    with pytest.raises(BadInput, match="--full: it does not say how long"):
        cli_table.table(str(path), hosts=HOSTS, full=True)
