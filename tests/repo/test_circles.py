"""No circle between files, and none between folders: a part can be read, tested and changed with what is below it."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TOP_LEVEL = ("traffic", "nodes", "master", "lab")
Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Dotted names of the product's modules and packages."""
    files = [path for folder in TOP_LEVEL for path in Path(folder).rglob("*.py")]
    return {"pktswarm." + ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names |= {module if module in known else node.module for module in full.values()}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & known.keys()


@cache
def between_files() -> Graph:
    known = modules()
    return {name: imported(path, known) - {name} for name, path in known.items()}


def between_folders() -> Graph:
    """A module directly below a top-level folder stands for itself: there are both foundations and programs."""
    known = modules()

    def folder(name: str) -> str:
        above = name.rpartition(".")[0]
        return name if known[name].name == "__init__.py" or above.count(".") == 1 else above

    graph: Graph = {}
    for name, targets in between_files().items():
        graph.setdefault(folder(name), set()).update(folder(target) for target in targets)
    return {name: targets - {name} for name, targets in graph.items()}


def circle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("graph", [between_files, between_folders])
def test_nothing_imports_what_imports_it(graph: object) -> None:
    assert callable(graph)
    found = graph()
    assert len(found) > 60
    assert circle(found) == []


def test_a_circle_would_be_found() -> None:
    graph = between_files()
    target = next(name for name in sorted(graph) if graph[name])
    below = sorted(graph[target])[0]
    assert circle({**graph, below: graph[below] | {target}})
