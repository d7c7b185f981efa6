"""Tables of a probe's findings on the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pktswarm.master.upf.probe.conclusions import describe_outcome
from pktswarm.master.upf.probe.findings import STATES, Findings, Outcome

STYLES = dict(zip(STATES, ("green", "red", "yellow", "red", "dim"), strict=True))


def print_findings(console: Console, findings: Findings) -> None:
    node = findings.node_id or "no Node ID"
    console.print(
        f"UPF at {findings.n4}: {node}; {' '.join(findings.features) or 'no features announced'}", highlight=False
    )
    for area, rows in findings.by_area():
        columns = [name for name in ("n4", "up", "down") if any(getattr(row, name) for row in rows)]
        table = Table(area, *(name.upper() if name == "n4" else name for name in columns), box=box.SIMPLE)
        for row in rows:
            table.add_row(row.name, *(_cell(getattr(row, name)) for name in columns))
        console.print(table)
    console.print(f"{sum(row.works for row in findings.rows)} of {len(findings.rows)} work; {findings.seconds:.1f} s")
    if findings.left_sessions:
        console.print(f"{findings.left_sessions} sessions could not be deleted", style="red")


def _cell(outcome: Outcome | None) -> Text:
    return Text("") if outcome is None else Text(describe_outcome(outcome), style=STYLES[outcome.state])
