"""The process that starts pktgen's threads, and outlives its owner only to stop them.

Writing "start" to pgctrl blocks until every thread is done, and a signal to the writer stops them: but a signal in the
first 100 ms, before they wake up, can be lost, and then they send without end (Linux 6.1; a "stop" likewise). So the
writer is a child of this process, and this process, in a session of its own, watches its standard input: when that
closes, because its owner has ended, it stops the threads and removes the devices.

It uses the standard library only, and is started with -I -S, because every start waits for it.
Arguments: the limit in seconds, then THREAD=DEVICE,DEVICE… for each thread used.
Input, a line each: "start AT_NS [DEVICE=DURATION_NS …]", "stop".
Output, a line each: "ready", "started NS", "ended NS", "stopped NS", "problem TEXT". Times are CLOCK_MONOTONIC.
"""

import os
import re
import select
import signal
import sys
import time

PROC = "/proc/net/pktgen/"
TICK_S = 0.02
STOP_S = 5.0
PR_SET_PDEATHSIG = 1


def say(*parts: object) -> None:
    print(*parts, flush=True)


def write(file: str, command: str) -> None:
    handle = os.open(PROC + file, os.O_WRONLY)
    try:
        os.write(handle, command.encode() + b"\n")
    finally:
        os.close(handle)


def read(file: str) -> str:
    with open(PROC + file) as handle:  # noqa: PTH123 - pathlib costs 20 ms on a small board
        return handle.read()


def started_us(device: str) -> int:
    """Returns the device's start in microseconds; 0 before its thread has started it."""
    found = re.search(r"started: (\d+)us", read(device))
    return int(found[1]) if found else 0


def running(thread: str) -> list[str]:
    return read(thread).split("\n", 1)[0].split()[1:]


class Keeper:
    """Holds the devices of `threads`, which maps a kernel thread to the devices on it."""

    def __init__(self, threads: dict[str, list[str]], limit_s: float) -> None:
        self.threads = threads
        self.devices = [device for devices in threads.values() for device in devices]
        self.limit_s = limit_s
        # Forked in advance: a fork at the start time would delay the start.
        self.writer, self.release = fork_writer()
        self.durations_ns: dict[str, int] = {}
        self.begun = self.ended = False

    def serve(self) -> None:
        """Serves until standard input closes or the limit is over."""
        over_ns = time.monotonic_ns() + int(self.limit_s * 1e9)
        buffered = b""
        while time.monotonic_ns() < over_ns:
            if select.select([0], [], [], self.wait_s())[0]:
                data = os.read(0, 4096)
                if not data:
                    return
                buffered += data
                *lines, buffered = buffered.split(b"\n")
                for line in lines:
                    self.obey(line.decode().split())
            if self.begun and not self.ended:
                self.look()
        say("problem", f"stopped at its limit of {self.limit_s} s")

    def wait_s(self) -> float:
        return TICK_S if self.begun and not self.ended else 1.0

    def obey(self, order: list[str]) -> None:
        if order[0] == "start":
            self.durations_ns = {pair.partition("=")[0]: int(pair.partition("=")[2]) for pair in order[2:]}
            self.start(int(order[1]))
        elif order[0] == "stop":
            self.stop()

    def start(self, at_ns: int) -> None:
        """Sleeps until the start time, then releases the writer. A stop, or the input's end, ends the wait."""
        while (left_ns := at_ns - time.monotonic_ns()) > 0:
            if select.select([0], [], [], left_ns / 1e9)[0]:
                return
        os.write(self.release, b"!")
        self.begun = True
        say("started", time.monotonic_ns())

    def look(self) -> None:
        """Ends the devices whose time is over, and detects that all have ended."""
        starts = {device: started_us(device) for device in self.devices}
        now = time.monotonic_ns()
        sending = {device for thread in self.threads for device in running(thread)}
        for device, duration_ns in list(self.durations_ns.items()):
            if starts[device] and now >= starts[device] * 1000 + duration_ns:
                # pktgen has no command that stops one device; a count that is already reached does. Its answer would
                # stand in the place of the result of one that has ended.
                if device in sending:
                    write(device, "count 1")
                del self.durations_ns[device]
        if all(starts.values()) and not sending:
            self.reap()
            self.ended = True
            say("ended", time.monotonic_ns())

    def stop(self) -> None:
        """Stops every thread; repeats the stop, because one before the thread has started is lost."""
        over_ns = time.monotonic_ns() + int(STOP_S * 1e9)
        while self.begun and not self.ended and time.monotonic_ns() < over_ns:
            write("pgctrl", "stop")
            time.sleep(TICK_S)
            self.look()
        if self.begun and not self.ended:
            say("problem", "threads did not stop")
        say("stopped", time.monotonic_ns())

    def reap(self) -> None:
        if self.writer:
            os.kill(self.writer, signal.SIGKILL)
            os.waitpid(self.writer, 0)
            self.writer = 0

    def remove(self) -> None:
        """Removes the devices, which stops them, even before their start; their counts are no longer needed."""
        self.reap()
        over_ns = time.monotonic_ns() + int(STOP_S * 1e9)
        while time.monotonic_ns() < over_ns:
            left = [thread for thread, devices in self.threads.items() if holds(thread, devices)]
            for thread in left:
                write(thread, "rem_device_all")
            if not left:
                return


def holds(thread: str, devices: list[str]) -> bool:
    return any(name in devices for name in read(thread).split())


def fork_writer() -> tuple[int, int]:
    """A child that blocks in writing "start". Returns its process number and the pipe that lets it begin."""
    waiting, release = os.pipe()
    child = os.fork()
    if child:
        os.close(waiting)
        return child, release
    status = 1
    try:
        import ctypes

        # Die with the keeper: to the kernel that is a signal to the writer, which stops the threads.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(release)
        if os.read(waiting, 1):
            write("pgctrl", "start")
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    # Only the input's end, the limit and SIGKILL end this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    threads = {pair.partition("=")[0]: pair.partition("=")[2].split(",") for pair in sys.argv[2:]}
    keeper = Keeper(threads, float(sys.argv[1]))
    say("ready")
    try:
        keeper.serve()
    finally:
        keeper.remove()


if __name__ == "__main__":
    main()
