"""MkDocs hook: reference pages made from the program itself, and pages of other folders as pages of the site.

Made anew at each build: `cli.md` from the command line's own help, `scenario-keys.md` and `schemas.md` from the JSON
Schemas. A link to a file beside docs/ becomes a link to its page (PAGES), or to a copy below `files/`.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

os.environ.setdefault("TYPER_USE_RICH", "0")  # before typer is imported: help in plain text

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pktswarm.master.cli.app import app
from pktswarm.master.cli.reference import commands

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "results/README.md": "results.md",
    "configs/README.md": "configs.md",
    "configs/traces/README.md": "traces-shipped.md",
    "kernel/README.md": "kernel.md",
    "bench/README.md": "benchmarks.md",
    "bench/SURVIVORS.md": "survivors.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
"""Repository path → page of the site."""
SCHEMAS = "configs/*.schema.json"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
MENTION = re.compile(r"(?<![\w/.\[`])(?<!\]\()docs/([a-z0-9-]+\.md)(?![\w\]`])")
CODE = re.compile(r"^(?:```|~~~)[^\n]*\n.*?^(?:```|~~~)[ \t]*$|`[^`\n]+`", re.M | re.S)

_repository_path: dict[str, str] = {}
"""Page of the site → its repository path, of the pages that do not stand in docs/."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the pages of other folders, and copies of the files that pages link to."""
    _repository_path.clear()
    for source, page in PAGES.items():
        if page != "index.md":
            _repository_path[page] = source
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, content in {"cli.md": cli(), "scenario-keys.md": scenario_keys(), "schemas.md": schemas()}.items():
        files.append(File.generated(config, page, content=content))
    for source in sorted(linked_files(files)):
        files.append(File.generated(config, f"files/{source}", abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository at their place in the site; separate lists and tables from text."""
    here = page.file.src_uri
    parts, position = [], 0
    for block in CODE.finditer(markdown):
        parts += [_with_site_links(markdown[position : block.start()], here), block.group()]
        position = block.end()
    parts.append(_with_site_links(markdown[position:], here))
    return spaced("".join(parts))


def _with_site_links(text: str, here: str) -> str:
    def link(match: re.Match[str]) -> str:
        head, target, anchor = match[1], match[2], match[3] or ""
        repository = repository_target(here, target)
        if head in (f"[{target}](", f"[{repository}]("):
            head = f"[{_title(repository)}]("
        return f"{head}{_site_target(here, target)}{anchor})"

    def mention(match: re.Match[str]) -> str:
        target = posixpath.relpath(match[1], posixpath.dirname(here) or ".")
        return f"[{_title(f'docs/{match[1]}')}]({target})"

    return LINK.sub(link, MENTION.sub(mention, text))


def _title(repository: str) -> str:
    """Heading of a page, which replaces its file name as the text of a link; the file name if there is no heading."""
    path = ROOT / repository
    found = re.match(r"# (.+)", path.read_text()) if path.suffix == ".md" and path.is_file() else None
    return found[1] if found else posixpath.basename(repository)


def _site_target(here: str, target: str) -> str:
    """`target`, as a page at `here` must write it to reach the same file within the site."""
    if re.match(r"[a-z]+:|/", target):
        return target
    repository = repository_target(here, target)
    if repository.startswith("docs/"):
        place = repository.removeprefix("docs/")
    elif repository in PAGES or f"{repository}/README.md" in PAGES:
        place = PAGES.get(repository) or PAGES[f"{repository}/README.md"]
    elif (ROOT / repository).is_file():
        place = f"files/{repository}"
    else:
        return target
    return posixpath.relpath(place, posixpath.dirname(here) or ".")


def repository_target(here: str, target: str) -> str:
    """Repository path of what a page of the site links to."""
    source = _repository_path.get(here, f"docs/{here}")
    if source == f"docs/{here}" and (ROOT / "docs" / posixpath.dirname(here) / target).is_file():
        return posixpath.normpath(posixpath.join("docs", posixpath.dirname(here), target))
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def linked_files(files: Files) -> set[str]:
    """Repository paths of the files that pages link to and that are neither pages nor below docs/."""
    linked = {str(path.relative_to(ROOT)) for path in ROOT.glob(SCHEMAS)}
    for file in files.documentation_pages():
        for match in LINK.finditer(CODE.sub("", file.content_string)):
            if re.match(r"[a-z]+:|/", match[2]):
                continue
            path = repository_target(file.src_uri, match[2])
            if not path.startswith(("docs/", "..")) and path not in PAGES and (ROOT / path).is_file():
                linked.add(path)
    return linked


def spaced(markdown: str) -> str:
    """Put an empty line before a list or table that follows a paragraph: Python-Markdown needs it, GitHub does not."""
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        before = lines[-1] if lines else ""
        starts = _block(line)
        if not fenced and starts and before.strip() and _block(before) != starts and not before.startswith((" ", "#")):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _block(line: str) -> str:
    """Kind of block that a line begins or continues: table, list, or neither."""
    if line.startswith("|"):
        return "table"
    return "list" if re.match(r"(?:[-*]|\d+\.) ", line) else ""


def cli() -> str:
    """Reference of the command line, from the help of each command."""
    lines = ["# Command line", "", "Made from the help of each command: `pktswarm COMMAND --help` prints the same, and"]
    lines += ["`pktswarm man` writes it as man pages.", ""]
    for command in commands(typer.main.get_command(app)):
        lines += [f"## {command.name}", "", plain(" ".join(command.help)), ""]
        lines += ["```text", f"{command.name} {command.usage}", "```", ""]
        entries = [*command.arguments, *command.options]
        if entries:
            lines += ["| argument or option | meaning |", "| --- | --- |"]
            lines += [f"| `{cell(one.name)}` | {cell(plain(one.text))} |" for one in entries]
        if command.examples:
            lines += ["", "```sh", *command.examples, "```"]
        lines.append("")
    return "\n".join(lines)


def plain(text: str) -> str:
    """A help text as Markdown: what looks like a placeholder stays text."""
    return re.sub(r"\s+", " ", text.replace("\b", "")).replace("<", "&lt;").replace("*", r"\*").strip()


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return text.replace("|", r"\|").replace("\n", " ")


def scenario_keys() -> str:
    """Reference of a scenario's keys, from its JSON Schema."""
    schema = json.loads((ROOT / "configs/scenario.schema.json").read_text())
    lines = ["# Scenario keys", "", "Made from the JSON Schema of scenarios ([schemas](schemas.md)). Unknown keys are"]
    lines += ["errors. The [user guide](guide.md#scenarios) explains the sections.", "", "## Scenario", ""]
    waiting, done = [("Scenario", {key: value for key, value in schema.items() if key != "$defs"})], set()
    while waiting:
        name, section = waiting.pop(0)
        if name != "Scenario":
            lines += [f"## {name}", "", plain(section.get("description", "")), ""]
        lines += _keys(section)
        for inner in re.findall(r"#/\$defs/(\w+)", json.dumps(section)):
            if inner not in done:
                done.add(inner)
                waiting.append((inner, schema["$defs"][inner]))
    return "\n".join(lines)


def _keys(section: dict[str, Any]) -> list[str]:
    if "properties" not in section:
        return [kind(section), ""]
    lines = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, value in section["properties"].items():
        required = key in section.get("required", [])
        default = "required" if required else f"`{json.dumps(value['default'])}`" if value.get("default") else ""
        meaning = plain(value.get("description", ""))
        lines.append(f"| `{key}` | {cell(kind(value))} | {cell(default)} | {cell(meaning)} |")
    return [*lines, ""]


def kind(value: dict[str, Any]) -> str:
    """What a value of the schema may be, in words, with its limits."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            return " or ".join(dict.fromkeys(kind(one) for one in value[key] if one.get("type") != "null"))
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        inner = value.get("items") or {}
        return f"list of {kind(inner)}" if inner else "list"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"mapping to {kind(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return f"{value.get('type', 'any')}{_limits(value)}"


def _limits(value: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {value[key]}" for key, sign in words.items() if key in value]
    return f" {', '.join(limits)}".replace("<", "&lt;") if limits else ""


def schemas() -> str:
    """The page of the JSON Schemas that ship."""
    lines = ["# JSON Schemas", "", "`pktswarm schema` writes the JSON Schema of scenarios to standard output.", ""]
    lines += ["| schema | title |", "| --- | --- |"]
    for path in sorted(ROOT.glob(SCHEMAS)):
        title = json.loads(path.read_text()).get("title", "")
        lines.append(f"| [{path.name}](files/{path.relative_to(ROOT)}) | {title} |")
    lines += ["", "For an editor with the YAML language server, write this in the first line of a scenario:", ""]
    lines += ["```yaml", "# yaml-language-server: $schema=scenario.schema.json", "```", ""]
    return "\n".join(lines)
