"""Values that the shell completes: scenarios, inventories, labs, streams, results. The files are read, no host is.

A file that cannot be read has no values; the command itself reports why.
"""

from __future__ import annotations

from pathlib import Path

import typer

from pktswarm.traffic.errors import PktswarmError

RESULT, JOB = "run.json", "job.json"
PROFILE = ".upf.yml"
"""The end of a file beside an inventory that is none."""
NEWEST = 20
"""Results folders that are offered."""


def _files(incomplete: str, *suffixes: str) -> list[str]:
    """Files with one of the suffixes, and folders, whose path begins with `incomplete`."""
    head, _, start = incomplete.rpartition("/")
    folder = Path(f"{head}/" if incomplete.startswith("/") else head or ".")
    found = [path for path in folder.iterdir() if path.name.startswith(start)] if folder.is_dir() else []
    shown = [path for path in sorted(found) if start.startswith(".") or not path.name.startswith(".")]
    return [f"{path}/" for path in shown if path.is_dir()] + [
        str(path) for path in shown if path.is_file() and path.suffix in suffixes
    ]


def scenarios(incomplete: str) -> list[str]:
    """Scenario files, then the names of shipped scenarios."""
    names = [name for name in shipped(incomplete) if not name.startswith("hosts/")]
    return list(dict.fromkeys([*_files(incomplete, ".yaml", ".yml"), *names]))


def shipped(incomplete: str) -> list[str]:
    from pktswarm.master import shipped as files

    return [one.name for one in files.everything() if one.name.startswith(incomplete)]


def inventories(incomplete: str) -> list[str]:
    """Inventories in `hosts`, then files."""
    known = [path for path in map(str, sorted(Path("hosts").glob("*.yml"))) if path.startswith(incomplete)]
    every = dict.fromkeys([*known, *_files(incomplete, ".yml", ".yaml")])
    return [path for path in every if not path.endswith(PROFILE)]


def labs(incomplete: str) -> list[str]:
    """Labs that have an inventory here."""
    names = (path.name.removeprefix("lab-") for path in sorted(Path("hosts").glob("lab-*.yml")))
    return [name.removesuffix(".yml") for name in names if name.startswith(incomplete) and not name.endswith(PROFILE)]


def results(incomplete: str) -> list[str]:
    """The newest results folders, then other folders."""
    return _newest(RESULT, incomplete)


def jobs(incomplete: str) -> list[str]:
    """The newest folders of jobs, then other folders."""
    return _newest(JOB, incomplete)


def _newest(file: str, incomplete: str) -> list[str]:
    paths = [path.parent for path in Path("results").glob(f"*/{file}")]
    newest = [str(path) for path in sorted(paths, reverse=True) if str(path).startswith(incomplete)]
    return list(dict.fromkeys([*newest[:NEWEST], *_files(incomplete)]))


def streams(context: typer.Context, incomplete: str) -> list[str]:
    """The streams and traces of the scenario that stands before."""
    from pktswarm.master import shipped as files
    from pktswarm.master.scenario import scenario

    # The parser leaves all words in `args` where the last one is an option without its value yet.
    words = [str(word) for word in (context.params.get("scenario"), *context.args) if word]
    paths = (files.scenario(Path(word)) for word in words if not word.startswith("-"))
    given = next((path for path in paths if path.is_file()), None)
    try:
        read = None if given is None else scenario.load(given)
    except PktswarmError:
        read = None
    every = [] if read is None else [one.name for one in (*read.streams, *read.traces)]
    return [name for name in every if name.startswith(incomplete)]
