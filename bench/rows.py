"""The test of each row of docs/failures.md, many times over: how often it held.

    sudo .venv/bin/python bench/rows.py --times 20
    sudo .venv/bin/python bench/rows.py --times 20 --vm --row UTC

The rows and their tests are those that tests/lab/test_failures.py names. Each time all are run in one call of pytest,
so that those of a file share a lab; the moments of the failures are the tests' own, some at random. With --vm they run
in the virtual machine; a row whose clock can be set there only is skipped without. Prints what did not hold and a
table; exit status 1 if a row did not hold, or was skipped. It needs the tests' packages: `./bootstrap test --version`.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from pktswarm.lab import vm

PROJECT = Path(__file__).resolve().parents[1]
NAMES = PROJECT / "tests/lab/test_failures.py"
LONGEST_S = 7200.0
"""In the virtual machine, where a run takes half a minute."""


@dataclass
class Row:
    name: str
    test: str
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def held(self) -> bool:
        return set(self.outcomes) == {"passed"}


def rows() -> list[Row]:
    """Out of the first words of NAMES: what happens, and behind two spaces or more the test, by its file's place."""
    words = ast.get_docstring(ast.parse(NAMES.read_text())) or ""
    found = [line.rpartition("  ") for line in words.splitlines() if "  " in line and "::" in line]
    return [Row(name.strip(), str((NAMES.parent / test).resolve())) for name, _, test in found]


def once(chosen: list[Row], number: int) -> None:
    """One call of pytest; a row of several tests holds when all of them do."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={told}"]
        done = subprocess.run(
            [*command, *(row.test for row in chosen)], cwd=PROJECT, capture_output=True, text=True, check=False
        )
        cases = list(ElementTree.parse(told).iter("testcase"))  # noqa: S314 - pytest's own
    for row in chosen:
        outcome = _outcome(
            [case for case in cases if case.get("name", "").partition("[")[0] == row.test.split("::")[1]]
        )
        row.outcomes[outcome] += 1
        print(f"{number}: {row.name}: {outcome}", flush=True)
    if any(row.outcomes["failed"] for row in chosen) and done.returncode:
        print(done.stdout, file=sys.stderr, flush=True)


def _outcome(cases: list[ElementTree.Element]) -> str:
    if not cases or any(case.find(kind) is not None for case in cases for kind in ("failure", "error")):
        return "failed"
    return "skipped" if any(case.find("skipped") is not None for case in cases) else "passed"


def table(chosen: list[Row]) -> str:
    lines = [f"{'what happens':<26} {'times':>6} {'held':>6} {'skipped':>8}"]
    for row in chosen:
        count = row.outcomes
        lines.append(f"{row.name:<26} {count.total():>6} {count['passed']:>6} {count['skipped']:>8}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="The test of each row of docs/failures.md, many times over.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--row", action="append", help="only rows with these words; may be given several times")
    parser.add_argument("--vm", action="store_true", help="in the virtual machine")
    arguments = parser.parse_args()
    if arguments.vm:
        return vm.run([sys.executable, *(word for word in sys.argv if word != "--vm")], timeout_s=LONGEST_S)
    chosen = [row for row in rows() if not arguments.row or any(words in row.name for words in arguments.row)]
    if not chosen:
        parser.error(f"no row has {' or '.join(map(repr, arguments.row))}; there are: " + ", ".join(map(_name, rows())))
    try:
        for number in range(1, arguments.times + 1):
            once(chosen, number)
    except KeyboardInterrupt:
        pass
    print(table(chosen))
    return 0 if all(row.held for row in chosen) else 1


def _name(row: Row) -> str:
    return row.name


if __name__ == "__main__":
    sys.exit(main())
