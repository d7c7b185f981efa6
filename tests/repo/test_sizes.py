"""Limits of size: what is longer does more than one job. And of untyped data between parts."""

import ast
import re
from pathlib import Path

PRODUCT = ("master", "nodes", "traffic", "lab", "pktswarm")
MOST_LINES_OF_A_FILE = 450
MOST_LINES_OF_A_FUNCTION = 60
MOST_UNTYPED = 120


def files() -> list[Path]:
    return [path for folder in PRODUCT for path in Path(folder).rglob("*.py")]


def test_files_are_short() -> None:
    paths = [*files(), *(path for path in Path("kernel").iterdir() if path.suffix in (".c", ".h"))]
    lengths = {str(path): path.read_text().count("\n") for path in paths}
    assert len(lengths) > 400
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_functions_are_short() -> None:
    long = []
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                long.append(f"{path}:{node.lineno} {node.name}")
    assert long == []


def test_data_between_parts_has_types() -> None:
    found = [path for path in files() for _ in re.findall(r"dict\[str, Any\]", path.read_text())]
    assert len(found) < MOST_UNTYPED


def test_what_mypy_is_not_to_see_has_a_reason() -> None:
    own = Path(__file__)
    for path in (*files(), *(test for test in Path("tests").rglob("*.py") if test.resolve() != own.resolve())):
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if "# type: ignore" in line:
                assert re.search(r"# type: ignore\[[\w-]+\] *#", line), f"{path}:{number}: no reason"
