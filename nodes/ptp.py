"""How PTP steers the clock of this host: the report of ptp4l, by linuxptp's management client `pmc`. Needs root."""

from __future__ import annotations

import re
import subprocess
import time

from pktswarm.traffic.protocol.ptp_reading import SYNCHRONIZED, PtpReading

DATA_SETS = ("PORT_PROPERTIES_NP", "TIME_STATUS_NP", "CURRENT_DATA_SET")
FIELDS = ("portState", "timestamping", "master_offset", "gmIdentity", "meanPathDelay")
NO_ANSWER = "no ptp4l answers"
PMC_TIMEOUT_S = 3.0
"""The slowest node that was tried, an emulated ARM that prepared a run, took more than 1 s."""
TRIES = 3
"""pmc waits for 0.1 s after its last question, and a busy node can answer later."""


def read() -> PtpReading:
    command = ["pmc", "-u", "-b", "0", *(f"GET {name}" for name in DATA_SETS)]
    for _ in range(TRIES):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PMC_TIMEOUT_S, check=False)
        except FileNotFoundError:
            return PtpReading(tai_offset_s(), "linuxptp is not installed")
        except subprocess.TimeoutExpired:
            return PtpReading(tai_offset_s(), f"pmc did not end within {PMC_TIMEOUT_S:.0f} s")
        except OSError as error:
            return PtpReading(tai_offset_s(), f"pmc does not start: {error.strerror}")
        reading = parse(done.stdout, tai_offset_s())
        if reading.problem != NO_ANSWER:
            break
    return reading


def tai_offset_s() -> int:
    """TAI - UTC of the kernel; 0 where nothing has set it."""
    apart_ns = time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(time.CLOCK_REALTIME)
    return round(apart_ns / 1e9)


def parse(text: str, offset_s: int) -> PtpReading:
    """`text`: output of pmc, a line for each field of a data set. A boundary clock has several ports.

    With hardware time stamps ptp4l steers the clock of the card, and phc2sys the system's by it: what ptp4l reports is
    then no offset of CLOCK_TAI.
    """
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r"^\s+(\w+)\s+(\S+)$", text, re.MULTILINE):
        fields.setdefault(name, []).append(value)
    if not all(name in fields for name in FIELDS):
        return PtpReading(offset_s, NO_ANSWER)
    states = fields["portState"]
    state = next((each for each in SYNCHRONIZED if each in states), states[0])
    problem = "" if state in SYNCHRONIZED else f"the port of ptp4l is {state}"
    if not problem and {*fields["timestamping"]} != {"SOFTWARE"}:
        problem = "ptp4l steers the clock of the card, and phc2sys the system's"
    try:
        offset_ns, path_delay_ns = int(fields["master_offset"][0]), round(float(fields["meanPathDelay"][0]))
    except ValueError:
        return PtpReading(offset_s, "pmc's answer has no number as offset or path delay")
    if state != "SLAVE":  # those of a clock that it followed before
        offset_ns = path_delay_ns = 0
    return PtpReading(offset_s, problem, state, fields["gmIdentity"][0], offset_ns, path_delay_ns)
