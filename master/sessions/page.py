"""The page of `pktswarm sessions`."""

from __future__ import annotations

from pathlib import Path

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.report import n4, tabular
from pktswarm.master.sessions.storage import SessionsDocument
from pktswarm.traffic.errors import EXIT_AS_EXPECTED

COMPLETE = ("All sessions were established and deleted", "good")
INCOMPLETE = ("A request failed, or the association was lost", "doubt")
FILES = [
    ("sessions.json", "all results but the single sessions"),
    ("sessions.csv", "a row for each session: addresses, TEIDs, SEIDs, gNB"),
]


def make(folder: Path, document: SessionsDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: SessionsDocument) -> str:
    hosts = f" --hosts {document['hosts_file']}" if document["hosts_file"] else ""
    page = Page(
        template=tabular.TEMPLATE,
        title="N4 sessions",
        verdict=COMPLETE if document["status"] == EXIT_AS_EXPECTED else INCOMPLETE,
        remarks=n4.remarks(document),
        command=f"pktswarm sessions {document['scenario_file']}{hosts} --hold {document['hold_s']:g}",
        files=FILES,
    )
    return page.sections(folder, document, [n4.section(document)])
