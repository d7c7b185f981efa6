"""`pktswarm man`: man pages, made from the help of each command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli.options import examples
from pktswarm.master.cli.reference import Command, Entry, commands, first_sentence
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import BadInput

EXAMPLES = examples("man run > pktswarm-run.1", "man --folder /usr/local/share/man/man1")
SECTION = 1


def man(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(help="Command, e.g. lab up.", show_default="the program itself")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Write the pages of all commands as files into this folder.")
    ] = None,
) -> None:
    """Print the man page of a command (read it with man -l FILE), or write those of all commands."""
    pages = {one.name: one for one in commands(typer.main.get_command(context.obj))}
    if folder is not None:
        _write(folder, pages, command)
        return
    name = " ".join(["pktswarm", *(command or [])])
    if name not in pages:
        known = ", ".join(one.removeprefix("pktswarm ") for one in pages if one != "pktswarm")
        raise BadInput("man", "unknown command", key="COMMAND", value=name.removeprefix("pktswarm "), allowed=known)
    print(page(pages[name]), end="")


def _write(folder: Path, pages: dict[str, Command], command: list[str] | None) -> None:
    if command:
        problem = "excluded by --folder, which gets the pages of all commands"
        raise BadInput("man", problem, key="COMMAND", value=" ".join(command))
    if folder.exists() and not folder.is_dir():
        raise BadInput("man", "not a folder", key="--folder", value=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for one in pages.values():
        (folder / f"{title(one.name)}.{SECTION}").write_text(page(one))
    print(f"{len(pages)} pages in {folder}")


def page(command: Command) -> str:
    """The page in the macros of man(7)."""
    name = title(command.name)
    lines = [f'.TH {name.upper()} {SECTION} "" "pktswarm {VERSION}" "pktswarm manual"']
    lines += [".SH NAME", f"{text(name)} \\- {text(first_sentence(command.help) or command.name)}"]
    lines += [".SH SYNOPSIS", f".B {text(command.name)}", text(command.usage)]
    status = [one for one in command.help if one.startswith("Exit status:")]
    lines += [".SH DESCRIPTION", *_paragraphs([one for one in command.help if one not in status])]
    for heading, entries in (("COMMANDS", command.commands), ("ARGUMENTS", command.arguments)):
        lines += _entries(heading, entries)
    lines += _entries("OPTIONS", command.options)
    if status:
        lines += [".SH EXIT STATUS", *_paragraphs([one.removeprefix("Exit status:").strip() for one in status])]
    if command.examples:
        lines += [".SH EXAMPLES", ".nf", *(text(one) for one in command.examples), ".fi"]
    above = title(command.name.rpartition(" ")[0])
    others = [above] if above else [title(one.name) for one in command.commands]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {text(one)} ({SECTION})" for one in others).replace("),", ") ,")]
    return "\n".join(lines) + "\n"


def title(name: str) -> str:
    """The page's name: pktswarm-lab-up."""
    return name.replace(" ", "-")


def _entries(heading: str, entries: tuple[Entry, ...]) -> list[str]:
    lines = [f".SH {heading}"] if entries else []
    for entry in entries:
        lines += [".TP", f".B {text(entry.name)}", text(entry.text) or "\\&"]
    return lines


def _paragraphs(texts: list[str]) -> list[str]:
    return [line for one in texts for line in (".PP", text(one))]


def text(words: str) -> str:
    """A text in roff: hyphens are \\-, a line must not begin with a dot or quote, non-ASCII letters are \\[uXXXX]."""
    escaped = re.sub(r"\s+", " ", words).strip().replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped
