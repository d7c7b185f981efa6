"""An emulated Debian on ARM becomes a node, takes part in runs, and is given back.

Not for pytest: it takes half an hour, and wants the machine to itself.

    sudo .venv/bin/python tests/bare/arm.py arm64
    sudo .venv/bin/python tests/bare/arm.py armhf
    sudo .venv/bin/python tests/bare/arm.py armhf --suite trixie
    sudo .venv/bin/python tests/bare/arm.py orangepi-pc
    sudo .venv/bin/python tests/bare/arm.py armhf --clock ptp   # its clock follows that of the other node

The machine takes the place of a node of a lab. It sends by each engine, and then, by a second inventory with the roles
exchanged, receives. It prints the duration of each step and the machine's answers. Exit status 1 if a step did not do
what it should.
The first call makes the machine's disk (lab/emulated.py); it needs qemu-system-arm, debootstrap, cpio and e2fsprogs.
armhf takes part without MPI (docs/provision.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from pktswarm import lab
from pktswarm.lab import emulated
from pktswarm.lab.plan import CONTROL_INTERFACE
from pktswarm.lab.ssh import CONFIG

NAME, NODE, OTHER = "arm", "tx1", "rx1"
"""The lab, the node in whose place the machine is, and the one that it exchanges roles with."""
PKTSWARM = str(Path(sys.executable).with_name("pktswarm"))
LONGEST_S = 3600
PATIENCE = "20"
TRACE = Path(__file__).parents[2] / "configs/traces/lab.pcapng"
WHOLE, COUNTED = "expect: {loss: 0, sent: intended}\n", "receive: {mode: count}\n"
SCENARIO = """name: arm
streams: [{{name: s, engine: {engine}, size_bytes: 512, rate_pps: 200, count_packets: 2000}}]
expect: {{loss: 0, sent: intended}}
"""
ENGINES = ("auto", "tc", "pktgen", "trafgen")
"""Engines that the machine sends with."""
USERS = """name: users
streams:
  - name: uplink
    size_bytes: {128: 7, 594: 4, 1500: 1}
    rate_pps: 200
    count_packets: 2000
    headers:
      - ethernet: {}
      - ipv4: {}
      - udp: {src: 2152, dst: 2152}
      - gtpu: {teid: {increment: [1, 50]}}
      - ipv4: {src: {with: gtpu.teid, increment: [10.60.0.1, 10.60.0.50]}, dst: 10.9.0.1}
      - udp: {src: 5000, dst: 5000}
expect: {loss: 0, sent: intended}
"""
RECEIVED = {
    "by the counter in the kernel": SCENARIO.format(engine="auto") + COUNTED,
    "50 users of GTP-U": USERS + COUNTED,
    "a trace": f"name: t\ntraces: [{{name: t, file: {TRACE}, timing: {{multiplier: 0.5}}}}]\n{WHOLE}{COUNTED}",
    "a source": f"name: web\nsources: [{{name: web, source: www, mean_bps: 2.0e+5, duration_s: 10}}]\n{WHOLE}{COUNTED}",
    "by counter and capture": SCENARIO.format(engine="auto"),
    "by the capture alone": SCENARIO.format(engine="auto") + "receive: {engine: netsniff-ng}\n",
}
"""What the machine receives."""

CLOCKS = {
    "chrony": (
        ("systemctl is-enabled pktswarm-tune chrony", "enabled\nenabled"),
        ("systemctl is-active chrony", "active"),
    ),
    "ptp": (
        ("systemctl is-enabled pktswarm-tune pktswarm-ptp", "enabled\nenabled"),
        ("systemctl is-active pktswarm-ptp", "active"),
        (
            "for i in $(seq 240); do pmc -u -b 0 'GET PORT_PROPERTIES_NP' | grep -o SLAVE && break; sleep 1; done",
            "SLAVE",
        ),
    ),
}
OWN_KERNEL = (
    ("lsmod | grep -o ^pktgen", "pktgen"),
    # As at a start of the machine.
    (
        "ethtool -K eth1 gro on && systemctl restart pktswarm-tune && ethtool -k eth1 | grep ^generic-receive-offload",
        "generic-receive-offload: off",
    ),
)
"""What is done only where a kernel is shared with nobody: a command there, and what it should say."""
AS_IT_IS = "dpkg-query --show; cat /etc/passwd; lsmod | grep -o ^pktgen; ip -o link show dev eth1 up | wc -l"
"""What says of the machine that it was given back."""


def main() -> int:
    parser = argparse.ArgumentParser(description="An emulated Debian on ARM becomes a node, and takes part in runs.")
    parser.add_argument("--suite", choices=emulated.SUITES, default=emulated.SUITES[0], help="Debian's release")
    parser.add_argument("kind", choices=sorted(emulated.MACHINES))
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="chrony", help="what sets the machine's clock")
    parser.add_argument("--receive-only", action="store_true", help="of the runs those in which it receives")
    arguments = parser.parse_args()
    kind = replace(emulated.MACHINES[arguments.kind], suite=arguments.suite)
    folder = Path("hosts")
    state = lab.up(NAME, 1, 1, folder, bare=kind.suite)
    try:
        adapt_inventory(state.inventory, kind, arguments.clock)
        with ExitStack() as stack:
            exchanged = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "exchanged.yml"
            exchange_roles(state.inventory, exchanged)
            with step(f"a machine of {kind.architecture} in place of {NODE}"):
                stack.enter_context(emulated.in_place_of(state, NODE, kind))
            if arguments.clock == "ptp":
                stack.enter_context(grandmaster(state))
            become_a_node(state, exchanged, arguments.clock, () if arguments.receive_only else ENGINES)
    finally:
        lab.down(NAME, folder)
    return 0


def become_a_node(state: lab.LabState, exchanged: Path, clock: str, engines: tuple[str, ...]) -> None:
    print(on_machine(state, "uname -a; getconf LONG_BIT; nproc; free -m; ip -br link"), flush=True)
    before = on_machine(state, AS_IT_IS)
    hosts = str(state.inventory)
    with step("provision --check"):
        print(pktswarm("provision", "--check", "--hosts", hosts), flush=True)
    with step("provision"):
        expect_hosts(pktswarm("provision", "--hosts", hosts, "--json"), lambda one: one["changed"] > 5)
    with step("provision again"):
        expect_hosts(pktswarm("provision", "--hosts", hosts, "--json"), lambda one: one["changed"] == 0)
    for command, wanted in (*CLOCKS[clock], *OWN_KERNEL):
        output = on_machine(state, command).strip()
        print(f"{command}: {output}", flush=True)
        if output != wanted:
            sys.exit(f"expected {wanted!r}")
    with step("doctor"):
        print(pktswarm("doctor", "--hosts", hosts, status=None), flush=True)
    for engine in engines:
        with step(f"it sends, engine: {engine}"):
            run(hosts, SCENARIO.format(engine=engine))
    if engines:
        with step("it sends 50 users of GTP-U"):
            run(hosts, USERS)
    for what, scenario in RECEIVED.items():
        with step(f"it receives {what}"):
            run(str(exchanged), scenario)
    if clock == "ptp":
        with step("clock: ptp"):
            run(hosts, SCENARIO.format(engine="auto") + "clock: ptp\n")
    with step("provision --undo"):
        expect_hosts(pktswarm("provision", "--undo", "--hosts", hosts, "--json"), lambda one: one["failed"] == 0)
    same(before, on_machine(state, AS_IT_IS))


def run(hosts: str, scenario: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "scenario.yaml")
        path.write_text(scenario)
        words = ("--hosts", hosts, "--results", name, "--patience", PATIENCE, "--json", "--no-report")
        show(json.loads(pktswarm("run", str(path), *words)))


@contextmanager
def grandmaster(state: lab.LabState) -> Iterator[None]:
    """ptp4l on the other node, which shares this machine's kernel: it leads, and sets no clock."""
    proxy = yaml.safe_load(state.inventory.read_text())["all"]["vars"]["pktswarm_proxy"]
    apt = f"apt-get -q -o Acquire::http::Proxy={proxy}"
    install = f"{apt} update && {apt} install -y --no-install-recommends linuxptp"
    pktswarm("lab", "exec", "--name", NAME, OTHER, "--", "sh", "-c", install)
    inside = ["nsenter", f"--target={state.keeper.pids[OTHER]}", "--mount", "--root", "--wd", "--net"]
    ptp4l = ["timeout", "--signal=KILL", str(2 * LONGEST_S), "ptp4l", "-i", CONTROL_INTERFACE, "-S", "--priority1=1"]
    ptp4l += ["--logSyncInterval=-3", "--logAnnounceInterval=-1", "--logMinDelayReqInterval=-3"]
    process = subprocess.Popen([*inside, *ptp4l])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def adapt_inventory(path: Path, kind: emulated.Machine, clock: str) -> None:
    """The machine shares its kernel with nobody: clock, modules and the unit at its start are set too."""
    data = yaml.safe_load(path.read_text())
    host = data["all"]["children"]["transmit"]["hosts"][NODE]
    host["pktswarm_shared_kernel"], host["pktswarm_clock"] = "", clock
    if kind.architecture == emulated.ARMHF.architecture:
        host["pktswarm_mpi"] = "none"
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=10_000))


def exchange_roles(inventory: Path, path: Path) -> None:
    data = yaml.safe_load(inventory.read_text())
    groups = data["all"]["children"]
    groups["transmit"], groups["receive"] = groups["receive"], groups["transmit"]
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=10_000))


def expect_hosts(words: str, right: Callable[[dict[str, Any]], bool]) -> None:
    hosts = json.loads(words)["hosts"]
    print(hosts, flush=True)
    wrong = [one for one in hosts if not right(one)]
    if wrong or {one["host"] for one in hosts} != {NODE, OTHER}:
        sys.exit(f"not as expected: {wrong or hosts}")


def show(document: dict[str, Any]) -> None:
    """The counts, which must be whole, and the notes of the run."""
    for row in document["rows"]:
        counts = {name: row[f"{name}_packets"] for name in ("intended", "sent", "received", "lost")}
        latency = {name: row.get(f"latency_{name}_ns") for name in ("p50", "max", "bound")}
        print(row["from"], row["to"], row.get("engine"), counts, "latency, ns:", latency, flush=True)
        if len({counts[name] for name in ("intended", "sent", "received")}) != 1:
            sys.exit("the counts are not whole")
    if users := document.get("users"):
        print("users:", users, flush=True)
    print(*document["notes"], *document["doubts"], sep="\n", flush=True)


def same(before: str, after: str) -> None:
    differ = set(before.splitlines()) ^ set(after.splitlines())
    if differ:
        sys.exit("not as it was: " + ", ".join(sorted(differ)))


def on_machine(state: lab.LabState, command: str) -> str:
    master = ["nsenter", f"--target={state.keeper.pids['m0']}", "--mount", "--net"]
    return checked([*master, "ssh", "-F", str(CONFIG), NODE, command])


def pktswarm(*words: str, status: int | None = 0) -> str:
    return checked([PKTSWARM, *words], status)


def checked(command: list[str], status: int | None = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if status is not None and done.returncode != status:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


@contextmanager
def step(name: str) -> Iterator[None]:
    begun = time.monotonic()
    print(f"--- {name}", flush=True)
    yield
    print(f"--- {name}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
