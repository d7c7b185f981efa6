"""Small changes to the code that counts, one at a time; each must be noticed by a test.

    sudo .venv/bin/python bench/mutants.py --file kernel/count.bpf.c --sample 40 --seed 1
    sudo .venv/bin/python bench/mutants.py --list --file traffic/counting/tally.py

A mutant is one change at one place: a comparison, an operator or a boolean that is swapped, a number that is one more,
a statement that is left out. It is made in a copy of the tree, built where it is of the kernel's programs, and given to
the fast tests of its file (TARGETS). It is *killed* by a test that fails or does not end, *refused* by the compiler or
by the kernel's verifier, or it *survives*: then a test is missing, or the change changes nothing that can be seen,
which SURVIVORS.md beside this file explains one by one. Exit status 1 if one survived that is not explained there.

With --state FILE each outcome is kept, and a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import io
import json
import keyword
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SURVIVORS = Path(__file__).with_name("SURVIVORS.md")
LONGEST_S = 240.0
"""For the tests of one mutant; a loop that does not end any more is found by it."""
COUNTING = [
    *(
        f"tests/lab/test_{name}.py"
        for name in ("count_figures", "xdp_receiver_frames", "xdp_receiver_numbers", "bit_flips", "bit_flips_beyond")
    ),
    *(f"tests/lab/test_{name}.py" for name in ("xdp_filter", "fragments")),
    "tests/lab/test_trace_stamps.py::test_frames_are_those_of_the_file_but_for_number_and_time",
]
UNIT_MATCH = [f"tests/unit/test_{name}.py" for name in ("match", "expect", "netsniff", "tunnels", "upf_traced", "plan")]
UNIT_LEDGER = [
    f"tests/unit/test_{name}.py"
    for name in ("ledger", "connections", "echo", "clock_faults", "misdelivered", "live", "upf_handover", "run")
]
SENDING = sorted(str(path) for path in Path("tests/lab").glob("test_xdp_sender_*.py"))
TARGETS: dict[str, list[str]] = {
    **{f"kernel/count{part}": COUNTING for part in (".bpf.c", "_changes.h", "_matching.h", "_numbers.h", "_times.h")},
    "kernel/count_frame.h": COUNTING,
    "kernel/count_parse.h": COUNTING,
    **{f"kernel/count_{part}.h": ["tests/lab/test_fragments.py"] for part in ("fragments", "whole")},
    "kernel/pktswarm.h": [*COUNTING, "tests/lab/test_xdp_sender_frames.py", "tests/lab/test_xdp_sender_sequences.py"],
    **{f"kernel/send{part}": SENDING for part in (".bpf.c", "_fields.h", "_packets.h", "_page.h", "_schedule.h")},
    "kernel/answers_of_xdp.h": SENDING,
    "kernel/answers_of_tc.h": ["tests/lab/test_tc_sender.py"],
    "kernel/echo.bpf.c": ["tests/lab/test_echo.py"],
    "traffic/counting/tally.py": ["tests/unit/test_tally.py", "tests/unit/test_ledger.py", "tests/unit/test_echo.py"],
    "traffic/counting/match.py": UNIT_MATCH,
    "master/results/run_state.py": UNIT_LEDGER,
    "master/results/flow_rows.py": UNIT_LEDGER,
    "master/results/run_result.py": UNIT_LEDGER,
}
"""File → its fast tests, those first that notice most."""
SWAPS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"&&": "||", "||": "&&", "and": "or", "or": "and"},
    **{"+": "-", "-": "+", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "|=": "&="},
    **{"++": "--", "True": "False", "False": "True"},
}
_C_TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"])*\"|'(?:\\.|[^'])*'|^[ \t]*#(?:\\\n|[^\n])*)"
    r"|(?P<number>\b(?:0x[0-9a-fA-F]+|\d+)(?P<suffix>[uUlL]*)\b)"
    r"|(?P<operator>->|\+\+|--|<<=|>>=|[<>=!+\-*/|&^]=|<<|>>|&&|\|\||[<>+\-&|])",
    re.DOTALL | re.MULTILINE,
)
_C_STATEMENT = re.compile(
    r"^[ \t]+(?P<words>(?!return|break|continue|goto|case|default|else|static|struct|__|#|/\*)[^;{}\n]+;)\n",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    column: int
    at: int
    """Where in the file, in characters."""
    was: str
    now: str
    source: str
    """The line as it stands there."""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.change}"

    @property
    def change(self) -> str:
        return f"{' '.join(self.was.split())} -> {self.now or 'nothing'}"

    @property
    def explained_as(self) -> tuple[str, str, str]:
        """Lines move; what stands in them is what was explained."""
        return self.file, self.source, self.change


def mutants_of(file: str) -> list[Mutant]:
    """Every one, in the order of the file."""
    text = (ROOT / file).read_text()
    places = _python_places(text) if file.endswith(".py") else _c_places(text)
    found = []
    for at, was, now in places:
        line, begun = text.count("\n", 0, at), text.rfind("\n", 0, at) + 1
        source = text[begun:].partition("\n")[0].strip()
        found.append(Mutant(file, line + 1, at - begun + 1, at, was, now, source))
    return sorted(set(found), key=lambda one: (one.at, one.now))


Places = Iterator[tuple[int, str, str]]


def _c_places(text: str) -> Places:
    skipped = []
    for token in _C_TOKEN.finditer(text):
        if token["skip"]:
            skipped.append(range(*token.span()))
        elif token["number"]:
            yield token.start(), token["number"], _more(token["number"], token["suffix"])
        elif token["operator"] in SWAPS and not _is_pointer(text, token):
            yield token.start(), token["operator"], SWAPS[token["operator"]]
    for statement in _C_STATEMENT.finditer(text):
        at = statement.start("words")
        if not any(at in one for one in skipped) and re.search(r"[=(]|\+\+", statement["words"]):
            yield at, statement["words"], ";"


def _is_pointer(text: str, token: re.Match[str]) -> bool:
    """`&` of an address, `-` of a number: nothing that could stand between two values is in front."""
    before = text[: token.start()].rstrip()[-1:]
    return token["operator"] in "&-+" and not (before.isalnum() or before in "_)]")


def _more(number: str, suffix: str = "") -> str:
    digits = number.removesuffix(suffix) if suffix else number
    return (hex(int(digits, 16) + 1) if digits.startswith("0x") else str(int(digits) + 1)) + suffix


def _python_places(text: str) -> Places:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        at, word = starts[token.start[0] - 1] + token.start[1], token.string
        if token.type == tokenize.NUMBER and word.isdecimal():
            yield at, word, _more(word)
        # `|` stands between types.
        elif word in SWAPS and word != "|" and (token.type == tokenize.OP or keyword.iskeyword(word)):
            yield at, word, SWAPS[word]
    for number, line in enumerate(text.splitlines()):
        if re.match(r" +[\w.\[\]]+ ([+\-|]?=|\+=) [^({\[]*$", line) or re.match(r" +[\w.]+\(.*\)$", line):
            words = line.strip()
            yield starts[number] + len(line) - len(line.lstrip()), words, "pass"


class Copy:
    """A copy of the tree, in which one mutant after another is put to its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def outcome(self, mutant: Mutant) -> str:
        path = self.folder / mutant.file
        text = path.read_text()
        assert text[mutant.at : mutant.at + len(mutant.was)] == mutant.was
        path.write_text(text[: mutant.at] + mutant.now + text[mutant.at + len(mutant.was) :])
        try:
            if mutant.file.startswith("kernel/") and not self._builds():
                return "refused"
            return self._tested(TARGETS[mutant.file])
        finally:
            path.write_text(text)

    def whole(self, file: str) -> bool:
        """Whether its tests pass without a change."""
        return (not file.startswith("kernel/") or self._builds()) and self._tested(TARGETS[file]) == "survived"

    def _builds(self) -> bool:
        return (
            subprocess.run(["sh", "kernel/build.sh"], cwd=self.folder, capture_output=True, check=False).returncode == 0
        )

    def _tested(self, tests: list[str]) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            words, _ = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "killed"
        if process.returncode == 0:
            return "survived"
        return "refused" if "verifier" in words.lower() and "could not load" in words.lower() else "killed"


def explained() -> set[tuple[str, str, str]]:
    """What SURVIVORS.md has: a heading with the file, and below it lines of `source line`: `change`, and why."""
    found, file = set(), ""
    for line in SURVIVORS.read_text().splitlines() if SURVIVORS.exists() else []:
        if heading := re.match(r"## `(.+)`$", line):
            file = heading[1]
        elif one := re.match(r"- `(.+)`: ((?:`[^`]+ -> [^`]+`(?:, )?)+)", line):
            found |= {(file, one[1], change) for change in re.findall(r"`([^`]+)`", one[2])}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Small changes to the code that counts; exit 1 if a test misses one.")
    parser.add_argument(
        "--file", choices=list(TARGETS), action="append", help="only of this; may be given several times"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="N of them, by chance; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new mutant after so long")
    parser.add_argument("--state", type=Path, help="keep outcomes here, one JSON line each, and go on from there")
    parser.add_argument("--list", action="store_true", help="name them, and do nothing")
    parser.add_argument("--json", action="store_true", help="the outcomes as JSON on standard output")
    arguments = parser.parse_args()
    wanted = [one for file in arguments.file or TARGETS for one in mutants_of(file)]
    if arguments.sample is not None:
        wanted = random.Random(arguments.seed).sample(wanted, min(arguments.sample, len(wanted)))  # noqa: S311
    if arguments.list:
        print("\n".join(one.name for one in wanted))
        return
    outcomes = run(wanted, arguments.state, arguments.seconds)
    known = explained()
    unexplained = {one.name for one in wanted if one.explained_as not in known}
    show(outcomes, unexplained, arguments.json)
    sys.exit(1 if any(outcomes[name] == "survived" for name in unexplained & outcomes.keys()) else 0)


def run(wanted: list[Mutant], state: Path | None, seconds: float) -> dict[str, str]:
    lines = state.read_text().splitlines() if state is not None and state.exists() else []
    outcomes = {one["name"]: one["outcome"] for one in map(json.loads, lines)}
    over = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for file in dict.fromkeys(one.file for one in wanted if one.name not in outcomes):
            if not copy.whole(file):
                sys.exit(f"mutants: the tests of {file} fail without a change")
        for number, one in enumerate(wanted):
            if one.name in outcomes:
                continue
            if time.monotonic() > over:
                break
            outcomes[one.name] = copy.outcome(one)
            print(f"{number + 1} of {len(wanted)}: {outcomes[one.name]}: {one.name}", file=sys.stderr, flush=True)
            if state is not None:
                with state.open("a") as file_:
                    file_.write(json.dumps({**asdict(one), "name": one.name, "outcome": outcomes[one.name]}) + "\n")
    names = {one.name for one in wanted}
    return {name: outcome for name, outcome in outcomes.items() if name in names}


def show(outcomes: dict[str, str], unexplained: set[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(outcomes, indent=1))
        return
    for name, outcome in outcomes.items():
        if outcome == "survived":
            print(f"survived{'' if name in unexplained else ' (explained)'}: {name}")
    table = Counter((name.partition(":")[0], outcome) for name, outcome in outcomes.items())
    print(f"{'file':<28}" + "".join(f"{word:>10}" for word in ("killed", "refused", "survived")))
    for file in dict.fromkeys(name.partition(":")[0] for name in outcomes):
        counts = "".join(f"{table[file, word]:>10}" for word in ("killed", "refused", "survived"))
        print(f"{file:<28}{counts}")


if __name__ == "__main__":
    main()
