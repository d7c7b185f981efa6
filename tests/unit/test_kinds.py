"""Every kind of results folder has a page, `report` makes it again, and `compare` takes two of one kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import test_family
import test_rfc2544
import test_y1564
from capacities import figure
from n4_results import n4
from pages import Page, check_accessible, check_nothing_to_fetch_or_run
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.calibrate.storage import Storage as CalibrationStorage
from pktswarm.master.cli import app, pages
from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.compare import run_sets, storage, wording
from pktswarm.master.compare.comparison import SAME, Comparison
from pktswarm.master.compare.kinds import KINDS, figures_of
from pktswarm.master.plan import capacity
from pktswarm.master.report.kinds import kind_of
from pktswarm.master.search.engine import Search
from pktswarm.master.search.goals import SearchOptions
from pktswarm.master.search.storage import Storage as SearchStorage
from pktswarm.master.sessions import storage as sessions_storage
from pktswarm.master.tables import document as table_document
from pktswarm.master.tables import netspec
from pktswarm.master.upf.probe.findings import Finding, Findings, Outcome
from pktswarm.master.upf.probe.outcome import Probed
from pktswarm.master.y1564.storage import Storage as ActivationStorage
from pktswarm.traffic.errors import BadInput
from result_folders import Made

DUT: DutEntry = {"name": "edge", "settings": {"bottleneck_bps": 40_000_000}}


def device(capacity_pps: float) -> Callable[[float, float], Trial]:
    def trial(load_pps: float, duration_s: float) -> Trial:
        sent = round(load_pps * duration_s)
        passed = min(sent, int(capacity_pps * duration_s))
        return Trial(
            load_pps, duration_s, sent, sent, passed, sent - passed, duration_s, 512 * load_pps, 672 * load_pps
        )

    return trial


def search(tmp_path: Path, capacity_pps: float = 36_789.0) -> Path:
    done = Search(SearchOptions(), 1000, 100_000, device(capacity_pps))
    done.run()
    made = SearchStorage(tmp_path, "s", {"name": "s", "scenario_file": "s.yaml", "streams": ["load"]}, DUT)
    made.write(done)
    return made.path


def rfc2544(tmp_path: Path) -> Path:
    return test_rfc2544.kept(tmp_path, test_rfc2544.benchmark(test_rfc2544.Device()))[0]


def y1564(tmp_path: Path) -> Path:
    about: Any = {"name": "access", "scenario_file": "s.yaml", "hosts_file": "h.yml"}
    made = ActivationStorage(tmp_path, "access", about)
    made.write(test_y1564.activation(test_y1564.Device({"voice": 2e6, "data": 20e6})))
    return made.path


def calibrate(tmp_path: Path, rate_pps: float = 1000.0) -> Path:
    hosts = tmp_path / "hosts.yml"
    made = CalibrationStorage(tmp_path, "", hosts, DUT)
    made.write(cast(Calibration, Calibrated(hosts, [capacity.Figure(**figure("tx1", rate_pps))])))
    return made.path


class Calibrated:
    """A calibration that has ended."""

    status, problem = 0, ""

    def __init__(self, hosts: Path, figures: list[capacity.Figure]) -> None:
        self.capacity = capacity.Capacity(capacity.path_of(hosts), wiring="side a to side b")
        self.figures = self.trials = figures

    def lacking(self) -> list[str]:
        return ["pktgen is not on tx1: no module"]


def table(tmp_path: Path) -> Path:
    work = test_family.runs(tmp_path, test_family.Done())
    points = list(work.run())
    folder = tmp_path / "points"
    made = table_document.of_family("family.yaml", work, points, None)
    (folder / f"{made['name']}.json").write_text(json.dumps(made))
    return folder


def sessions(tmp_path: Path, p50_ns: int = 2_500_000) -> Path:
    config = tmp_path / "n4.yaml"
    with sessions_storage.folder(tmp_path, config) as folder:
        sessions_storage.write(folder, sessions_storage.document(config, None, 1.0, 3, n4(p50_ns)))
    return folder


def repeat(tmp_path: Path) -> Path:
    folder = tmp_path / "20260101T000000Z-made-repeat"
    runs = [Made().write(folder / "runs") for _ in range(2)]
    listed = [{"folder": f"runs/{run.name}", "status": 0, "reason": "as expected"} for run in runs]
    head = {"format_version": 1, "name": "made", "status": 0, "problem": "", "asked_runs": 2}
    (folder / "repeat.json").write_text(json.dumps({**head, "runs": listed}))
    return folder


def comparison(tmp_path: Path) -> Path:
    first, *others = run_sets.sides([str(search(tmp_path)), str(search(tmp_path))])
    return storage.keep(Comparison(first, others), tmp_path)


def probe(tmp_path: Path) -> Path:
    found = Findings("192.0.2.2", features=["FTUP"], rows=[Finding("session", "plain", "6.2", Outcome("works"))])
    return Probed(found, "no answer any more", None).write(tmp_path, "pktswarm upf probe --hosts h.yml")


Make = Callable[[Path], Path]
FOLDERS: dict[str, tuple[Make, str]] = {
    "search": (search, "36,"),
    "rfc2544": (rfc2544, "Throughput"),
    "y1564": (y1564, "Not every service passed"),
    "calibrate": (calibrate, "1.000 kpackets/s"),
    "table": (table, "small: a small one"),
    "sessions": (sessions, "gone: no response for 3.0 s"),
    "repeat": (repeat, "sent, packets"),
    "compare": (comparison, "Nodes, versions and engines are unknown of A and B"),
    "upf probe": (probe, "1 of 1 work"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_report_takes_every_kind_of_folder(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, text = FOLDERS[kind]
    folder = make(tmp_path)
    assert kind_of(folder) == kind
    app.app(["report", str(folder), "-o", str(tmp_path / "page.html")], standalone_mode=False)
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert text in Page(page).text and "None" not in Page(page).text
    check_nothing_to_fetch_or_run(page)
    check_accessible(Page(page))
    app.app(["report", str(folder)], standalone_mode=False)
    assert Path(capsys.readouterr().out.strip()).read_text() == page


@pytest.mark.parametrize("kind", sorted(set(FOLDERS) - {"compare", "upf probe"}))
def test_compared_with_itself_every_kind_is_the_same(kind: str, tmp_path: Path) -> None:
    make, _ = FOLDERS[kind]
    folder = str(make(tmp_path))
    first, *others = run_sets.sides([folder, folder])
    found = Comparison(first, others)
    assert found.differences and {each.verdict for each in found.differences} <= {SAME, ""}
    assert any(each.verdict == SAME for each in found.differences)
    document = found.document()
    assert (document["scenario"], document["nodes"], document["dut"]) == ([], [], [])
    page = Page((storage.keep(found, tmp_path / "out") / "compare.html").read_text())
    check_accessible(page)


def test_searches_are_compared_rate_by_rate_with_options_and_device(tmp_path: Path) -> None:
    words = [",".join(str(search(tmp_path, rate + n)) for n in range(3)) for rate in (40_000.0, 30_000.0)]
    for path in map(Path, words[1].split(",")):
        document = json.loads((path / "search.json").read_text())
        document["asked"]["precision"], document["dut"]["settings"]["bottleneck_bps"] = 0.01, 30_000_000
        (path / "search.json").write_text(json.dumps(document))
    first, *others = run_sets.sides(words)
    found = Comparison(first, others)
    (rate,) = [each for each in found.differences if each.figure == "rate_pps"]
    assert rate.subject == "loss of at most 0 %" and rate.for_the_worse and rate.unit == "pps"
    assert rate.relative == pytest.approx(-0.25, abs=0.01) and (rate.first_runs, rate.other_runs) == (3, 3)
    assert [each["key"] for each in found.document()["scenario"]] == ["asked.precision"]
    assert "The devices under test differ: settings.bottleneck_bps" in wording.verdict(found)
    text = Page(pages.make("search", Path(words[0].split(",")[0]), None).read_text()).text
    assert "pktswarm search s.yaml" in text and "--loss 0" in text and "trial" in text
    assert found.status(True, figures_of("search", ["rate_pps"], True)) == 1


def test_longer_responses_of_a_upf_are_found(tmp_path: Path) -> None:
    first, *others = run_sets.sides([str(sessions(tmp_path)), str(sessions(tmp_path, 5_000_000))])
    found = {each.figure: each for each in Comparison(first, others).differences}
    assert (found["response_p50_ns"].first, found["response_p50_ns"].other) == (2_500_000, 5_000_000)
    assert found["response_p99_ns"].difference == 0


def test_two_kinds_are_not_compared(tmp_path: Path) -> None:
    a, b = str(search(tmp_path)), str(sessions(tmp_path))
    for words in ([a, b], [f"{a},{b}", a]):
        with pytest.raises(BadInput, match=r"compare: SIDE = .*is a search and .* a sessions .*results of one command"):
            run_sets.sides(words)
    with pytest.raises(BadInput, match="the results of upf probe have no figures to compare"):
        run_sets.sides([str(probe(tmp_path)), a])


def test_figures_of_a_kind_decide_by_their_keys() -> None:
    with pytest.raises(BadInput, match=r"--figure = 'loss': not a figure \(allowed: rate_pps, l2_bps, cond"):
        figures_of("search", ["loss"], True)
    with pytest.raises(BadInput, match="no effect without --fail-on-worse"):
        figures_of("search", ["rate_pps"], False)
    for kind in KINDS.values():
        assert len({figure.key for figure in kind.figures}) == len(kind.figures)


def test_documents_of_earlier_versions_have_a_page(tmp_path: Path) -> None:
    folder = search(tmp_path)
    document = json.loads((folder / "search.json").read_text())
    for part in (*document["goals"], *document["trials"]):
        for name in ("confirmed_s", "latency_rise_ns_per_s", "confirms", "queue_delay_ns", "not_held"):
            part.pop(name, None)
    document["asked"].pop("confirm_s")
    (folder / "search.json").write_text(json.dumps(document))
    assert "Complete" in pages.make("search", folder, None).read_text()
    folder = rfc2544(tmp_path)
    document = json.loads((folder / "rfc2544.json").read_text())
    for size in document["sizes"]:
        size["throughput"].pop("confirmed_s")
        for trial in size["latency"]["each"] if size["latency"] else []:
            trial.pop("lost_packets")
    (folder / "rfc2544.json").write_text(json.dumps(document))
    assert "Complete" in pages.make("rfc2544", folder, None).read_text()


def test_what_cannot_be_shown_is_one_message(tmp_path: Path) -> None:
    folder = search(tmp_path)
    document = json.loads((folder / "search.json").read_text())
    (folder / "search.json").write_text(json.dumps({**document, "goals": [{}]}))
    with pytest.raises(BadInput, match=r"search\.json: cannot be shown: (Key|Type)Error"):
        pages.make("search", folder, None)
    (folder / "search.json").write_text(json.dumps({**document, "format_version": 9}))
    with pytest.raises(BadInput, match="format_version = 9: unsupported format"):
        pages.make("search", folder, None)
    (folder / "search.json").write_text("{")
    with pytest.raises(BadInput, match=r"search\.json: cannot be read"):
        pages.make("search", folder, None)
    with pytest.raises(BadInput, match=r"--junit = .*a sessions has no verdicts of a run"):
        given = ["report", str(sessions(tmp_path)), "--junit", str(tmp_path / "x.xml")]
        app.app(given, standalone_mode=False)
    with pytest.raises(BadInput, match="stored no form of the table"):
        old = table(tmp_path)
        (made,) = (path for path in old.glob("*.json") if '"problems"' in path.read_text())
        made.write_text(json.dumps({"points": [], "problems": []}))
        pages.make("table", old, None)


def test_netspec_has_a_page(tmp_path: Path) -> None:
    figures: dict[str, Any] = dict.fromkeys(("sent_blocks", "intended_blocks", "received_blocks"), 100)
    point = netspec.Measured(
        netspec.SETS[0].key, 25, "t1", 1.5, 1.49, 0.1, None, 3, **figures, background_goodput_mbps=2.0
    )
    made: Any = {
        "format_version": 1,
        "name": "netspec",
        "title": "NetSpec",
        "what": "netspec",
        "status": 0,
        "problem": "",
    }
    made |= {"seconds": 4.0, "points": [point.__dict__], "problems": []}
    (tmp_path / "netspec.json").write_text(json.dumps(made))
    assert "1.49" in Page(pages.make(kind_of(tmp_path), tmp_path, None).read_text()).text
