"""JUnit XML of a run's expectations, for CI: one testcase each, and one for whether the counts can be trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from pktswarm.master.files import replace_text
from pktswarm.traffic.errors import EXIT_INCOMPLETE

NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(documents: Sequence[dict[str, Any]], path: Path) -> None:
    """`documents`: run.json of one run, or of each of several."""
    replace_text(path, text(documents))


def text(documents: Sequence[dict[str, Any]]) -> str:
    """A testsuite each run. An expectation that does not hold is a failure; a run that is not whole, or counts in
    doubt, is an error."""
    suites = [_suite(document) for document in documents]
    sums = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in ("tests", "failures", "errors")}
    root = xml.Element("testsuites", {"name": suites[0].attrib["name"], **sums})
    root.extend(suites)
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _suite(document: dict[str, Any]) -> xml.Element:
    name = _clean(document.get("name", "pktswarm"))
    cases = [_whole(document, name), *(_case(verdict, name) for verdict in document.get("verdicts", []))]
    figures = {"name": name, "tests": str(len(cases))}
    figures["failures"] = str(sum(case.find("failure") is not None for case in cases))
    figures["errors"] = str(sum(case.find("error") is not None for case in cases))
    suite = xml.Element("testsuite", {**figures, **_when(document)})
    suite.append(_properties(document))
    suite.extend(cases)
    return suite


def _when(document: dict[str, Any]) -> dict[str, str]:
    """`time`: how long was sent, in seconds."""
    at_ns = {one["phase"]: one["at_ns"] for one in document.get("phases", [])}
    told = {"timestamp": document["start_utc"].partition(".")[0]} if document.get("start_utc") else {}
    if at_ns.get("drain") is not None and at_ns.get("send") is not None:
        told["time"] = f"{(at_ns['drain'] - max(0, at_ns['send'])) / 1e9:.3f}"
    return told


def _properties(document: dict[str, Any]) -> xml.Element:
    """The totals, as in run.json; what was not measured is left out."""
    found = xml.Element("properties")
    for total in document.get("totals", []):
        for key, value in total.items():
            if key != "stream" and value is not None:
                name = key if total is document["totals"][-1] else f"{total['stream']}.{key}"
                xml.SubElement(found, "property", {"name": _clean(name), "value": str(value)})
    return found


def _whole(document: dict[str, Any], name: str) -> xml.Element:
    case = xml.Element("testcase", {"classname": name, "name": "the run is whole and its counts agree"})
    why = document.get("doubts") or []
    if document.get("status") == EXIT_INCOMPLETE:
        error = xml.SubElement(case, "error", {"message": _clean(document.get("reason", "incomplete"))})
        error.text = _clean("\n".join(why))
    return case


def _case(verdict: dict[str, Any], name: str) -> xml.Element:
    """The name is the same from run to run, where the verdict tells it apart from what was found."""
    case = xml.Element("testcase", {"classname": name, "name": _clean(verdict.get("what", verdict["text"]))})
    if not verdict["holds"]:
        kind = verdict.get("outcome", "failed")
        failure = xml.SubElement(case, "failure", {"message": _clean(verdict["text"]), "type": kind})
        if "what" in verdict:
            note = f"\n{verdict['note']}" if verdict.get("note") else ""
            failure.text = _clean(f"intended: {verdict['expected']}\nfound: {verdict['found']}{note}")
    return case


def _clean(words: object) -> str:
    """XML has no way to write most control characters."""
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", str(words))
