"""The outcome of a probe, typed: what was tried, and what the UPF did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["works", "refused", "no answer", "wrong", "not asked"]
STATES: tuple[State, ...] = ("works", "refused", "no answer", "wrong", "not asked")
Area = Literal["association", "session", "user plane"]
AREAS: tuple[Area, ...] = ("association", "session", "user plane")


@dataclass(frozen=True)
class Outcome:
    """`words`: the cause and offending IE, what came instead, or why it was not asked."""

    state: State
    words: str = ""

    @property
    def works(self) -> bool:
        return self.state == "works"


WORKS = Outcome("works")


@dataclass(frozen=True)
class Finding:
    """One thing that was tried. `n4`: the request; `up`, `down`: one packet each way; None: there is none of it.

    `source`: the section of TS 29.244, TS 29.281 or TS 38.415.
    """

    area: Area
    name: str
    source: str
    n4: Outcome | None = None
    up: Outcome | None = None
    down: Outcome | None = None

    def outcomes(self) -> Iterator[Outcome]:
        yield from (one for one in (self.n4, self.up, self.down) if one is not None)

    @property
    def works(self) -> bool:
        return all(one.works for one in self.outcomes())


@dataclass
class Findings:
    """Everything that one probe found out. `left_sessions`: those that could not be deleted."""

    n4: str
    node_id: str = ""
    recovery_stamp: int | None = None
    features: list[str] = field(default_factory=list)
    seconds: float = 0.0
    left_sessions: int = 0
    group_keys: dict[Any, str] = field(default_factory=dict)
    """Keys of a group that every session of the probe had (access_instance, core_instance, dnn)."""
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
        """The rows of each area, in the order in which they were found."""
        return [(area, rows) for area in AREAS if (rows := [row for row in self.rows if row.area == area])]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
