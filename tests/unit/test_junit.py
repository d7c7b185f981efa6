"""JUnit XML of a run: a testcase each expectation, with what was intended and what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest

from pktswarm.master.report import junit
from pktswarm.master.results.count_verdicts import judge_connections
from pktswarm.master.results.document import RunDocument
from pktswarm.master.results.judgement import verdict
from pktswarm.master.scenario.expectations import Expect
from pktswarm.traffic.connections.counts import ConnectionRow, ReceivedCount, SentCount
from pktswarm.traffic.leg import ConnectionShape, Leg
from result_folders import Made
from run_events import as_event


def document(tmp_path: Path, events: Any = (), **made: Any) -> RunDocument:
    folder = Made(**made).write(tmp_path, events)
    found: RunDocument = json.loads((folder / "run.json").read_text())
    return found


def suite(document: RunDocument) -> xml.Element:
    root = xml.fromstring(junit.text([document]).encode())  # noqa: S314
    assert root.tag == "testsuites"
    (found,) = root
    assert found.attrib["tests"] == str(len(found.findall("testcase")))
    return found


def test_each_expectation_is_a_testcase(tmp_path: Path) -> None:
    found = suite(document(tmp_path))
    assert [case.attrib["name"] for case in found.findall("testcase")] == [
        "the run is whole and its counts agree", "small: lost", "small: sent", "large: lost", "large: sent",
    ]  # fmt: skip
    assert (found.attrib["failures"], found.attrib["errors"]) == ("0", "0")
    assert found.attrib["timestamp"] == "2027-01-15T08:00:00" and found.attrib["time"] == "3.000"


def test_a_failure_has_what_was_intended_and_what_was_found(tmp_path: Path) -> None:
    found = suite(document(tmp_path, lost={0: 7}))
    (case,) = [case for case in found.findall("testcase") if case.find("failure") is not None]
    failure = case.find("failure")
    assert failure is not None and failure.text == "intended: at most 0\nfound: 7"
    assert case.attrib["name"] == "small: lost", "the same as in a run that lost nothing"
    assert failure.attrib["message"] == "small: lost 7, expected at most 0"
    assert (found.attrib["failures"], found.attrib["errors"]) == ("1", "0")


def test_a_failure_has_the_note_of_its_verdict(tmp_path: Path) -> None:
    told = document(tmp_path, lost={0: 7})
    told["verdicts"] = [{**one, "note": "7 lost, of which …"} for one in told["verdicts"] if not one["holds"]]
    failure = suite(told).find("testcase/failure")
    assert failure is not None and failure.text == "intended: at most 0\nfound: 7\n7 lost, of which …"


def test_what_was_not_decided_is_a_failure_of_that_type(tmp_path: Path) -> None:
    told = document(tmp_path)
    told["verdicts"].append(verdict("small: latency_p99_us", "240 ± 30", "at most 250", "not decided"))
    (case,) = [case for case in suite(told).findall("testcase") if case.find("failure") is not None]
    failure = case.find("failure")
    assert case.attrib["name"] == "small: latency_p99_us" and failure is not None
    assert failure.attrib["type"] == "not decided"
    assert failure.attrib["message"] == "small: latency_p99_us 240 ± 30, expected at most 250: not decided"


def test_a_run_that_is_not_whole_is_an_error_even_where_all_holds(tmp_path: Path) -> None:
    lost = as_event({"event": "lost", "rank": 2, "problem": "no message for 5 s"})
    found = suite(document(tmp_path, [lost]))
    error = found.findall("testcase")[0].find("error")
    assert (
        error is not None
        and error.text
        == error.attrib["message"]
        == "tx2 (transmit): no message for 5 s (last message before the start)"
    )
    assert (found.attrib["failures"], found.attrib["errors"]) == ("0", "1")


def test_names_that_xml_cannot_have_are_mended(tmp_path: Path) -> None:
    told = document(tmp_path, name="<a&\x01b>")
    assert suite(told).attrib["name"] == "<a&\N{REPLACEMENT CHARACTER}b>"


def test_results_of_before_verdicts_had_parts_are_read(tmp_path: Path) -> None:
    told = document(tmp_path, lost={0: 7})
    told["verdicts"] = [{"text": one["text"], "holds": one["holds"]} for one in told["verdicts"]]
    found = suite(told)
    assert found.attrib["failures"] == "1"
    assert found.findall("testcase")[1].attrib["name"] == "small: lost 7, expected at most 0"


@pytest.mark.parametrize(("received", "found"), [(5, "5 blocks"), (None, "None blocks")])
def test_connections_are_judged_in_blocks(received: int | None, found: str) -> None:
    row = ConnectionRow(Leg(0, "c", "tx1", "rx1", "connections", connection=ConnectionShape(protocol="tcp")), "up")
    row.sent = SentCount(intended_blocks=6, sent_blocks=6)
    row.received = None if received is None else ReceivedCount(blocks=received)
    expected = Expect.model_validate({"received": {"c": 6}})
    (verdict,) = judge_connections(expected, [row])
    assert (verdict["what"], verdict["found"], verdict["expected"]) == ("c from tx1 to rx1: received", found, "6")
    assert not verdict["holds"] and verdict["text"] == f"c from tx1 to rx1: received {found}, expected 6"
