"""What `pktswarm rfc2544` is asked for, and in what it deviates from RFC 2544. Checked before anything is planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pktswarm.master.rfc2544.formulas import SIZES_BYTES
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.placement import LEAST_SIZE_BYTES
from pktswarm.traffic.frames.sizes import LARGEST_SIZE_BYTES, rate_bps

THROUGHPUT, LATENCY, LOSS, BACK_TO_BACK = TESTS = ("throughput", "latency", "loss", "back-to-back")
NEEDS_THROUGHPUT = (LATENCY, BACK_TO_BACK)
LONGEST_BURST_S = 30.0
"""RFC 9004, 5.2: what a tester has to allow."""
WARNING = (
    "Only in an isolated test network, never in a network in use (RFC 6815): the device under test is overloaded on "
    "purpose, again and again."
)


@dataclass(frozen=True)
class Form:
    """How long trials send, and how often they are made. `trials` of `trial_s` decide on a load of the throughput;
    `bursts`: complete searches for the longest burst; `settle_s`: rest before each trial; `drain_s`: the least wait for
    frames in flight."""

    name: str
    trial_s: float
    trials: int
    latency_s: float
    latency_trials: int
    bursts: int
    settle_s: float
    drain_s: float


QUICK = Form("quick", 1.0, 3, 2.0, 1, 2, 0.0, 0.0)
FULL = Form("full", 60.0, 1, 120.0, 20, 50, 5.0, 2.0)

ALWAYS_OTHERWISE = (
    "Latency is of every stamped frame, from when its sender stamps it to when the receiver's kernel takes it, and not "
    "of one tagged frame in each trial (26.2); it has the time on the testers' own links in it, and the bound of two "
    "clocks where the ends are two nodes.",
    "Frames are numbered and stamped in their payload, and have the nodes' own addresses and ports of their own; not "
    "the test frames of appendix C.",
    "Neither system recovery (26.5) nor reset (26.6) is tested, nor the modifiers of section 11 (broadcasts, "
    "management and routing frames, filters); traffic goes the ways that the scenario's streams go.",
    "Loads of the throughput are chosen by MLRsearch: shorter trials look first, the last ones decide.",
)
QUICKLY_OTHERWISE = (
    "Trials of {quick.trial_s:g} s, not {full.trial_s:g} s (24): a device's queue counts as throughput, and rates that "
    "hold for long may be lower.",
    "{quick.trials} trials decide on a load of the throughput, and less than half of them may lose frames (26.1 allows "
    "none).",
    "Latency from {quick.latency_trials} trial of {quick.latency_s:g} s, not {full.latency_trials} of "
    "{full.latency_s:g} s (26.2).",
    "{quick.bursts} searches for the longest burst, not {full.bursts} (26.4).",
    "No {full.settle_s:g} s of rest between trials, and less than {full.drain_s:g} s of wait for the last frames (23).",
)


@dataclass(frozen=True)
class Asked:
    """`medium_l1_bps`: 100 % of the load, bits/s with preamble and gap of all streams together; None: what the
    scenario's streams have."""

    sizes_bytes: tuple[int, ...] = SIZES_BYTES
    tests: tuple[str, ...] = TESTS
    form: Form = QUICK
    medium_l1_bps: float | None = None
    precision: float = 0.005
    longest_burst_s: float = 2.0

    @property
    def deviations(self) -> list[str]:
        """Sentences, with the sections of RFC 2544."""
        found = [text.format(quick=QUICK, full=FULL) for text in QUICKLY_OTHERWISE] if self.form == QUICK else []
        if left := [str(size) for size in SIZES_BYTES if size not in self.sizes_bytes]:
            found.append(f"Frame sizes {', '.join(left)} are left out (9.1).")
        if missing := [name for name in TESTS if name not in self.tests]:
            found.append(f"Not tested, as asked: {', '.join(missing)}.")
        return [*found, *ALWAYS_OTHERWISE]

    @property
    def conformity(self) -> str:
        """A sentence for the top of the page, the terminal and the document."""
        if self.form == QUICK:
            return (
                f"NOT conformant to RFC 2544: the quick form's trials take {QUICK.trial_s:g} s in place of "
                f"{FULL.trial_s:g} s, and are repeated less often. --full takes as long as RFC 2544 asks."
            )
        return "Durations and repetitions of RFC 2544; what is done otherwise is listed as deviations."


def asked(
    where: Path, sizes: str, tests: str, full: bool, medium: str | None, precision: float, longest_burst_s: float
) -> Asked:
    """From the command line's words. BadInput names the option."""
    bps = None if medium is None else float(rate_bps(where, "--max", medium))
    if not 0 < longest_burst_s <= LONGEST_BURST_S:
        allowed = f"more than 0, up to {LONGEST_BURST_S:g} s"
        raise BadInput(
            where, "burst duration out of range", key="--longest-burst", value=longest_burst_s, allowed=allowed
        )
    form = FULL if full else QUICK
    return Asked(_sizes(where, sizes), _tests(where, tests), form, bps, precision, longest_burst_s)


def _sizes(where: Path, text: str) -> tuple[int, ...]:
    allowed = f"{LEAST_SIZE_BYTES} to {LARGEST_SIZE_BYTES} bytes with FCS, separated by commas"
    found = []
    for word in text.split(","):
        if not word.strip().isdecimal() or not LEAST_SIZE_BYTES <= int(word) <= LARGEST_SIZE_BYTES:
            raise BadInput(where, "frame size out of range", key="--sizes", value=word.strip(), allowed=allowed)
        found.append(int(word))
    return tuple(sorted(set(found)))


def _tests(where: Path, text: str) -> tuple[str, ...]:
    """In the order in which they are made."""
    wanted = [word.strip() for word in text.split(",")]
    if unknown := [word for word in wanted if word not in TESTS]:
        raise BadInput(where, "there is no such test", key="--tests", value=unknown[0], allowed=", ".join(TESTS))
    for name in NEEDS_THROUGHPUT:
        if name in wanted and THROUGHPUT not in wanted:
            problem = f"{name} requires throughput"
            raise BadInput(where, problem, key="--tests", value=text, allowed=f"{THROUGHPUT},{name}")
    return tuple(name for name in TESTS if name in wanted)
