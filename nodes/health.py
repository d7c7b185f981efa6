"""The health of a board: clock, processors, temperature and disk. None: not reported. Needs no root."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
ZONES = Path("/sys/class/thermal")
VCGENCMD_TIMEOUT_S = 1.0
STA_UNSYNC = 0x40
_TIMEX_BYTES, _STATUS_AT = 512, 40
"""struct timex (linux/timex.h) is shorter; where `status` stands with words of 8 bytes, with 4 at half of it."""


@dataclass(frozen=True)
class Zone:
    """A thermal zone. `passive_c`: where the kernel begins to slow down; `critical_c`: where it switches off."""

    name: str
    celsius: float
    passive_c: float | None
    critical_c: float | None


@dataclass(frozen=True)
class Health:
    governors: list[str]
    zones: list[Zone]
    throttled: int | None
    clock_synchronised: bool | None
    free_bytes: int
    spools: str


def report(spools: Path) -> Health:
    free_bytes = shutil.disk_usage(spools).free
    return Health(governors(), zones(), throttled(), clock_synchronised(), free_bytes, str(spools))


def governors(cpus: Path = CPUS) -> list[str]:
    """The governors in use, each once; empty where the kernel does not change clocks."""
    return sorted({path.read_text().strip() for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")})


def zones(folder: Path = ZONES) -> list[Zone]:
    found = []
    for zone in sorted(folder.glob("thermal_zone*")):
        with contextlib.suppress(OSError, ValueError):  # a sensor may be asleep
            limits: dict[str, float] = {}
            for kind in sorted(zone.glob("trip_point_*_type")):
                at_c = int(kind.with_name(kind.name.replace("_type", "_temp")).read_text()) / 1000
                name = kind.read_text().strip()
                limits[name] = min(at_c, limits.get(name, at_c))
            name, celsius = (zone / "type").read_text().strip(), int((zone / "temp").read_text()) / 1000
            found.append(Zone(name, celsius, limits.get("passive"), limits.get("critical")))
    return found


def throttled() -> int | None:
    """The bits of a Raspberry Pi's vcgencmd get_throttled: 0 to 3 now, 16 to 19 since it started."""
    tool = shutil.which("vcgencmd")
    if tool is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        asked = [tool, "get_throttled"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=VCGENCMD_TIMEOUT_S, check=True)
        return int(done.stdout.strip().split("=")[1], 16)
    return None


def clock_synchronised() -> bool | None:
    """Whether NTP, PTP or the like steers the clock, as the kernel reports."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        return None
    at = _STATUS_AT * ctypes.sizeof(ctypes.c_long) // 8
    return not int.from_bytes(timex.raw[at : at + 4], "little") & STA_UNSYNC
