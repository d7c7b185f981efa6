"""A family of runs in one file: a scenario with variables, their values, and the measures of each run.

The table has a part for each value of the first variable, the second one's values as rows and the third one's as
columns; figures of a reference are in brackets. `pktswarm table configs/tables/….yaml`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from pydantic import Field, ValidationError, model_validator
from rich import box
from rich.table import Table

from pktswarm.master.cluster.dut import DutEntry
from pktswarm.master.cluster.inventory import load_yaml
from pktswarm.master.results.folder import Outcome
from pktswarm.master.scenario.fields import Strict, Yaml, keys_of
from pktswarm.master.scenario.problems import refuse
from pktswarm.master.tables.measures import ALWAYS, MEASURES, Measured
from pktswarm.master.tables.storage import Scenario, Storage
from pktswarm.traffic.errors import EXIT_INCOMPLETE, BadInput

VARIABLE = re.compile(r"\$(\w+)")
PRODUCT = re.compile(r"\$\w+(\*\$\w+)*")
SECONDS = "seconds"
"""Variable of every family: the duration of a point."""
MOST_NAME = 40
"""Characters of a scenario's name."""
MOST_SHOWN = 10
LEAST_SENT = 0.99
"""Smallest sent share of the intended packets that is not reported."""
SHOWN_BOUND = 0.1
"""A latency's error bound is shown if it exceeds this share of the latency."""
Value = str | int | float


class Axis(Strict):
    """A variable. `values`: its values; a mapping sets others too. `full`: its values with --full."""

    name: str = Field(pattern=r"^[a-z]\w*$")
    title: str = ""
    values: list[Value | dict[str, Value]] = Field(min_length=1)
    full: list[Value | dict[str, Value]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _own_name(self) -> Axis:
        for value in [*self.values, *self.full]:
            if isinstance(value, dict) and self.name not in value:
                raise ValueError(f"a value of {self.name} that is a mapping must have the key {self.name}")
        return self

    def settings(self) -> list[dict[str, Value]]:
        return [value if isinstance(value, dict) else {self.name: value} for value in self.values]

    def in_full(self) -> Axis:
        return self.model_copy(update={"values": self.full or self.values})


class Reference(Strict):
    source: str
    figures: dict[str, dict[str, list[list[float | None]]]] = Field(default_factory=dict)
    """Part → row → for each column the measures, in their order; null: not in the reference."""


class Family(Strict):
    table: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    title: str
    seconds: float = Field(4.0, gt=0)
    """Duration of a point; `reference_seconds`: the reference's."""
    reference_seconds: float | None = None
    axes: list[Axis] = Field(min_length=3, max_length=3)
    skip: list[dict[str, list[Value]]] = Field(default_factory=list)
    """Excluded points: those where each of these variables has one of the values."""
    measures: list[str] = Field(min_length=1)
    failures: str = ""
    """A measure: one more table has the share of points of each part where it is above 0."""
    scenario: dict[str, Any]
    reference: Reference | None = None

    @model_validator(mode="after")
    def _known_measures(self) -> Family:
        for name in self.measures:
            if name not in MEASURES:
                raise ValueError(f"measures: {name}: unknown; allowed: {', '.join(MEASURES)}")
        if self.failures and self.failures not in self.measures:
            raise ValueError(f"failures: {self.failures}: not in measures: {', '.join(self.measures)}")
        if self.axes[2].full:
            raise ValueError(f"axes: {self.axes[2].name}: the columns cannot have the key full")
        return self

    def in_full(self) -> Family:
        """Returns the family with the reference's values."""
        return self.model_copy(update={"axes": [axis.in_full() for axis in self.axes]})

    @model_validator(mode="after")
    def _known_skips(self) -> Family:
        axes = [*self.axes, *self.in_full().axes]
        known = {name for axis in axes for values in axis.settings() for name in values}
        for name in (name for skipped in self.skip for name in skipped):
            if name not in known:
                raise ValueError(f"skip: no axis sets {name}; allowed: {', '.join(sorted(known))}")
        if not points(self):
            raise ValueError("skip: all points are excluded")
        return self

    @model_validator(mode="after")
    def _reference_in_place(self) -> Family:
        """Refuses parts, rows and columns of the reference that the table does not have."""
        parts, rows = (
            [str(values[axis.name]) for values in [*axis.settings(), *axis.in_full().settings()]]
            for axis in self.axes[:2]
        )
        columns = self.axes[2].settings()
        for part, given in (self.reference.figures if self.reference else {}).items():
            for row, figures in given.items():
                if part not in parts or row not in rows:
                    raise ValueError(f"reference: {part}, {row}: not a part and row of the table")
                if len(figures) != len(columns) or any(len(values) != len(self.measures) for values in figures):
                    wanted = f"{len(columns)} lists of {len(self.measures)} figures"
                    raise ValueError(f"reference: {part}, {row}: {wanted} required")
        return self


def load(path: Path) -> Family:
    """Reads a family. Raises BadInput, for a variable that no axis sets too."""
    data = load_yaml(path, Yaml)
    if not isinstance(data, dict):
        raise BadInput(path, "must be a mapping", allowed=keys_of(Family))
    try:
        family = Family.model_validate(data)
    except ValidationError as error:
        raise refuse(path, error, Family, data) from None
    for point in points(family):
        _fill(path, family.scenario, point.variables)
    return family


@dataclass(frozen=True)
class Point:
    """One run: a label for each axis, and the values of all variables."""

    labels: tuple[str, ...]
    variables: dict[str, Value]

    @property
    def key(self) -> str:
        return re.sub(r"[^\w.-]", "_", "-".join(self.labels))


class PointResult(TypedDict):
    """A point's measures; `reference`: the reference's, empty if it has none; `problem`: empty if it was measured."""

    labels: tuple[str, ...]
    measured: dict[str, float | None]
    reference: dict[str, float | None]
    problem: str


def points(family: Family, seconds: float | None = None) -> list[Point]:
    """Returns the points in the order of their runs: part by part, row by row."""
    made = []
    for combination in itertools.product(*(axis.settings() for axis in family.axes)):
        labels = tuple(str(values[axis.name]) for axis, values in zip(family.axes, combination, strict=True))
        variables: dict[str, Value] = {SECONDS: family.seconds if seconds is None else seconds}
        for values in combination:
            variables |= values
        if not any(all(variables.get(name) in values for name, values in skipped.items()) for skipped in family.skip):
            made.append(Point(labels, variables))
    return made


def _fill(path: Path, part: Any, variables: dict[str, Value]) -> Any:
    """Puts the variables' values in for "$name" and products "$name*$other".

    An item of a list with `only: {variable: [values]}` is kept at these values only.
    """
    if isinstance(part, dict):
        return {key: _fill(path, value, variables) for key, value in part.items()}
    if isinstance(part, list):
        return [_fill(path, _bare(item), variables) for item in part if _wanted(path, item, variables)]
    if not isinstance(part, str) or "$" not in part:
        return part
    if not PRODUCT.fullmatch(part):
        raise BadInput(
            path, "neither a variable nor a product of variables", key="scenario", value=part, allowed="$a*$b"
        )
    values = [_value(path, name, variables) for name in VARIABLE.findall(part)]
    if len(values) == 1:
        return values[0]
    if any(isinstance(value, str) for value in values):
        raise BadInput(path, "a factor is not a number", key="scenario", value=part)
    return math.prod(float(value) if isinstance(value, float) else int(value) for value in values)


def _value(path: Path, name: str, variables: dict[str, Value]) -> Value:
    if name not in variables:
        raise BadInput(
            path, "no axis sets this variable", key="scenario", value=f"${name}", allowed=", ".join(variables)
        )
    return variables[name]


def _bare(item: Any) -> Any:
    return {key: value for key, value in item.items() if key != "only"} if isinstance(item, dict) else item


def _wanted(path: Path, item: Any, variables: dict[str, Value]) -> bool:
    only = item.get("only", {}) if isinstance(item, dict) else {}
    return all(_value(path, name, variables) in values for name, values in only.items())


class Runs:
    """The runs of a family. `execute` runs a scenario file and returns its outcome and results folder."""

    def __init__(
        self,
        path: Path,
        family: Family,
        folder: Path,
        seconds: float | None,
        execute: Callable[[Path], tuple[Outcome, Path]],
        dut: DutEntry | None = None,
    ) -> None:
        self.path, self.family, self.storage, self.execute = path, family, Storage(folder, dut), execute
        self.seconds = family.seconds if seconds is None else seconds
        self.points = points(family, self.seconds)

    def scenario(self, point: Point) -> Scenario:
        made: Scenario = _fill(self.path, self.family.scenario, point.variables)
        traces = made.get("traces")
        for trace in traces if isinstance(traces, list) else []:
            if isinstance(trace, dict) and "file" in trace:  # else the run refuses it
                trace["file"] = self._trace_file(str(trace["file"]))
        return {"name": f"{self.family.table}-{point.key}"[:MOST_NAME], **made}

    def _trace_file(self, name: str) -> str:
        """Resolves a path relative to the family's folder."""
        file = (self.path.parent / name).resolve()
        if not file.exists():
            allowed = "a recording; pktswarm lab record --large makes configs/traces/large-*"
            raise BadInput(self.path, "there is no such trace", key="traces.file", value=str(file), allowed=allowed)
        return str(file)

    def document(self) -> dict[str, object]:
        """Returns the head of the table's JSON file, without points."""
        source = None if self.family.reference is None else self.family.reference.source
        axes = [axis.name for axis in self.family.axes]
        return {"table": self.family.table, "seconds": self.seconds, "axes": axes, "reference": source}

    def run(self) -> Iterator[PointResult]:
        """Yields each point, stored before or measured now."""
        for point, scenario in [(point, self.scenario(point)) for point in self.points]:
            stored = self.storage.measured(point.key, scenario)
            if stored is not None and not {*self.family.measures, *ALWAYS} <= set(stored):
                stored = None  # stored before the family had all of its measures
            yield self._measure(point, scenario) if stored is None else self._result(point, stored, "")

    def _measure(self, point: Point, scenario: Scenario) -> PointResult:
        outcome, results = self.execute(self.storage.write_scenario(point.key, scenario))
        targets = Measured([row for row in outcome.document["rows"] if row.get("group") != "background"], results)
        measured = {name: MEASURES[name].of(targets) for name in (*self.family.measures, *ALWAYS)}
        problem = outcome.reason if outcome.status == EXIT_INCOMPLETE else ""
        if not problem:
            self.storage.keep(point.key, scenario, results, measured)
        return self._result(point, measured, problem)

    def _result(self, point: Point, measured: dict[str, float | None], problem: str) -> PointResult:
        reference = self._reference(point)
        beside = {} if reference is None else dict(zip(self.family.measures, reference, strict=True))
        return {"labels": point.labels, "measured": measured, "reference": beside, "problem": problem}

    def _reference(self, point: Point) -> list[float | None] | None:
        if self.family.reference is None:
            return None
        part, row, column = point.labels
        axis = self.family.axes[2]
        columns = [str(values[axis.name]) for values in axis.settings()]
        figures = self.family.reference.figures.get(part, {}).get(row)
        return None if figures is None else figures[columns.index(column)]


def tables(family: Family, results: list[PointResult]) -> list[Table]:
    """Makes a table for each part, with the measures of each row and column, and the reference's figures in brackets.

    A part or column that is the only one has no heading.
    """
    by_labels = {tuple(result["labels"]): result for result in results}
    parts, rows, columns = ([str(values[axis.name]) for values in axis.settings()] for axis in family.axes)
    made = []
    wanted = {point.labels[:2] for point in points(family)}
    for part in parts:
        title = f"{family.axes[0].title or family.axes[0].name}: {part}" if len(parts) > 1 else None
        table = Table(title=title, title_justify="left")
        table.box, table.pad_edge = box.SIMPLE_HEAD, False
        table.add_column(family.axes[1].title or family.axes[1].name, justify="right")
        for column, measure in itertools.product(columns, family.measures):
            head = f"{family.axes[2].title or family.axes[2].name} {column}\n" if len(columns) > 1 else ""
            table.add_column(f"{head}{MEASURES[measure].title}", justify="right")
        for row in (row for row in rows if (part, row) in wanted):
            cells = [_cell(by_labels.get((part, row, column)), name) for column in columns for name in family.measures]
            table.add_row(row, *cells)
        made.append(table)
    return made


def _cell(result: PointResult | None, measure: str) -> str:
    if result is None:
        return ""
    value, beside = result["measured"].get(measure), result["reference"].get(measure)
    digits = MEASURES[measure].digits
    ours = "–" if value is None else f"{value:,.{digits}f}"
    bound = result["measured"].get("latency_bound_ms") if measure.startswith("latency") else None
    if value is not None and bound is not None and bound > SHOWN_BOUND * abs(value):
        ours += f" ±{bound:.{digits}f}"
    return ours if beside is None else f"{ours} [dim]({beside:g})[/]"


def not_sent(results: list[PointResult]) -> str:
    """Returns a line on points where the tester sent less than intended; empty if there are none."""
    ratios = [(result["measured"].get("sent_ratio"), ", ".join(result["labels"])) for result in results]
    found = sorted((ratio, labels) for ratio, labels in ratios if ratio is not None and ratio < LEAST_SENT)
    if not found:
        return ""
    worst = "; ".join(f"{labels}: {ratio:.0%}" for ratio, labels in found[:MOST_SHOWN])
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"the tester sent less than intended at {len(found)} of {len(results)} points: {worst}{more}"
