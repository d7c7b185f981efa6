"""Jobs: their trials on disk, their continuation after an interruption, and what is refused then."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pktswarm.master.benchmark import job as jobs
from pktswarm.master.benchmark.attempts import TrialResult
from pktswarm.master.benchmark.job import Job, Names, check_resumable, inputs
from pktswarm.master.benchmark.journal import Journal, LoadPlan
from pktswarm.master.benchmark.latency import Latencies
from pktswarm.master.benchmark.outlook import Bounds, Outlook
from pktswarm.master.benchmark.trial import Trial
from pktswarm.master.cli import benchmark
from pktswarm.master.cluster import inventory
from pktswarm.master.live import job as live_job
from pktswarm.master.results.row import ReceivedCounts, Row, SentCounts
from pktswarm.master.results.streams_csv import stream_values
from pktswarm.master.rfc2544 import document as rfc2544_document
from pktswarm.master.rfc2544 import procedure as rfc2544
from pktswarm.master.rfc2544.options import Options
from pktswarm.master.search.document import SearchDocument
from pktswarm.master.search.engine import Search
from pktswarm.master.search.goals import SearchOptions
from pktswarm.master.search.outlook import outlook
from pktswarm.master.search.show import trial_line
from pktswarm.master.search.storage import Storage
from pktswarm.master.y1564 import document as y1564_document
from pktswarm.master.y1564 import procedure as y1564
from pktswarm.master.y1564.services import Service
from pktswarm.master.y1564.steps import Measured
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import Leg

LATENCIES = Latencies(100, 1_000, 2_000.5, 1_900, 5_000, 8_000, 9_000, 7_000, 300.25, 50, 0)
CAPACITY_PPS = 36_789.0
EXAMPLE = Path("hosts/example.yml")


def forwarded(load_pps: float, duration_s: float, capacity_pps: float = CAPACITY_PPS) -> Trial:
    sent = round(load_pps * duration_s)
    passed = min(sent, int(capacity_pps * duration_s))
    counts = {"intended_packets": sent, "sent_packets": sent, "received_packets": passed, "lost_packets": sent - passed}
    more = {"took_s": duration_s + 1.5, "latency_rise_ns_per_s": 0.0, "queue_delay_ns": 1_000_000}
    return Trial(load_pps, duration_s, sending_s=duration_s, not_held=(), **counts, **more)  # type: ignore[arg-type] # the fields have several types


class Interrupted:
    """A device that the user's Ctrl-C stops in the trial of a number; None: never."""

    def __init__(self, measure: Callable[..., Any], at: int | None = None) -> None:
        self.measure, self.at, self.calls = measure, at, 0

    def __call__(self, *plan: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise PktswarmError("interrupted")
        return self.measure(*plan)


# --- the trials on disk ---------------------------------------------------------------------------------------------


def journal(folder: Path) -> Journal[Trial]:
    return Journal(folder, Trial, lambda trial: trial.problem)


def test_a_stored_trial_is_returned_in_place_of_one(tmp_path: Path) -> None:
    trial = replace(forwarded(40_000.123, 1.0), l2_bps=1e9 / 3, not_held=("latency",), results="runs/x")
    first = journal(tmp_path)
    assert first.kept == 0 and first.measure(LoadPlan(40_000.123, 1.0), lambda: trial) == trial
    used: list[bool] = []
    again = Journal(tmp_path, Trial, lambda trial: trial.problem, used.append)
    device = Interrupted(forwarded)
    assert again.kept == 1
    assert again.measure(LoadPlan(40_000.123, 1.0), lambda: device(1.0, 1.0)) == trial
    assert again.measure(LoadPlan(2.0, 1.0), lambda: device(2.0, 1.0)) == forwarded(2.0, 1.0)
    assert (used, device.calls, journal(tmp_path).kept) == ([True, False], 1, 2)


def test_a_stopped_trial_is_not_stored_and_last_ones_with_a_problem_are_made_again(tmp_path: Path) -> None:
    work = journal(tmp_path)
    whole, held_up = forwarded(5.0, 1.0), Trial(4.0, 1.0, problem="held up", held_up=True)
    for trial in (held_up, whole, held_up, replace(held_up, problem="tx1 was lost")):
        work.measure(LoadPlan(trial.intended_pps, 1.0), partial(replace, trial))
    work.measure(LoadPlan(4.0, 1.0), lambda: Trial(4.0, 1.0, problem="stopped by the user"))
    assert journal(tmp_path).kept == 2, "a trial that was repeated is as whole as its repetition"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00001.json", "00002.json"]


def test_a_trial_of_another_load_ends_the_job(tmp_path: Path) -> None:
    journal(tmp_path).measure(LoadPlan(1.0, 1.0), lambda: forwarded(1.0, 1.0))
    with pytest.raises(PktswarmError, match=r"00001\.json: the trial is .*1\.0.* and the job asks for .*2\.0"):
        journal(tmp_path).measure(LoadPlan(2.0, 1.0), lambda: forwarded(2.0, 1.0))


@pytest.mark.parametrize("text", ["{", "[]", '{"plan": {}}', '{"plan": {}, "result": {"intended_pps": "high"}}'])
def test_a_file_that_is_no_trial_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "00001.json").write_text(text)
    with pytest.raises(BadInput, match=r"00001\.json: --resume: cannot be read as a trial"):
        journal(tmp_path)


# --- the continuation -----------------------------------------------------------------------------------------------


def searched(folder: Path, measure: Callable[..., Any], resume: bool = False) -> SearchDocument:
    """Run a search as the command line does."""
    console = Console(file=io.StringIO(), width=200)
    given = inputs({"name": "s"}, inventory.load(EXAMPLE), SearchOptions())
    about: Any = {"name": "s", "scenario_file": "s.yaml", "hosts_file": "h.yml", "streams": ["load"], "expect": []}
    folders = sorted(folder.glob("*"))
    resumed = check_resumable(folders[0], "search", given) if resume else None
    storage = Storage(folder, "s", about, resumed=resumed)
    job = Job(storage.path, Names("search", "s"), given, console, resumed=resume)
    trials = job.journal(Trial, lambda trial: trial.problem)
    search = Search(
        SearchOptions((0.0, 0.02), confirm_s=None),
        1000,
        100_000,
        lambda load, seconds: trials.measure(LoadPlan(load, seconds), lambda: measure(load, seconds)),
        benchmark.after_trial(trial_line, storage, job, outlook),
    )
    return benchmark.conduct(search, storage, lambda: None, job, outlook)


@pytest.mark.parametrize("at", [2, 5, 9, 14])
def test_an_interrupted_search_ends_as_one_that_was_not(at: int, tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", forwarded)
    assert at <= len(whole["trials"]) and whole["interruptions"] == []
    half = searched(tmp_path / "half", Interrupted(forwarded, at))
    assert (half["status"], half["problem"], len(half["trials"])) == (3, "interrupted", at - 1)
    device = Interrupted(forwarded)
    again = searched(tmp_path / "half", device, resume=True)
    (mark,) = again.pop("interruptions")
    assert mark["interrupted_utc"] <= mark["resumed_utc"]
    assert again == {name: value for name, value in whole.items() if name != "interruptions"}
    assert device.calls == len(whole["trials"]) - (at - 1), "no trial is repeated"
    assert len(list((tmp_path / "half").iterdir())) == 1
    once_more = searched(tmp_path / "half", Interrupted(forwarded, 1), resume=True)
    assert once_more["interruptions"] == [mark] and once_more["problem"] == ""


def test_an_interruption_before_the_first_trial_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PktswarmError, match="interrupted"):
        searched(tmp_path, Interrupted(forwarded, 1))
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_job_keeps_its_folder_whatever_happens(tmp_path: Path) -> None:
    searched(tmp_path, Interrupted(forwarded, 2))
    (folder,) = tmp_path.iterdir()
    about: Any = {"name": "s"}
    storage = Storage(tmp_path, "s", about, resumed=folder)
    with pytest.raises(PktswarmError), storage.discarded_without_trials(Search(SearchOptions(), 1, 2, forwarded)):
        raise PktswarmError("a host is gone")
    assert live_job.look(folder) is not None


def test_rfc2544_goes_on_with_latencies_and_bursts(tmp_path: Path) -> None:
    def measure(plan: rfc2544.TrialPlan) -> TrialResult:
        return TrialResult(forwarded(plan.load_pps, plan.duration_s, 20_000.0), LATENCIES)

    def run(device: Callable[..., Any], folder: Path) -> Any:
        trials = Journal(folder, TrialResult, lambda result: result.trial.problem)
        limits = {size: rfc2544.Limit(30_000.0, 300.0, 1) for size in (64, 512)}
        options = Options(sizes_bytes=(64, 512), medium_l1_bps=1e9)
        made = rfc2544.Benchmark(options, limits, lambda plan: trials.measure(plan, lambda: device(plan)))
        made.run()
        about: Any = {"name": "s"}
        return rfc2544_document.document(made, about), made

    whole, made = run(measure, tmp_path / "whole")
    assert made.status == 0 and made.sizes[1].bursts and made.sizes[1].latency == [LATENCIES]
    half, _ = run(Interrupted(measure, len(made.trials) - 3), tmp_path / "half")
    assert half["problem"] == "interrupted"
    device = Interrupted(measure)
    again, _ = run(device, tmp_path / "half")
    assert again == whole and device.calls == 4


def test_y1564_goes_on_with_the_figures_of_services(tmp_path: Path) -> None:
    sent = SentCounts("xdp", packets=1000, bytes=512_000, seconds=0.999)
    row = Row(Leg(0, "voice", "tx1", "rx1", "stream", "xdp"), 1000, sent, ReceivedCounts(990, first_ns=0))
    asked = {"cir_bps": 1e6, "delay_ms": 10, "expect": {"sent_pps": 500}}
    services = {name: Service.model_validate(asked) for name in ("voice", "data")}

    def measure(plan: y1564.TrialPlan) -> y1564.ActivationResult:
        names = [plan.service] if plan.service else list(services)
        figures = {name: Measured(plan.step.bps, 0.0, LATENCIES, 1.0, [stream_values(row)]) for name in names}
        return y1564.ActivationResult(forwarded(1000.0, plan.duration_s), None, figures)

    def run(device: Callable[..., Any], folder: Path) -> Any:
        trials = Journal(folder, y1564.ActivationResult, lambda result: result.trial.problem)
        made = y1564.Activation(
            services, y1564.TESTS, 5.0, 30.0, lambda plan: trials.measure(plan, lambda: device(plan))
        )
        made.run()
        about: Any = {"name": "s"}
        return y1564_document.document(made, about)

    whole = run(measure, tmp_path / "whole")
    assert whole["status"] == 0 and len(whole["trials"]) == 9
    assert run(Interrupted(measure, 6), tmp_path / "half")["status"] == 3
    device = Interrupted(measure)
    assert run(device, tmp_path / "half") == whole and device.calls == 4


# --- what is refused ------------------------------------------------------------------------------------------------


def begun(folder: Path, given: jobs.Inputs, resumed: bool = False) -> Job:
    folder.mkdir(exist_ok=True)
    job = Job(folder, Names("search", "s"), given, Console(file=io.StringIO()), resumed=resumed)
    job.begin(Outlook(0))
    return job


def test_other_inputs_are_one_message_with_what_differs(tmp_path: Path) -> None:
    cluster, options = inventory.load(EXAMPLE), SearchOptions()
    begun(tmp_path, inputs({"streams": [{"size_bytes": 64}]}, cluster, options)).close()
    same = inputs({"streams": [{"size_bytes": 64}]}, cluster, options)
    assert check_resumable(tmp_path, "search", same) == tmp_path
    assert check_resumable(None, "search", same) is None
    moved = replace(cluster, hosts=(replace(cluster.hosts[0], mac="02:00:00:00:00:99"), *cluster.hosts[1:]))
    other = inputs({"streams": [{"size_bytes": 128}]}, moved, replace(options, precision=0.01))
    with pytest.raises(BadInput) as refused:
        check_resumable(tmp_path, "search", other)
    text = str(refused.value)
    assert text.startswith(f"{tmp_path}: --resume: the job had other inputs: ") and "\n" not in text
    assert "scenario.streams.0.size_bytes is 128, was 64; inventory.hosts.0.mac is " in text
    assert "options.precision is 0.01, was 0.005 (allowed: the same scenario, inventory and options)" in text
    assert refused.value.exit_status == 2


def test_another_device_under_test_is_another_input(tmp_path: Path) -> None:
    cluster = replace(inventory.load(EXAMPLE), variables={"pktswarm_dut": {"name": "router", "version": "2.0"}})
    begun(tmp_path, inputs(None, cluster, {"labels": {"firmware": "2.1"}})).close()
    assert check_resumable(tmp_path, "search", inputs(None, cluster, {"labels": {"firmware": "2.1"}}))
    other = replace(cluster, variables={"pktswarm_dut": {"name": "router", "version": "2.2"}})
    with pytest.raises(BadInput) as refused:
        check_resumable(tmp_path, "search", inputs(None, other, {"labels": {"firmware": "2.3"}}))
    text = str(refused.value)
    assert 'inventory.variables.pktswarm_dut.version is "2.2", was "2.0"' in text
    assert 'options.labels.firmware is "2.3", was "2.1"' in text


def test_many_differences_are_counted_and_a_lab_that_was_started_again_is_none(tmp_path: Path) -> None:
    cluster = replace(inventory.load(EXAMPLE), variables={"pktswarm_lab": {"keeper_pid": 5}})
    begun(tmp_path, inputs({str(number): 1 for number in range(8)}, cluster, None)).close()
    again = replace(cluster, variables={"pktswarm_lab": {"keeper_pid": 6}})
    assert check_resumable(tmp_path, "search", inputs({str(number): 1 for number in range(8)}, again, None))
    with pytest.raises(BadInput, match="4 is 2, was 1; and 3 more"):
        check_resumable(tmp_path, "search", inputs({str(number): 2 for number in range(8)}, again, None))


def test_another_command_a_running_job_and_no_job_are_refused(tmp_path: Path) -> None:
    given = inputs(None, inventory.load(EXAMPLE), None)
    with pytest.raises(BadInput, match=r"--resume: no job that this version can resume .*with job\.json of format 1"):
        check_resumable(tmp_path, "search", given)
    job = begun(tmp_path, given)
    with pytest.raises(BadInput, match="--resume: the job is still running"):
        check_resumable(tmp_path, "search", given)
    with pytest.raises(BadInput, match="a job in this folder is still running"):
        begun(tmp_path, given)
    job.close()
    with pytest.raises(BadInput, match=r"--resume = 'search': the job of another command \(allowed: rfc2544\)"):
        check_resumable(tmp_path, "rfc2544", given)
    (tmp_path / "job.json").write_text('{"format_version": 99}')
    with pytest.raises(BadInput, match="no job that this version can resume"):
        check_resumable(tmp_path, "search", given)


# --- the progress ---------------------------------------------------------------------------------------------------


def test_the_progress_has_what_is_known_and_an_end_that_is_an_estimate(tmp_path: Path) -> None:
    job = begun(tmp_path, inputs(None, inventory.load(EXAMPLE), None))
    job.begin_trial(5000.0)
    first = live_job.read(tmp_path)
    assert first is not None and (first["trial"], first["rate_pps"], first["status"]) == (1, 5000.0, None)
    assert (first["expected_trials"], first["estimated_end_utc"], first["bounds"]) == (None, None, [])
    job.note(
        Outlook(1, "64 bytes", 1, 2, (Bounds("loss 0 %", 4000.0, None),)).with_left([forwarded(1, 2.0)], [2.0] * 3)
    )
    then = live_job.read(tmp_path)
    assert then is not None and (then["trial"], then["expected_trials"], then["rate_pps"]) == (2, 4, None)
    assert then["bounds"] == [{"goal": "loss 0 %", "lower_pps": 4000.0, "upper_pps": None}]
    assert then["estimated_end_utc"] is not None and then["utc"] <= then["estimated_end_utc"]
    assert "at least 4,000 packets/s; about 4 trials in all; estimated end " in job.remarks()
    job.end(0, "")
    ended = live_job.look(tmp_path)
    assert ended is not None and (ended["state"], ended["trial"], ended["expected_trials"]) == ("finished", 1, 1)
    assert ended["estimated_end_utc"] is None and json.loads((tmp_path / "job.json").read_text())["name"] == "s"


def test_the_estimate_is_of_the_trials_so_far() -> None:
    made = [forwarded(1.0, 2.0), replace(forwarded(1.0, 1.0), took_s=1.5)]
    found = Outlook(2).with_left(made, [1.0, 10.0], pause_s=3.0)
    assert found.left_trials == 2 and found.left_s is not None and math.isclose(found.left_s, 11 + 2 * (1.0 + 3.0))
    assert Outlook(0).with_left([], [1.0]).left_s is None, "without a trial there is no estimate"
    assert Outlook(2).with_left(made, []).left_s == 0.0


def test_ctrl_c_names_the_command_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pktswarm", "search", "a b.yaml", "--resume", "old", "--loss", "0", "--resume=older"]
    monkeypatch.setattr("sys.argv", words)
    job = begun(tmp_path, inputs(None, inventory.load(EXAMPLE), None))
    job.end(3, "stopped by the user")
    assert isinstance(job.console.file, io.StringIO)
    line = f"to continue: pktswarm search 'a b.yaml' --loss 0 --resume {tmp_path}\n"
    assert job.console.file.getvalue() == line
    ended = live_job.look(tmp_path)
    assert ended is not None and (ended["state"], ended["problem"]) == ("interrupted", "stopped by the user")


def test_inputs_are_what_json_has() -> None:
    given = inputs(SearchOptions(), inventory.load(EXAMPLE), {"losses": (0.0,)})
    assert json.loads(json.dumps(given)) == given
    assert isinstance(given["scenario"], dict) and list(given["scenario"]) == list(asdict(SearchOptions()))
