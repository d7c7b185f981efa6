"""The folder and the labs that the shell blocks of the guides (docs/*.md) run in.

Each block is one bash process in a network namespace of its own: it reaches the lab, and no other address. It runs in a
folder with short copies of `configs/`. Options shorten long commands (SHORT). A lab without a given size has two nodes.
A command that an earlier block ran in the same lab is not run again. The ranks of each lab stay up (`cluster up`), so
that a command does not launch them anew, and commands are processes of the fork server (tests/fork_server.py), which
start at once; tests/lab/test_readme.py and test_installed.py run commands without either.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

import forked
from guide_blocks import ROOT, Block, shell_blocks

CALL = re.compile(r"(?:sudo )?(?:\.venv/bin/)?pktswarm ([a-z].*)")
SHORT: dict[str, dict[str, str]] = {
    "run": {"--no-report": ""},
    "search": {
        "--min": "8000",
        "--max": "16000",
        "--duration": "0.2",
        "--precision": "50%",
        "--trials": "1",
        "--confirm": "0",
    },
    "rfc2544": {
        "--sizes": "512",
        "--tests": "throughput",
        "--max": "20mbit",
        "--precision": "50%",
        "--confirm": "0",
    },
    "y1564": {"--tests": "performance", "--performance": "0.5"},
    "calibrate": {"--sizes": "512", "--engines": "xdp", "--node": "tx1", "--quick": "", "--seconds": "0.2"},
    "table": {"--seconds": "0.5"},
    "upf probe": {"--n4-only": "", "--no-profile": ""},
    "sessions": {"--hold": "0.2"},
}
"""Options that a command gets, in place of its own."""
REPEATED = ("--repeat \\d+", "--repeat 2")
CAPTURED = ("^timeout \\d+ tcpdump", "timeout 12 tcpdump")
"""A capture during a run: of 20 s in the page."""
EXAMPLES = re.compile(r"results/202601\d\dT\d{6}Z-([a-z][a-z-]*)")
"""Names of results folders in the pages; the newest run, or search, of that scenario takes each name."""
SEARCHED = "-search"
OWN_INVENTORY = re.compile(r" --hosts hosts/(?:lab-default|mine|my-upf)\.yml")
"""The user's own inventories are here the lab's, which is the default."""
SMALL = "--transmit 1 --receive 1"
PREAMBLE = """set -eu -o pipefail
ip link set lo up
export PATH="$PWD/bin:$PATH"
sudo() { "$@"; }
pktswarm() {
  for _ in 1 2 3; do
    status=0
    bin/pktswarm "$@" || status=$?
    [ $status -gt 1 ] || return 0
    [ $status -eq 3 ] || break
  done
  echo "pktswarm $*: exit status $status" >&2
  return $status
}
"""
"""Exit status 1 (not as expected) and 3 (the machine held a sender up) are results of the machine, not mistakes of the
page; a command that ends with 3 is repeated."""
END = """
for job in $(jobs -p); do wait "$job"; done
"""
MY_UPFD = f"""#!/bin/sh
exec {sys.executable} -P -m pktswarm.lab.upf "$N4_IPV4" "$N4_IPV6" /run/pktswarm-lab/upf.sock
"""


class Desk:
    """The folder that the blocks run in, and the lab that is up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab: str | None = None
        self.wanted = SMALL
        """Options of the lab that is up, and of the one that the page has up."""
        self.labs: set[str] = set()
        """Options of the labs that were up."""
        self.done: set[tuple[str, str]] = set()
        for name in ("hosts", "bin"):
            (folder / name).mkdir()
        (folder / ".venv").symlink_to(sys.prefix)
        short_configs(folder / "configs")
        for inventory in (path for path in (ROOT / "hosts").glob("*.yml") if not path.name.startswith("lab-")):
            shutil.copy(inventory, folder / "hosts")
        for own in ("mine", "my-upf"):
            (folder / "hosts" / f"{own}.yml").symlink_to("lab-default.yml")
        (folder / "trace.pcap").symlink_to(ROOT / "configs/traces/lab.pcapng")
        for name, text in [(block.file, block.text) for block in shell_blocks() if block.file]:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        for name, text in (("my-upfd", MY_UPFD), ("pktswarm", forked.script())):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def run(self, block: Block) -> None:
        if block.file:
            assert os.access(self.folder / block.file, os.X_OK)
            return
        self.make_examples(block.text)
        self.bash(PREAMBLE + "\n".join(self.lines(block)) + END)

    def bash(self, script: str) -> None:
        command = ["unshare", "--net", "bash", "-c", script]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        output = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{script}\nexit status {done.returncode}\n{output[-6000:]}"

    def lines(self, block: Block) -> Iterator[str]:
        """The block with the commands that are run here in place of the page's."""
        fresh, again = True, " &\n" in block.text
        for line in block.text.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+# .*", "", line)
            call = CALL.fullmatch(line.removeprefix("$ "))
            if call is None:
                yield re.sub(r"timeout \d+", "timeout 5", line)
            elif call[1].startswith("lab up"):
                assert fresh, f"{block}: the block has no `lab down` before this: {line}"
                fresh = False
                yield from self.lab_up(call[1].removeprefix("lab up").strip())
            elif call[1] == "lab down":
                fresh = True  # it stays up for the next block: lab_up() ends it
            else:
                yield from self.called(call[1], again)

    def lab_up(self, options: str) -> Iterator[str]:
        """A lab with these options; one that was up before comes up again when a command needs it."""
        self.wanted = options if "--transmit" in options else f"{SMALL} {options}".rstrip()
        if self.wanted not in self.labs:
            yield from self.change_lab()

    def change_lab(self) -> Iterator[str]:
        if self.lab == self.wanted:
            return
        if self.lab is not None:
            yield "pktswarm lab down"
        self.lab = self.wanted
        self.labs.add(self.lab)
        yield f"pktswarm lab up {self.lab}"
        yield "pktswarm cluster up --no-preload"  # the copies of the fork server need no loaded process

    def called(self, call: str, again: bool = False) -> Iterator[str]:
        """The command, unless it has run in this lab, or has made the folder of its results; with `again` always."""
        call = shortened(call)
        key = "" if " --results " in call else self.wanted, OWN_INVENTORY.sub("", call)
        if again or key not in self.done or call.startswith(("lab ", "status", "report")):
            self.done.add(key)
            yield from self.change_lab()
            if call.startswith("calibrate"):  # ended as by Ctrl-C: it takes half a minute
                yield f"timeout --signal INT 8 bin/pktswarm {call} || [ $? -eq 124 ]"
            else:
                yield f"pktswarm {call}"

    def make_examples(self, text: str) -> None:
        for match in EXAMPLES.finditer(text):
            path = self.folder / match[0]
            if path.exists():
                continue
            if self.newest(match[1]) is None:
                scenario = match[1].removesuffix(SEARCHED)
                command = "run" if scenario == match[1] else "search"
                self.bash(PREAMBLE + "\n".join(self.called(f"{command} configs/{scenario}.yaml")))
            run = self.newest(match[1])
            assert run is not None
            shutil.copytree(run, path)

    def newest(self, scenario: str) -> Path | None:
        folders = [path for path in self.folder.glob(f"results/*Z-{scenario}") if not EXAMPLES.search(str(path))]
        return max(folders, default=None)

    def close(self) -> None:
        if self.lab is not None:
            self.bash(PREAMBLE + "pktswarm lab down")


def shortened(call: str) -> str:
    """With the options of SHORT in place of the call's, before `&`, `>` and `--`."""
    words, separator, rest = re.match(r"(.*?)(?:( -- | ?[&>|])(.*))?$", call).groups(default="")  # type: ignore[union-attr] # it matches all
    words = re.sub(*REPEATED, words)
    rest = re.sub(*CAPTURED, rest)
    for command, options in SHORT.items():
        if words == command or words.startswith(f"{command} "):
            for option, value in options.items():
                words = re.sub(rf" {option}(?: [^- ]\S*)?(?= |$)", "", words) + f" {option} {value}".rstrip()
    return words + separator + rest


def short_configs(folder: Path) -> None:
    """Copies configs/ with traffic of 0.5 s, 1.3 s of the recorded trace, and the first point of each table."""
    shutil.copytree(ROOT / "configs", folder, ignore=shutil.ignore_patterns("traces"))
    shutil.copytree(ROOT / "configs/traces", folder / "traces")
    begin = ["editcap", "-r", str(ROOT / "configs/traces/lab.pcapng"), str(folder / "traces/lab.pcapng"), "1-240"]
    subprocess.run(begin, check=True, capture_output=True)
    for path in folder.rglob("*.yaml"):
        text = re.sub(r"duration_s: \d+", "duration_s: 0.5", path.read_text())
        text = text.replace(", availability: 99.9 %", "")  # needs 10 s
        path.write_text(re.sub(r"count_packets: (\d+)00\b", r"count_packets: \1", text))
    for path in (folder / "tables").glob("*.yaml"):
        family = yaml.safe_load(path.read_text())
        family.pop("reference", None)
        for axis in family["axes"]:
            axis["values"] = axis["values"][:1]
        path.write_text(yaml.safe_dump(family, sort_keys=False))


def desk_of(folder: Path) -> Iterator[Desk]:
    desk = Desk(folder)
    try:
        yield desk
    finally:
        desk.close()
