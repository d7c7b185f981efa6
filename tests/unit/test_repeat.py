"""`run --repeat`: what it keeps of runs that end in order, of those that do not, and of one that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pktswarm.master import report
from pktswarm.master.compare import run_sets
from pktswarm.master.results.folder import Outcome
from pktswarm.master.run.repeat import Repeated
from pktswarm.master.run.run import Finished
from pktswarm.traffic.errors import BadInput, PktswarmError
from result_folders import Made, changed


def finishing(folder: Path, status: int = 0, reason: str = "as expected") -> Finished:
    made = changed(Made().write(folder), lambda document: document.update(status=status, reason=reason))
    return Finished(made, Outcome(status, reason))


@pytest.mark.parametrize(("statuses", "whole"), [([0, 1, 0], 3), ([0, 3, 0], 1)])
def test_a_repetition_ends_with_the_first_run_that_is_incomplete(
    tmp_path: Path, statuses: list[int], whole: int
) -> None:
    left = list(statuses)
    one = Repeated(tmp_path, "made", 3)
    one.run(lambda folder: finishing(folder, left.pop(0), "stopped by the user"))
    document = json.loads((one.path / "repeat.json").read_text())
    assert document == one.document() and one.status == max(statuses)
    assert document["problem"] == ("run 2 of 3 is incomplete: stopped by the user" if whole == 1 else "")
    assert [run["status"] for run in document["runs"]] == statuses[: len(document["runs"])]
    side = run_sets.side("A", str(one.path))
    assert len(side.runs) == whole
    assert side.left_out == [] if whole == 3 else "1 of 3 runs" in side.left_out[0]


def test_an_error_before_the_first_run_leaves_no_folder_and_a_later_one_keeps_what_there_is(tmp_path: Path) -> None:
    def fail(folder: Path) -> Finished:
        raise PktswarmError("interrupted")

    with pytest.raises(PktswarmError, match="interrupted"):
        Repeated(tmp_path, "made", 2).run(fail)
    assert list(tmp_path.iterdir()) == []
    steps = [finishing, fail]
    one = Repeated(tmp_path, "made", 2)
    one.run(lambda folder: steps.pop(0)(folder))
    assert (one.status, one.problem, len(one.finished)) == (3, "interrupted", 1)


def test_a_repetition_has_no_page_of_its_own(tmp_path: Path) -> None:
    one = Repeated(tmp_path, "made", 2)
    one.run(finishing)
    with pytest.raises(BadInput, match=r"each of its runs has a report \(allowed: a folder in its runs/"):
        report.make(one.path)


@pytest.mark.parametrize("text", ["", "[]", '{"format_version": 7}'])
def test_a_repeat_json_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "repeat.json").write_text(text)
    with pytest.raises(BadInput, match=r"repeat\.json"):
        run_sets.side("A", str(tmp_path))


def test_a_repetition_that_was_killed_has_the_runs_until_then(tmp_path: Path) -> None:
    def die(folder: Path) -> Finished:
        raise RuntimeError("as by SIGKILL: nothing is written any more")

    steps = [finishing, finishing, die]
    one = Repeated(tmp_path, "made", 5)
    with pytest.raises(RuntimeError):
        one.run(lambda folder: steps.pop(0)(folder))
    side = run_sets.side("A", str(one.path))
    assert len(side.runs) == 2
    assert side.left_out == [f"3 of 5 runs of {one.path.name}: interrupted"]
