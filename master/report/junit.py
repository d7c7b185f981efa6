"""JUnit XML of a run for CI: one test case for each expectation, and one for the completeness of the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from pktswarm.master.files import replace_text
from pktswarm.master.results.document import RunDocument, Verdict
from pktswarm.traffic.errors import EXIT_INCOMPLETE

NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(documents: Sequence[RunDocument], path: Path) -> None:
    """`documents`: run.json of one or several runs."""
    replace_text(path, text(documents))


def text(documents: Sequence[RunDocument]) -> str:
    """One test suite for each run. An expectation that does not hold is a failure; an incomplete run, or doubtful
    counts, is an error."""
    suites = [_suite(document) for document in documents]
    sums = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in ("tests", "failures", "errors")}
    root = xml.Element("testsuites", {"name": suites[0].attrib["name"], **sums})
    root.extend(suites)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _suite(document: RunDocument) -> xml.Element:
    name = _clean(document["name"] or "pktswarm")
    cases = [_whole(document, name), *(_case(verdict, name) for verdict in document["verdicts"])]
    figures = {"name": name, "tests": str(len(cases))}
    figures["failures"] = str(sum(case.find("failure") is not None for case in cases))
    figures["errors"] = str(sum(case.find("error") is not None for case in cases))
    suite = xml.Element("testsuite", {**figures, **_when(document)})
    suite.append(_properties(document))
    suite.extend(cases)
    return suite


def _when(document: RunDocument) -> dict[str, str]:
    """`time`: the duration of sending, in seconds."""
    at_ns = {phase["phase"]: phase["at_ns"] for phase in document["phases"]}
    attributes = {"timestamp": document["start_utc"].partition(".")[0]} if document["start_utc"] else {}
    send_ns, drain_ns = at_ns.get("send"), at_ns.get("drain")
    if send_ns is not None and drain_ns is not None:
        attributes["time"] = f"{(drain_ns - max(0, send_ns)) / 1e9:.3f}"
    return attributes


def _properties(document: RunDocument) -> xml.Element:
    """The totals of run.json, without those that were not measured."""
    properties = xml.Element("properties")
    for total in document["totals"]:
        for key, value in total.items():
            if key != "stream" and value is not None:
                name = key if total is document["totals"][-1] else f"{total['stream']}.{key}"
                xml.SubElement(properties, "property", {"name": _clean(name), "value": str(value)})
    return properties


def _whole(document: RunDocument, name: str) -> xml.Element:
    case = xml.Element("testcase", {"classname": name, "name": "the run is whole and its counts agree"})
    if document["status"] == EXIT_INCOMPLETE:
        error = xml.SubElement(case, "error", {"message": _clean(document["reason"] or "incomplete")})
        error.text = _clean("\n".join(document["doubts"]))
    return case


def _case(verdict: Verdict, name: str) -> xml.Element:
    """A test case whose name is the same in every run, unless the verdict is of an older version."""
    case = xml.Element("testcase", {"classname": name, "name": _clean(verdict.get("what", verdict["text"]))})
    if not verdict["holds"]:
        kind = verdict.get("outcome", "failed")
        failure = xml.SubElement(case, "failure", {"message": _clean(verdict["text"]), "type": kind})
        if "what" in verdict:
            note = f"\n{verdict['note']}" if verdict.get("note") else ""
            failure.text = _clean(f"intended: {verdict.get('expected')}\nfound: {verdict.get('found')}{note}")
    return case


def _clean(words: object) -> str:
    """Replaces the control characters that XML cannot represent."""
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", str(words))
