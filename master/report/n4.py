"""The results of N4 on a page: the tables and lines of the terminal."""

from __future__ import annotations

from pktswarm.master.report import tabular
from pktswarm.master.report.tabular import Section
from pktswarm.master.upf.document import N4Document
from pktswarm.master.upf.session_results import failures, group_table, lines, operation_table


def section(document: N4Document) -> Section:
    """The sessions of each group, the procedures with their response times, and the state at the end."""
    grids = [
        tabular.grid(operation_table(document), "Procedures on N4, and the times from request to response"),
        tabular.grid(group_table(document), "Sessions of each group; first and last"),
    ]
    identity = document.get("upf")
    notes = [lines(document)[-1][:1].upper() + lines(document)[-1][1:] + "."]
    if identity is not None:
        notes.append(f"UPF at {identity['n4']}, Node ID {identity['node_id'] or 'none'}.")
    return Section("n4", "N4: sessions and signalling", [each for each in grids if each.rows], notes)


def remarks(document: N4Document) -> list[str]:
    """Failures of requests, and the events of the association."""
    events = [f"{event['kind']}: {event['words']}" for event in document.get("events", [])]
    return [*failures(document), *events]
