"""Types of compare.json and of its parts on the page."""

from __future__ import annotations

from typing import TypedDict


class SettingDifference(TypedDict):
    """A key of scenario or nodes whose values differ; `first`: side A's."""

    key: str
    first: str
    other: str


class SideSettingDifference(SettingDifference):
    side: str


class RunSummary(TypedDict):
    folder: str
    status: object
    reason: object
    start_utc: object


class SideDocument(TypedDict):
    side: str
    name: str
    runs: list[RunSummary]
    left_out: list[str]
    doubts: list[str]
    not_repetitions: list[str]


class OneSidedStream(TypedDict):
    """A stream that one side has, and the other has not."""

    stream: str
    side: str
    not_in: str


class ComparisonDocument(TypedDict):
    """compare.json. `differences`: fields of master.compare.comparison.Difference."""

    format_version: int
    kind: str
    """The kind of the compared results: run, search, …"""
    confidence: float
    noise_is_known: bool
    sides: list[SideDocument]
    scenario: list[SideSettingDifference]
    nodes: list[SideSettingDifference]
    dut: list[SideSettingDifference]
    dut_not_described: list[str]
    """Letters of the sides of whose device nothing is known."""
    in_one_only: list[OneSidedStream]
    differences: list[dict[str, object]]


class Dispersion(TypedDict):
    """A figure over the runs of a side, in its unit. `sd`: None of a single run."""

    subject: str
    figure: str
    unit: str
    runs: int
    mean: float
    sd: float | None
    least: float
    most: float


class FigureRow(TypedDict):
    """A figure of one run, for runs.csv."""

    side: str
    run: str
    subject: str
    figure: str
    unit: str
    value: float
