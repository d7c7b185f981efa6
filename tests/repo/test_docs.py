"""The documentation: the site builds and loads nothing from the web, links exist, quoted commands are real ones."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pymdownx.slugs import slugify  # type: ignore[import-untyped] # it has no type stubs

import guide_blocks
from pktswarm.master.cli.app import app

PAGES = [Path(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "kernel/README.md")]
PAGES += [Path(name) for name in ("configs/README.md", "configs/traces/README.md", "results/README.md")]
PAGES += sorted(Path("docs").rglob("*.md"))
GENERATED = {"docs/cli.md", "docs/scenario-keys.md", "docs/schemas.md"}
"""Pages that exist in the site only: docs/hooks.py makes them."""
FENCED = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^\1```[ \t]*$")
COMMAND = re.compile(r"(?:\$ )?(?:sudo )?(?:\.venv/bin/)?pktswarm (?=[a-z-])(.*)")
INLINE = re.compile(r"`(?:sudo )?(?:\.venv/bin/)?pktswarm ([a-z-][^`\n]*)`")
PLACEHOLDER = re.compile(r"[…|\[\]]")
LOADING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src")}
LOADING |= {("embed", "src"), ("object", "data"), ("img", "srcset"), ("source", "srcset"), ("input", "src")}
LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "prefetch", "modulepreload", "manifest", "dns-prefetch"}
UNUSED = {"https://unpkg.com/mermaid@11/dist/mermaid.min.js", "https://unpkg.com/resize-observer-polyfill"}
UNUSED |= {"https://api.github.com/repos/", "https://api.github.com/users/"}
"""URLs in the theme's script that it requests only for diagrams, for browsers before 2020, and for a `repo_url`."""


# ---- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Resources(HTMLParser):
    """URLs that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.urls += [value for key, value in values.items() if (tag, key) in LOADING]
        if tag == "link" and LOADING_LINKS & set(values.get("rel", "").split()):
            self.urls.append(values["href"])
        self.urls += re.findall(r"url\(([^)]*)\)", values.get("style", ""))


def is_remote(url: str) -> bool:
    return bool(re.match(r"[\"']?\s*(?:https?:)?//", url))


def test_no_page_loads_anything_from_the_web(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        resources = Resources()
        resources.feed(text)
        assert len(resources.urls) > 3
        assert not [url for url in resources.urls if is_remote(url)], page.name
        assert 'class="mermaid"' not in text, f"{page.name}: the theme loads a library from the web for diagrams"
        for style in re.findall(r"(?s)<style[^>]*>(.*?)</style>", text):
            assert not re.search(r"@import|url\([\"']?(?:https?:)?//", style), page.name


def test_no_stylesheet_or_script_loads_anything_from_the_web(site: Path) -> None:
    assert "repo_url" not in yaml.load(Path("mkdocs.yml").read_text(), _Lenient)  # noqa: S506 # a SafeLoader
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(?:https?:)?//", style.read_text()), style.name
    scripts = [path for path in site.rglob("*.js") if "lunr" not in path.parts]
    assert scripts
    for script in scripts:
        urls = set(re.findall(r"[\"'`](https?://[\w.-]+/[^\"'`$\s]*)", script.read_text()))
        assert {url for url in urls if "www.w3.org" not in url} <= UNUSED, script.name


class _Lenient(yaml.SafeLoader):
    """A loader that reads `!!python/…` as nothing."""


_Lenient.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def test_every_command_and_every_section_of_scenarios_is_in_the_reference(site: Path) -> None:
    page = (site / "cli.html").read_text()
    for name, command in commands():
        assert f'id="{slug(name)}"' in page, name
        assert all(one in page for option in command.params for one in option.opts if one.startswith("--")), name
    assert {"stream", "trace", "expect", "upf"} <= set(
        re.findall(r'<h2 id="(\w+)"', (site / "scenario-keys.html").read_text())
    )


# ---- links


def slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return str(slugify(case="lower")(text, "-"))


def headings(page: Path) -> set[str]:
    return {slug(one) for one in re.findall(r"(?m)^#+ (.+)$", FENCED.sub("", page.read_text()))}


def links(page: Path) -> list[tuple[str, str]]:
    """Target and anchor of each relative link outside of code."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))
    found = re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)", text)
    return [(target, anchor) for target, anchor in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in links(page):
        file = Path(os.path.normpath(page.parent / target)) if target else page
        if str(file) in GENERATED:
            continue
        assert file.exists(), f"{page}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in headings(file), f"{page}: {target}#{anchor}"


def test_every_page_that_a_text_names_exists() -> None:
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    named = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md")
    for name in files:
        path = Path(name)
        if path.suffix in {".py", ".md", ".yml", ".yaml", ".json", ".sh", ".j2", ".c", ".h", ""} and path.is_file():
            for page in named.findall(path.read_text(errors="replace")):
                assert Path(page).is_file() or page in GENERATED, f"{name}: {page}"


def test_every_path_that_contributing_names_exists() -> None:
    text = Path("CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"(?<![\w/.*…])((?:[a-z]\w*|\.[a-z]+)/[\w/.-]*\w)(?=[`\s,:)])", text)) - {"results/"}
    missing = [path for path in paths if not path.startswith((".venv/", "and/", "g.")) and not Path(path).exists()]
    assert len(paths) > 20 and not missing


# ---- commands


def commands() -> Iterator[tuple[str, Any]]:
    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for word, inner in getattr(command, "commands", {}).items():
            yield from below(f"{name} {word}", inner)

    return below("pktswarm", typer.main.get_command(app))


def quoted(page: Path) -> list[str]:
    """Each line of a code block, fenced or indented, that calls pktswarm, without its comment."""
    text = page.read_text()
    blocks = [block for _, _, block in FENCED.findall(text)]
    blocks += re.findall(r"(?m)^(?: {4,}.*\n)+", FENCED.sub("", text))
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    calls = [match[1] for line in lines if (match := COMMAND.fullmatch(line.removeprefix("# ")))]
    return [re.sub(r"\s+# .*", "", call) for call in calls]


def parsed(words: list[str]) -> None:
    """Raise unless the command line takes these words; nothing is run."""
    command: Any = typer.main.get_command(app)
    name = "pktswarm"
    while hasattr(command, "commands"):
        assert words and words[0] in command.commands, f"no command {words[:1]} of {name}"
        name, command, words = f"{name} {words[0]}", command.commands[words[0]], words[1:]
    command.make_context(name, list(words))


def missing_files(words: list[str]) -> list[str]:
    """Files of the repository that a command names and that do not exist; placeholders and the user's own left out."""
    own = re.compile(r"hosts/(?:lab-[\w-]+|mine|boards|my-[\w-]+)\.yml|configs/(?:FILE|my[\w-]*\.yaml)")
    named = [word for word in words if word.startswith(("configs/", "hosts/")) and not own.fullmatch(word)]
    return [word for word in named if not Path(word).is_file()]


def test_calls_are_found() -> None:
    counts = {str(page): len(quoted(page)) for page in PAGES}
    assert counts["README.md"] == 4 and counts["docs/getting-started.md"] > 20 and sum(counts.values()) > 80


@pytest.mark.parametrize("page", [page for page in PAGES if quoted(page)], ids=str)
def test_every_quoted_call_is_one_that_the_command_line_takes(page: Path) -> None:
    for call in quoted(page):
        call = re.sub(r'"\$\([^)]*\)"', "results/FOLDER", call)
        words = shlex.split(re.split(r" (?:[>|] |&$)", call)[0])
        if not PLACEHOLDER.search(call):
            try:
                parsed(words)
            except Exception as error:
                pytest.fail(f"{page}: pktswarm {call}: {type(error).__name__}: {error}")
        assert not missing_files(words), f"{page}: pktswarm {call}: {missing_files(words)}"


def test_every_example_of_a_help_text_is_one_that_the_command_line_takes() -> None:
    count = 0
    for name, command in commands():
        for example in re.findall(r"pktswarm (.+?)(?= ·| pktswarm |$)", re.sub(r"\s+", " ", command.epilog or "")):
            words = shlex.split(example.split(" > ")[0])
            parsed(words)
            assert not missing_files(words), f"{name}: {example}"
            count += 1
    assert count > 20


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_and_option_in_a_sentence_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # of older versions
    known = dict(commands())
    for call in INLINE.findall(FENCED.sub("", page.read_text())):
        words = re.split(r"[\s=\[\]]+", call)
        depth = max(n for n in range(len(words) + 1) if " ".join(["pktswarm", *words[:n]]) in known)
        name = " ".join(["pktswarm", *words[:depth]])
        options = {
            one
            for part in known
            if part.startswith(name)
            for p in known[part].params
            for one in (*p.opts, *p.secondary_opts)
        }
        assert depth or words[0].startswith("--"), f"{page}: pktswarm {call}"
        before_command = words[: words.index("--")] if "--" in words else words
        used = {word for word in before_command if re.fullmatch(r"--[a-z0-9-]+", word)}
        assert used <= options | {"--help"}, f"{page}: pktswarm {call}: {used - options}"


@pytest.mark.parametrize("page", guide_blocks.pages(), ids=lambda page: page.name)
def test_every_command_of_a_guide_is_in_a_block_that_a_test_runs(page: Path) -> None:
    """tests/lab/test_guides.py runs the blocks marked as `sh`, `bash` or `console`."""
    assert not guide_blocks.unmarked_commands(page)


def test_a_block_that_is_not_run_has_a_reason() -> None:
    blocks = guide_blocks.shell_blocks()
    reasons = [block.reason for block in blocks if block.reason is not None]
    assert len(blocks) > 35 and all(reasons) and len(reasons) < 0.4 * len(blocks)


def test_the_scenario_in_the_readme_is_the_one_that_ships() -> None:
    (block,) = [block for _, language, block in FENCED.findall(Path("README.md").read_text()) if language == "yaml"]
    assert yaml.safe_load(block) == yaml.safe_load(Path("configs/first.yaml").read_text())


def test_the_readme_fits_on_a_screen_and_a_half() -> None:
    assert len(Path("README.md").read_text().splitlines()) <= 75
    assert Path("docs/images/report.png").stat().st_size <= 250_000
