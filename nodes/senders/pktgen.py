"""pktgen, the kernel's own generator, through /proc/net/pktgen.

A leg becomes one device ("eth1@0") on each kernel thread that it asks for. A small process (pktgen_keeper) holds the
start, and ends the sending whatever happens to the guard. pktgen has one user in a network namespace: "start" and
"stop" reach every device there, so devices of someone else are refused, never reset.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pktswarm.nodes.engine import Sender
from pktswarm.nodes.senders import pktgen_keeper, pktgen_module, pktgen_proc
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import SendCount, SendTask
from pktswarm.traffic.schedule.pktgen import device_commands, shares
from pktswarm.traffic.schedule.pktgen_limits import unable

__all__ = ["PktgenSender", "unable"]

READY_S = 10.0
STOP_S = 6.0


@dataclass(frozen=True)
class Share:
    """One thread's part of a leg."""

    leg: Leg
    device: str
    thread: str
    count_packets: int


class PktgenSender(Sender):
    name: ClassVar[str] = "pktgen"

    def __init__(self, task: SendTask, spool: Path) -> None:
        super().__init__(task, spool)
        self.shares: list[Share] = []
        self.added: list[Share] = []
        self.log = spool / "pktgen.log"
        self.module = pktgen_module.Module()
        self._keeper: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        for leg in self.task.legs:
            if reason := unable(leg):
                raise BadInput(leg.stream, reason, key="engine", value="pktgen")
        self.module.load()
        threads = pktgen_proc.threads()
        _refuse_others(threads)
        self.shares = plan(self.task, list(threads))
        for share in self.shares:
            self._add(share)
        self._hold()

    def _add(self, share: Share) -> None:
        pktgen_proc.command(share.thread, f"add_device {share.device}")
        self.added.append(share)
        for command in device_commands(share.leg, share.count_packets):
            try:
                pktgen_proc.command(share.device, command)
            except EngineError as error:
                if command.startswith(("clone_skb", "burst")) and "driver" in error.problem:
                    raise _not_here(self.task.interface, command) from error
                raise

    def _hold(self) -> None:
        """Start the keeper now, so that the start itself is only a line written to it."""
        held: dict[str, list[str]] = {}
        for share in self.shares:
            held.setdefault(share.thread, []).append(share.device)
        groups = [f"{thread}={','.join(devices)}" for thread, devices in held.items()]
        command = [sys.executable, "-I", "-S", pktgen_keeper.__file__, f"{self.task.limit_s:.3f}", *groups]
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        if not self._await("ready", READY_S):
            raise EngineError(self.name, f"its keeper was not ready within {READY_S:.0f} s", self._output())

    def start(self, at_ns: int) -> None:
        lasting = [share for share in self.shares if share.leg.duration_s is not None and _timed(share.leg)]
        durations = [f"{share.device}={int((share.leg.duration_s or 0) * 1e9)}" for share in lasting]
        self._send_line(" ".join(["start", str(at_ns), *durations]))

    def done(self) -> bool:
        return self._keeper is not None and (self._keeper.poll() is not None or self._report("ended") is not None)

    def sample(self) -> dict[int, dict[str, int | None]]:
        sent: dict[int, int] = {}
        for share in self.added:
            sent[share.leg.id] = sent.get(share.leg.id, 0) + pktgen_proc.device(share.device).sent_packets
        return {leg: {"sent_packets": packets} for leg, packets in sent.items()}

    def stop(self) -> None:
        if self._keeper is None or self._report("stopped") is not None:
            return
        with contextlib.suppress(EngineError, OSError):  # a keeper that is gone has stopped them, or dies doing it
            self._send_line("stop")
        self._await("stopped", STOP_S)
        running = [device for thread in pktgen_proc.threads().values() for device in thread.running]
        if running:
            raise EngineError(self.name, f"still sending after a stop: {', '.join(running)}", self._output())

    def restore(self) -> None:
        """Let the keeper remove the devices; do it here if there is none (prepare failed, or it was killed)."""
        try:
            if self._keeper is not None and self._keeper.stdin is not None:
                self._keeper.stdin.close()
                self._keeper.wait(2 * STOP_S)
            for thread in dict.fromkeys(share.thread for share in self.added):
                _remove(thread, [share.device for share in self.added if share.thread == thread])
            self.added = []
        finally:
            self.module.unload()

    def counts(self) -> list[SendCount]:
        problem = self._report("problem")
        if problem or self._keeper is None or self._keeper.poll() not in (None, 0):
            raise EngineError(self.name, problem or "its keeper died", self._output())
        return [self._count(leg) for leg in self.task.legs]

    def _count(self, leg: Leg) -> SendCount:
        texts = [(pktgen_proc.PROC / share.device).read_text() for share in self.shares if share.leg is leg]
        return count_of_devices(leg, texts)

    def _send_line(self, line: str) -> None:
        if self._keeper is None or self._keeper.stdin is None or self._keeper.poll() is not None:
            raise EngineError(self.name, "its keeper is not running", self._output())
        self._keeper.stdin.write(line.encode() + b"\n")
        self._keeper.stdin.flush()

    def _report(self, event: str) -> str | None:
        """Returns the text after `event` in the keeper's log; None when it has not reported the event."""
        lines = [line for line in self._output().splitlines() if line.split(" ", 1)[0] == event]
        return lines[-1].partition(" ")[2] or event if lines else None

    def _output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _await(self, event: str, seconds: float) -> bool:
        """Waits until the keeper reports `event`; returns whether it does within `seconds` and before it ends."""
        deadline = time.monotonic() + seconds
        while self._report(event) is None:
            if self._keeper is None or self._keeper.poll() is not None or time.monotonic() > deadline:
                return self._report(event) is not None
            time.sleep(0.005)
        return True


def plan(task: SendTask, threads: list[str]) -> list[Share]:
    """A device for each thread that each leg asks for, legs taking up the kernel's threads in turn."""
    planned: list[Share] = []
    for leg in task.legs:
        counts = shares(leg)
        if len(counts) > len(threads):
            raise BadInput(
                leg.stream,
                "more threads than CPUs on this node",
                key="options.threads",
                value=len(counts),
                allowed=f"1 to {len(threads)}",
            )
        for count in counts:
            index = len(planned)
            planned.append(Share(leg, f"{task.interface}@{index}", threads[index % len(threads)], count))
    return planned


def _timed(leg: Leg) -> bool:
    """Is the clock what ends this leg? With a rate its count does: what is due in the duration."""
    return leg.duration_s is not None and leg.rate_pps is None


def _refuse_others(threads: dict[str, pktgen_proc.Thread]) -> None:
    if not threads:
        raise EngineError("pktgen", "the kernel started no thread in this network namespace")
    held = {name: thread.devices for name, thread in threads.items() if thread.devices}
    if held:
        found = "; ".join(f"{', '.join(devices)} on {name}" for name, devices in held.items())
        raise EngineError(
            "pktgen",
            f"someone else uses pktgen in this network namespace: {found} "
            "(when that is over: echo reset > /proc/net/pktgen/pgctrl)",
        )


def _not_here(interface: str, command: str) -> BadInput:
    option, _, value = command.partition(" ")
    allowed = "0" if option == "clone_skb" else "1"
    problem = "this interface's driver does not let pktgen send one buffer again and again"
    return BadInput(interface, problem, key=f"options.{option}", value=int(value), allowed=allowed)


def _remove(thread: str, devices: list[str]) -> None:
    """The kernel's command takes every device of the thread: there are none but ours (prepare saw to it)."""
    deadline = time.monotonic() + STOP_S
    while set(pktgen_proc.threads().get(thread, pktgen_proc.Thread([], [])).devices) & set(devices):
        if time.monotonic() > deadline:
            raise EngineError("pktgen", f"{thread} does not let go of {', '.join(devices)}")
        pktgen_proc.command(thread, "rem_device_all")


def count_of_devices(leg: Leg, texts: list[str]) -> SendCount:
    """One leg's count from its devices' files. Raises EngineError unless every one of them ran and ended."""
    devices = [pktgen_proc.parse_device(text) for text in texts]
    for device, text in zip(devices, texts, strict=True):
        if device.started_us and device.result_packets is None:
            raise EngineError("pktgen", f"no result: {device.result or 'empty'}", text)
    ran = [device for device in devices if device.started_us]
    return SendCount(
        leg=leg.id,
        engine="pktgen",
        sent_packets=sum(device.sent_packets for device in ran),
        sent_bytes=_bytes(leg, ran),
        failed_packets=sum(device.error_packets for device in ran),
        seconds=max((device.elapsed_us or 0) / 1e6 for device in ran) if ran else None,
        started_ns=min(device.started_us for device in ran) * 1000 if ran else None,
        ended_ns=max(device.stopped_us for device in ran) * 1000 if ran else None,
        note="" if len(ran) == len(devices) else f"{len(devices) - len(ran)} of {len(devices)} threads never started",
        output="\n".join(device.result for device in devices),
    )


def _bytes(leg: Leg, devices: list[pktgen_proc.Device]) -> int | None:
    """Bytes without FCS. Frames of several sizes are counted as they are built, and the last may not have been sent."""
    total = 0
    for device in devices:
        if device.size_counts:
            if sum(count for _, count in device.size_counts) != device.sent_packets:
                return None
            total += sum(size * count for size, count in device.size_counts)
        elif "TXSIZE_RND" in leg.options.get("flags", []):
            return None
        else:
            total += device.sent_packets * (device.frame_bytes or 0)
    return total
