"""The page of a search: the rate of each goal, and the trials."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import matplotlib

from pktswarm.master.benchmark.page import Page, write
from pktswarm.master.report import formatting, tabular
from pktswarm.master.report.plots import LINES, STYLE, Plot, new_axes, svg_of
from pktswarm.master.report.tabular import Grid, Section
from pktswarm.master.search.document import GoalFields, SearchDocument, SearchTrial
from pktswarm.master.search.show import NOTES, closing, rises, table, undecided
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("Complete", "good"), EXIT_INCOMPLETE: ("Incomplete", "doubt")}
BELOW_ALL = ("More is lost than allowed even at the lowest rate", "bad")
FILES = [
    ("search.json", "options, the rate of each goal, and all trials"),
    ("search.csv", "a row for each trial, with the bounds after it; packets/s and bits/s"),
    ("runs/", "the runs of the trials"),
]


def make(folder: Path, document: SearchDocument) -> Path:
    """Write the page into the results folder. Raises OSError."""
    return write(folder, html(folder, document))


def html(folder: Path, document: SearchDocument) -> str:
    document = _completed(document)
    goals, trials = document["goals"], document["trials"]
    states = {goal["state"] for goal in goals}
    notes = [closing(document), *(note for state, note in NOTES.items() if state in states)]
    page = Page(
        template=tabular.TEMPLATE,
        title="search for the highest rate",
        verdict=VERDICTS.get(document["status"], BELOW_ALL),
        remarks=rises(goals) + undecided(goals),
        command=command(document),
        files=FILES,
    )
    caption = "The highest rate of all searched streams together, for each allowed loss"
    sections = [
        Section("rates", "Rates", [tabular.grid(table(goals), caption)], notes),
        Section("trials", "Trials", [_trials(trials)], plots=[plot] if (plot := _plot(trials)) else []),
    ]
    return page.sections(folder, document, sections)


def command(document: SearchDocument) -> str:
    asked = document["asked"]
    options = [f"--stream {name}" for name in document["streams"]]
    options += [f"--loss {100 * loss:g}%" if loss else "--loss 0" for loss in asked["losses"]]
    options += [f"--min {asked['min_pps']:.10g}", f"--max {asked['max_pps']:.10g}"]
    options += [f"--precision {100 * asked['precision']:g}%", f"--duration {asked['duration_s']:g}"]
    options += [f"--trials {asked['trials']}"]
    if asked["confirm_s"] is not None:
        options.append(f"--confirm {asked['confirm_s']:g}")
    options += [f"--expect {limit}" for limit in document.get("expect", [])]
    hosts = [f"--hosts {document['hosts_file']}"] if "hosts_file" in document else []
    return " \\\n  ".join([f"pktswarm search {document['scenario_file']}", *hosts, *options])


def _completed(document: SearchDocument) -> SearchDocument:
    """With the fields that documents of earlier versions lack."""
    asked = {"confirm_s": None, **document["asked"]}
    goals = [{**dict.fromkeys(GoalFields.__annotations__), **goal} for goal in document["goals"]]
    trials = [{**dict.fromkeys(SearchTrial.__annotations__), **trial} for trial in document["trials"]]
    return cast(SearchDocument, {**document, "asked": asked, "goals": goals, "trials": trials})


def _trials(trials: list[SearchTrial]) -> Grid:
    heads = ["trial", "#packets/s", "#s", "#sent", "#lost", "#lost, % of sent", "kind", "outcome"]
    rows = [
        [
            str(trial["trial"]),
            f"{trial['intended_pps']:,.1f}",
            f"{trial['duration_s']:g}",
            formatting.count(trial["sent_packets"]),
            formatting.count(trial["lost_packets"]),
            formatting.percent(trial["lost_packets"], trial["sent_packets"]),
            "confirming" if trial["confirms"] else "deciding",
            "; ".join(filter(None, (trial["problem"], *(trial["not_held"] or ())))),
        ]
        for trial in trials
    ]
    return Grid("Trials in their order", heads, rows)


def _plot(trials: list[SearchTrial]) -> Plot | None:
    """The load of each trial, with and without loss. None: no trial measured the device."""
    valid = [trial for trial in trials if not trial["problem"] and trial["lost_packets"] is not None]
    if not valid:
        return None
    parts = {
        "without loss": [trial for trial in valid if not trial["lost_packets"]],
        "with loss": [trial for trial in valid if trial["lost_packets"]],
    }
    with matplotlib.rc_context(STYLE):
        figure, axes, columns = new_axes("trial", "packets/s", list(parts))
        for number, (label, part) in enumerate(parts.items()):
            points = [trial["trial"] for trial in part], [trial["intended_pps"] for trial in part]
            axes.plot(*points, label=label, color=LINES[number], marker="ox"[number], linestyle="", markersize=5)
        axes.set_ylim(bottom=0)
        svg = svg_of(figure, "trials-plot", columns)
    counts = ", ".join(f"{len(part)} {label}" for label, part in parts.items())
    return Plot("Load of each trial", svg, "search.csv", f"{len(valid)} trials: {counts}.")
