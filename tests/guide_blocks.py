"""The shell blocks of the guides (docs/*.md), in the order of the pages, and why a block is not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = ("getting-started", "calibrate", "search", "rfc2544")
"""Pages with labs of their own; the pages between use the lab that is up."""
LAST = ("y1564", "tables", "your-upf", "upf")
UPF = {"dependence", "interactive", "preview", "report", *LAST}
"""Pages whose blocks tests/lab/test_guides_upf.py runs, beside test_guides.py for the others."""
SHELL = {"sh", "bash", "console"}
BLOCK = re.compile(r"(?ms)^(?:<!-- (not run): ([^\n]*?) -->\n)?```(\w*)\n(.*?)^```[ \t]*$")
INDENTED = re.compile(r"(?m)^(?: {4,}.*\n)+")
COMMAND = re.compile(r"(?m)^ *(?:\$ )?(?:sudo )?(?:(?:\.venv/bin/)?pktswarm [a-z]|\./bootstrap\b|curl |tshark |apt )")


@dataclass(frozen=True)
class Block:
    """`reason` is that of `<!-- not run: reason -->` in the line above; None if the block is run."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name in the second line (`# NAME`) of a block that is a script."""
        name = re.match(r"#!.*\n# ([\w.-]+)\n", self.text)
        return name[1] if name else None


def pages() -> list[Path]:
    named = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
    middle = [stem for stem in named if stem not in (*FIRST, *LAST)]
    return [named[stem] for stem in (*FIRST, *middle, *LAST)]


def fenced(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page.stem, text.count("\n", 0, match.start(3)) + 1, match[3], match[4], match[2] if match[1] else None)
        for match in BLOCK.finditer(text)
    ]


def shell_blocks() -> list[Block]:
    return [block for page in pages() for block in fenced(page) if block.language in SHELL]


def unmarked_commands(page: Path) -> list[str]:
    """Lines that call a command in a block that is not marked as shell, fenced or indented."""
    texts = [block.text for block in fenced(page) if block.language not in SHELL]
    texts += INDENTED.findall(BLOCK.sub("", page.read_text()))
    return [line for text in texts for line in text.splitlines() if COMMAND.match(line)]
