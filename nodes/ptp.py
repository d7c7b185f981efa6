"""How PTP steers the clock of this host: the report of ptp4l, by linuxptp's management client `pmc`. Needs root."""

from __future__ import annotations

import re
import subprocess
import time

from pktswarm.traffic.protocol.ptp_reading import SYNCHRONIZED, PtpReading

DATA_SETS = ("PORT_DATA_SET", "TIME_STATUS_NP", "CURRENT_DATA_SET")
PMC_TIMEOUT_S = 1.0


def read() -> PtpReading:
    command = ["pmc", "-u", "-b", "0", *(f"GET {name}" for name in DATA_SETS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PMC_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return PtpReading(tai_offset_s(), "linuxptp is not installed")
    except subprocess.TimeoutExpired:
        return PtpReading(tai_offset_s(), f"pmc did not end within {PMC_TIMEOUT_S:.0f} s")
    return parse(done.stdout, tai_offset_s())


def tai_offset_s() -> int:
    """TAI - UTC of the kernel; 0 where nothing has set it."""
    apart_ns = time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(time.CLOCK_REALTIME)
    return round(apart_ns / 1e9)


def parse(text: str, offset_s: int) -> PtpReading:
    """`text`: output of pmc, a line for each field of a data set. A boundary clock has several ports."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r"^\s+(\w+)\s+(\S+)$", text, re.MULTILINE):
        fields.setdefault(name, []).append(value)
    states = fields.get("portState", [])
    if not states or not all(name in fields for name in ("master_offset", "gmIdentity", "meanPathDelay")):
        return PtpReading(offset_s, "no ptp4l answers")
    state = next((each for each in SYNCHRONIZED if each in states), states[0])
    problem = "" if state in SYNCHRONIZED else f"the port of ptp4l is {state}"
    follows = state == "SLAVE"
    offset_ns = int(fields["master_offset"][0]) if follows else 0
    path_delay_ns = round(float(fields["meanPathDelay"][0])) if follows else 0
    return PtpReading(offset_s, problem, state, fields["gmIdentity"][0], offset_ns, path_delay_ns)
