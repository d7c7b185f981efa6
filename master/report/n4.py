"""The results of N4 on a page: the tables and lines of the terminal."""

from __future__ import annotations

from pktswarm.master.report import tabular
from pktswarm.master.report.tabular import Section
from pktswarm.master.results import handover_report, user_report
from pktswarm.master.results.document import RunDocument
from pktswarm.master.upf.document import N4Document
from pktswarm.master.upf.session_results import closing, failures, group_table, operation_table

KEY, TITLE = "n4", "N4: sessions and signalling"
MISSING = "N4 has no results: the run ended before its sessions did."


def section(document: N4Document) -> Section:
    """The procedures with their response times, the sessions of each group, and the state at the end."""
    if not document.get("groups"):
        return Section(KEY, TITLE, [], [MISSING])
    grids = [
        tabular.grid(operation_table(document), "Procedures on N4, and the times from request to response"),
        tabular.grid(group_table(document), "Sessions of each group; first and last"),
    ]
    notes = [f"{line[:1].upper()}{line[1:]}." for line in closing(document)]
    if (upf := document.get("upf")) is not None:
        notes.append(f"UPF at {upf['n4']}, Node ID {upf['node_id'] or 'none'}.")
    if (set_up_s := document.get("set_up_s")) is not None:
        notes.append(f"The sessions were established in {set_up_s:.3f} s.")
    return Section(KEY, TITLE, [each for each in grids if each.rows], notes)


def remarks(document: N4Document) -> list[str]:
    """Failures of requests, and the events of the association."""
    events = [f"{event['kind']}: {event['words']}" for event in document.get("events", [])]
    return [*failures(document), *events]


def of_run(document: RunDocument) -> Section | None:
    """None of a run without a UPF."""
    upf = document.get("upf")
    return None if upf is None else section(upf)


def users(document: RunDocument) -> list[str]:
    """The lines of the terminal on the MBR of users, handovers and events of N4."""
    counted, handover, upf = document.get("users"), document.get("handover"), document.get("upf")
    return [
        *([] if counted is None else user_report.mbr_lines(counted)),
        *([] if handover is None else handover_report.lines(handover)),
        *([] if upf is None else remarks(upf)),
    ]
