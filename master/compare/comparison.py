"""A comparison: each figure of a side with the first side's, the difference, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from pktswarm.master.compare import environment_diff, noise
from pktswarm.master.compare.document import (
    ComparisonDocument,
    OneSidedStream,
    RunSummary,
    SettingDifference,
    SideDocument,
    SideSettingDifference,
)
from pktswarm.master.compare.figures import Figure
from pktswarm.master.compare.kinds import FIGURES
from pktswarm.master.compare.run_sets import Compared, Side
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_NOT_AS_EXPECTED, BadInput

FORMAT_VERSION = 1
CONFIDENCE = 0.95
"""Probability that no figure of two sides of the same runs is reported as different."""
SAME, WITHIN, BEYOND, CLOCKS, UNKNOWN = (
    "the same",
    "within noise",
    "larger than noise",
    "within clock bounds",
    "noise not known",
)
ROUNDING = 1e-9
"""Relative rounding error of means of the same numbers."""


@dataclass(frozen=True)
class Difference:
    """The difference of one figure of one subject: `first` is side A's, `other` another side's.

    All but `relative` are in the figure's unit; None: not measured, or unknown.
    """

    side: str
    subject: str
    figure: str
    unit: str
    first: float | None
    first_sd: float | None
    first_runs: int
    other: float | None
    other_sd: float | None
    other_runs: int
    difference: float | None = None
    relative: float | None = None
    """The difference as a share of A's figure; None if that is 0."""
    noise: float | None = None
    """Half the width of the confidence interval of the difference."""
    verdict: str = ""
    """Empty if a side did not measure the figure."""
    for_the_worse: bool = False
    """The other side is worse, by more than the noise."""

    @property
    def beyond(self) -> bool:
        return self.verdict == BEYOND


@dataclass
class Comparison:
    """`first` compared with each of `others`."""

    first: Side
    others: list[Side]
    confidence: float = CONFIDENCE

    @property
    def sides(self) -> list[Side]:
        return [self.first, *self.others]

    @cached_property
    def differences(self) -> list[Difference]:
        return [each for other in self.others for each in _compared(self.first, other, self.confidence)]

    @property
    def noise_is_known(self) -> bool:
        return min(len(side.runs) for side in self.sides) >= noise.LEAST_RUNS and self.all_whole

    @cached_property
    def devices(self) -> list[SideSettingDifference]:
        """The differences between the devices under test."""
        return self._beside(environment_diff.devices)

    @property
    def without_nodes(self) -> list[str]:
        """The letters of the sides whose nodes are unknown: the folder has no run."""
        return [side.letter for side in self.sides if not side.runs[0].environment]

    @property
    def not_described(self) -> list[str]:
        """The letters of the sides of whose device nothing is known."""
        return [side.letter for side in self.sides if not environment_diff.is_described(side.runs[0])]

    @property
    def all_whole(self) -> bool:
        return not any(side.doubts for side in self.sides)

    def check_noise(self) -> None:
        """Raises BadInput if the noise is unknown: no difference could then decide the exit status."""
        for side in self.sides:
            if side.doubts or len(side.runs) < noise.LEAST_RUNS:
                problem = "the noise of single runs is unknown"
                least = f"{noise.LEAST_RUNS} or more complete runs on each side"
                has = f"{side.name} with {0 if side.doubts else len(side.runs)}"
                raise BadInput("compare", problem, key="--fail-on-worse", value=has, allowed=least)

    def status(self, fail_on_worse: bool, figures: Sequence[str] = ()) -> int:
        """Returns the exit status. `figures`: those that decide; empty: all."""
        deciding = [each for each in self.differences if not figures or each.figure in figures]
        worse = fail_on_worse and any(each.for_the_worse for each in deciding)
        return EXIT_NOT_AS_EXPECTED if worse else EXIT_AS_EXPECTED

    def document(self) -> ComparisonDocument:
        return {
            "format_version": FORMAT_VERSION,
            "kind": self.first.kind,
            "confidence": self.confidence,
            "noise_is_known": self.noise_is_known,
            "sides": [_side(side) for side in self.sides],
            "scenario": self._beside(environment_diff.scenarios),
            "nodes": self._beside(environment_diff.nodes),
            "dut": self.devices,
            "dut_not_described": self.not_described,
            "in_one_only": self.in_one_only(),
            "differences": [asdict(each) for each in self.differences],
        }

    def in_one_only(self) -> list[OneSidedStream]:
        found: list[OneSidedStream] = []
        for other in self.others:
            names = {side.letter: subjects_of(side) for side in (self.first, other)}
            for letter, subjects in names.items():
                (missing,) = [other_letter for other_letter in names if other_letter != letter]
                found += [
                    {"stream": name, "side": letter, "not_in": missing}
                    for name in subjects
                    if name not in names[missing]
                ]
        return found

    def _beside(
        self, differences: Callable[[Compared, Compared], list[SettingDifference]]
    ) -> list[SideSettingDifference]:
        first = self.first.runs[0]
        return [{"side": side.letter, **each} for side in self.others for each in differences(first, side.runs[0])]


def _side(side: Side) -> SideDocument:
    return {
        "side": side.letter,
        "name": side.name,
        "runs": [_run(run) for run in side.runs],
        "left_out": side.left_out,
        "doubts": side.doubts,
        "not_repetitions": environment_diff.within(side),
    }


def _run(run: Compared) -> RunSummary:
    document = run.document
    return {
        "folder": str(run.path),
        "status": document.get("status"),
        "reason": run.reason,
        "start_utc": document.get("start_utc"),
    }


def subjects_of(side: Side) -> dict[str, None]:
    """Returns the subjects, in the order of the first run."""
    return dict.fromkeys(subject for run in side.runs for subject in run.figures)


# --- figure by figure ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """A figure of one subject on two sides; None: not measured."""

    subject: str
    figure: Figure
    first: noise.Side | None
    other: noise.Side | None
    bound_ns: float
    """Sum of the error bounds of both sides' clocks."""

    @property
    def scattered(self) -> bool:
        return self.first is not None and self.other is not None and noise.scattered(self.first, self.other)


def _compared(first: Side, other: Side, confidence: float) -> list[Difference]:
    pairs = list(_pairs(first, other))
    each = noise.of_each(confidence, sum(pair.scattered and not pair.figure.derived for pair in pairs))
    sure = not first.doubts and not other.doubts
    return [_difference(other.letter, pair, each if sure else None) for pair in pairs]


def _pairs(first: Side, other: Side) -> Iterator[_Pair]:
    for subject in subjects_of(first) | subjects_of(other):
        bound_ns = _bound_ns(first, subject) + _bound_ns(other, subject)
        for figure in FIGURES.values():
            ours, theirs = (figure_of(side, subject, figure.key) for side in (first, other))
            if ours is not None or theirs is not None:
                yield _Pair(subject, figure, ours, theirs, bound_ns if figure.clocked else 0.0)


def figure_of(side: Side, subject: str, key: str) -> noise.Side | None:
    """Returns the figure over all runs; None if a run did not measure it."""
    values = [run.figures[subject].values.get(key) if subject in run.figures else None for run in side.runs]
    known = [value for value in values if value is not None]
    return noise.side(known) if known and len(known) == len(values) else None


def _bound_ns(side: Side, subject: str) -> float:
    return max((run.figures[subject].bound_ns for run in side.runs if subject in run.figures), default=0.0)


def _difference(letter: str, pair: _Pair, confidence: float | None) -> Difference:
    """`confidence`: None if the counts are in doubt."""
    first, other, figure = pair.first, pair.other, pair.figure
    made = Difference(letter, pair.subject, figure.key, figure.unit, *_statistics(first), *_statistics(other))
    if first is None or other is None:
        return made
    change = other.mean - first.mean
    half = None if confidence is None else noise.half_width(first, other, confidence)
    verdict = _verdict(change, half, max(figure.resolution, ROUNDING * abs(first.mean)), pair.bound_ns)
    relative = change / first.mean if first.mean else None
    worse = verdict == BEYOND and change * figure.worse > 0
    return replace(made, difference=change, relative=relative, noise=half, verdict=verdict, for_the_worse=worse)


def _statistics(side: noise.Side | None) -> tuple[float | None, float | None, int]:
    return (None, None, 0) if side is None else (side.mean, side.sd, side.runs)


def _verdict(change: float, half: float | None, resolution: float, bound_ns: float) -> str:
    if abs(change) <= resolution:
        return SAME
    if half is None:
        return UNKNOWN
    if abs(change) <= half:
        return WITHIN
    return BEYOND if abs(change) > bound_ns else CLOCKS
