"""The page of a probe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pktswarm.master.report.render import render
from pktswarm.master.scenario.upf_profile import Profile, load
from pktswarm.master.upf.probe.conclusions import describe_outcome
from pktswarm.master.upf.probe.findings import Findings
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

VERDICTS = {EXIT_AS_EXPECTED: ("good", "Packets pass both ways"), EXIT_INCOMPLETE: ("doubt", "Sessions not deleted")}


def of_document(document: Mapping[str, Any]) -> str:
    """The page of probe.json. Raises BadInput of an unreadable profile."""
    path = None if document["profile"] is None else Path(document["profile"])
    profile = load(path) if path is not None and path.is_file() else None
    command = document.get("command", "pktswarm upf probe")
    return html(Findings.from_json(document), document["status"], profile, path, command)


def html(findings: Findings, status: int, profile: Profile | None, profile_path: Path | None, command: str) -> str:
    kind, verdict = VERDICTS.get(status, ("bad", "No session passes packets both ways"))
    return render(
        "upf_probe.html",
        {
            "findings": findings,
            "areas": findings.by_area(),
            "kind": kind,
            "verdict": verdict,
            "status": status,
            "describe": describe_outcome,
            "profile": profile,
            "profile_path": profile_path,
            "command": command,
        },
    )
