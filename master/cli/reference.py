"""The commands of the program as data, from their own help: for man pages and for the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """An argument or option, or a command of a group, and its text."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """`name`: the whole name, such as "pktswarm lab up". `help`: its paragraphs. `commands`: those of a group."""

    name: str
    usage: str
    help: tuple[str, ...]
    arguments: tuple[Entry, ...]
    options: tuple[Entry, ...]
    commands: tuple[Entry, ...]
    examples: tuple[str, ...]


def commands(root: Any) -> Iterator[Command]:
    """Each command below `root`, the program's own object, groups before their commands."""
    return _below("pktswarm", root)


def _below(name: str, command: Any) -> Iterator[Command]:
    inner = [(word, one) for word, one in sorted(getattr(command, "commands", {}).items()) if not one.hidden]
    context = command.make_context(name, [], resilient_parsing=True)
    parameters = [
        (one.param_type_name, Entry(*record))
        for one in command.get_params(context)
        if (record := one.get_help_record(context))
    ]
    yield Command(
        name,
        " ".join(command.collect_usage_pieces(context)),
        tuple(paragraphs(command.help or "")),
        tuple(entry for kind, entry in parameters if kind == "argument"),
        tuple(entry for kind, entry in parameters if kind != "argument"),
        tuple(Entry(f"{name} {word}", first_sentence(paragraphs(one.help or ""))) for word, one in inner),
        tuple(examples(command.epilog or "")),
    )
    for word, one in inner:
        yield from _below(f"{name} {word}", one)


def paragraphs(text: str) -> list[str]:
    joined = (re.sub(r"\s+", " ", part.replace("\b", "")).strip() for part in re.split(r"\n\s*\n", text))
    return [part for part in joined if part]


def first_sentence(texts: list[str] | tuple[str, ...]) -> str:
    """The first sentence without its full stop."""
    text = texts[0] if texts else ""
    return re.split(r"\.(?= |$)", text, maxsplit=1)[0]


def examples(epilog: str) -> list[str]:
    """The calls in the last lines of a help text, which `options.examples` makes."""
    return re.findall(r"pktswarm .+?(?= ·| pktswarm |$)", re.sub(r"\s+", " ", epilog).strip())
