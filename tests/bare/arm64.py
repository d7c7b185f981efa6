"""An emulated arm64 Debian becomes a node, takes part in a run as a receiver, and is given back.

Not for pytest: it takes half an hour, and wants the machine to itself.

    sudo .venv/bin/python tests/bare/arm64.py

It prints what each step took and what the machine says of itself. Exit status 1 if a step did not do what it should.
The first call makes the machine's disk (lab/emulated.py); it needs qemu-system-arm, debootstrap, cpio and e2fsprogs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from pktswarm import lab
from pktswarm.lab import emulated
from pktswarm.lab.ssh import CONFIG

NAME, RECEIVER = "arm64", "rx1"
PKTSWARM = str(Path(sys.executable).with_name("pktswarm"))
LONGEST_S = 3600
PATIENCE = "20"
SCENARIO = """name: arm64
streams: [{name: s, size_bytes: 512, rate_pps: 200, count_packets: 2000}]
expect: {loss: 0, sent: intended}
"""

OWN_KERNEL = (
    ("systemctl is-enabled pktswarm-tune chrony", "enabled\nenabled"),
    ("systemctl is-active chrony", "active"),
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
    folder = Path("hosts")
    state = lab.up(NAME, 1, 1, folder, bare=emulated.SUITE)
    try:
        own_kernel(state.inventory)
        with ExitStack() as stack:
            with step("a machine in the place of the receiver"):
                stack.enter_context(emulated.in_place_of(state, RECEIVER))
            become_a_node(state)
    finally:
        lab.down(NAME, folder)
    return 0


def become_a_node(state: lab.LabState) -> None:
    print(on_machine(state, "uname -a; nproc; ip -br link"), flush=True)
    before = on_machine(state, AS_IT_IS)
    hosts = str(state.inventory)
    with step("provision"):
        told(pktswarm("provision", "--hosts", hosts, "--json"), lambda one: one["changed"] > 5)
    with step("provision again"):
        told(pktswarm("provision", "--hosts", hosts, "--json"), lambda one: one["changed"] == 0)
    for command, wanted in OWN_KERNEL:
        said = on_machine(state, command).strip()
        print(f"{command}: {said}", flush=True)
        if said != wanted:
            sys.exit(f"it should be {wanted!r}")
    with step("doctor"):
        print(pktswarm("doctor", "--hosts", hosts, status=None), flush=True)
    with step("a run"), tempfile.TemporaryDirectory() as name:
        scenario = Path(name, "scenario.yaml")
        scenario.write_text(SCENARIO)
        words = ("--hosts", hosts, "--results", name, "--patience", PATIENCE, "--json", "--no-report")
        document = json.loads(pktswarm("run", str(scenario), *words))
        show(document)
    with step("provision --undo"):
        told(pktswarm("provision", "--undo", "--hosts", hosts, "--json"), lambda one: one["failed"] == 0)
    same(before, on_machine(state, AS_IT_IS))


def own_kernel(inventory: Path) -> None:
    """The machine shares its kernel with nobody: clock, modules and the unit at its start are set too."""
    data = yaml.safe_load(inventory.read_text())
    data["all"]["children"]["receive"]["hosts"][RECEIVER]["pktswarm_shared_kernel"] = ""
    inventory.write_text(yaml.safe_dump(data, sort_keys=False, width=10_000))


def told(words: str, right: Callable[[dict[str, Any]], bool]) -> None:
    hosts = json.loads(words)["hosts"]
    print(hosts, flush=True)
    wrong = [one for one in hosts if not right(one)]
    if wrong or RECEIVER not in {one["host"] for one in hosts}:
        sys.exit(f"not as it should be: {wrong or hosts}")


def show(document: dict[str, Any]) -> None:
    """The counts, which must be whole, and what the run noted."""
    for row in document["rows"]:
        counts = {name: row[f"{name}_packets"] for name in ("intended", "sent", "received", "lost")}
        print(row["from"], row["to"], counts, flush=True)
        if len({counts[name] for name in ("intended", "sent", "received")}) != 1:
            sys.exit("the counts are not whole")
    print(*document["notes"], *document["doubts"], sep="\n", flush=True)


def same(before: str, after: str) -> None:
    differ = set(before.splitlines()) ^ set(after.splitlines())
    if differ:
        sys.exit("not as it was: " + ", ".join(sorted(differ)))


def on_machine(state: lab.LabState, command: str) -> str:
    master = ["nsenter", f"--target={state.keeper.pids['m0']}", "--mount", "--net"]
    return checked([*master, "ssh", "-F", str(CONFIG), RECEIVER, command])


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
