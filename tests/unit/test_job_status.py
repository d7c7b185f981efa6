"""A job beside its runs: `pktswarm status`, the live view, the metrics; calibrations and tables that go on."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from typer.testing import CliRunner

from pktswarm.master.benchmark.job import Job, Names, inputs
from pktswarm.master.benchmark.outlook import Bounds, Outlook
from pktswarm.master.benchmark.trial import OWN_LIMIT, Trial
from pktswarm.master.calibrate import options as asked
from pktswarm.master.calibrate.calibration import Calibration
from pktswarm.master.calibrate.kept import Kept
from pktswarm.master.calibrate.runs import Flow, Runs, Sent, Stopped
from pktswarm.master.cli import table as cli_table
from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.live import job as live_job
from pktswarm.master.live import status, view
from pktswarm.master.live.document import LiveDocument
from pktswarm.master.live.figures import Figures
from pktswarm.master.live.metrics import Served
from pktswarm.master.plan import capacity
from pktswarm.master.plan.allowlist import Allow
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.traffic.errors import BadInput, PktswarmError
from result_folders import Made
from run_events import node_report

EXAMPLE = Path("hosts/example.yml")
HOSTS = """
all:
  children:
    master: {hosts: {m0: {}}}
    transmit: {vars: {traffic_interface: eth1}, hosts: {tx1: {}, tx2: {}}}
    receive: {vars: {traffic_interface: eth1}, hosts: {rx1: {}}}
"""
OUTLOOK = Outlook(4, "64 bytes, throughput", 1, 7, (Bounds("loss 0 %", 4800.0, 5000.0),), 5, 3600.0)


def begun(folder: Path, resumed: bool = False) -> Job:
    folder.mkdir(exist_ok=True)
    given = inputs(None, inventory.load(EXAMPLE), None)
    job = Job(folder, Names("rfc2544", "lab"), given, Console(file=io.StringIO()), resumed=resumed)
    job.begin(Outlook(0))
    return job


def document(job: Job) -> LiveDocument:
    return Figures("lab", 1.0, job.newest).document(Ledger([]))


# --- how it is shown ------------------------------------------------------------------------------------------------


def test_the_live_document_and_the_view_have_the_job(tmp_path: Path) -> None:
    job = begun(tmp_path / "x-rfc2544")
    job.note(OUTLOOK)
    job.begin_trial(4900.0)
    told = document(job)
    assert told["job"] == live_job.read(tmp_path / "x-rfc2544")
    console = Console(file=io.StringIO(), width=200)
    console.print(view.progress(told))
    text = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    assert "rfc2544: 64 bytes, throughput; part 1 of 7; trial 5 at 4,900 packets/s; " in text
    assert "between 4,800 and 5,000 packets/s; about 9 trials in all; estimated end " in text
    assert Figures("s", 1.0).document(Ledger([]))["job"] is None
    job.close()


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (None, None, []),
        (4000.0, None, ["at least 4,000 packets/s"]),
        (None, 5000.0, ["below 5,000 packets/s"]),
        (4000.0, 5000.0, ["between 4,000 and 5,000 packets/s"]),
    ],
)
def test_bounds_in_words(lower: float | None, upper: float | None, words: list[str]) -> None:
    assert live_job.bounds([{"goal": "loss 0 %", "lower_pps": lower, "upper_pps": upper}]) == words


def test_several_goals_are_named_and_another_day_has_its_date() -> None:
    one: live_job.JobBounds = {"goal": "loss 0 %", "lower_pps": 1.0, "upper_pps": None}
    two: live_job.JobBounds = {"goal": "loss 2 %", "lower_pps": None, "upper_pps": 2.0}
    assert live_job.bounds([one, two]) == ["loss 0 %: at least 1 packets/s", "loss 2 %: below 2 packets/s"]
    assert live_job.clock("2020-01-02T03:04:05Z") == "2020-01-02 03:04 UTC"


def test_the_metrics_have_the_job_and_nothing_that_is_not_known(tmp_path: Path) -> None:
    job = begun(tmp_path / "x-rfc2544")
    first = scraped(document(job))
    assert first["pktswarm_job_trial"] == {(): 1.0} and first["pktswarm_job_info"] == {("rfc2544", "lab", ""): 1.0}
    assert not {"pktswarm_job_expected_trials", "pktswarm_job_rate_pps", "pktswarm_job_bound_pps"} & set(first)
    job.note(OUTLOOK)
    job.begin_trial(4900.0)
    found = scraped(document(job))
    assert found["pktswarm_job_expected_trials"] == {(): 9.0} and found["pktswarm_job_rate_pps"] == {(): 4900.0}
    assert (found["pktswarm_job_part"], found["pktswarm_job_parts"]) == ({(): 1.0}, {(): 7.0})
    assert found["pktswarm_job_bound_pps"] == {("loss 0 %", "lower"): 4800.0, ("loss 0 %", "upper"): 5000.0}
    assert found["pktswarm_job_estimated_end_timestamp_seconds"][()] > 1.7e9
    job.close()


def scraped(told: LiveDocument) -> dict[str, dict[tuple[str, ...], float]]:
    served = Served(0)
    served.start(lambda: told)
    try:
        with urllib.request.urlopen(served.url, timeout=10) as answer:  # noqa: S310 - our own loopback address
            text = answer.read().decode()
    finally:
        served.close()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names = ("command", "name", "stage", "goal", "bound")
            labels = tuple(sample.labels[name] for name in names if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


# --- pktswarm status ------------------------------------------------------------------------------------------------


def asked_status(path: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["status", str(path), *options])
    return done.exit_code, done.stdout


def test_the_status_of_a_job_is_that_of_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "20260101T000000Z-lab-rfc2544"
    job = begun(folder)
    run = Made(name="trial").write(folder / "runs")
    job.note(OUTLOOK)
    exit_status, text = asked_status(tmp_path, "--json")
    told = json.loads(text)
    assert (exit_status, told["results"], told["state"]) == (0, str(run), "finished"), "it goes on between its runs"
    assert (told["job"]["results"], told["job"]["state"], told["job"]["trial"]) == (str(folder), "running", 5)
    assert status.look(run).is_running
    job.close()
    assert asked_status(folder)[0] == 3 and "lab-rfc2544: died" in asked_status(folder)[1]
    job = begun(folder, resumed=True)
    job.end(3, "stopped by the user")
    exit_status, text = asked_status(folder)
    assert exit_status == 3 and "interrupted: stopped by the user" in text and "to continue: pktswarm " in text
    job = begun(folder, resumed=True)
    assert len(job.interruptions) == 2, "after it died, and after it was stopped"
    job.end(1, "")
    assert asked_status(folder)[0] == 1 and json.loads(asked_status(folder, "--json")[1])["job"]["state"] == "finished"


def test_a_run_of_its_own_has_no_job(tmp_path: Path) -> None:
    run = Made(name="whole").write(tmp_path)
    assert json.loads(asked_status(run, "--json")[1])["job"] is None
    assert live_job.look(tmp_path) is None and not live_job.is_running(tmp_path / "nowhere")


# --- a calibration that goes on -------------------------------------------------------------------------------------


class Nodes:
    """Replaces the runs of a calibration; the user stops it in the trial `at`."""

    LIMITS = {"tx1": 30_000.0, "tx2": 50_000.0, "rx1": 60_000.0}  # noqa: RUF012 - never changed

    def __init__(self, at: int | None = None) -> None:
        self.at, self.made, self.kernel = at, 0, "6.18.0"

    def probe(self, pairs: Sequence[tuple[str, str]]) -> Any:
        engines = {"xdp": ""}
        report = {"kernel": self.kernel, "senders": engines, "receivers": engines, "interface": {"driver": "veth"}}
        ledger = Ledger(
            [
                Rank(n, inventory.Host(name, "", (), traffic_interface="eth1"), "transmit" if n < 3 else "receive")
                for n, name in enumerate(self.LIMITS, 1)
            ]
        )
        for state in ledger.nodes.values():
            state.report = node_report(**report, pktswarm="0.1.0", versions={})
        return type("Probed", (), {"ledger": ledger})

    def sent(self, flow: Flow, target: str, size_bytes: int, trial_s: float) -> Sent:
        self._count()
        limit = self.LIMITS[flow.source]
        did = min(limit, flow.rate_pps or limit)
        problem = "" if flow.rate_pps is None or flow.rate_pps <= limit else f"too much; {OWN_LIMIT}"
        return Sent(Trial(flow.rate_pps or 0.0, trial_s, sent_packets=int(did), problem=problem), int(did), 1.0)

    def received(self, flows: Sequence[Flow], target: str, size_bytes: int, trial_s: float, receive: Any) -> Trial:
        self._count()
        load = sum(flow.rate_pps or 0.0 for flow in flows)
        sent, lost = int(load * trial_s), int(max(0.0, load - self.LIMITS[target]) * trial_s)
        return Trial(load, trial_s, sent, sent, sent - lost, lost, trial_s)

    def _count(self) -> None:
        self.made += 1
        if self.made == self.at:
            raise Stopped("stopped by the user")


def calibrated(folder: Path, nodes: Nodes, resumed: bool, seen: list[Outlook] | None = None) -> list[Any]:
    folder.mkdir(exist_ok=True)
    hosts = folder / "hosts.yml"
    hosts.write_text(HOSTS)
    loaded = inventory.load(hosts)
    options = asked.parse(loaded, "64,512", "xdp", [], asked.Form(1.0, 0.05, 1), again=True)
    job = Job(
        folder, Names("calibrate", "hosts"), inputs(None, loaded, options), Console(file=io.StringIO()), resumed=resumed
    )
    job.begin(Outlook(0))
    known = capacity.beside(hosts) or capacity.Capacity(capacity.path_of(hosts), wiring="a test")
    note = (seen if seen is not None else []).append
    work = Calibration(loaded, options, cast("Runs", nodes), known, lambda figure, known: None, Kept(job), note)
    work.run()
    job.close()
    figures = [figure.model_dump(exclude={"utc"}) for figure in work.figures]
    return [work.status, work.problem, figures]


@pytest.mark.parametrize("at", [1, 7, 15, 26])
def test_an_interrupted_calibration_repeats_no_trial(at: int, tmp_path: Path) -> None:
    every = Nodes()
    seen: list[Outlook] = []
    whole = calibrated(tmp_path / "whole", every, False, seen)
    assert whole[0] == 0 and len(whole[2]) == 6 and every.made > 26
    assert (seen[0].part, seen[0].parts, seen[0].left_s) == (1, 6, None)
    assert seen[-1].part == 6 and seen[-1].left_s is not None and seen[-1].trials == every.made
    assert seen[-1].bounds[0].lower_pps == whole[2][-1]["rate_pps"]
    half = calibrated(tmp_path / "half", Nodes(at), False)
    assert half[1] == "stopped by the user" and len(half[2]) < 6
    rest = Nodes()
    assert calibrated(tmp_path / "half", rest, True) == whole
    assert rest.made == every.made - (at - 1)


def test_a_node_that_changed_since_ends_the_calibration(tmp_path: Path) -> None:
    calibrated(tmp_path, Nodes(20), False)
    changed = Nodes()
    changed.kernel = "6.19.0"
    status, problem, figures = calibrated(tmp_path, changed, True)
    assert (status, figures, changed.made) == (3, [], 0)
    assert problem.startswith("tx1: its kernel, driver or link speed has changed since the interruption")


# --- a table that goes on -------------------------------------------------------------------------------------------


def work(folder: Path | None, resumes: bool = False) -> Any:
    return cli_table._Work(EXAMPLE, folder, 1.0, Allow(), KeptRanks(), {}, None, resumes, None)


def points(count: int, ends: bool = False) -> Any:
    for number in range(count):
        yield f"point {number}"
    if ends:
        raise PktswarmError("interrupted; the folder holds the measured points")


def test_a_table_is_a_job_of_its_points(tmp_path: Path) -> None:
    scenarios: dict[str, object] = {str(number): {"size": number} for number in range(3)}
    with pytest.raises(PktswarmError, match="interrupted"):
        work(tmp_path).follow("small", scenarios, points(2, ends=True), lambda point: (point, ""))
    ended = live_job.look(tmp_path)
    assert ended is not None and (ended["state"], ended["trial"], ended["parts"]) == ("interrupted", 2, 3)
    with pytest.raises(BadInput, match=r"--resume: the job had other inputs: options\.points\.0\.size is 9, was 0"):
        work(tmp_path, True).follow("small", {**scenarios, "0": {"size": 9}}, points(3), lambda point: (point, ""))
    again = work(tmp_path, True)
    assert len(again.follow("small", scenarios, points(3), lambda point: (point, ""))) == 3
    ended = live_job.look(tmp_path)
    assert ended is not None and (ended["state"], ended["status"], len(again.interruptions)) == ("finished", 0, 1)


def test_bad_input_of_a_point_is_no_interruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> Any:
        yield "point 0"
        raise BadInput("point-1.yaml", "is missing", key="upf.n4")

    with pytest.raises(BadInput):
        work(tmp_path).follow("small", {"0": 0, "1": 1}, refused(), lambda point: (point, ""))
    ended = live_job.look(tmp_path)
    assert ended is not None and ended["status"] == 2 and "to continue" not in capsys.readouterr().err


def test_points_with_a_problem_can_be_made_again(tmp_path: Path) -> None:
    made = work(tmp_path).follow("small", {"0": 0, "1": 1}, points(2), lambda point: (point, "lost" * ("1" in point)))
    ended = live_job.look(tmp_path)
    assert (
        len(made) == 2
        and ended is not None
        and (ended["status"], ended["problem"]) == (3, "1 of 2 points have a problem")
    )


def test_the_folder_of_a_table_is_named_once(tmp_path: Path) -> None:
    command = ["table", "netspec", "--out", str(tmp_path / "other"), "--resume", str(tmp_path)]
    with pytest.raises(BadInput, match=r"--out = .*other': another folder than that of --resume"):
        app([*command, "--hosts", str(EXAMPLE)], standalone_mode=False)
