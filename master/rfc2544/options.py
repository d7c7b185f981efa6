"""The options of `pktswarm rfc2544`, and its deviations from RFC 2544. Checked before anything is planned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pktswarm.master.benchmark.options import LONGEST_TRIAL_S, check_duration, frame_sizes, names
from pktswarm.master.rfc2544.formulas import SIZES_BYTES
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.sizes import rate_bps

THROUGHPUT, LATENCY, LOSS, BACK_TO_BACK = TESTS = ("throughput", "latency", "loss", "back-to-back")
NEEDS_THROUGHPUT = (LATENCY, BACK_TO_BACK)
LONGEST_BURST_S = 30.0
"""RFC 9004, 5.2: a tester must allow bursts of this duration."""


@dataclass(frozen=True)
class Form:
    """Durations and numbers of the trials.

    `trials` of `trial_s` decide on a load of the throughput, and one of `confirm_s` confirms it (SearchOptions).
    `bursts`: complete searches for the longest burst. `settle_s`: pause before each trial. `drain_s`: least wait for
    frames in flight after it.
    """

    name: str
    trial_s: float
    trials: int
    latency_s: float
    latency_trials: int
    bursts: int
    settle_s: float
    drain_s: float
    confirm_s: float | None


QUICK = Form("quick", 1.0, 3, 2.0, 1, 2, 0.0, 0.0, None)
FULL = Form("full", 60.0, 1, 120.0, 20, 50, 5.0, 2.0, 0.0)

ALWAYS_OTHERWISE = (
    "Latency is measured on every stamped frame, from the sender's stamp to the receiver's kernel, and not on "
    "one tagged frame in each trial (26.2). It includes the tester's own links, and between two nodes it is as precise "
    "as the bound of their clocks.",
    "Frames have a sequence number and a stamp in their payload, and the addresses of the nodes; they are not the test "
    "frames of appendix C.",
    "System recovery (26.5), reset (26.6) and the modifiers of section 11 (broadcasts, management and routing frames, "
    "filters) are not tested; traffic has the directions of the scenario's streams.",
    "MLRsearch chooses the loads of the throughput: shorter trials precede the deciding ones.",
)
QUICKLY_OTHERWISE = (
    "Trials of {quick.trial_s:g} s, not {full.trial_s:g} s (24). {confirmed}",
    "{quick.trials} trials decide on a load of the throughput, and less than half of them may lose frames (26.1 allows "
    "none).",
    "Latency from {quick.latency_trials} trial of {quick.latency_s:g} s, not {full.latency_trials} of "
    "{full.latency_s:g} s (26.2).",
    "{quick.bursts} searches for the longest burst, not {full.bursts} (26.4).",
    "No pause of {full.settle_s:g} s between trials, and less than {full.drain_s:g} s of wait for the last ones (23).",
)


BY_LOSS_OR_RISE = "confirms the throughput; it fails by loss or by a latency that rises throughout."


@dataclass(frozen=True)
class Options:
    """`medium_l1_bps`: a load of 100 %, bits/s with preamble and gap of all streams together; None: the sum of the
    streams' rates in the scenario."""

    sizes_bytes: tuple[int, ...] = SIZES_BYTES
    tests: tuple[str, ...] = TESTS
    form: Form = QUICK
    medium_l1_bps: float | None = None
    precision: float = 0.005
    longest_burst_s: float = 2.0

    @property
    def deviations(self) -> list[str]:
        """The deviations, a sentence each, with the sections of RFC 2544."""
        sentences = []
        if self.form.name == QUICK.name:
            sentences = [text.format(quick=QUICK, full=FULL, confirmed=self._confirmed) for text in QUICKLY_OTHERWISE]
        if left := [str(size) for size in SIZES_BYTES if size not in self.sizes_bytes]:
            sentences.append(f"Frame sizes {', '.join(left)} are left out (9.1).")
        if missing := [name for name in TESTS if name not in self.tests]:
            sentences.append(f"Not tested, by --tests: {', '.join(missing)}.")
        return [*sentences, *ALWAYS_OTHERWISE]

    @property
    def _confirmed(self) -> str:
        """The confirmation of the throughput, a sentence."""
        if self.form.confirm_s is None:
            seconds = f"One of 10 to {FULL.trial_s:g} s, long enough for the queue that the trials show,"
        elif self.form.confirm_s == 0:
            return "No longer trial confirms the throughput."
        else:
            seconds = f"One of {self.form.confirm_s:g} s"
        return f"{seconds} {BY_LOSS_OR_RISE}"

    @property
    def conformity(self) -> str:
        """The conformity to RFC 2544, a sentence."""
        if self.form.name == QUICK.name:
            return (
                f"NOT conformant to RFC 2544: trials of the quick form take {QUICK.trial_s:g} s instead of "
                f"{FULL.trial_s:g} s, and are repeated less often. --full has the durations of RFC 2544."
            )
        return "Durations and repetitions of RFC 2544, with the listed deviations."


def parse(
    where: Path,
    sizes: str,
    tests: str,
    full: bool,
    medium: str | None,
    precision: float,
    longest_burst_s: float,
    confirm_s: float | None = None,
) -> Options:
    """Parse the options of the command line. Raises BadInput. `confirm_s` None: that of the form."""
    bps = None if medium is None else float(rate_bps(where, "--max", medium))
    check_duration(where, "--longest-burst", longest_burst_s, LONGEST_BURST_S, "burst")
    if confirm_s:
        check_duration(where, "--confirm", confirm_s, LONGEST_TRIAL_S, "trial")
    form = FULL if full else QUICK
    form = form if confirm_s is None else replace(form, confirm_s=confirm_s)
    sizes_bytes = tuple(sorted(frame_sizes(where, sizes)))
    return Options(sizes_bytes, _tests(where, tests), form, bps, precision, longest_burst_s)


def _tests(where: Path, text: str) -> tuple[str, ...]:
    """Parse the value of --tests, and return the tests in the order in which they are made."""
    chosen = names(where, "--tests", text, TESTS, "test")
    for name in NEEDS_THROUGHPUT:
        if name in chosen and THROUGHPUT not in chosen:
            problem = f"{name} requires throughput"
            raise BadInput(where, problem, key="--tests", value=text, allowed=f"{THROUGHPUT},{name}")
    return tuple(name for name in TESTS if name in chosen)
