"""Runs in which something fails at a random moment; after each, whether the house was left in order.

    sudo .venv/bin/python bench/chaos.py --runs 100 --seed 1
    sudo .venv/bin/python bench/chaos.py --runs 100 --seed 1 --standing

Each run in a lab of two transmitters and two receivers meets one failure of KINDS, the kinds in turn, each at a random
moment from the launch to the end. After it must hold: the sums of the report are what the interfaces counted; a rank
that died or froze when the receivers were armed cost nobody else's counts; nothing is left on the nodes (processes,
folders, XDP programs, changed offloads), and nothing sends; the exit status is 3, or 0 where the failure came too late
or does not end a run and all is counted; and a run without an end can be reported.
With --standing the runs use a cluster that stays up, by its loaded process. The failure comes before the command, while
the run is handed over, or in the run; a second run, undisturbed, must be whole: it starts what is missing.
Prints what did not hold, with its seed, and a table by kind. Exit status 1 if anything did not. It does to a lab what
tests/lab does, so it needs the tests' packages: `./bootstrap test --version` installs them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lab"))
from failures import (
    Packets,
    control_link_cut,
    disagreements,
    disk_full,
    engines,
    everything_of_a_run,
    go_dark,
    guards,
    inside,
    launchers,
    logins,
    packets,
    power_off,
    shrink_disk,
    traffic_link_down,
    wait_until,
)
from pktswarm import lab
from run_cluster import PKTSWARM, STOP_S, Cluster, network_of, parent_of, pids_of, rank_of

TEXT = """receive: {ring_mib: 4}
streams: [{name: s, size_bytes: 512, rate_pps: 2000, count_packets: 6000}]"""
LATEST_S = 9.0
"""After the command: a run of that scenario takes 6 to 8 s when the machine is quiet."""
EARLIEST_STANDING_S, LATEST_STANDING_S = -1.0, 5.0
"""Before and after the command, in a cluster that is up."""
PATIENCE_S = 90.0
DOWN_S, REBOOT_S = 0.5, 1.5
NODES = ("tx1", "tx2", "rx1", "rx2")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - looked at, for what a run leaves there

LOADED = "from pktswarm.master.cli.preloaded import main; main() "
Failure = Callable[[Cluster, subprocess.Popen[str], random.Random], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def _nothing(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    yield


def _signal_rank(role: str, number: signal.Signals) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        with contextlib.suppress(ValueError, OSError):  # it is not there yet, or no more
            os.kill(rank_of(cluster, rng.choice([f"{role}1", f"{role}2"])), number)
        yield

    return fail


def _signal_on_master(words: str, number: signal.Signals) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        for pid in pids_of(words, network_of(cluster, "m0")):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        yield

    return fail


def _signal_rank_0(number: signal.Signals) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        with contextlib.suppress(ValueError, OSError):
            os.kill(rank_of(cluster, "m0", "-m pktswarm.master.run.rank0"), number)
        yield

    return fail


def _signal_on_node(found: Callable[[Cluster, str], list[int]], number: signal.Signals) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        with contextlib.suppress(OSError):
            for pid in found(cluster, rng.choice(NODES)):
                os.kill(pid, number)
        yield

    return fail


@contextlib.contextmanager
def _kill_node(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    for pid in everything_of_a_run(cluster, rng.choice(NODES)):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    yield


@contextlib.contextmanager
def _power_off(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    power_off(cluster, rng.choice(NODES))
    yield


@contextlib.contextmanager
def _reboot(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    """As the others see it: no word of its end, and later an address that answers, and knows of nothing."""
    node = rng.choice(NODES)
    go_dark(cluster, node)
    for pid in everything_of_a_run(cluster, node):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(REBOOT_S)
    go_dark(cluster, node, up=True)
    yield


def _interrupt(times: int) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        for _ in range(times):
            run.send_signal(signal.SIGINT)
            time.sleep(0.05)
        yield

    return fail


def _signal_engine(node: str, program: str, number: signal.Signals) -> Failure:
    @contextlib.contextmanager
    def fail(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
        with contextlib.suppress(OSError):
            for pid in engines(cluster, node, program):
                os.kill(pid, number)
        yield

    return fail


@contextlib.contextmanager
def _cut(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    with control_link_cut(cluster, rng.choice(NODES)):
        yield  # to the end of the run


@contextlib.contextmanager
def _link(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    with traffic_link_down(cluster, rng.choice(["tx1", "tx2"])):
        time.sleep(DOWN_S)
    yield


@contextlib.contextmanager
def _full(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    with disk_full(cluster, "rx1"):
        yield  # to the end of the run


@contextlib.contextmanager
def _kill_command(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    run.kill()
    yield


@contextlib.contextmanager
def _kill_loaded(cluster: Cluster, run: subprocess.Popen[str], rng: random.Random) -> Iterator[None]:
    """And not its copies, which have its command line, and are its children."""
    loaded = {pid: parent_of(pid) for pid in pids_of(f"{LOADED}{cluster.hosts.resolve()}")}
    for pid, parent in loaded.items():
        if parent not in loaded:
            os.kill(pid, signal.SIGKILL)
    yield


KINDS: dict[str, Failure] = {
    "nothing": _nothing,
    "transmitter's rank killed": _signal_rank("tx", signal.SIGKILL),
    "receiver's rank killed": _signal_rank("rx", signal.SIGKILL),
    "transmitter's rank frozen": _signal_rank("tx", signal.SIGSTOP),
    "receiver's rank frozen": _signal_rank("rx", signal.SIGSTOP),
    "guard terminated": _signal_on_node(guards, signal.SIGTERM),
    "guard killed": _signal_on_node(guards, signal.SIGKILL),
    "guard frozen": _signal_on_node(guards, signal.SIGSTOP),
    "control link cut": _cut,
    "traffic link down and up": _link,
    "mpiexec killed": _signal_on_master("mpiexec -launcher", signal.SIGKILL),
    "mpiexec frozen": _signal_on_master("mpiexec -launcher", signal.SIGSTOP),
    "proxy killed": _signal_on_node(launchers, signal.SIGKILL),
    "logins killed": _signal_on_node(logins, signal.SIGKILL),
    "node killed": _kill_node,
    "node powered off": _power_off,
    "node rebooted": _reboot,
    "rank 0 killed": _signal_rank_0(signal.SIGKILL),
    "rank 0 frozen": _signal_rank_0(signal.SIGSTOP),
    "command line killed": _kill_command,
    "Ctrl-C": _interrupt(1),
    "Ctrl-C twice": _interrupt(2),
    "disk full": _full,
    "capture killed": _signal_engine("rx1", "netsniff-ng", signal.SIGKILL),
    "capture frozen": _signal_engine("rx1", "netsniff-ng", signal.SIGSTOP),
}


KINDS_STANDING: dict[str, Failure] = KINDS | {
    "cluster's daemon killed": _signal_on_master("-m pktswarm.master.run.cluster_daemon", signal.SIGKILL),
    "cluster's daemon terminated": _signal_on_master("-m pktswarm.master.run.cluster_daemon", signal.SIGTERM),
    "loaded process killed": _kill_loaded,
}


NODE_LOST = ("node killed", "node powered off", "node rebooted", "guard killed", "guard frozen")
COSTS_ITS_OWN = ("mpiexec killed", "mpiexec frozen", "proxy killed", "logins killed", *NODE_LOST)
MENDED = ("node killed", "node rebooted", "guard killed", "guard frozen")
"""What the guard had changed is for the next one to put back."""


class Chaos:
    """One lab, many runs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.bring_up()

    def bring_up(self) -> None:
        self.cluster = Cluster(self.folder, "c")
        self.scenario = self.cluster.scenario(TEXT)
        shrink_disk(self.cluster, "rx1", 64)
        self.settings, self.temporary = self._settings(), self._temporary()

    def take_down(self) -> None:
        lab.down(self.cluster.name, self.cluster.folder)

    def run(self, number: int, kind: str) -> list[str]:
        """What did not hold."""
        rng = random.Random(f"{self.seed} {number}")  # noqa: S311 - a seed makes it repeatable
        at_s = self._moment(kind, rng)
        first = packets(self.cluster)
        run, progress, out, err = self._disturbed(KINDS_STANDING[kind], at_s, rng)
        armed = progress.armed_before_the_failure
        found = (
            [] if run.returncode in (0, 2, 3) or kind == "command line killed" else [f"exit {run.returncode}: {err}"]
        )
        if kind == "nothing" and run.returncode:
            found.append(f"exit {run.returncode} of a run that nothing disturbed: {err[-500:]}")
        # The guards of a node that heard no word of its end are a while later than the others'.
        wait_until(self._is_still, STOP_S)
        after = packets(self.cluster)
        if kind in MENDED:
            self._mend()
        found += self._behind_it(kind)
        document = json.loads(out) if out else None
        if document is not None:
            found += disagreements(document, progress.before or first, after, "link" in kind or kind in NODE_LOST)
            found += self._status(document, run.returncode)
            found += self._others(document) if armed and ("'s rank" in kind or kind in COSTS_ITS_OWN) else []
        found += self._report()
        if kind == "node powered off":
            self.take_down()
            self.bring_up()
        return [f"at {at_s:.2f} s ({progress.phase}): {one}" for one in found]

    def _moment(self, kind: str, rng: random.Random) -> float:
        """Seconds after the command."""
        return rng.uniform(0.2, LATEST_S)

    def _disturbed(
        self, failure: Failure, at_s: float, rng: random.Random
    ) -> tuple[subprocess.Popen[str], _Progress, str, str]:
        """A run that meets a failure: its process, what it said of its phases, and its output and errors."""
        begun = time.monotonic()
        run = self.cluster.start(self.scenario, "--json")
        progress = _Progress(run, self.cluster)
        progress.follow(begun + at_s)
        progress.armed_before_the_failure = progress.before is not None
        with failure(self.cluster, run, rng):
            return run, progress, *progress.end()

    def _is_still(self) -> bool:
        return not self._guards() and not self._programs()

    def _behind_it(self, kind: str) -> list[str]:
        return self._left_behind()

    def _guards(self) -> list[int]:
        return [pid for node in self.cluster.nodes() if node != "m0" for pid in guards(self.cluster, node)]

    def _mend(self) -> None:
        """As its user would; it tries the transmitters' interfaces, with a few frames."""
        command = [sys.executable, "-m", "pktswarm", "doctor", "--mend", "--hosts", str(self.cluster.hosts)]
        subprocess.run(command, capture_output=True, check=False)

    def _left_behind(self) -> list[str]:
        """And that nothing sends any more."""
        wait_until(lambda: not self.cluster.left_behind() and not self._programs(), STOP_S)
        found = [f"left behind: {one}" for one in self.cluster.left_behind()]
        found += [f"changed: {one}" for one in sorted(self._settings() - self.settings)]
        found += [f"left behind: {one}" for one in sorted(self._temporary() - self.temporary)]
        found += [f"an XDP program is left on {node}" for node in self._programs()]
        before = packets(self.cluster)
        time.sleep(0.3)
        return found + (["somebody sends"] if packets(self.cluster) != before else [])

    def _settings(self) -> set[str]:
        """Of the traffic interfaces, as ethtool shows them."""
        nodes = [node for node in self.cluster.nodes() if node != "m0"]
        shown = {node: inside(self.cluster, node, "ethtool", "-k", "eth1") for node in nodes}
        return {f"{node}: {line}" for node, text in shown.items() for line in text.splitlines()}

    @staticmethod
    def _temporary() -> set[str]:
        return {str(path) for folder in TEMPORARY for path in folder.iterdir()}

    def _programs(self) -> list[str]:
        # A node that was powered off has no network any more.
        pids = self.cluster.state.keeper.pids
        nodes = [node for node in self.cluster.nodes() if node != "m0" and Path(f"/proc/{pids[node]}/ns/net").exists()]
        return [node for node in nodes if "prog/xdp" in inside(self.cluster, node, "ip", "link", "show")]

    def _status(self, document: dict[str, Any], status: int) -> list[str]:
        missing = [row for row in document["rows"] if row["sent_packets"] is None or row["received_packets"] is None]
        if (missing or document["doubts"]) and status != 3:
            return [f"exit {status}, with counts missing or in doubt: {document['doubts']}"]
        # That nodes were restored is promised too: rank 0 may be killed when all counts are in.
        is_named = any(words in document["reason"] for words in ("user", "in phase 'restore'", "taken down"))
        if not missing and not document["doubts"] and status == 3 and not is_named:
            return [f"exit 3 of a whole run: {document['reason']}"]
        return []

    @staticmethod
    def _others(document: dict[str, Any]) -> list[str]:
        """Who is not named has sent everything, and where no receiver is, it has all arrived."""
        reason = document["reason"]
        counts = ["sent_packets"] + ["received_packets"] * ("(receive)" not in reason)
        rows = [row for row in document["rows"] if f"{row['from']} (transmit)" not in reason]
        return [
            f"{row['from']}: {count} is {row[count]} of {row['intended_packets']}: {reason}"
            for row in rows
            for count in counts
            if row[count] != row["intended_packets"]
        ]

    def _report(self) -> list[str]:
        """Of what the run left, if it got so far that there is a folder."""
        results = self.cluster.results()
        found = []
        for folder in results:
            made = subprocess.run(
                [sys.executable, "-m", "pktswarm", "report", str(folder)],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                found.append(f"no report: {made.stderr}")
            subprocess.run(["rm", "-r", str(folder)], check=True)
        return found


class StandingChaos(Chaos):
    """With a cluster that is up before each of the runs, and ended behind it."""

    def bring_up(self) -> None:
        super().bring_up()
        self._order("up")

    def _order(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [PKTSWARM, "cluster", *words, "--hosts", self.cluster.hosts]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _moment(self, kind: str, rng: random.Random) -> float:
        of_the_command = kind.startswith(("Ctrl-C", "command line"))
        return rng.uniform(0.05 if of_the_command else EARLIEST_STANDING_S, LATEST_STANDING_S)

    def _disturbed(
        self, failure: Failure, at_s: float, rng: random.Random
    ) -> tuple[subprocess.Popen[str], _Progress, str, str]:
        with contextlib.ExitStack() as stack:
            if at_s < 0:
                nobody = subprocess.Popen(["true"], text=True)
                stack.enter_context(failure(self.cluster, nobody, rng))
                nobody.wait()
                time.sleep(-at_s)
            run, begun = self._start(), time.monotonic()
            progress = _Progress(run, self.cluster)
            if at_s >= 0:
                progress.follow(begun + at_s)
                progress.armed_before_the_failure = progress.before is not None
                stack.enter_context(failure(self.cluster, run, rng))
            return run, progress, *progress.end()

    def _start(self) -> subprocess.Popen[str]:
        """By the loaded process, which forked.popen() would leave aside."""
        words = ["run", self.scenario, "--hosts", self.cluster.hosts, "--results", self.cluster.folder / "results"]
        command = [str(word) for word in (PKTSWARM, *words, "--no-report", "--json")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _is_still(self) -> bool:
        return not self._programs()

    def _behind_it(self, kind: str) -> list[str]:
        """A second run, which must be whole, and the end of the cluster."""
        found = [] if kind == "node powered off" else self._second_run()
        ended = self._order("down", "--now")
        found += [f"cluster down: {ended.stderr}"] if ended.returncode else []
        found += self._left_behind()
        wait_until(lambda: not pids_of(f"{LOADED}{self.cluster.hosts.resolve()}"), STOP_S)
        found += ["the loaded process is left"] * bool(pids_of(f"{LOADED}{self.cluster.hosts.resolve()}"))
        begun = self._order("up")
        return found + ([f"cluster up: {begun.stderr}"] if begun.returncode and kind != "node powered off" else [])

    def _second_run(self) -> list[str]:
        run = self._start()
        out, err = run.communicate(timeout=PATIENCE_S)
        whole = run.returncode == 0 and json.loads(out)["totals"][-1]["lost_packets"] == 0
        return [] if whole else [f"the second run: exit {run.returncode}: {err[-500:]} {out[-500:]}"]


class _Progress:
    """What a run says of its phases while it goes."""

    def __init__(self, run: subprocess.Popen[str], cluster: Cluster) -> None:
        self.run, self.cluster = run, cluster
        self.phase, self.words = "starting", ""
        self.before: Packets | None = None
        """When the receivers were armed: behind the frames with which each node tries its interface."""
        self.armed_before_the_failure = False
        assert run.stderr is not None
        os.set_blocking(run.stderr.fileno(), False)

    def follow(self, until: float) -> None:
        while time.monotonic() < until and self.run.poll() is None:
            self._read()
            time.sleep(0.01)

    def _read(self) -> None:
        assert self.run.stderr is not None
        with contextlib.suppress(TypeError):  # nothing to read
            self.words += self.run.stderr.read() or ""
        self.phase = (self.words.strip().splitlines() or [self.phase])[-1]
        if self.before is None and "arming the receivers" in self.words:
            self.before = packets(self.cluster)

    def end(self) -> tuple[str, str]:
        deadline = time.monotonic() + PATIENCE_S
        while self.before is None and self.run.poll() is None and time.monotonic() < deadline:
            self.follow(time.monotonic() + 0.1)
        assert self.run.stderr is not None
        os.set_blocking(self.run.stderr.fileno(), True)
        try:
            out, err = self.run.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.run.kill()
            out, err = self.run.communicate()
            return "", f"{self.words}{err}: it did not end in {PATIENCE_S:.0f} s"
        return out, self.words + err


def main() -> None:
    parser = argparse.ArgumentParser(description="Failures at random moments of runs; exit 1 if one did not hold.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kind", choices=list(KINDS_STANDING), action="append", help="only this; may be given several times"
    )
    parser.add_argument("--standing", action="store_true", help="in a cluster that stays up")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new run after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without bringing the lab down
    kinds = arguments.kind or list(KINDS_STANDING if arguments.standing else KINDS)
    held: dict[str, list[bool]] = {}
    over = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as name:
        chaos = (StandingChaos if arguments.standing else Chaos)(Path(name), arguments.seed)
        try:
            for number in range(arguments.runs):
                if time.monotonic() > over:
                    break
                kind = kinds[number % len(kinds)]
                found = chaos.run(number, kind)
                held.setdefault(kind, []).append(not found)
                for one in found:
                    print(f"run {number}, {kind}, {one}", file=sys.stderr)
        finally:
            chaos.take_down()
    print(f"{'failure':<28} {'runs':>5} {'held':>5}")
    for kind, outcomes in held.items():
        print(f"{kind:<28} {len(outcomes):>5} {sum(outcomes):>5}")
    sys.exit(0 if all(map(all, held.values())) else 1)


if __name__ == "__main__":
    main()
