"""Types of a probe's findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

State = Literal["works", "refused", "no answer", "wrong", "not asked"]
STATES: tuple[State, ...] = ("works", "refused", "no answer", "wrong", "not asked")
Area = Literal["association", "session", "user plane"]
GroupKey = Literal["access_instance", "core_instance", "dnn"]
GROUP_KEYS: tuple[GroupKey, ...] = ("access_instance", "core_instance", "dnn")
AREAS: tuple[Area, ...] = ("association", "session", "user plane")


@dataclass(frozen=True)
class Outcome:
    """`words`: cause and offending IE, the wrong value, or the reason why it was not tested."""

    state: State
    words: str = ""

    @property
    def works(self) -> bool:
        return self.state == "works"


WORKS = Outcome("works")


@dataclass(frozen=True)
class Finding:
    """One test. `n4`: the request; `up`, `down`: one packet each way; None: not part of the test.

    `source`: the section of TS 29.244, TS 29.281 or TS 38.415.
    """

    area: Area
    name: str
    source: str
    n4: Outcome | None = None
    up: Outcome | None = None
    down: Outcome | None = None

    def outcomes(self) -> Iterator[Outcome]:
        yield from (outcome for outcome in (self.n4, self.up, self.down) if outcome is not None)

    @property
    def works(self) -> bool:
        return all(outcome.works for outcome in self.outcomes())


def _finding(row: Mapping[str, Any]) -> Finding:
    parts = {name: None if row[name] is None else Outcome(**row[name]) for name in ("n4", "up", "down")}
    return Finding(row["area"], row["name"], row["source"], **parts)


@dataclass
class Findings:
    """All findings of one probe. `left_sessions`: sessions that could not be deleted."""

    n4: str
    node_id: str = ""
    recovery_stamp: int | None = None
    features: list[str] = field(default_factory=list)
    seconds: float = 0.0
    left_sessions: int = 0
    group_keys: dict[GroupKey, str] = field(default_factory=dict)
    """Group keys of every session of the probe."""
    rows: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> Finding:
        self.rows.append(finding)
        return finding

    def get(self, name: str) -> Finding | None:
        return next((row for row in self.rows if row.name == name), None)

    def works(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.works

    def by_area(self) -> list[tuple[Area, list[Finding]]]:
        """Returns the rows of each area, in the order of the tests."""
        return [(area, rows) for area in AREAS if (rows := [row for row in self.rows if row.area == area])]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Findings:
        """Reads the fields of to_json, and ignores others."""
        known = {each.name: document[each.name] for each in fields(cls) if each.name in document}
        return cls(**{**known, "rows": [_finding(row) for row in document["rows"]]})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
