"""/proc/net/pktgen: write a command, read back its answer; and what the kernel's figures mean.

The folder belongs to the network namespace of the process that opens it.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from pktswarm.traffic.errors import EngineError

PROC = Path("/proc/net/pktgen")
ENGINE = "pktgen"
ENOTSUPP = 524
"""The kernel's own number for "this driver cannot"; it has no name in user space."""


@dataclass(frozen=True)
class Thread:
    """One kernel thread: the devices it holds."""

    running: list[str]
    stopped: list[str]

    @property
    def devices(self) -> list[str]:
        return self.running + self.stopped


@dataclass(frozen=True)
class Device:
    """What the kernel says of one device. Times are microseconds of CLOCK_MONOTONIC; 0 before its first run."""

    sent_packets: int
    error_packets: int
    started_us: int
    stopped_us: int
    result: str
    """"Idle", "Starting", the answer to the last command, or after a run "OK: …" with the figures below."""
    result_packets: int | None = None
    frame_bytes: int | None = None
    """Size of the last frame, without FCS."""
    elapsed_us: float | None = None
    rate_pps: int | None = None
    size_counts: tuple[tuple[int, int], ...] = ()
    """With imix_weights: (size without FCS, frames built)."""


_COUNTS = re.compile(r"pkts-sofar: (\d+)\s+errors: (\d+)")
_STAMPS = re.compile(r"started: (\d+)us\s+stopped: (\d+)us")
_RESULT = re.compile(r"^Result: (.*)", re.M | re.S)
_OK = re.compile(r"OK: (\d+)\(c\d+\+d\d+\) ([un])sec, (\d+) \((\d+)byte,-?\d+frags\)\s+(\d+)pps .*errors: (\d+)", re.S)
_SIZES = re.compile(r"imix_size_counts: ([\d, ]+)")
_THREAD = re.compile(r"Running:(.*)\nStopped:(.*)\n")


def parse_thread(text: str) -> Thread:
    """A kpktgend_N file."""
    found = _THREAD.search(text)
    if not found:
        raise EngineError(ENGINE, "a thread's file cannot be read", text)
    return Thread(found[1].split(), found[2].split())


def parse_device(text: str) -> Device:
    """A device's file, in the formats of kernels 3.x to 6.x (their Result is in µs, that of older ones in ns)."""
    counts, stamps, result = _COUNTS.search(text), _STAMPS.search(text), _RESULT.search(text)
    if not (counts and stamps and result):
        raise EngineError(ENGINE, "a device's file cannot be read", text)
    device = Device(int(counts[1]), int(counts[2]), int(stamps[1]), int(stamps[2]), result[1].strip())
    done = _OK.match(device.result)
    if not done:
        return device
    if (int(done[3]), int(done[6])) != (device.sent_packets, device.error_packets):
        raise EngineError(ENGINE, "the Result disagrees with the counters", text)
    sizes = _SIZES.search(text)
    pairs = [pair.split(",") for pair in sizes[1].split()] if sizes else []
    return Device(
        **{
            **vars(device),
            "result_packets": int(done[3]),
            "frame_bytes": int(done[4]),
            "elapsed_us": int(done[1]) / (1 if done[2] == "u" else 1000),
            "rate_pps": int(done[5]),
            "size_counts": tuple((int(size), int(count)) for size, count in pairs),
        }
    )


def threads() -> dict[str, Thread]:
    """Every kernel thread of this network namespace, by name, in the order of their CPUs."""
    names = sorted((path.name for path in PROC.glob("kpktgend_*")), key=lambda name: int(name.rpartition("_")[2]))
    return {name: parse_thread((PROC / name).read_text()) for name in names}


def device(name: str) -> Device:
    return parse_device((PROC / name).read_text())


def write(file: str, command: str) -> None:
    """One command, without a look at the answer. Raises EngineError when the kernel refuses it."""
    line = f"{command}\n".encode()
    try:
        handle = os.open(PROC / file, os.O_WRONLY)
        try:
            written = os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        reason = "the driver cannot do this" if error.errno == ENOTSUPP else os.strerror(error.errno or errno.EIO)
        raise EngineError(ENGINE, f"{file} refused {command!r}: {reason}") from error
    if written != len(line):
        raise EngineError(ENGINE, f"{file} took only {written} of {len(line)} bytes of {command!r}")


def command(file: str, command: str) -> None:
    """One command; its answer is read back and must say what was asked for."""
    write(file, command)
    text = (PROC / file).read_text()
    found = _RESULT.search(text)
    answer = found[1].strip() if found else ""
    if not answered(command, answer, text):
        raise EngineError(ENGINE, f"{file} answered {answer!r} to {command!r}", text)


def answered(command: str, answer: str, text: str) -> bool:
    """Does the answer confirm the command? `text` is the whole file, for the command that has no answer of its own."""
    name, _, value = command.partition(" ")
    match name:
        case "imix_weights":
            return f"imix_weights: {value} \n" in text
        case "flag":
            return answer.startswith("OK: flags=") and value in _flags(text)
        case "src_mac" | "dst_mac":
            return answer == f"OK: {name.replace('_', '')} {value.lower()}"
        case "ratep":
            return answer == f"OK: rate={value}"
        case "tos" | "traffic_class":
            return answer == f"OK: {name}=0x{value}"
        case "dst6" | "src6" | "dst6_min" | "dst6_max":
            return answer.startswith(f"OK: {name}=") and IPv6Address(answer.partition("=")[2]) == IPv6Address(value)
        case "rem_device_all":
            return answer == "OK: rem_device_all"
        case _:
            return answer == f"OK: {name}={value}"


def _flags(text: str) -> list[str]:
    found = re.search(r"Flags: (.*)", text)
    # FLOW_SEQ is shown only once there are flows.
    return [*found[1].split(), "FLOW_SEQ"] if found else []
